//! Where the threads of a session are.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pelago_fuse::attr::{Attr, FileType, Timestamp};
use pelago_fuse::operation::Open;
use pelago_fuse::reply::{Attributes, Entry, Opened};
use pelago_fuse::request::FileId;
use pelago_fuse::{Errno, Filesystem, Header, Reply, Session, SessionOptions};
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::{attach, until, wishes};

/// Finds nothing, and notes which threads looked.
#[derive(Default)]
struct Nothing(Mutex<HashSet<Pid>>);

impl Filesystem for Nothing {
    fn lookup(&self, _header: &Header, _name: &OsStr, reply: Reply<Entry>) {
        self.0.lock().unwrap().insert(gettid());
        reply.error(Errno::NOENT);
    }

    fn get_attr(&self, _header: &Header, _file: Option<FileId>, reply: Reply<Attributes>) {
        let time = Timestamp { seconds: 1, nanos: 0 };
        let attr = Attr {
            ino: 1,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            file_type: FileType::Directory,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_bytes: 4096,
        };
        reply.ok(&Attributes { ttl: Duration::from_secs(3600), attr });
    }

    fn opendir(&self, _header: &Header, _flags: i32, reply: Reply<Opened>) {
        reply.error(Errno::NOSYS);
    }

    fn open(&self, _header: &Header, _asked: Open, reply: Reply<Opened>) {
        reply.error(Errno::NOSYS);
    }
}

impl Nothing {
    /// Whether every thread that looked may be here, and nowhere else.
    fn is_on(&self, allowed: &CpuSet) -> bool {
        let threads = self.0.lock().unwrap();
        let here = |thread: &Pid| sched_getaffinity(Some(*thread)).unwrap() == *allowed;
        !threads.is_empty() && threads.iter().all(here)
    }
}

/// They come to the processor of a program that asks alone, follow it to another, and are free
/// where two programs ask in turns.
#[test]
fn threads_follow_the_one_who_asks() {
    let allowed = sched_getaffinity(None).unwrap();
    let processors: Vec<usize> =
        (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).take(2).collect();
    let &[first, second] = processors.as_slice() else {
        return println!("skipped: not here: one processor only");
    };
    let folder = tempfile::tempdir().unwrap();
    let device = match attach(&folder) {
        Ok(device) => device,
        Err(error) => {
            return println!("skipped: not here: needs root and /dev/fuse ({error})");
        }
    };
    let options = SessionOptions { threads: 2, clone_device: true, wishes: wishes() };
    let session = Session::start(device, options).unwrap();
    let nothing = Arc::new(Nothing::default());
    let filesystem = Arc::clone(&nothing);
    let serving = thread::Builder::new().name("session".to_owned());
    let serving = serving.spawn(move || session.run(filesystem)).unwrap();
    let asked = folder.path().join("absent");

    thread::scope(|scope| {
        scope.spawn(|| {
            for processor in [first, second] {
                let mut here = CpuSet::new();
                here.set(processor);
                sched_setaffinity(None, &here).unwrap();
                until(|| {
                    ask(&asked);
                    nothing.is_on(&here)
                });
            }
        });
    });
    ask_in_turns(&asked, &nothing, &allowed);

    unmount(folder.path(), UnmountFlags::DETACH).unwrap();
    serving.join().unwrap().unwrap();
}

fn ask(path: &Path) {
    assert!(!path.exists());
}

/// Until the threads may be anywhere.
fn ask_in_turns(asked: &Path, nothing: &Nothing, anywhere: &CpuSet) {
    let (your_turn, turns) = channel();
    let (my_turn, answers) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for () in turns {
                ask(asked);
                my_turn.send(()).unwrap();
            }
        });
        until(|| {
            your_turn.send(()).unwrap();
            answers.recv().unwrap();
            ask(asked);
            nothing.is_on(anywhere)
        });
        // The other one's turns end with this.
        drop(your_turn);
    });
}
