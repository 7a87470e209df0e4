//! Caching of a far mount under leases: it repeats no request, and never shows old state.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pelago_random::Random;
use rustix::process::{Signal, kill_process};

use crate::far::requests::on_counted;
use crate::far::{on_server, on_world, stop};

/// Longer than the term of a session, with which leases end.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_was_seen_asks_the_server_nothing() {
    on_counted(|counted, _dir| {
        let dir = counted.mount.path("dir");
        for number in 0..50 {
            fs::write(dir.join(number.to_string()), "bytes").unwrap();
        }
        let read = || {
            for number in 0..50 {
                assert_eq!(fs::read(dir.join(number.to_string())).unwrap(), b"bytes");
            }
        };
        // The first reads set the time of access.
        read();
        read();
        counted.expect(0, "open, read and close, warm", |_| read());
        counted.expect(0, "stat, warm", |_| {
            (0..50).for_each(|number| {
                assert_eq!(fs::metadata(dir.join(number.to_string())).unwrap().len(), 5);
            });
        });
        counted.expect(0, "a name that does not exist, warm", |_| {
            assert!(!dir.join("none").exists() && !dir.join("nowhere").exists());
        });
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(&dir).stdout(Stdio::null());
            assert!(command.status().unwrap().success());
        };
        counted.expect(0, "ls -l, warm", |_| run("ls -l"));
        // Both ask of which kind the file system is.
        counted.expect(1, "find, warm", |_| run("find . -printf %s"));
        counted.expect(1, "grep -r, warm", |_| run("grep -rc bytes ."));
    });
}

#[test]
fn a_listing_of_a_thousand_files_asks_eight_times_at_most() {
    on_counted(|counted, _dir| {
        let served = counted.world.volume.files().join("dir");
        counted.expect(8, "ls -l of 1,000 files, cold", |attempt| {
            let dir = counted.mount.path("dir").join(attempt.to_string());
            // The attempt asks for no more than what is listed: the server's mount makes it.
            let made = served.join(attempt.to_string());
            fs::create_dir(&made).unwrap();
            (0..1000).for_each(|number| drop(File::create(made.join(number.to_string())).unwrap()));
            let listed =
                Command::new("ls").arg("-l").arg(&dir).env("LC_ALL", "C").output().unwrap();
            assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), 1001);
        });
    });
}

#[test]
fn a_new_name_in_a_directory_known_whole_asks_once() {
    on_counted(|counted, _dir| {
        let dir = counted.mount.path("dir");
        fs::create_dir(dir.join("made")).unwrap();
        let in_new = |attempt: u32| {
            (0..50).for_each(|number| {
                let name = dir.join("made").join(format!("{attempt} {number}"));
                std::os::unix::fs::symlink("target", name).unwrap();
            });
        };
        counted.expect(50, "50 names in a new directory", in_new);
        fs::write(dir.join("one"), "bytes").unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        counted.expect(0, "a name that was never asked for", |attempt| {
            assert!(!dir.join(format!("other {attempt}")).exists());
        });
    });
}

/// The state of a name in a mount.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Shown {
    mode: u32,
    links: u64,
    bytes: Vec<u8>,
}

fn shown(path: &Path) -> Option<Shown> {
    let attributes = fs::symlink_metadata(path).ok()?;
    let mode = attributes.mode() & 0o777;
    let links = attributes.nlink();
    let bytes = fs::read(path).unwrap();
    assert_eq!(attributes.len(), bytes.len() as u64, "{}", path.display());
    Some(Shown { mode, links, bytes })
}

