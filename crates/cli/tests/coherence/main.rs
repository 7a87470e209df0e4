//! Changes by another session, as programs in the server's own mount see them. The kernel has
//! everything cached before each change, and must have nothing old once it is answered.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_client::{At, Xattr};
use pelago_wire::{Context, NewMode, RenameFlags, SetAttr, SetTime, Time, XattrFlags};

use crate::coherence::world::World;

mod counts;
mod executions;
mod world;

const CONTEXT: Context = Context::direct(0, 0);

/// Runs `work` on a quiet mount and on one whose programs create, look up and remove names in the
/// same directories all the time, on both data paths.
fn on_worlds(work: impl Fn(&World)) {
    for (passthrough, load) in [(false, false), (false, true), (true, false), (true, true)] {
        println!("passthrough {passthrough}, load {load}");
        let Some(world) = World::new(passthrough) else { return };
        fs::create_dir(world.path("d")).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            if load {
                for (number, dir) in ["", "d"].into_iter().enumerate() {
                    let stop = &stop;
                    let dir = world.path(dir);
                    scope.spawn(move || busy(&dir, number, stop));
                }
            }
            let guard = StopAtEnd(&stop);
            for round in 0..if load { 20 } else { 3 } {
                work(&world);
                clear(&world, round);
            }
            drop(guard);
        });
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn busy(dir: &Path, number: usize, stop: &AtomicBool) {
    let path = dir.join(format!("busy {number}"));
    while !stop.load(Ordering::Relaxed) {
        File::create(&path).unwrap();
        assert!(fs::metadata(&path).is_ok() && fs::metadata(dir.join("missing")).is_err());
        fs::remove_file(&path).unwrap();
    }
}

/// Removes what a round has made.
fn clear(world: &World, round: u32) {
    for dir in [world.path("d"), world.mount.point().to_owned()] {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let text = entry.file_name().into_string().unwrap();
            if text.starts_with("busy") || text == "d" {
                continue;
            }
            let kind = entry.file_type().unwrap();
            let removed = match kind.is_dir() {
                true => fs::remove_dir(entry.path()),
                false => fs::remove_file(entry.path()),
            };
            removed.unwrap_or_else(|error| panic!("round {round}: {text}: {error}"));
        }
    }
}

fn meta(world: &World, path: &str) -> Metadata {
    fs::metadata(world.path(path)).unwrap()
}

/// Returns the size of a file by `stat`, which asks for no birth time: the kernel has that only
/// after a request of its own.
fn size(world: &World, path: &str) -> u64 {
    rustix::fs::stat(world.path(path)).unwrap().st_size as u64
}

fn is_missing(world: &World, path: &str) -> bool {
    matches!(fs::metadata(world.path(path)), Err(error) if error.kind() == ErrorKind::NotFound)
}

fn names(world: &World, dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(world.path(dir)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("busy")).collect()
}

fn set(world: &World, path: &str, set: SetAttr) {
    let node = world.find(path).handle;
    world.other.set_attr(&CONTEXT, node, None, set).wait().unwrap();
}

#[test]
fn a_name_that_is_made_is_found() {
    on_worlds(|world| {
        assert!(is_missing(world, "new") && is_missing(world, "d/new"));
        world.put("new", b"bytes");
        assert_eq!(fs::read(world.path("new")).unwrap(), b"bytes");
        world.put("d/new", b"more");
        assert_eq!(
            (meta(world, "d/new").len(), fs::read(world.path("d/new")).unwrap()),
            (4, b"more".to_vec())
        );
        for text in ["dir", "link", "hard"] {
            assert!(is_missing(world, text));
        }
        let mode = NewMode::exactly(0o755);
        world.other.make_dir(&CONTEXT, world.at("dir"), mode).wait().unwrap();
        assert!(meta(world, "dir").is_dir());
        world.other.symlink(&CONTEXT, world.at("link"), b"new".to_vec()).wait().unwrap();
        assert_eq!(fs::read_link(world.path("link")).unwrap(), Path::new("new"));
        assert_eq!(meta(world, "new").nlink(), 1);
        world.other.link(&CONTEXT, world.find("new").handle, world.at("hard")).wait().unwrap();
        assert_eq!(
            (meta(world, "hard").ino(), meta(world, "new").nlink()),
            (meta(world, "new").ino(), 2)
        );
    });
}

