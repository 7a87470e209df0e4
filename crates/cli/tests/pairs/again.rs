//! A name that is removed and created again repeatedly: programs that use it meanwhile get the
//! file, or the error that it does not exist, as on the disk below.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use crate::pairs::{Pair, names, on_pairs};

/// An operation on a path, and the errors that it may return.
struct Use {
    what: &'static str,
    run: fn(&Path) -> io::Result<()>,
    may: &'static [Errno],
}

const GONE: &[Errno] = &[Errno::NOENT];
const NO_XATTR: &[Errno] = &[Errno::NOENT, Errno::NODATA];

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<()> {
    options.open(path).map(drop)
}

fn beside(path: &Path) -> std::path::PathBuf {
    path.with_file_name("beside")
}

const USES: [Use; 16] = [
    Use {
        what: "open O_CREAT",
        run: |path| {
            open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
        },
        may: &[],
    },
    Use {
        what: "open O_CREAT O_TRUNC",
        run: |path| open(path, OpenOptions::new().write(true).create(true).truncate(true)),
        may: &[],
    },
    Use {
        what: "open O_CREAT O_APPEND",
        run: |path| open(path, OpenOptions::new().append(true).create(true)),
        may: &[],
    },
    Use { what: "open", run: |path| File::open(path).map(drop), may: GONE },
    Use {
        what: "open O_TRUNC",
        run: |path| open(path, OpenOptions::new().write(true).truncate(true)),
        may: GONE,
    },
    Use {
        what: "open O_PATH",
        run: |path| {
            let flags = OFlags::PATH.bits().cast_signed();
            open(path, OpenOptions::new().read(true).custom_flags(flags))
        },
        may: GONE,
    },
    Use { what: "read", run: |path| fs::read(path).map(drop), may: GONE },
    Use { what: "stat", run: |path| fs::metadata(path).map(drop), may: GONE },
    Use {
        what: "truncate",
        run: |path| {
            let write = OFlags::WRONLY;
            let file = rustix::fs::open(path, write, Mode::empty())?;
            Ok(rustix::fs::ftruncate(file, 5)?)
        },
        may: GONE,
    },
    Use {
        what: "chmod",
        run: |path| fs::set_permissions(path, Permissions::from_mode(0o600)),
        may: GONE,
    },
    Use { what: "chown", run: |path| std::os::unix::fs::chown(path, Some(0), Some(0)), may: GONE },
    Use {
        what: "utimensat",
        run: |path| {
            let time = |nanos| Timespec { tv_sec: 0, tv_nsec: nanos };
            let times =
                Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
            Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
        },
        may: GONE,
    },
    Use {
        what: "link",
        run: |path| {
            fs::hard_link(path, beside(path))?;
            fs::remove_file(beside(path))
        },
        may: GONE,
    },
    Use {
        what: "rename",
        run: |path| {
            fs::rename(path, beside(path))?;
            fs::remove_file(beside(path))
        },
        may: GONE,
    },
    Use {
        what: "getxattr",
        run: |path| {
            rustix::fs::getxattr(path, "user.none", &mut [0; 9][..])?;
            Ok(())
        },
        may: NO_XATTR,
    },
    Use {
        what: "setxattr",
        run: |path| {
            let any = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::setxattr(path, "user.some", b"x", any)?)
        },
        may: GONE,
    },
];

/// Makes the name and removes it until the end.
fn make_and_remove(path: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let made = OpenOptions::new().append(true).create(true).open(path);
        let removed = fs::remove_file(path);
        for (what, result) in [("made", made.map(drop)), ("removed", removed)] {
            if let Err(error) = result {
                let is_gone = what == "removed" && error.kind() == io::ErrorKind::NotFound;
                assert!(is_gone, "{what}: {error}");
            }
        }
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Uses the name in each way, beside two programs that make and remove it. Returns the errors that
/// no program may see, with how often.
fn wrong(pair: &Pair) -> BTreeMap<String, u32> {
    let stop = AtomicBool::new(false);
    let mut wrong = BTreeMap::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            let path = pair.other.join("name");
            let stop = &stop;
            scope.spawn(move || make_and_remove(&path, stop));
        }
        let _stop = StopAtEnd(&stop);
        let path = pair.one.join("name");
        for _ in 0..names() {
            for Use { what, run, may } in USES {
                let Err(error) = run(&path) else { continue };
                let errno = Errno::from_io_error(&error);
                if errno.is_none_or(|errno| !may.contains(&errno)) {
                    *wrong.entry(format!("{what}: {error}")).or_insert(0) += 1;
                }
            }
        }
    });
    wrong
}

#[test]
fn a_name_that_is_removed_and_made_again_is_there_or_not() {
    let mut lines = Vec::new();
    let told = std::cell::RefCell::new(&mut lines);
    on_pairs(|pair| {
        let wrong = wrong(pair);
        if !wrong.is_empty() {
            let line = format!("{pair:?}: {wrong:?}");
            println!("{line}");
            told.borrow_mut().push(line);
        }
    });
    assert!(lines.is_empty(), "{lines:#?}");
}
