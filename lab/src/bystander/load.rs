//! Loads that one user puts on a file system, in a folder of its own.
//!
//! Errors do not end a load, because another file system may lack an operation. The last line is
//! the number of requests that got `EAGAIN`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;

use crate::kit::load::{Load, Worker};

/// A kind of load.
pub(super) struct LoadKind {
    /// The name on the command line.
    pub(super) name: &'static str,
    /// Creates the files of the load, then prints `ready` and works until the time is over.
    run: fn(&mut Run) -> Result<(), String>,
}

/// All loads.
pub(super) const ALL: &[LoadKind] = &[
    LoadKind { name: "fsyncs", run: fsyncs },
    LoadKind { name: "writes", run: writes },
    LoadKind { name: "renames", run: renames },
    LoadKind { name: "xattrs", run: xattrs },
    LoadKind { name: "listings", run: listings },
    LoadKind { name: "opens", run: opens },
    LoadKind { name: "links", run: links },
    LoadKind { name: "symlinks", run: symlinks },
    LoadKind { name: "space", run: space },
];

/// Threads: more than the background requests that the kernel sends at the same time.
const THREADS: u64 = 1400;
/// Depth of the directory tree.
const DEEP: u64 = 150_000;
/// Extended attributes of one file, and bytes of each.
const XATTRS: u64 = 2200;
const XATTR_BYTES: usize = 65_536;
/// Names in one directory.
const NAMES: u64 = 1_000_000;
/// Most simultaneous opens; fewer if the system's limit is lower.
const OPENS: u64 = 1_000_000;
/// Names of one file.
const LINKS: u64 = 65_000;
/// Length of a chain of symbolic links; the kernel follows 40.
const CHAIN: u64 = 39;
/// Bytes to reserve and to free.
const SPACE: u64 = 64 << 20;
/// Bytes of the stack of a thread: there are many.
const STACK: usize = 128 << 10;

/// A load that runs.
struct Run {
    folder: PathBuf,
    /// Divides every size.
    divisor: u64,
    /// Duration of the load after `ready`.
    duration: Duration,
    load: Load,
}

/// Runs the load of this name in a folder for this number of seconds after it has printed `ready`,
/// and prints the number of requests that got `EAGAIN`.
pub(super) fn run(name: &str, folder: &Path, divisor: u64, seconds: f64) -> Result<(), String> {
    let kind = ALL.iter().find(|kind| kind.name == name);
    let kind = kind.ok_or_else(|| format!("no load `{name}`"))?;
    let mut run = Run {
        folder: folder.to_owned(),
        divisor,
        duration: Duration::from_secs_f64(seconds),
        load: Load::new(0, Duration::ZERO).with_stacks(STACK),
    };
    (kind.run)(&mut run)?;
    println!("again {}", run.load.failures().again);
    Ok(())
}

impl Run {
    /// Prints `ready`, then repeats `work` on this number of threads until the time is over. `work`
    /// gets the number of its thread.
    fn go(
        &mut self,
        work: impl Fn(&Worker, u64) + Clone + Send + 'static,
        threads: u64,
    ) -> Result<(), String> {
        println!("ready");
        drop(io::stdout().flush());
        for number in 0..threads {
            let work = work.clone();
            let go_on = move |worker: &mut Worker| {
                while worker.goes_on() {
                    work(worker, number);
                }
                Ok(())
            };
            if let Err(why) = self.load.start("load", &self.folder, go_on) {
                println!("a thread fewer: {why}");
            }
        }
        self.load.finish(self.duration).map(drop)
    }

    fn count(&self, of: u64) -> u64 {
        (of / self.divisor).max(1)
    }

    /// Returns the value of an operation that prepares the load, and counts `EAGAIN`.
    fn did<T, E: Into<io::Error>>(&self, done: Result<T, E>) -> Option<T> {
        self.load.value_of(done)
    }

    fn file(&self, name: &str) -> Option<File> {
        self.did(open(&self.folder, name))
    }
}