/// One of the mounts changes something; all that had the old state show the new one.
#[test]
fn every_mount_shows_each_change_once_it_is_answered() {
    on_world(|world| {
        let roots = world.roots();
        let mut random = Random::new(7);
        let mut below = |limit: u64| random.below(limit);
        for round in 0..300 {
            let root = &roots[below(3) as usize];
            let name = |number: u64| root.join(format!("n{number}"));
            let one = name(below(4));
            let other = name(below(4));
            // An error says that the name was not there, or that both are the same.
            match below(9) {
                0 => fs::write(&one, format!("written in round {round}")).unwrap(),
                1 => drop(fs::remove_file(&one)),
                2 => drop(fs::rename(&one, &other)),
                3 => drop(fs::hard_link(&one, &other)),
                4 => drop(fs::set_permissions(&one, Permissions::from_mode(0o600 + round % 64))),
                5 => drop(File::options().write(true).open(&one).map(|it| it.set_len(5))),
                6 => {
                    let new = root.join("new");
                    fs::write(&new, format!("replaced in {round}")).unwrap();
                    fs::rename(&new, &one).unwrap();
                }
                7 => change_unseen(&one),
                _ => {
                    drop(fs::create_dir(root.join("dir")));
                    drop(fs::remove_dir(root.join("dir")));
                }
            }
            let all = |root: &PathBuf| -> Vec<Option<Shown>> {
                (0..4).map(|number| shown(&root.join(format!("n{number}")))).collect()
            };
            let expected = all(root);
            for other in &roots {
                assert_eq!(all(other), expected, "round {round}: {}", other.display());
                let mut names: Vec<_> =
                    fs::read_dir(other).unwrap().map(|it| it.unwrap().file_name()).collect();
                names.sort();
                assert_eq!(names.len(), expected.iter().flatten().count(), "{names:?}");
            }
        }
    });
}

/// Writes other bytes of the same size, and sets the old time of modification again.
fn change_unseen(path: &Path) {
    let Ok(old) = fs::metadata(path) else { return };
    let file = File::options().write(true).open(path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(path, bytes).unwrap();
    let times = FileTimes::new().set_modified(old.modified().unwrap_or(SystemTime::UNIX_EPOCH));
    file.set_times(times).unwrap();
}

/// An open of a file that was seen before costs no message, and is the mount's own: it must reach
/// the server before the file loses its name.
#[test]
fn a_file_that_was_opened_without_a_message_outlives_its_name() {
    on_world(|world| {
        let roots = world.roots();
        for (number, remover) in roots.iter().enumerate() {
            for reader in &roots {
                let name = format!("file {number}");
                let large = vec![b'x'; 1 << 18];
                fs::write(remover.join(&name), &large).unwrap();
                // The first read sets the time of access.
                for _ in 0..2 {
                    assert_eq!(fs::read(reader.join(&name)).unwrap().len(), large.len());
                }
                let mut open = File::open(reader.join(&name)).unwrap();
                match number % 2 {
                    0 => fs::remove_file(remover.join(&name)).unwrap(),
                    _ => {
                        fs::write(remover.join("other"), "other").unwrap();
                        fs::rename(remover.join("other"), remover.join(&name)).unwrap();
                    }
                }
                rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                let mut bytes = Vec::new();
                open.seek(SeekFrom::Start(0)).unwrap();
                open.read_to_end(&mut bytes).unwrap();
                assert!(bytes == large, "{} bytes", bytes.len());
                drop(fs::remove_file(remover.join(&name)));
            }
        }
    });
}

/// A mount that cannot answer delays a change until its leases have ended, and nothing else.
#[test]
fn a_mount_that_is_stopped_delays_changes_of_what_it_keeps_for_a_term() {
    on_server(|world| {
        let stopped = world.mount_tls("tls");
        let other = world.mount_unix("unix");
        fs::create_dir(other.path("apart")).unwrap();
        fs::write(stopped.path("file"), "old").unwrap();
        assert_eq!(fs::read(stopped.path("file")).unwrap(), b"old");
        stop(stopped.pid);
        let start = Instant::now();
        let changing = other.path("file");
        let change = thread::Builder::new().spawn(move || {
            fs::set_permissions(changing, Permissions::from_mode(0o600)).unwrap();
        });
        // What it does not keep is changed at once.
        fs::write(other.path("apart/file"), "bytes").unwrap();
        let apart = start.elapsed();
        change.unwrap().join().unwrap();
        let waited = start.elapsed();
        println!("apart {apart:?}, waited {waited:?}");
        assert!(waited < PATIENCE);
        kill_process(stopped.pid, Signal::CONT).unwrap();
        let mode = fs::metadata(stopped.path("file")).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        fs::write(stopped.path("file"), "it goes on").unwrap();
        assert_eq!(fs::read(other.path("file")).unwrap(), b"it goes on");
    });
}
