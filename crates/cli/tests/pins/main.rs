//! Downloads of files that programs change meanwhile: each download has one version, or fails
//! because its version is gone.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

use crate::harness::mapping::Mapping;
use crate::harness::program::{pelago, run, until};
use crate::harness::volume::{Volume, cannot_mount, detach_all, passthrough_modes};
use download::{Download, Form, Outcome};

mod download;

const MIB: usize = 1 << 20;
/// More than the sockets between the two ends take.
const SIZE: usize = 12 * MIB;
/// The largest file that is copied for its downloads.
const COPY: usize = 64 * MIB;

/// A volume with an HTTP server.
struct Served {
    volume: Volume,
    address: String,
}

impl Served {
    /// Returns one for each data path.
    fn all() -> impl Iterator<Item = Self> {
        let reason = cannot_mount();
        if let Some(reason) = &reason {
            println!("skipped: {reason}");
        }
        let modes = passthrough_modes(&["never", "always"]);
        modes.into_iter().filter(move |_| reason.is_none()).map(|mode| {
            let mut volume = Volume::new();
            volume.passthrough = Some(mode);
            let address = up(&volume);
            Self { volume, address }
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.volume.files().join(name)
    }

    /// Writes a file, and waits until it is closed for the server, too.
    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.volume.wait_until_closed();
        self.path(name)
    }

    /// Begins so many downloads, half of them as blocks.
    fn begin(&self, name: &str, count: usize) -> Vec<Download> {
        let form =
            |number: usize| if number.is_multiple_of(2) { Form::Plain } else { Form::Blocks };
        let begin = |number| Download::begin(&self.address, name, form(number));
        let begun: Vec<Download> = (0..count).map(begin).collect();
        assert!(begun.iter().all(|it| it.status() == 200));
        begun
    }

    /// Counts the content files, under whatever name.
    fn content_files(&self) -> usize {
        let entries = |dir: &Path| -> Vec<PathBuf> {
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let below = |path: PathBuf| if path.is_dir() { entries(&path).len() } else { 1 };
        entries(&self.volume.dir.join("content")).into_iter().map(below).sum()
    }
}

fn up(volume: &Volume) -> String {
    let report = volume.up(&["--http", "127.0.0.1:0", "--json"]).expect_success().json();
    let url = report["http"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned()
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A way to change a file.
type Change = (&'static str, fn(&Served, &Path));

const CHANGES: [Change; 11] = [
    ("rewritten", |_, path| open(path).write_all_at(&vec![2; SIZE], 0).unwrap()),
    ("appended", |_, path| open(path).write_all_at(b"more", SIZE as u64).unwrap()),
    ("emptied", |_, path| fs::write(path, vec![2; SIZE]).unwrap()),
    ("truncated", |_, path| truncate(path, 1_000_000)),
    ("replaced", |served, path| {
        fs::write(served.path("new"), vec![2; SIZE]).unwrap();
        fs::rename(served.path("new"), path).unwrap();
    }),
    ("removed", |_, path| fs::remove_file(path).unwrap()),
    ("punched", |_, path| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(open(path), flags, 0, SIZE as u64 / 2).unwrap();
    }),
    ("copied", |served, path| {
        fs::write(served.path("source"), vec![2; SIZE]).unwrap();
        let from = File::open(served.path("source")).unwrap();
        let to = open(path);
        let copied = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), SIZE / 2).unwrap();
        assert!(copied > 0);
    }),
    ("mapped", map),
    // Beside a program that reads the file, the kernel writes it by a descriptor at once.
    ("rewritten-beside-a-reader", |_, path| {
        let _reader = File::open(path).unwrap();
        open(path).write_all_at(&vec![2; SIZE], 0).unwrap();
    }),
    ("mapped-beside-a-reader", |served, path| {
        let _reader = File::open(path).unwrap();
        map(served, path);
    }),
];

fn map(served: &Served, path: &Path) {
    if let Some(reason) = Mapping::cannot() {
        return println!("skipped: {reason}");
    }
    let mut mapping = Mapping::of(path, SIZE);
    mapping.put(7 * MIB, "other");
    mapping.close();
    mapping.put(8 * MIB, "other");
    mapping.sync();
    let name = path.file_name().unwrap().to_str().unwrap();
    let refused = Download::begin(&served.address, name, Form::Plain);
    assert_eq!(refused.end(), Outcome::Refused(503));
}

/// truncate(2), which has no descriptor.
fn truncate(path: &Path, size: u64) {
    let mut command = Command::new("perl");
    command.args(["-e", "truncate($ARGV[0], $ARGV[1]) or die $!"]).arg(path).arg(size.to_string());
    assert!(command.status().unwrap().success());
}

/// 55 downloads of eleven files.
#[test]
fn a_file_that_changes_under_downloads_is_what_it_was_for_them() {
    for served in Served::all() {
        let begun = CHANGES.map(|(name, _)| {
            served.put(name, &vec![1; SIZE]);
            served.begin(name, 5)
        });
        for ((name, change), begun) in CHANGES.into_iter().zip(begun) {
            change(&served, &served.path(name));
            for download in begun {
                assert!(download.end() == Outcome::Whole(vec![1; SIZE]), "{name}");
            }
        }
        served.volume.wait_until_closed();
        let Outcome::Whole(bytes) = served.begin("rewritten", 1).remove(0).end() else { panic!() };
        assert!(bytes == vec![2; SIZE]);
        served.volume.finish();
    }
}

#[test]
fn a_program_on_another_mount_changes_no_download() {
    for served in Served::all() {
        let names = ["rewritten", "emptied", "removed"];
        let begun = names.map(|name| {
            served.put(name, &vec![1; SIZE]);
            served.begin(name, 4)
        });
        let point = served.volume.root.join("other");
        fs::create_dir(&point).unwrap();
        let mut mount = pelago(&served.volume.root, ["mount"]);
        mount.arg(served.volume.dir.join("pelago.sock")).arg(&point).arg("--detach");
        run(&mut mount).expect_success();
        open(&point.join("rewritten")).write_all_at(&vec![2; SIZE], 0).unwrap();
        fs::write(point.join("emptied"), vec![2; SIZE]).unwrap();
        fs::remove_file(point.join("removed")).unwrap();
        for download in begun.into_iter().flatten() {
            assert!(download.end() == Outcome::Whole(vec![1; SIZE]));
        }
        assert!(fs::read(served.path("rewritten")).unwrap() == vec![2; SIZE]);
        run(pelago(&served.volume.root, ["unmount"]).arg(&point)).expect_success();
        served.volume.finish();
    }
}

#[test]
fn a_larger_file_ends_its_downloads_and_hinders_nobody() {
    for served in Served::all() {
        let path = served.put("file", &vec![1; COPY + 1]);
        let begun = served.begin("file", 2);
        open(&path).write_all_at(b"other", 0).unwrap();
        for download in begun {
            assert_eq!(download.end(), Outcome::Changed);
        }
        // It is not copied, but handed over.
        served.volume.wait_until_closed();
        let begun = served.begin("file", 2);
        fs::write(&path, b"small").unwrap();
        for download in begun {
            let Outcome::Whole(bytes) = download.end() else { panic!("it was emptied") };
            assert!(bytes.len() == COPY + 1 && bytes.starts_with(b"other"));
        }
        assert_eq!(fs::read(&path).unwrap(), b"small");
        served.volume.finish();
    }
}

/// Downloads come and go while one file changes in every way. All bytes of a version are equal.
#[test]
fn fifty_downloads_of_a_file_that_always_changes_are_each_one_version() {
    for served in Served::all() {
        let path = served.put("file", &vec![0; SIZE]);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for version in (1..=250_u8).cycle() {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    change_all(&served, &path, version);
                }
            });
            let served = &served;
            let clients: Vec<_> =
                (0..5).map(|number| scope.spawn(move || ten(served, number))).collect();
            let whole: usize = clients.into_iter().map(|it| it.join().unwrap()).sum();
            ended.store(true, Ordering::Relaxed);
            println!("{whole} of 50 downloads are whole");
            assert!(whole > 25, "{whole}: most can be copied");
        });
        served.volume.finish();
    }
}

