//! File locks of programs that exclude each other: what they hold, what ends them, who waits. All
//! but the last test run on ext4 too, where the kernel keeps the locks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::harness::program::until;
use crate::harness::programs::{Program, locker};
use crate::mounted::beside::on_both;
use crate::mounted::on_volume;

/// `EAGAIN`.
const TAKEN: &str = "no, 11";

/// Runs `work` with a new file, beside the mount too.
pub(crate) fn on_file(work: impl Fn(&Path)) {
    if !cfg!(target_pointer_width = "64") {
        println!("skipped: not here: the lock of a range looks otherwise");
        return;
    }
    on_both(|root| {
        let path = root.join("locked");
        fs::write(&path, "x").unwrap();
        work(&path);
    });
}

pub(crate) fn program(path: &Path) -> Program {
    locker(path)
}

#[test]
fn ranges_of_a_process_replace_and_join_each_other() {
    on_file(|path| {
        let mut one = program(path);
        let mut other = program(path);
        let pid = one.id();
        assert_eq!(one.ask("try fcntl write 0 100"), "yes");
        assert_eq!(one.ask("try fcntl drop 10 10"), "yes");
        assert_eq!(one.ask("try fcntl read 30 10"), "yes");
        let mut found = |start, length| other.ask(&format!("test fcntl write {start} {length}"));
        assert_eq!(found(0, 0), format!("write 0 10 {pid}"));
        assert_eq!(found(10, 10), "free");
        assert_eq!(found(10, 11), format!("write 20 10 {pid}"));
        assert_eq!(found(35, 1), format!("read 30 10 {pid}"));
        assert_eq!(found(40, 0), format!("write 40 60 {pid}"));
        assert_eq!(found(100, 0), "free");
        assert_eq!(other.ask("try fcntl read 32 2"), "yes");
        assert_eq!(other.ask("try fcntl read 29 2"), TAKEN);
        assert_eq!(one.ask("try fcntl write 0 0"), TAKEN, "the other reads");
        assert_eq!(other.ask("try fcntl drop 0 0"), "yes");
        assert_eq!(one.ask("try fcntl write 0 0"), "yes");
        assert_eq!(other.ask("test fcntl read 5000 1"), format!("write 0 0 {pid}"));
    });
}

#[test]
fn a_close_of_any_descriptor_drops_the_locks_of_its_process() {
    on_file(|path| {
        let mut one = program(path);
        let mut other = program(path);
        assert_eq!(one.ask("open"), "yes");
        assert_eq!(one.ask("try fcntl write 0 10"), "yes");
        assert_eq!(other.ask("try fcntl write 0 10"), TAKEN);
        // Another process that closes the file drops nothing.
        drop(File::open(path).unwrap());
        assert_eq!(other.ask("try fcntl write 0 10"), TAKEN);
        assert_eq!(one.ask("close 1"), "yes");
        assert_eq!(other.ask("try fcntl write 0 10"), "yes");
    });
}

#[test]
fn a_lock_of_an_open_file_ends_with_its_last_descriptor() {
    on_file(|path| {
        let mut one = program(path);
        let mut other = program(path);
        assert_eq!(one.ask("open"), "yes");
        assert_eq!(one.ask("try ofd write 0 10 1"), "yes");
        assert_eq!(one.ask("try ofd write 0 10 0"), TAKEN, "of the same process");
        assert_eq!(one.ask("close 0"), "yes");
        assert_eq!(other.ask("try fcntl write 0 10"), TAKEN, "of the other kind");
        assert_eq!(one.ask("close 1"), "yes");
        // The kernel sends RELEASE after `close` has returned.
        until("it ended", || other.ask("try fcntl write 0 10") == "yes");
    });
}

/// `kill` returns only when the process has ended, which the kernel keeps until its request has an
/// answer.
#[test]
fn a_killed_waiter_ends_and_leaves_no_lock() {
    on_file(|path| {
        let mut one = program(path);
        let mut third = program(path);
        assert_eq!(one.ask("try fcntl write 0 10"), "yes");
        let mut waiter = program(path);
        waiter.tell_to_wait("wait fcntl write 0 10");
        waiter.kill();
        assert_eq!(one.ask("try fcntl drop 0 10"), "yes");
        assert_eq!(third.ask("try fcntl write 0 10"), "yes");
        assert_eq!(third.ask("try fcntl drop 0 10"), "yes");
        // The signal and the lock meet.
        for _ in 0..50 {
            assert_eq!(one.ask("try fcntl write 0 10"), "yes");
            let mut waiter = program(path);
            waiter.tell_to_wait("wait fcntl write 0 10");
            one.tell("try fcntl drop 0 10");
            waiter.kill();
            assert_eq!(one.hear(), "yes");
            assert_eq!(third.ask("wait fcntl write 0 10"), "yes");
            assert_eq!(third.ask("try fcntl drop 0 10"), "yes");
        }
    });
}

