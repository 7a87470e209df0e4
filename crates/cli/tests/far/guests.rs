//! The requests of a guest's mount beside those of a machine's.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::far::on_server;
use crate::far::requests::{ATTEMPTS, Counted};

/// Files of the listing that is asked for cold.
const FILES: u32 = 1000;

/// An operation of the table in `docs/benchmarks.md`, with its requests there.
struct Row {
    name: &'static str,
    requests: u64,
    /// Works in a folder of the mount. Each attempt has a number, from 0.
    work: fn(&Place, u32),
}

/// The folder of an operation, seen through the counted mount and through the server's.
struct Place {
    far: PathBuf,
    served: PathBuf,
}

const ROWS: [Row; 15] = [
    Row {
        name: "create, close",
        requests: 2,
        work: |Place { far, .. }, at| drop(File::create_new(far.join(format!("c{at}"))).unwrap()),
    },
    Row {
        name: "create, write, close",
        requests: 3,
        work: |Place { far, .. }, at| fs::write(far.join(format!("w{at}")), "bytes").unwrap(),
    },
    Row {
        name: "open, read, close of a file that was written just before",
        requests: 3,
        work: |Place { far, .. }, at| {
            assert_eq!(fs::read(far.join(format!("read{at}"))).unwrap(), b"bytes");
        },
    },
    Row {
        name: "mkdir",
        requests: 1,
        work: |Place { far, .. }, at| fs::create_dir(far.join(format!("d{at}"))).unwrap(),
    },
    Row {
        name: "symlink",
        requests: 1,
        work: |Place { far, .. }, at| symlink("target", far.join(format!("s{at}"))).unwrap(),
    },
    Row {
        name: "unlink",
        requests: 1,
        work: |Place { far, .. }, at| fs::remove_file(far.join(format!("link{at}"))).unwrap(),
    },
    Row {
        name: "rename over a file",
        requests: 1,
        work: |Place { far, .. }, at| {
            fs::rename(far.join(format!("from{at}")), far.join(format!("to{at}"))).unwrap();
        },
    },
    Row {
        name: "a name that does not exist",
        requests: 0,
        work: |Place { far, .. }, at| assert!(!far.join(format!("none{at}")).exists()),
    },
    Row {
        name: "ls -l of 1,000 files, cold",
        requests: 4,
        work: |Place { far, served }, at| {
            // The server's mount makes it, so the attempt asks for no more than what is listed.
            let made = served.join(format!("many{at}"));
            fs::create_dir(&made).unwrap();
            for number in 0..FILES {
                drop(File::create_new(made.join(number.to_string())).unwrap());
            }
            run("ls -l", &far.join(format!("many{at}")));
        },
    },
    Row { name: "ls -l, warm", requests: 0, work: |place, _| run("ls -l", &place.warm()) },
    Row {
        name: "stat, warm",
        requests: 0,
        work: |place, _| assert_eq!(fs::metadata(place.warm().join("file")).unwrap().len(), 5),
    },
    Row {
        name: "open, read, close, warm",
        requests: 0,
        work: |place, _| assert_eq!(fs::read(place.warm().join("file")).unwrap(), b"bytes"),
    },
    Row {
        name: "find, warm",
        requests: 1,
        work: |place, _| run("find . -printf %s", &place.warm()),
    },
    Row {
        name: "grep -r, warm",
        requests: 1,
        work: |place, _| run("grep -rc bytes .", &place.warm()),
    },
    Row {
        name: "rmdir",
        requests: 1,
        work: |Place { far, .. }, at| fs::remove_dir(far.join(format!("dir{at}"))).unwrap(),
    },
];

impl Place {
    /// Returns a folder with a file of five bytes, all of which was seen before.
    fn warm(&self) -> PathBuf {
        self.far.join("warm")
    }

    /// Makes what the operations of all attempts want.
    fn prepare(&self) {
        fs::create_dir(&self.far).unwrap();
        fs::create_dir(self.warm()).unwrap();
        fs::write(self.warm().join("file"), "bytes").unwrap();
        // The first read sets the time of access.
        for _ in 0..2 {
            run("ls -l && grep -rc bytes .", &self.warm());
        }
        for at in 0..ATTEMPTS {
            for letter in ["read", "from", "to"] {
                fs::write(self.far.join(format!("{letter}{at}")), "bytes").unwrap();
            }
            symlink("target", self.far.join(format!("link{at}"))).unwrap();
            fs::create_dir(self.far.join(format!("dir{at}"))).unwrap();
        }
    }
}

/// Runs a line of a shell in a folder.
fn run(line: &str, dir: &Path) {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(dir).env("LC_ALL", "C").stdout(Stdio::null());
    assert!(shell.status().unwrap().success(), "{line}");
}

#[test]
fn a_guest_asks_no_more_than_a_machine() {
    on_server(|world| {
        let guest = Counted { world, mount: world.attach("guest") };
        let machine = Counted { world, mount: world.mount_tls("tls") };
        let place = |counted: &Counted<'_>, served: &str| {
            let served = world.volume.files().join(served);
            let place = Place { far: counted.mount.path("dir"), served };
            place.prepare();
            place
        };
        let of_guest = place(&guest, "shared/dir");
        let of_machine = place(&machine, "dir");
        let mut wrong = Vec::new();
        for Row { name, requests, work } in ROWS {
            let most = machine.expect(requests, name, |at| work(&of_machine, at));
            let count = guest.count(most, &format!("{name}, as a guest"), |at| work(&of_guest, at));
            if count > most {
                wrong.push(format!("{name}: {count} requests, at most {most}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}
