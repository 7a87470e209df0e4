//! Names and attributes: the other mounts, which have cached the old state, see a change by one
//! mount at once.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;

use crate::far::{errno, on_world};

const ROUNDS: u32 = 20;
/// Replacements of a name by one mount.
const REPLACEMENTS: u32 = 500;
const ACCESS: &str = "system.posix_acl_access";

fn exists(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(errno::<()>(Err(error)), Errno::NOENT);
            false
        }
    }
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn set_of(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 256];
    let length = lgetxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// An open gets the old file or the new one, however often and by which mount the name is replaced
/// between its look-up and its open.
#[test]
fn a_name_that_is_being_replaced_can_always_be_opened() {
    on_world(|world| {
        let roots = world.roots();
        fs::write(roots[0].join("file"), "bytes").unwrap();
        symlink("file", roots[0].join("link")).unwrap();
        thread::scope(|scope| {
            // The server's own mount is the first one.
            for (mount, root) in roots.iter().enumerate().skip(1) {
                for name in ["file", "link"] {
                    let new = root.join(format!("new {name} {mount}"));
                    let path = root.join(name);
                    scope.spawn(move || {
                        for _ in 0..REPLACEMENTS {
                            match name {
                                "file" => fs::write(&new, "bytes").unwrap(),
                                _ => symlink("file", &new).unwrap(),
                            }
                            fs::rename(&new, &path).unwrap();
                        }
                    });
                }
                scope.spawn(move || {
                    for _ in 0..REPLACEMENTS {
                        assert_eq!(fs::read(root.join("file")).unwrap(), b"bytes");
                        assert_eq!(fs::read(root.join("link")).unwrap(), b"bytes");
                        assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("file"));
                    }
                });
            }
        });
    });
}

#[test]
fn new_and_removed_names_are_seen_at_once() {
    on_world(|world| {
        world.each_side(|side, others, dir| {
            fs::create_dir(side.join(dir)).unwrap();
            let all = |name: &str| -> Vec<PathBuf> {
                others.iter().map(|root| root.join(dir).join(name)).collect()
            };
            for round in 0..ROUNDS {
                let name = format!("n{round}");
                let moved = format!("m{round}");
                let own = side.join(dir).join(&name);
                assert!(all(&name).iter().all(|path| !exists(path)), "never made");
                match round % 3 {
                    0 => fs::write(&own, "x").unwrap(),
                    1 => fs::create_dir(&own).unwrap(),
                    _ => symlink("x", &own).unwrap(),
                }
                for root in others {
                    assert!(exists(&root.join(dir).join(&name)), "{name} at {}", root.display());
                    assert_eq!(names(&root.join(dir)), set_of(&[&name]));
                }
                fs::rename(&own, side.join(dir).join(&moved)).unwrap();
                for root in others {
                    assert!(!exists(&root.join(dir).join(&name)), "{}", root.display());
                    assert!(exists(&root.join(dir).join(&moved)), "{}", root.display());
                    assert_eq!(names(&root.join(dir)), set_of(&[&moved]));
                }
                let own = side.join(dir).join(&moved);
                if round % 3 == 1 { fs::remove_dir(own) } else { fs::remove_file(own) }.unwrap();
                assert!(all(&moved).iter().all(|path| !exists(path)), "removed");
                for root in others {
                    assert_eq!(names(&root.join(dir)), set_of(&[]));
                }
            }
        });
    });
}

#[test]
fn changed_attributes_are_seen_at_once() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            let own = side.join(name);
            fs::write(&own, "bytes").unwrap();
            let seen = |check: &dyn Fn(&Path)| {
                others.iter().for_each(|root| check(&root.join(name)));
            };
            for round in 0..ROUNDS {
                let mode = 0o600 | (round & 0o77);
                fs::set_permissions(&own, Permissions::from_mode(mode)).unwrap();
                seen(&|path| assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, mode));

                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + u64::from(round));
                let file = File::options().write(true).open(&own).unwrap();
                file.set_times(FileTimes::new().set_modified(time)).unwrap();
                seen(&|path| assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), time));
                drop(file);

                let value = format!("value {round}");
                let key = "user.key";
                lsetxattr(&own, key, value.as_bytes(), XattrFlags::empty()).unwrap();
                seen(&|path| assert_eq!(attribute(path, key).unwrap(), value.as_bytes()));
                lremovexattr(&own, key).unwrap();
                seen(&|path| assert_eq!(attribute(path, key), Err(Errno::NODATA)));

                fs::hard_link(&own, side.join(format!("{name}.link"))).unwrap();
                seen(&|path| assert_eq!(fs::metadata(path).unwrap().nlink(), 2));
                fs::remove_file(side.join(format!("{name}.link"))).unwrap();
                seen(&|path| assert_eq!(fs::metadata(path).unwrap().nlink(), 1));
            }
        });
    });
}

