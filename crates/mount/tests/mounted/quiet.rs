//! The kernel does not request again what it has cached.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use pelago_mount::{Keeps, MountOptions};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, open, statat};

use super::{Mounted, mounted, mounted_with};
use crate::memory::spread;

const FILES: u32 = 200;

impl Mounted {
    fn requests(&self) -> u64 {
        self.memory.requests.load(Ordering::Relaxed)
    }

    /// Waits for the RELEASE requests, which come after `close` has returned.
    fn wait_until_all_is_closed(&self) {
        let begun = Instant::now();
        while self.memory.opens() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a file stays open");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a look-up has brought to a kernel that keeps nothing answers the next request of its
/// thread, and none behind that.
#[test]
fn any_request_of_a_thread_forgets_what_its_look_up_brought() {
    let keeps_nothing = |options: &mut MountOptions| options.keeps = Keeps::Nothing;
    let Some(mounted) = mounted_with(spread, keeps_nothing) else { return };
    for name in ["found", "other"] {
        mounted.memory.put(name, b"bytes");
    }
    let other = File::open(mounted.path("other")).unwrap();
    let mode = Permissions::from_mode(0o600);
    for _ in 0..20 {
        let found = open(mounted.path("found"), OFlags::PATH, Mode::empty()).unwrap();
        other.set_permissions(mode.clone()).unwrap();
        let before = mounted.requests();
        fstat(&found).unwrap();
        assert_eq!(mounted.requests(), before + 1, "the server is asked");
    }
}

/// Files of all histories: created by another client, created here, read, written to, and one that
/// is still open for reading.
#[test]
fn a_million_warm_stats_send_no_request() {
    let Some(mounted) = mounted(spread) else { return };
    let paths: Vec<_> = (0..FILES).map(|index| mounted.path(&format!("{index}"))).collect();
    for (index, path) in paths.iter().enumerate() {
        match index % 3 {
            0 => mounted.memory.put(&format!("{index}"), b"bytes"),
            _ => fs::write(path, b"bytes").unwrap(),
        }
        match index % 4 {
            0 => assert_eq!(fs::read(path).unwrap(), b"bytes"),
            1 => OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap(),
            _ => {}
        }
    }
    mounted.wait_until_all_is_closed();
    let _reader = File::open(&paths[0]).unwrap();
    // `O_PATH` descriptors keep the kernel from forgetting the inodes if memory is short.
    let pins = paths.iter().map(|path| open(path, OFlags::PATH, Mode::empty()).unwrap());
    let _pins: Vec<_> = pins.collect();
    let stat_all = || {
        for path in &paths {
            statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    };
    stat_all();
    let before = mounted.requests();
    (0..1_000_000 / FILES).for_each(|_| stat_all());
    assert_eq!(mounted.requests(), before);
}

/// The kernel lists a directory from its cache until a name is created or removed there.
#[test]
fn a_listing_is_cached_until_the_directory_changes() {
    let Some(mounted) = mounted(spread) else { return };
    for index in 0..3_000 {
        mounted.memory.put(&format!("{index}"), b"");
    }
    let names = || {
        let entries = fs::read_dir(mounted.mount.point()).unwrap();
        let names = entries.map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            entry.file_name()
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 3_000);
    // A round is not quiet if memory is short or the kernel's caches are dropped.
    let is_quiet = || {
        let before = mounted.requests();
        assert_eq!(names().len(), 3_000);
        mounted.requests() == before
    };
    assert!((0..100).any(|_| is_quiet()), "each of 100 listings has sent requests");
    File::create(mounted.path("one more")).unwrap();
    assert_eq!(names().len(), 3_001);
    fs::rename(mounted.path("one more"), mounted.path("another")).unwrap();
    assert!(names().iter().any(|name| name == "another"));
    fs::remove_file(mounted.path("another")).unwrap();
    assert_eq!(names().len(), 3_000);
}