/// Each adds one to a number under the lock, so that two holders would lose an addition.
#[test]
fn two_hundred_waiters_take_turns() {
    const WAITERS: usize = 200;
    const ROUNDS: usize = 5;
    on_file(|path| {
        let open = || File::options().read(true).write(true).open(path).unwrap();
        let gate = open();
        let done = AtomicUsize::new(0);
        gate.write_all_at(&0_u64.to_le_bytes(), 0).unwrap();
        gate.lock().unwrap();
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    let file = open();
                    for _ in 0..ROUNDS {
                        file.lock().unwrap();
                        let mut number = [0; 8];
                        file.read_exact_at(&mut number, 0).unwrap();
                        let next = u64::from_le_bytes(number) + 1;
                        file.write_all_at(&next.to_le_bytes(), 0).unwrap();
                        file.unlock().unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            gate.unlock().unwrap();
            until("all had their turns", || done.load(Ordering::Relaxed) == WAITERS);
        });
        let number = fs::read(path).unwrap();
        assert_eq!(number, ((WAITERS * ROUNDS) as u64).to_le_bytes());
    });
}

/// The bytes that sqlite locks: one for a writer that waits for readers, one for the writer to be,
/// and 510 that readers share.
#[test]
fn locks_as_sqlite_sets_them() {
    const PENDING: &str = "1073741824 1";
    const RESERVED: &str = "1073741825 1";
    const SHARED: &str = "1073741826 510";
    on_file(|path| {
        let mut writer = program(path);
        let mut reader = program(path);
        let set = |who: &mut Program, kind: &str, bytes: &str| {
            who.ask(&format!("try fcntl {kind} {bytes}"))
        };
        for who in [&mut writer, &mut reader] {
            assert_eq!(set(who, "read", PENDING), "yes");
            assert_eq!(set(who, "read", SHARED), "yes");
            assert_eq!(set(who, "drop", PENDING), "yes");
        }
        assert_eq!(set(&mut writer, "write", RESERVED), "yes");
        assert_eq!(set(&mut reader, "write", RESERVED), TAKEN);
        assert_eq!(set(&mut writer, "write", PENDING), "yes");
        assert_eq!(set(&mut writer, "write", SHARED), TAKEN, "a reader is left");
        let mut late = program(path);
        assert_eq!(set(&mut late, "read", PENDING), TAKEN, "no new reader");
        assert_eq!(set(&mut reader, "drop", "0 0"), "yes");
        assert_eq!(set(&mut writer, "write", SHARED), "yes");
        assert_eq!(set(&mut reader, "read", SHARED), TAKEN);
        // One call makes all three read locks, then drops two.
        assert_eq!(set(&mut writer, "read", "1073741824 512"), "yes");
        assert_eq!(set(&mut writer, "drop", "1073741824 2"), "yes");
        assert_eq!(set(&mut late, "read", PENDING), "yes");
        assert_eq!(set(&mut late, "read", SHARED), "yes");
    });
}

#[test]
fn the_status_counts_locks_and_waiters() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        let counts = || {
            let status = volume.run("status", &["--json"]).expect_success().json();
            [&status["locks"], &status["lock_waiters"]].map(|count| count.as_u64().unwrap())
        };
        let file = File::create(&path).unwrap();
        assert_eq!(counts(), [0, 0]);
        file.lock().unwrap();
        let mut waiter = program(&path);
        assert_eq!(waiter.ask("try fcntl write 0 1"), "yes");
        assert_eq!(waiter.ask("try fcntl write 5 1"), "yes");
        let mut other = program(&path);
        other.tell_to_wait("wait fcntl write 0 9");
        until("it is counted", || counts() == [3, 1]);
        drop((waiter, file));
        assert_eq!(other.hear(), "yes");
        drop(other);
        until("all have ended", || counts() == [0, 0]);
        volume.wait_until_closed();
    });
}