/// A list with rights for one user: owner, user, group, mask, others, as the kernel stores it.
fn list_for(user: u32, rights: u16) -> Vec<u8> {
    let entries = [
        (1, 6, u32::MAX),
        (2, rights, user),
        (4, 0, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(rights));
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

/// The kernel of each mount keeps lists to decide by: a new one must replace the old one.
#[test]
fn a_changed_access_control_list_is_seen_at_once() {
    const USER: u32 = 4711;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to be another user");
        return;
    }
    on_world(|world| {
        for path in world.roots() {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        world.each_side(|side, others, name| {
            let own = side.join(name);
            fs::write(&own, "bytes").unwrap();
            // The folders above the mounts are closed to others: each is entered beforehand.
            let doors: Vec<File> = others.iter().map(|root| File::open(root).unwrap()).collect();
            for round in 0..6 {
                let rights = if round % 2 == 0 { 4 } else { 0 };
                let list = list_for(USER, rights);
                lsetxattr(&own, ACCESS, &list, XattrFlags::empty()).unwrap();
                for (root, door) in others.iter().zip(&doors) {
                    assert_eq!(attribute(&root.join(name), ACCESS).unwrap(), list);
                    let may = as_user(USER, || {
                        let flags = rustix::fs::OFlags::RDONLY;
                        rustix::fs::openat(door, name, flags, rustix::fs::Mode::empty()).map(drop)
                    });
                    let expected = if rights == 4 { Ok(()) } else { Err(Errno::ACCESS) };
                    assert_eq!(may, expected, "{}", root.display());
                }
            }
        });
    });
}

fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(user)).unwrap();
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(user)).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Of creates of one name on all mounts at the same time, one succeeds.
#[test]
fn one_of_all_mounts_makes_a_name() {
    on_world(|world| {
        let roots = world.roots();
        for round in 0..50 {
            let made: usize = thread::scope(|scope| {
                let make = |root: &PathBuf| {
                    let path = root.join(format!("f{round}"));
                    scope.spawn(move || usize::from(File::create_new(path).is_ok()))
                };
                let makers: Vec<_> = roots.iter().map(make).collect();
                makers.into_iter().map(|maker| maker.join().unwrap()).sum()
            });
            assert_eq!(made, 1);
        }
    });
}

/// Programs on all mounts make and move names in one directory: afterwards all list the same.
#[test]
fn all_mounts_change_one_directory_together() {
    on_world(|world| {
        let roots = world.roots();
        thread::scope(|scope| {
            for (side, root) in roots.iter().enumerate() {
                scope.spawn(move || {
                    for number in 0..100 {
                        let path = root.join(format!("s{side}-{number}"));
                        fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
                        match number % 3 {
                            0 => fs::remove_file(&path).unwrap(),
                            1 => fs::rename(&path, path.with_extension("moved")).unwrap(),
                            _ => {}
                        }
                    }
                });
            }
        });
        let expected = names(&roots[0]);
        assert_eq!(expected.len(), 66 * roots.len());
        for root in &roots {
            assert_eq!(names(root), expected);
        }
    });
}

/// The programs of a mount see their changes to a directory at once, although each reply to a
/// change carries attributes of the directory, and although other threads change it meanwhile.
#[test]
fn a_program_sees_at_once_what_it_has_changed_of_a_directory() {
    on_world(|world| {
        for root in world.roots() {
            let dir = root.join("changing");
            fs::create_dir(&dir).unwrap();
            let seen = |what: &str, is_it: &dyn Fn(&fs::Metadata) -> bool| {
                let open = File::open(&dir).unwrap();
                let now = open.metadata().unwrap();
                assert!(is_it(&now), "{what}: {now:?}");
                now
            };
            let alone = |round: u32| {
                let file = dir.join(format!("file{round}"));
                let before = seen("before", &|_| true);
                let is_newer = |now: &fs::Metadata| {
                    (now.mtime(), now.mtime_nsec()) > (before.mtime(), before.mtime_nsec())
                };
                File::create(&file).unwrap();
                seen("a new file", &is_newer);
                let mode = 0o700 + round % 8;
                fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
                seen("its mode", &|now| now.mode() & 0o777 == mode);
                let links = before.nlink();
                fs::create_dir(dir.join("sub")).unwrap();
                seen("one more link", &|now| now.nlink() == links + 1);
                fs::rename(&file, dir.join("renamed")).unwrap();
                fs::remove_dir(dir.join("sub")).unwrap();
                seen("one link less", &|now| now.nlink() == links);
            };
            (0..ROUNDS).for_each(alone);
            thread::scope(|scope| {
                for worker in 0..3 {
                    let dir = &dir;
                    scope.spawn(move || {
                        for number in 0..5 * ROUNDS {
                            let file = dir.join(format!("w{worker}-{number}"));
                            let time = |open: &File| {
                                let now = open.metadata().unwrap();
                                (now.mtime(), now.mtime_nsec())
                            };
                            let open = File::open(dir).unwrap();
                            let before = time(&open);
                            File::create(file).unwrap();
                            let after = time(&open);
                            assert!(after > before, "{dir:?}: {before:?}, then {after:?}");
                        }
                    });
                }
            });
            fs::remove_dir_all(&dir).unwrap();
        }
    });
}
