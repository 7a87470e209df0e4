//! Descriptors that stay open while another mount changes their file: each call, including the
//! first, sees all changes that ended before it.
//!
//! The files are made in the server's mount: an inode that is new to its kernel is invalidated
//! several times more, and a read that meets this may end at the old size (docs/semantics.md).

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::harness::mapping::Mapping;
use crate::pairs::on_world;

/// A size within the inline limit, and one above it.
const SIZES: [usize; 2] = [100, 9000];
/// More than any size of a file here.
const ROOM: usize = 1 << 16;

/// A time long ago.
const SECONDS: u64 = 978_307_200;

/// A way to hold a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    ReadWrite,
    Append,
    /// To read, and a mapping to read and write.
    Mapped,
}

const MODES: [Mode; 4] = [Mode::Read, Mode::ReadWrite, Mode::Append, Mode::Mapped];

/// A descriptor of a mount other than the one that changes the file.
struct Held {
    file: File,
    mapping: Option<Mapping>,
    what: String,
}

impl Held {
    fn of(path: &Path, mode: Mode) -> Self {
        let options = match mode {
            Mode::Read | Mode::Mapped => OpenOptions::new().read(true).clone(),
            Mode::ReadWrite => OpenOptions::new().read(true).write(true).clone(),
            Mode::Append => OpenOptions::new().read(true).append(true).clone(),
        };
        let file = options.open(path).unwrap();
        let mapped = mode == Mode::Mapped && Mapping::cannot().is_none();
        let mapping = mapped.then(|| Mapping::of(path, ROOM));
        Self { file, mapping, what: format!("{mode:?} of {}", path.display()) }
    }

    /// Reads all of the file by one call, before anything else has asked for its size.
    fn read(&self) -> Vec<u8> {
        let mut found = vec![0; ROOM];
        let read = self.file.read_at(&mut found, 0).unwrap();
        found.truncate(read);
        found
    }

    /// Looks at the file in each way; the first read has asked for no attributes before.
    fn expect(&self, step: &str, writer: &File, expected: &[u8]) {
        let what = format!("{step}, {}", self.what);
        let found = self.read();
        assert_eq!(found.len(), expected.len(), "{what}");
        assert!(found == expected, "{what}");
        let [own, other] = [&self.file, writer].map(|file| file.metadata().unwrap());
        assert_eq!(own.len(), expected.len() as u64, "{what}");
        let times = |meta: &fs::Metadata| (meta.mtime(), meta.mtime_nsec());
        assert_eq!(times(&own), times(&other), "{what}");
        assert!(self.read() == expected, "{what}, again");
    }

    /// Looks at the first bytes in the mapping, after the file was looked at.
    fn expect_mapped(&mut self, step: &str, expected: &[u8]) {
        if let Some(mapping) = &mut self.mapping {
            let length = expected.len().min(60);
            let text = String::from_utf8_lossy(&expected[..length]).into_owned();
            assert_eq!(mapping.get(0, length), text, "{step}, {}, mapped", self.what);
        }
    }
}

/// A file as it should be, and the descriptor that changes it.
struct Changed {
    file: File,
    expected: Vec<u8>,
}

impl Changed {
    fn put(&mut self, at: usize, fill: u8, length: usize) {
        let bytes = vec![fill; length];
        self.file.write_all_at(&bytes, at as u64).unwrap();
        self.expected.resize(self.expected.len().max(at + length), 0);
        self.expected[at..at + length].copy_from_slice(&bytes);
    }

    fn resize(&mut self, length: usize) {
        self.file.set_len(length as u64).unwrap();
        self.expected.resize(length, 0);
    }

    /// Puts other bytes there and sets the time back, so that neither size nor time tell of it.
    fn put_unseen(&mut self, fill: u8) {
        let before = self.file.metadata().unwrap().modified().unwrap();
        self.put(0, fill, self.expected.len());
        self.file.set_times(FileTimes::new().set_modified(before)).unwrap();
    }
}

/// Steps after which a mapping may show old bytes: neither size nor time tells of them.
const UNSEEN: &str = "set back";

/// A change of a file.
struct Step {
    what: &'static str,
    change: fn(&mut Changed),
}

impl Step {
    fn new(what: &'static str, change: fn(&mut Changed)) -> Self {
        Self { what, change }
    }
}

