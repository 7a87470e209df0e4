//! Loads that one user puts on a file system, in a folder of its own.
//!
//! Errors do not end a load, because another file system may lack an operation. The last line is
//! the number of requests that got `EAGAIN`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;

/// A load.
pub(crate) struct Load {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Creates its files, then prints `ready` and works until its time is over.
    run: fn(&Run<'_>),
}

/// All loads.
pub(crate) const ALL: &[Load] = &[
    Load { name: "fsyncs", run: fsyncs },
    Load { name: "writes", run: writes },
    Load { name: "renames", run: renames },
    Load { name: "xattrs", run: xattrs },
    Load { name: "listings", run: listings },
    Load { name: "opens", run: opens },
    Load { name: "links", run: links },
    Load { name: "symlinks", run: symlinks },
    Load { name: "space", run: space },
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

struct Run<'a> {
    folder: &'a Path,
    /// Divides every size.
    divisor: u64,
    /// Duration of the load after `ready`.
    seconds: f64,
    again: AtomicU64,
}

/// Runs the load of this name in a folder for so many seconds after it has printed `ready`, and
/// prints how many requests got `EAGAIN`.
pub(crate) fn run(name: &str, folder: &Path, divisor: u64, seconds: f64) -> Result<(), String> {
    let load = ALL.iter().find(|load| load.name == name);
    let load = load.ok_or_else(|| format!("no load `{name}`"))?;
    let run = Run { folder, divisor, seconds, again: AtomicU64::new(0) };
    (load.run)(&run);
    println!("again {}", run.again.load(Ordering::Relaxed));
    Ok(())
}

impl Run<'_> {
    /// Prints `ready`, then repeats `work` on so many threads until the time is over.
    fn go(&self, work: impl Fn(u64) + Sync, threads: u64) {
        println!("ready");
        drop(io::stdout().flush());
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        thread::scope(|scope| {
            for number in 0..threads {
                let work = &work;
                let go_on = move || {
                    while Instant::now() < end {
                        work(number);
                    }
                };
                let thread = thread::Builder::new().stack_size(128 << 10);
                if let Err(error) = thread.spawn_scoped(scope, go_on) {
                    println!("a thread fewer: {error}");
                }
            }
        });
    }

    fn count(&self, of: u64) -> u64 {
        (of / self.divisor).max(1)
    }

    /// Returns the result of an operation, and counts `EAGAIN`.
    fn did<T, E: Into<io::Error>>(&self, done: Result<T, E>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                if error.into().kind() == io::ErrorKind::WouldBlock {
                    self.again.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    fn file(&self, name: &str) -> Option<File> {
        let path = self.folder.join(name);
        self.did(File::options().read(true).write(true).create(true).truncate(false).open(path))
    }
}

fn fsyncs(run: &Run<'_>) {
    let work = |number: u64| {
        let Some(file) = run.file(&format!("f{number}")) else { return };
        run.did(file.write_all_at(&[7; 8192], 0));
        run.did(file.sync_all());
    };
    run.go(work, run.count(THREADS));
}

fn writes(run: &Run<'_>) {
    let bytes = vec![7; 1 << 20];
    let work = |number: u64| {
        let Some(file) = run.file(&format!("w{number}")) else { return };
        run.did(file.write_all_at(&bytes, 0));
    };
    run.go(work, run.count(THREADS));
}

/// The kernel limits the length of a path, so the tree is built one working directory at a time.
fn renames(run: &Run<'_>) {
    let down = |name: &str| {
        run.did(fs::create_dir(name));
        std::env::set_current_dir(name)
    };
    let Some(()) = run.did(std::env::set_current_dir(run.folder)) else { return };
    for _ in 0..run.count(DEEP) {
        if down("d").is_err() {
            break;
        }
    }
    run.did(fs::create_dir_all("one/moves/below"));
    run.did(fs::create_dir("other"));
    let work = |_| {
        run.did(fs::rename("one", "renamed"));
        run.did(fs::rename("renamed", "one"));
        run.did(fs::rename("one/moves", "other/moves"));
        run.did(fs::rename("other/moves", "one/moves"));
    };
    run.go(work, 1);
}

fn xattrs(run: &Run<'_>) {
    let Some(file) = run.file("x") else { return };
    let value = vec![7; XATTR_BYTES];
    let set = |number| {
        let name = format!("user.{number:05}");
        fsetxattr(&file, name, &value, XattrFlags::empty())
    };
    for number in 0..run.count(XATTRS) {
        if set(number) == Err(Errno::OPNOTSUPP) || set(number) == Err(Errno::NOSYS) {
            break;
        }
    }
    let work = |number| {
        run.did(set(number));
        let mut names = vec![0; 65_536];
        run.did(flistxattr(&file, &mut names));
        run.did(fgetxattr(&file, "user.00000", &mut names));
    };
    run.go(work, 4);
}

fn listings(run: &Run<'_>) {
    for number in 0..run.count(NAMES) {
        if run.file(&format!("a name of some length {number}")).is_none() {
            break;
        }
    }
    let work = |_| {
        if let Some(names) = run.did(fs::read_dir(run.folder)) {
            names.take(100_000).flatten().for_each(drop);
        }
    };
    run.go(work, 4);
}

fn opens(run: &Run<'_>) {
    let mut open = Vec::new();
    while (open.len() as u64) < run.count(OPENS) {
        // Until the limit of descriptors is reached.
        let Some(file) = run.file(&format!("o{}", open.len() % 1000)) else { break };
        open.push(file);
    }
    let work = |number| {
        run.file(&format!("o{number}"));
    };
    run.go(work, 4);
}

fn links(run: &Run<'_>) {
    let Some(_) = run.file("l") else { return };
    let at = |number: u64| run.folder.join(format!("link{number}"));
    for number in 0..run.count(LINKS) {
        if run.did(fs::hard_link(run.folder.join("l"), at(number))).is_none() {
            break;
        }
    }
    let work = |number| {
        run.did(fs::remove_file(at(number)));
        run.did(fs::hard_link(run.folder.join("l"), at(number)));
    };
    run.go(work, 4);
}

fn symlinks(run: &Run<'_>) {
    let at = |number: u64| run.folder.join(format!("s{number}"));
    run.did(File::create(at(0)));
    for number in 0..CHAIN {
        run.did(symlink(format!("s{number}"), at(number + 1)));
    }
    let work = |number: u64| {
        run.did(fs::metadata(at(CHAIN)));
        let own = run.folder.join(format!("own{number}"));
        run.did(symlink("s0", &own));
        run.did(fs::read_link(&own));
        run.did(fs::remove_file(&own));
    };
    run.go(work, 4);
}

fn space(run: &Run<'_>) {
    let work = |number: u64| {
        let Some(file) = run.file(&format!("r{number}")) else { return };
        run.did(fallocate(&file, FallocateFlags::empty(), 0, run.count(SPACE)));
        run.did(file.set_len(1));
        run.did(file.set_len(run.count(SPACE)));
        run.did(file.set_len(0));
    };
    run.go(work, 4);
}
