//! The inode table keeps its limit, because the kernel is asked to forget inodes.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use super::mounted_with;
use crate::memory::spread;

/// A limit of about 60 pages of the table.
const LIMIT_BYTES: u64 = 24 << 10;
const FILES: u32 = 6_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns whether the kernel knows FUSE_NOTIFY_PRUNE, which came with Linux 6.18.
pub(crate) fn cannot_prune() -> Option<String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split(|sign: char| !sign.is_ascii_digit());
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let known = (number(), number()) >= (6, 18);
    (!known).then(|| format!("not here: Linux {release} cannot be asked to forget inodes"))
}

#[test]
fn the_kernel_forgets_inodes_before_the_table_is_full() {
    if let Some(reason) = cannot_prune() {
        println!("skipped: {reason}");
        return;
    }
    let limited = |options: &mut pelago_mount::MountOptions| {
        options.inode_table_bytes = LIMIT_BYTES;
    };
    let Some(mounted) = mounted_with(spread, limited) else { return };
    let name = |number: u32| mounted.path(&format!("file-{number}"));
    fs::write(name(0), "kept").unwrap();
    let kept = File::open(name(0)).unwrap();
    for number in 1..FILES {
        fs::write(name(number), number.to_string()).unwrap();
    }
    // All files together take five times the limit.
    let inodes = mounted.mount.inodes();
    let until = Instant::now() + DEADLINE;
    while inodes.bytes() > LIMIT_BYTES {
        assert!(Instant::now() < until, "{} bytes", inodes.bytes());
        thread::sleep(Duration::from_millis(5));
        // A new file makes a full table start a sweep.
        fs::write(mounted.path("again"), "").unwrap();
        fs::remove_file(mounted.path("again")).unwrap();
    }
    for number in (1..FILES).step_by(97) {
        assert_eq!(fs::read_to_string(name(number)).unwrap(), number.to_string());
    }
    assert_eq!(kept.metadata().unwrap().len(), 4);
    assert_eq!(fs::read_to_string(name(0)).unwrap(), "kept");
}