/// Opens a file of the load for reading and writing; makes it if it is missing.
fn open(folder: &Path, name: &str) -> io::Result<File> {
    let path = folder.join(name);
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

fn fsyncs(run: &mut Run) -> Result<(), String> {
    let work = |worker: &Worker, number: u64| {
        let Some(file) = worker.value_of(open(&worker.folder, &format!("f{number}"))) else {
            return;
        };
        worker.value_of(file.write_all_at(&[7; 8192], 0));
        worker.value_of(file.sync_all());
    };
    run.go(work, run.count(THREADS))
}

fn writes(run: &mut Run) -> Result<(), String> {
    let bytes = Arc::new(vec![7; 1 << 20]);
    let work = move |worker: &Worker, number: u64| {
        let Some(file) = worker.value_of(open(&worker.folder, &format!("w{number}"))) else {
            return;
        };
        worker.value_of(file.write_all_at(&bytes, 0));
    };
    run.go(work, run.count(THREADS))
}

/// The kernel limits the length of a path, so the tree is built one working directory at a time.
fn renames(run: &mut Run) -> Result<(), String> {
    let down = |name: &str| {
        run.did(fs::create_dir(name));
        std::env::set_current_dir(name)
    };
    let Some(()) = run.did(std::env::set_current_dir(&run.folder)) else { return Ok(()) };
    for _ in 0..run.count(DEEP) {
        if down("d").is_err() {
            break;
        }
    }
    run.did(fs::create_dir_all("one/moves/below"));
    run.did(fs::create_dir("other"));
    let work = |worker: &Worker, _| {
        worker.value_of(fs::rename("one", "renamed"));
        worker.value_of(fs::rename("renamed", "one"));
        worker.value_of(fs::rename("one/moves", "other/moves"));
        worker.value_of(fs::rename("other/moves", "one/moves"));
    };
    run.go(work, 1)
}

fn xattrs(run: &mut Run) -> Result<(), String> {
    let Some(file) = run.file("x") else { return Ok(()) };
    let file = Arc::new(file);
    let value = Arc::new(vec![7; XATTR_BYTES]);
    let set = |file: &File, value: &[u8], number: u64| {
        let name = format!("user.{number:05}");
        fsetxattr(file, name, value, XattrFlags::empty())
    };
    for number in 0..run.count(XATTRS) {
        let is_unknown = |done| done == Err(Errno::OPNOTSUPP) || done == Err(Errno::NOSYS);
        if is_unknown(set(&file, &value, number)) {
            break;
        }
    }
    let work = move |worker: &Worker, number| {
        worker.value_of(set(&file, &value, number));
        let mut names = vec![0; 65_536];
        worker.value_of(flistxattr(&file, &mut names));
        worker.value_of(fgetxattr(&file, "user.00000", &mut names));
    };
    run.go(work, 4)
}

fn listings(run: &mut Run) -> Result<(), String> {
    for number in 0..run.count(NAMES) {
        if run.file(&format!("a name of some length {number}")).is_none() {
            break;
        }
    }
    let work = |worker: &Worker, _| {
        if let Some(names) = worker.value_of(fs::read_dir(&worker.folder)) {
            names.take(100_000).flatten().for_each(drop);
        }
    };
    run.go(work, 4)
}

fn opens(run: &mut Run) -> Result<(), String> {
    let mut held = Vec::new();
    while (held.len() as u64) < run.count(OPENS) {
        // Until the limit of descriptors is reached.
        let Some(file) = run.file(&format!("o{}", held.len() % 1000)) else { break };
        held.push(file);
    }
    let work = |worker: &Worker, number: u64| {
        worker.value_of(open(&worker.folder, &format!("o{number}")));
    };
    run.go(work, 4)
}

fn links(run: &mut Run) -> Result<(), String> {
    let Some(_) = run.file("l") else { return Ok(()) };
    let at = |folder: &Path, number: u64| folder.join(format!("link{number}"));
    for number in 0..run.count(LINKS) {
        let name = at(&run.folder, number);
        if run.did(fs::hard_link(run.folder.join("l"), name)).is_none() {
            break;
        }
    }
    let work = move |worker: &Worker, number| {
        let name = at(&worker.folder, number);
        worker.value_of(fs::remove_file(&name));
        worker.value_of(fs::hard_link(worker.folder.join("l"), name));
    };
    run.go(work, 4)
}

fn symlinks(run: &mut Run) -> Result<(), String> {
    let at = |folder: &Path, number: u64| folder.join(format!("s{number}"));
    run.did(File::create(at(&run.folder, 0)));
    for number in 0..CHAIN {
        run.did(symlink(format!("s{number}"), at(&run.folder, number + 1)));
    }
    let work = move |worker: &Worker, number: u64| {
        worker.value_of(fs::metadata(at(&worker.folder, CHAIN)));
        let own = worker.folder.join(format!("own{number}"));
        worker.value_of(symlink("s0", &own));
        worker.value_of(fs::read_link(&own));
        worker.value_of(fs::remove_file(&own));
    };
    run.go(work, 4)
}

fn space(run: &mut Run) -> Result<(), String> {
    let bytes = run.count(SPACE);
    let work = move |worker: &Worker, number: u64| {
        let Some(file) = worker.value_of(open(&worker.folder, &format!("r{number}"))) else {
            return;
        };
        worker.value_of(fallocate(&file, FallocateFlags::empty(), 0, bytes));
        worker.value_of(file.set_len(1));
        worker.value_of(file.set_len(bytes));
        worker.value_of(file.set_len(0));
    };
    run.go(work, 4)
}