#[test]
fn a_name_that_is_removed_is_not_found() {
    on_worlds(|world| {
        fs::write(world.path("d/f"), b"x").unwrap();
        fs::hard_link(world.path("d/f"), world.path("g")).unwrap();
        fs::create_dir(world.path("dir")).unwrap();
        let links = meta(world, "").nlink();
        assert_eq!((meta(world, "d/f").nlink(), meta(world, "g").nlink()), (2, 2));
        world.other.unlink(&CONTEXT, world.at("d/f")).wait().unwrap();
        assert!(is_missing(world, "d/f"));
        assert_eq!(meta(world, "g").nlink(), 1);
        world.other.remove_dir(&CONTEXT, world.at("dir")).wait().unwrap();
        assert!(is_missing(world, "dir"));
        assert_eq!(meta(world, "").nlink(), links - 1);
    });
}

#[test]
fn a_name_that_moves_is_found_where_it_is() {
    on_worlds(|world| {
        fs::write(world.path("a"), b"a").unwrap();
        fs::write(world.path("d/b"), b"bb").unwrap();
        fs::hard_link(world.path("d/b"), world.path("other")).unwrap();
        let a = meta(world, "a").ino();
        assert_eq!((meta(world, "d/b").len(), meta(world, "other").nlink()), (2, 2));
        let rename = |from: &str, to: &str, flags| {
            let from: At = world.at(from);
            let to: At = world.at(to);
            world.other.rename(&CONTEXT, from, to, flags).wait().unwrap();
        };
        rename("a", "d/b", RenameFlags::Replace);
        assert!(is_missing(world, "a"));
        assert_eq!(
            (meta(world, "d/b").ino(), fs::read(world.path("d/b")).unwrap()),
            (a, b"a".to_vec())
        );
        assert_eq!(meta(world, "other").nlink(), 1);
        let other = meta(world, "other").ino();
        rename("d/b", "other", RenameFlags::Exchange);
        assert_eq!((meta(world, "d/b").ino(), meta(world, "other").ino()), (other, a));
        assert_eq!(fs::read(world.path("other")).unwrap(), b"a");
    });
}

#[test]
fn attributes_that_change_are_seen() {
    on_worlds(|world| {
        fs::write(world.path("d/f"), b"12345").unwrap();
        let open = File::open(world.path("d/f")).unwrap();
        for mode in [0o600, 0o640] {
            assert_ne!(meta(world, "d/f").mode() & 0o7777, mode);
            set(world, "d/f", SetAttr { mode: Some(mode as u16), ..SetAttr::default() });
            assert_eq!(meta(world, "d/f").mode() & 0o7777, mode);
            assert_eq!(open.metadata().unwrap().mode() & 0o7777, mode);
        }
        set(world, "d/f", SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() });
        assert_eq!((meta(world, "d/f").uid(), meta(world, "d/f").gid()), (7, 8));
        let to = SetTime::To(Time { seconds: 77, nanos: 5 });
        set(world, "d/f", SetAttr { mtime: Some(to), ..SetAttr::default() });
        assert_eq!((meta(world, "d/f").mtime(), meta(world, "d/f").mtime_nsec()), (77, 5));
        set(world, "d/f", SetAttr { size: Some(2), ..SetAttr::default() });
        assert_eq!((meta(world, "d/f").len(), open.metadata().unwrap().len()), (2, 2));
        assert_eq!(fs::read(world.path("d/f")).unwrap(), b"12");
        fs::set_permissions(world.path("d/f"), fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(meta(world, "d/f").mode() & 0o7777, 0o604);
    });
}

