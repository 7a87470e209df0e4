//! Names as locks: if two programs rename, link, make, create or remove one name at the same time,
//! one succeeds, and the other gets an error.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use rustix::io::Errno;

use crate::pairs::{Pair, names, on_pairs};

/// A race of two programs for one name. Both get the folder, the number of the name and their own
/// number.
struct Race {
    what: &'static str,
    /// Makes what the race needs.
    prepare: fn(&Path, usize) -> io::Result<()>,
    run: fn(&Path, usize, usize) -> io::Result<()>,
    /// The error of the second program.
    told: Errno,
}

fn source(dir: &Path, name: usize) -> std::path::PathBuf {
    dir.join(format!("new/{name}"))
}

fn target(dir: &Path, name: usize) -> std::path::PathBuf {
    dir.join(format!("cur/{name}"))
}

fn make_file(dir: &Path, name: usize) -> io::Result<()> {
    fs::write(source(dir, name), "x")
}

const RACES: [Race; 9] = [
    Race {
        what: "rename to one name",
        prepare: make_file,
        run: |dir, name, _| fs::rename(source(dir, name), target(dir, name)),
        told: Errno::NOENT,
    },
    Race {
        what: "rename to names of their own",
        prepare: make_file,
        run: |dir, name, own| fs::rename(source(dir, name), dir.join(format!("cur/{name}.{own}"))),
        told: Errno::NOENT,
    },
    Race {
        what: "rename of a file that had two names",
        prepare: |dir, name| {
            let first = dir.join(format!("tmp {name}"));
            fs::write(&first, "x")?;
            fs::hard_link(&first, source(dir, name))?;
            fs::remove_file(first)
        },
        run: |dir, name, _| fs::rename(source(dir, name), target(dir, name)),
        told: Errno::NOENT,
    },
    Race {
        what: "rename of a directory",
        prepare: |dir, name| fs::create_dir(source(dir, name)),
        run: |dir, name, _| fs::rename(source(dir, name), target(dir, name)),
        told: Errno::NOENT,
    },
    Race {
        what: "link",
        prepare: make_file,
        run: |dir, name, _| fs::hard_link(source(dir, name), target(dir, name)),
        told: Errno::EXIST,
    },
    Race {
        what: "mkdir",
        prepare: |_, _| Ok(()),
        run: |dir, name, _| fs::create_dir(target(dir, name)),
        told: Errno::EXIST,
    },
    Race {
        what: "O_EXCL",
        prepare: |_, _| Ok(()),
        run: |dir, name, _| File::create_new(target(dir, name)).map(drop),
        told: Errno::EXIST,
    },
    Race {
        what: "unlink",
        prepare: make_file,
        run: |dir, name, _| fs::remove_file(source(dir, name)),
        told: Errno::NOENT,
    },
    Race {
        what: "rmdir",
        prepare: |dir, name| fs::create_dir(source(dir, name)),
        run: |dir, name, _| fs::remove_dir(source(dir, name)),
        told: Errno::NOENT,
    },
];

/// Runs one race for each name, and returns what went wrong.
fn wrong(pair: &Pair, race: &Race) -> Vec<String> {
    let dirs = [&pair.one, &pair.other];
    for folder in ["new", "cur"] {
        fs::create_dir(pair.one.join(folder)).unwrap();
    }
    let start = Barrier::new(2);
    let mut results = thread::scope(|scope| {
        let runs = dirs.iter().enumerate().map(|(own, dir)| {
            let start = &start;
            scope.spawn(move || run(race, start, dir, own))
        });
        let runs: Vec<_> = runs.collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>().into_iter()
    });
    let [one, other] = [results.next().unwrap(), results.next().unwrap()];
    let mut wrong = Vec::new();
    for (name, results) in one.into_iter().zip(other).enumerate() {
        let is_right =
            matches!(results, (Ok(()), Err(error)) | (Err(error), Ok(())) if error == race.told);
        if !is_right {
            wrong.push(format!("{name}: {results:?}"));
        }
    }
    for folder in ["new", "cur"] {
        fs::remove_dir_all(pair.one.join(folder)).unwrap();
    }
    wrong
}

/// Runs one of the two programs.
fn run(race: &Race, start: &Barrier, dir: &Path, own: usize) -> Vec<Result<(), Errno>> {
    let each = (0..names()).map(|name| {
        if name % 2 == own {
            (race.prepare)(dir, name).unwrap();
        }
        start.wait();
        // The kernels know some of the names before.
        if name % 4 < 2 {
            let _found = [source(dir, name), target(dir, name)].map(|path| path.metadata().is_ok());
        }
        start.wait();
        let result = (race.run)(dir, name, own);
        start.wait();
        result.map_err(|error| Errno::from_io_error(&error).unwrap())
    });
    each.collect()
}

#[test]
fn of_two_that_want_one_name_one_gets_it() {
    let mut lines = Vec::new();
    let told = std::cell::RefCell::new(&mut lines);
    on_pairs(|pair| {
        for race in &RACES {
            let wrong = wrong(pair, race);
            if !wrong.is_empty() {
                let few = &wrong[..wrong.len().min(3)];
                let line =
                    format!("{}, {pair:?}: {} of {}: {few:?}", race.what, wrong.len(), names());
                println!("{line}");
                told.borrow_mut().push(line);
            }
        }
    });
    assert!(lines.is_empty(), "{lines:#?}");
}

/// Two names of one file may be renamed to each other: that does nothing, and both stay.
#[test]
fn a_rename_between_two_names_of_one_file_does_nothing() {
    on_pairs(|pair| {
        for name in 0..names() {
            let [one, other] = ["one", "other"].map(|text| format!("{text} {name}"));
            fs::write(pair.one.join(&one), "x").unwrap();
            fs::hard_link(pair.one.join(&one), pair.one.join(&other)).unwrap();
            thread::scope(|scope| {
                for dir in [&pair.one, &pair.other] {
                    let one = dir.join(&one);
                    let other = dir.join(&other);
                    scope.spawn(move || fs::rename(one, other).unwrap());
                }
            });
            for dir in [&pair.one, &pair.other] {
                assert!([&one, &other].iter().all(|name| dir.join(name).exists()), "{name}");
            }
        }
    });
}

/// A lock as programs make it: a file that only one can create, and that is removed again.
#[test]
fn a_file_that_is_a_lock_has_one_holder() {
    on_pairs(|pair| {
        let inside = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for dir in [&pair.one, &pair.other] {
                let inside = &inside;
                scope.spawn(move || {
                    for _ in 0..names() {
                        let lock = dir.join("lock");
                        let taken = || OpenOptions::new().write(true).create_new(true).open(&lock);
                        loop {
                            match taken() {
                                Ok(_) => break,
                                Err(error) => {
                                    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists)
                                }
                            }
                            thread::yield_now();
                        }
                        use std::sync::atomic::Ordering::SeqCst;
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "{}", dir.display());
                        inside.fetch_sub(1, SeqCst);
                        fs::remove_file(&lock).unwrap();
                    }
                });
            }
        });
    });
}
