//! The number of requests to the server for each operation of a far mount.
//!
//! These are operations on what the mount has not seen yet, or changes itself; what it keeps is in
//! `leases`. RELEASE is counted too, although no program waits for it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pelago_random::bytes_of;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::process::Signal;

use crate::far::world::{FarMount, World};
use crate::far::{on_server, stop};
use crate::harness::program::until;

/// A mount that has asked nothing for this long has nothing on its way.
const QUIET: Duration = Duration::from_millis(300);
/// Attempts of one operation.
pub(crate) const ATTEMPTS: u32 = 5;
/// Bytes of the large file.
const LARGE: usize = 1 << 20;
/// Names in the directory that is listed.
const NAMES: u64 = 100;

/// A mount whose requests are counted.
pub(crate) struct Counted<'a> {
    pub(crate) world: &'a World,
    pub(crate) mount: FarMount,
}

impl Counted<'_> {
    fn requests(&self) -> u64 {
        let point = self.mount.point.to_str().unwrap();
        let said = self.world.pelago(&["status", point, "--json"]).expect_success().json();
        said["requests"].as_u64().unwrap()
    }

    /// Returns the count once it stays the same.
    fn settled(&self) -> u64 {
        let mut count = self.requests();
        until("quiet", || {
            // Only the clock ends this wait: nothing reports that no request will come. None has
            // come for this time.
            thread::sleep(QUIET);
            std::mem::replace(&mut count, self.requests()) == count
        });
        count
    }

    /// Asserts that `work` asks at most so much, and returns what it asks: the least of some
    /// attempts, because a loaded machine lets what holds for a moment expire.
    pub(crate) fn expect(&self, most: u64, what: &str, work: impl FnMut(u32)) -> u64 {
        let least = self.count(most, what, work);
        assert!(least <= most, "{what}: {least} requests, at most {most}");
        least
    }

    /// Returns the least that `work` asks in some attempts, or in the first one that asks at most
    /// so much.
    pub(crate) fn count(&self, most: u64, what: &str, mut work: impl FnMut(u32)) -> u64 {
        let mut least = u64::MAX;
        for attempt in 0..ATTEMPTS {
            let before = self.settled();
            work(attempt);
            // What the question for the count itself asks.
            let idle = self.settled();
            least = least.min(idle - before);
            if least <= most {
                break;
            }
        }
        println!("{what}: {least} requests");
        least
    }
}

pub(crate) fn on_counted(work: impl FnOnce(&Counted<'_>, File)) {
    on_server(|world| {
        let mount = world.mount_tls("tls");
        fs::create_dir(mount.path("dir")).unwrap();
        let dir = File::open(mount.path("dir")).unwrap();
        work(&Counted { world, mount }, dir);
    });
}

fn create(dir: &File, name: &str) -> File {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR).unwrap())
}

/// Names in an open directory.
#[test]
fn an_operation_asks_the_server_at_most_so_often() {
    on_counted(|counted, dir| {
        counted.expect(0, "nothing", |_| {});
        // All names of the directory are known: this mount has made it. CREATE; RELEASE behind the
        // close.
        counted.expect(2, "create and close", |turn| drop(create(&dir, &format!("c{turn}"))));
        // The same, and at the close the WRITE, which commits the file.
        counted.expect(3, "create, write and close", |turn| {
            create(&dir, &format!("w{turn}")).write_all(b"bytes").unwrap();
        });
        counted.expect(3, "create, a hundred small writes and close", |turn| {
            let mut file = create(&dir, &format!("h{turn}"));
            (0..100).for_each(|_| file.write_all(b"bytes").unwrap());
        });
        counted.expect(3 * 20 + 4, "twenty files in a row", |turn| {
            for number in 0..20 {
                create(&dir, &format!("r{turn}-{number}")).write_all(b"bytes").unwrap();
            }
        });
        // The answer to the RELEASE has told the attributes.
        counted.expect(0, "stat", |turn| {
            let name = format!("w{turn}");
            assert_eq!(statat(&dir, name, AtFlags::empty()).unwrap().st_size, 5);
        });
        // READ goes right behind the OPEN; RELEASE behind the close.
        counted.expect(3, "open, read and close", |_| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let mut file = File::from(openat(&dir, "w0", flags, Mode::empty()).unwrap());
            assert_eq!(file.read(&mut [0; 4096]).unwrap(), 5);
        });
        counted.expect(1, "mkdir", |turn| {
            mkdirat(&dir, format!("d{turn}"), Mode::RWXU).unwrap();
        });
        // The kernel reads ahead only for opens that do not write: of 1 MiB in pieces of 8 KiB.
        fs::write(counted.world.volume.files().join("large"), bytes_of(1, LARGE)).unwrap();
        counted.expect(12, "open to write, read in pieces and close", |_| {
            let large = counted.mount.path("large");
            let mut file = File::options().read(true).write(true).open(large).unwrap();
            let mut piece = [0; 8192];
            let mut read = Vec::new();
            while read.len() < LARGE {
                file.read_exact(&mut piece).unwrap();
                read.extend_from_slice(&piece);
            }
            assert!(read == bytes_of(1, LARGE));
        });
        for turn in 0..ATTEMPTS {
            drop(create(&dir, &format!("u{turn}")));
            drop(create(&dir, &format!("new{turn}")));
        }
        counted.expect(1, "unlink", |turn| {
            unlinkat(&dir, format!("u{turn}"), AtFlags::empty()).unwrap();
        });
        counted.expect(1, "rename over a file", |turn| {
            renameat(&dir, format!("new{turn}"), &dir, "w0").unwrap();
        });
    });
}

/// The mount has made the directory, but has not listed it before.
#[test]
fn a_listing_asks_at_most_so_often_for_each_name() {
    on_counted(|counted, dir| {
        for number in 0..NAMES {
            drop(create(&dir, &number.to_string()));
        }
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(counted.mount.path("dir")).env("LC_ALL", "C");
            assert!(command.stdout(Stdio::null()).status().unwrap().success());
        };
        counted.expect(2, "ls -f", |_| run("ls", &["-f"]));
        counted.expect(0, "ls -l", |_| run("ls", &["-l"]));
        // It asks of which kind the file system is.
        counted.expect(1, "find -printf %s", |_| run("find", &["-printf", "%s"]));
    });
}

/// A close of a file that was only read waits for nothing.
#[test]
fn a_close_does_not_wait_for_the_release() {
    on_server(|world| {
        let mount = world.mount_tls("tls");
        fs::write(mount.path("f"), b"bytes").unwrap();
        let file = File::open(mount.path("f")).unwrap();
        let server = world.volume.pid().unwrap();
        stop(server);
        let closing = thread::Builder::new().spawn(move || {
            let start = Instant::now();
            drop(file);
            start.elapsed()
        });
        let closing = closing.unwrap();
        let ends = Instant::now() + Duration::from_secs(30);
        while !closing.is_finished() && Instant::now() < ends {
            thread::sleep(Duration::from_millis(10));
        }
        let has_ended = closing.is_finished();
        rustix::process::kill_process(server, Signal::CONT).unwrap();
        println!("closed after {:?}", closing.join().unwrap());
        assert!(has_ended, "the close has waited for the server");
        assert!(Path::new(&mount.path("f")).exists());
    });
}