/// In memory and in a content file; while it is written, and after the close.
#[test]
fn bytes_that_are_written_are_read() {
    on_worlds(|world| {
        for length in [100, 100_000] {
            let path = world.path("d/f");
            fs::write(&path, vec![1; length]).unwrap();
            let reader = File::open(&path).unwrap();
            let read = |reader: &File| {
                let mut bytes = vec![0; length];
                reader.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            assert!(read(&reader) == vec![1; length] && meta(world, "d/f").len() == length as u64);
            let open = world.open("d/f");
            for fill in 2..6 {
                world.write(open, 0, &vec![fill; length]);
                assert!(read(&reader) == vec![fill; length], "{fill} of {length}");
                assert!(fs::read(&path).unwrap() == vec![fill; length], "{fill} of {length}");
            }
            world.write(open, length as u64, b"more");
            assert_eq!(meta(world, "d/f").len(), length as u64 + 4);
            assert_eq!(reader.metadata().unwrap().len(), length as u64 + 4);
            world.close(open);
            let before = (meta(world, "d/f").mtime_nsec(), meta(world, "d/f").len());
            assert_eq!(before.1, length as u64 + 4);
            fs::remove_file(&path).unwrap();
        }
    });
}

/// Both sides write one file in turn, each behind what the other wrote.
#[test]
fn both_sides_write() {
    on_worlds(|world| {
        let path = world.path("f");
        fs::write(&path, b"").unwrap();
        let own = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let open = world.open("f");
        for number in 0..10_u8 {
            let size = own.metadata().unwrap().len();
            assert_eq!(size, u64::from(number) * 2000);
            world.write(open, size, &[number; 1000]);
            own.write_all_at(&[number; 1000], size + 1000).unwrap();
            let bytes = fs::read(&path).unwrap();
            assert!(bytes.len() as u64 == size + 2000, "{} at {number}", bytes.len());
            assert!(bytes[size as usize..].iter().all(|byte| *byte == number));
        }
        world.close(open);
        drop(own);
        assert_eq!(meta(world, "f").len(), 20_000);
    });
}

#[test]
fn listings_show_what_changed() {
    on_worlds(|world| {
        for number in 0..5 {
            fs::write(world.path(&format!("d/{number}")), b"").unwrap();
        }
        let list = |texts: &[&str]| -> BTreeSet<String> {
            texts.iter().map(|text| (*text).to_owned()).collect()
        };
        assert_eq!(names(world, "d"), list(&["0", "1", "2", "3", "4"]));
        assert_eq!(names(world, "d"), list(&["0", "1", "2", "3", "4"]));
        world.put("d/5", b"");
        assert_eq!(names(world, "d"), list(&["0", "1", "2", "3", "4", "5"]));
        world.other.unlink(&CONTEXT, world.at("d/0")).wait().unwrap();
        assert_eq!(names(world, "d"), list(&["1", "2", "3", "4", "5"]));
        let from = world.at("d/1");
        let to = world.at("d/x");
        world.other.rename(&CONTEXT, from, to, RenameFlags::Replace).wait().unwrap();
        assert_eq!(names(world, "d"), list(&["2", "3", "4", "5", "x"]));
    });
}

#[test]
fn access_lists_that_change_are_seen() {
    const LIST: &str = "system.posix_acl_access";
    on_worlds(|world| {
        let path = world.path("f");
        fs::write(&path, b"").unwrap();
        let mut value = vec![0; 256];
        assert!(rustix::fs::getxattr(&path, LIST, &mut value[..]).is_err());
        // user::rw-, user:7:r--, group::r--, mask::r--, other::---
        let list = [
            (0x01_u16, 6_u16, u32::MAX),
            (0x02, 4, 7),
            (0x04, 4, u32::MAX),
            (0x10, 4, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in list {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        let node = world.find("f").handle;
        let xattr =
            Xattr { name: LIST.as_bytes().to_vec(), value: bytes.clone(), kill_setgid: false };
        world.other.set_xattr(&CONTEXT, node, xattr, XattrFlags::Any).wait().unwrap();
        let length = rustix::fs::getxattr(&path, LIST, &mut value[..]).unwrap();
        assert_eq!(value[..length], bytes);
        assert_eq!(meta(world, "f").mode() & 0o777, 0o640);
        let removed = world.other.remove_xattr(&CONTEXT, node, LIST.as_bytes().to_vec());
        removed.wait().unwrap();
        assert!(rustix::fs::getxattr(&path, LIST, &mut value[..]).is_err());
    });
}
