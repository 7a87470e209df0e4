//! Callers that wait long beside those that do not, and requests that are answered once.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pelago_fuse::Errno;
use rustix::fs::{FlockOperation, XattrFlags, flock, getxattr, setxattr};
use rustix::thread::{Pid, gettid};

use crate::callers::{caller, handle, interrupt, on_one_processor, raise_open_files};
use crate::connection::Connection;
use crate::locks::locking;
use crate::{Mounted, until};

/// Callers of each kind that wait.
const SYNCS: usize = 1400;
const WAITERS: usize = 200;

/// More requests wait than a ring has slots at first, and than come between two of its rounds.
#[test]
fn callers_that_wait_hold_up_no_others_on_their_processor() {
    let Some(mut mounted) = locking() else { return };
    let Some(connection) = Connection::of(mounted.folder.path()) else { return };
    raise_open_files();
    let _patience = connection.with_patience();
    mounted.tree.put("other", b"");
    for number in 0..SYNCS {
        mounted.tree.put(&format!("sync-{number}"), b"");
    }
    mounted.tree.held.hold_syncs();
    on_one_processor(|| {
        thread::scope(|scope| {
            let contended = open(&mounted, "file");
            let other = open(&mounted, "other");
            for file in [&contended, &other] {
                flock(file, FlockOperation::LockExclusive).unwrap();
            }
            let syncs = (0..SYNCS).map(|number| mounted.path(&format!("sync-{number}")));
            let syncs = syncs.map(|path| caller(scope, move || File::open(path)?.sync_all()));
            let waiter = || {
                caller(scope, || Ok(flock(open(&mounted, "file"), FlockOperation::LockExclusive)?))
            };
            let callers: Vec<_> = syncs.chain((0..WAITERS).map(|_| waiter())).collect();
            mounted.tree.held.wait_for_syncs(SYNCS);
            mounted.tree.locks.when(|locks| (locks.count_waiting() == WAITERS).then_some(()));

            flock(&other, FlockOperation::Unlock).unwrap();
            File::create_new(mounted.path("new")).unwrap();
            assert_eq!(fs::metadata(mounted.path("new")).unwrap().len(), 0);
            let absent = fs::metadata(mounted.path("absent")).unwrap_err();
            assert_eq!(absent.kind(), ErrorKind::NotFound);

            mounted.tree.held.take_syncs().into_iter().for_each(|reply| reply.ok(&()));
            flock(&contended, FlockOperation::Unlock).unwrap();
            for caller in callers {
                let answered: io::Result<()> = caller.join().unwrap();
                answered.unwrap();
            }
        })
    });
    mounted.end().unwrap();
}

/// Opens a file to read and write.
pub(crate) fn open(mounted: &Mounted, name: &str) -> File {
    File::options().read(true).write(true).open(mounted.path(name)).unwrap()
}

/// Callers under signals, and how often each calls.
const CALLERS: usize = 6;
const ROUNDS: usize = 1000;
const SIGNAL: libc::c_int = libc::SIGUSR1;

/// What callers got replies to.
#[derive(Default)]
struct Answered {
    lookups: AtomicU64,
    syncs: AtomicU64,
    writes: AtomicU64,
    xattrs: AtomicU64,
    locks: AtomicU64,
    /// Waits for a lock that a signal ended.
    interrupted: AtomicU64,
}

#[test]
fn signals_lose_no_reply_and_repeat_no_request() {
    let Some(mut mounted) = locking() else { return };
    let Some(connection) = Connection::of(mounted.folder.path()) else { return };
    let patience = Connection::of(mounted.folder.path()).map(Connection::with_patience);
    handle(SIGNAL);
    let answered = Answered::default();
    let has_ended = &AtomicBool::new(false);
    let before = mounted.tree.seen.lookups.load(Ordering::Relaxed);
    for number in 0..CALLERS {
        mounted.tree.put(&format!("file-{number}"), b"");
    }
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let tell = tell.clone();
                let mounted = &mounted;
                let answered = &answered;
                caller(scope, move || {
                    call(mounted, number, answered, || tell.send(gettid()).unwrap());
                })
            })
            .collect();
        let threads: Vec<_> = told.iter().take(CALLERS).collect();
        let signals = scope.spawn(move || signal(&threads, has_ended));
        for _ in 0..CALLERS * ROUNDS {
            let (_, reply) = mounted.tree.held.take();
            reply.error(Errno::NOENT);
        }
        let called: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        has_ended.store(true, Ordering::Relaxed);
        signals.join().unwrap();
        assert!(called.iter().all(Result::is_ok));
    });
    let seen = &mounted.tree.seen;
    let count = |counted: &AtomicU64| counted.load(Ordering::Relaxed);
    // Each caller opened its file and that with the lock.
    let opened = CALLERS as u64 + 1;
    assert_eq!(count(&seen.lookups) - before, count(&answered.lookups) + opened);
    assert_eq!(count(&seen.syncs), count(&answered.syncs));
    assert_eq!(count(&seen.writes), count(&answered.writes));
    assert_eq!(count(&seen.xattrs), count(&answered.xattrs));
    let locked = mounted.tree.locks.when(|locks| Some((locks.set.len() as u64, locks.interrupted)));
    assert_eq!(locked, (count(&answered.locks), count(&answered.interrupted)));
    until(|| connection.waiting() == Some(0));
    println!("{} waits for a lock ended with a signal", locked.1);
    drop((connection, patience));
    mounted.end().unwrap();
}

/// Makes calls of which each is one request, and checks what they return.
fn call(mounted: &Mounted, number: usize, answered: &Answered, ready: impl FnOnce()) {
    let own = open(mounted, &format!("file-{number}"));
    let shared = open(mounted, "file");
    let path = mounted.path(&format!("file-{number}"));
    let count = |counted: &AtomicU64| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    setxattr(&path, "user.number", &[u8::try_from(number).unwrap()], XattrFlags::empty()).unwrap();
    // No signal before: an open that is interrupted looks its name up again.
    ready();
    for round in 0..ROUNDS {
        let held = fs::metadata(mounted.path(&format!("held-{number}-{round}"))).unwrap_err();
        let absent = fs::metadata(mounted.path(&format!("absent-{number}-{round}"))).unwrap_err();
        assert_eq!((held.kind(), absent.kind()), (ErrorKind::NotFound, ErrorKind::NotFound));
        count(&answered.lookups);
        count(&answered.lookups);
        own.sync_all().unwrap();
        count(&answered.syncs);
        assert_eq!(own.write_at(&vec![1; round], 0).unwrap(), round);
        if round > 0 {
            count(&answered.writes);
        }
        let mut value = [0; 8];
        assert_eq!(getxattr(&path, "user.number", &mut value), Ok(1));
        assert_eq!(usize::from(value[0]), number);
        count(&answered.xattrs);
        match flock(&shared, FlockOperation::LockExclusive) {
            Ok(()) => {
                flock(&shared, FlockOperation::Unlock).unwrap();
                count(&answered.locks);
            }
            Err(error) => {
                assert_eq!(error, Errno::INTR);
                count(&answered.interrupted);
            }
        }
        count(&answered.locks);
    }
}

/// Signals threads one after the other.
fn signal(threads: &[Pid], has_ended: &AtomicBool) {
    for thread in threads.iter().cycle() {
        if has_ended.load(Ordering::Relaxed) {
            break;
        }
        interrupt(*thread, SIGNAL);
        thread::sleep(Duration::from_micros(100));
    }
}