/// Gives a file another version.
fn change_all(served: &Served, path: &Path, version: u8) {
    let bytes = vec![version; SIZE - usize::from(version)];
    match version % 3 {
        0 => fs::write(path, bytes).unwrap(),
        1 => {
            let file = open(path);
            file.write_all_at(&bytes, 0).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
        }
        _ => {
            fs::write(served.path("new"), bytes).unwrap();
            fs::rename(served.path("new"), path).unwrap();
        }
    }
    // A file under a mapping, or open by passthrough, is closed a little later: let it be served.
    until("it is served", || {
        let name = path.file_name().unwrap().to_str().unwrap();
        Download::begin(&served.address, name, Form::Plain).status() == 200
    });
}

/// Downloads ten times. Returns how many were whole.
fn ten(served: &Served, client: usize) -> usize {
    let form = if client.is_multiple_of(2) { Form::Plain } else { Form::Blocks };
    let mut begun = 0;
    let mut whole = 0;
    while begun < 10 {
        match Download::begin(&served.address, "file", form).end() {
            // Being written; between two versions there is none.
            Outcome::Refused(503 | 404) => continue,
            Outcome::Whole(bytes) => {
                let version = bytes.first().copied().unwrap();
                assert!(bytes.iter().all(|byte| *byte == version), "a mixture");
                assert_eq!(bytes.len(), SIZE - usize::from(version));
                whole += 1;
            }
            Outcome::Changed => {}
            outcome => panic!("{outcome:?}"),
        }
        begun += 1;
    }
    whole
}

#[test]
fn a_kill_leaves_nothing_of_what_was_kept() {
    for served in Served::all() {
        let names = ["rewritten", "emptied", "removed"];
        let begun = names.map(|name| {
            served.put(name, &vec![1; SIZE]);
            served.begin(name, 2)
        });
        open(&served.path("rewritten")).write_all_at(&vec![2; SIZE], 0).unwrap();
        fs::write(served.path("emptied"), vec![2; SIZE]).unwrap();
        fs::remove_file(served.path("removed")).unwrap();
        until("the name is gone", || served.content_files() == 2);
        served.volume.kill();
        for download in begun.into_iter().flatten() {
            // What the sockets had is all that came.
            assert!(matches!(download.end(), Outcome::Changed | Outcome::Cut));
        }
        detach_all(&served.volume.root);
        assert_eq!(served.content_files(), 2);
        served.volume.check_whole();
        let served = Served { address: up(&served.volume), volume: served.volume };
        for name in ["rewritten", "emptied"] {
            let Outcome::Whole(bytes) = served.begin(name, 1).remove(0).end() else { panic!() };
            assert!(bytes == vec![2; SIZE], "{name}");
        }
        assert_eq!(served.content_files(), 2);
        served.volume.finish();
    }
}