fn steps(changed: &mut Changed, held: &mut [Held]) {
    let steps = [
        Step::new("grown", |file| file.put(file.expected.len(), b'g', 500)),
        Step::new("overwritten", |file| file.put(0, b'w', file.expected.len())),
        Step::new("overwritten, its time set back", |file| file.put_unseen(b'u')),
        Step::new("once more, its time set back", |file| file.put_unseen(b'v')),
        Step::new("shrunk", |file| file.resize(file.expected.len() / 2)),
        Step::new("grown again", |file| file.put(file.expected.len(), b'a', 700)),
        Step::new("a hole", |file| file.resize(file.expected.len() + 5000)),
        Step::new("bytes in it", |file| file.put(file.expected.len() - 3000, b'h', 100)),
        Step::new("bytes after a hole", |file| file.put(file.expected.len() + 9000, b'e', 100)),
        Step::new("a time", |file| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(SECONDS);
            file.file.set_times(FileTimes::new().set_modified(time)).unwrap();
        }),
        Step::new("emptied", |file| file.resize(0)),
        Step::new("not empty", |file| file.put(0, b'n', 300)),
    ];
    for step in steps {
        (step.change)(changed);
        for held in &mut *held {
            held.expect(step.what, &changed.file, &changed.expected);
            if !step.what.contains(UNSEEN) {
                held.expect_mapped(step.what, &changed.expected);
            }
        }
    }
}

#[test]
fn a_held_descriptor_sees_each_change_at_once() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            for size in SIZES {
                let path = side.join(format!("{name}-{size}"));
                let expected = vec![b'o'; size];
                fs::write(world.volume.files().join(path.file_name().unwrap()), &expected).unwrap();
                let at = |root: &PathBuf| root.join(path.file_name().unwrap());
                let ways = MODES
                    .iter()
                    .flat_map(|mode| others.iter().map(move |root| Held::of(&at(root), *mode)));
                let mut held: Vec<Held> = ways.collect();
                let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let mut changed = Changed { file: open(), expected };
                for held in &held {
                    held.expect("opened", &changed.file, &changed.expected);
                }
                steps(&mut changed, &mut held);
                // The same by an open after the descriptors, whose end they see too.
                changed = Changed { file: open(), expected: changed.expected };
                steps(&mut changed, &mut held);
                let expected = changed.expected;
                let closed = File::open(&path).unwrap();
                drop(changed.file);
                held.iter().for_each(|held| held.expect("closed", &closed, &expected));
            }
        });
    });
}

/// Descriptors of one kind alone, so that none of another kind asks the server for it.
#[test]
fn a_reader_alone_sees_what_grows() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            for (number, mode) in MODES.into_iter().enumerate() {
                for (turn, size) in [0, 100, 9000].into_iter().enumerate() {
                    let path = side.join(format!("{name}-{number}-{turn}"));
                    let mut expected = vec![b'o'; size];
                    let file_name = path.file_name().unwrap();
                    fs::write(world.volume.files().join(file_name), &expected).unwrap();
                    let at = |root: &PathBuf| root.join(path.file_name().unwrap());
                    let held: Vec<Held> =
                        others.iter().map(|root| Held::of(&at(root), mode)).collect();
                    held.iter().for_each(|held| assert!(held.read() == expected));
                    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                    for round in 0..10 {
                        let line = vec![b'0' + round; 50];
                        file.write_all(&line).unwrap();
                        expected.extend(line);
                        for held in &held {
                            let found = held.read().len();
                            assert_eq!(found, expected.len(), "{round} of {size}, {}", held.what);
                        }
                    }
                }
            }
        });
    });
}

/// Sets the time without an open, which may write what the kernel has stored.
fn set_time(path: &Path) {
    let time = Timespec { tv_sec: SECONDS.cast_signed(), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

/// A store in a mapping, then a time that is set, then the end of the mapping: the time stays.
#[test]
fn a_time_that_is_set_after_a_store_in_a_mapping_stays() {
    if let Some(reason) = Mapping::cannot() {
        return println!("skipped: {reason}");
    }
    on_world(|world| {
        let set = SystemTime::UNIX_EPOCH + Duration::from_secs(SECONDS);
        for (number, root) in world.roots().iter().enumerate() {
            for size in SIZES {
                let path = root.join(format!("mapped-{number}-{size}"));
                fs::write(&path, vec![b'o'; size]).unwrap();
                let mut mapping = Mapping::of(&path, size);
                for (round, text) in ["first", "other"].into_iter().enumerate() {
                    mapping.put(round * 10, text);
                    set_time(&path);
                }
                drop(mapping);
                let found = fs::metadata(&path).unwrap().modified().unwrap();
                assert_eq!(found, set, "{}", path.display());
                assert_eq!(fs::read(&path).unwrap()[..15], *b"firstoooooother");
                // A store after it counts again.
                let mut mapping = Mapping::of(&path, size);
                mapping.put(0, "after");
                drop(mapping);
                assert!(fs::metadata(&path).unwrap().modified().unwrap() > set);
            }
        }
    });
}
