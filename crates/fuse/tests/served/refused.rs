//! Systems that refuse a ring what it needs: the device serves then.

use std::fs::{self, File};
use std::io;
use std::sync::Barrier;
use std::thread;

use pelago_fuse::{Errno, NoRing, RingUse, SessionOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::alone::is_alone;
use crate::callers::{caller, on_one_processor, raise_open_files};
use crate::connection::Connection;
use crate::locks::options;
use crate::{Mounted, mounted, mounted_under, until};

/// Files are made and read, and no caller waits for ever.
fn serves(mounted: &mut Mounted, refused: Errno) {
    let patience = Connection::of(mounted.folder.path()).map(Connection::with_patience);
    fs::write(mounted.path("file"), b"bytes").unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"bytes");
    match mounted.path.ring() {
        Err(NoRing::NotWanted) => assert_eq!(crate::ring_is_wanted(), RingUse::Never),
        Err(NoRing::NotOffered | NoRing::SwitchedOff) => println!("skipped: not here: no ring"),
        path => assert_eq!(path, Err(NoRing::Refused(refused))),
    }
    drop(patience);
}

/// Filters of containers forbid all three, or the first.
#[test]
fn without_the_system_calls_of_a_ring_the_device_serves() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_register, libc::SYS_io_uring_enter] {
        thread::scope(|scope| {
            let serve = || {
                let Some(mut mounted) = mounted_under(options(), || forbid(call)) else { return };
                serves(&mut mounted, Errno::PERM);
                mounted.end().unwrap();
            };
            scope.spawn(serve).join().unwrap();
        });
    }
}

/// Has a system call fail with `EPERM` for this thread and all that it starts.
#[expect(unsafe_code, reason = "no crate has a safe binding for this call")]
fn forbid(call: libc::c_long) {
    let step =
        |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let error = libc::SECCOMP_RET_ERRNO | Errno::PERM.raw_os_error().unsigned_abs();
    let mut steps = [
        // The number of the call is first in `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::try_from(call).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, error),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the call reads the program of four steps.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// Allows this process so many more bytes of addresses than it has.
fn limit_addresses(more_bytes: u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = Rlimit { current: Some(kib * 1024 + more_bytes), maximum: None };
    setrlimit(Resource::As, limit).unwrap();
}

/// Less than the slots of one queue take, and more than the threads of the device.
const LITTLE: u64 = 24 << 20;

#[test]
fn without_memory_for_slots_the_device_serves() {
    if !is_alone("refused::without_memory_for_slots_the_device_serves") {
        return;
    }
    let Some(mut mounted) = mounted_under(options(), || limit_addresses(LITTLE)) else { return };
    serves(&mut mounted, Errno::NOMEM);
    mounted.end().unwrap();
}

const SYNCS: usize = 200;

/// They wait in the kernel until slots come back.
#[test]
fn callers_without_memory_for_a_slot_wait_and_are_answered() {
    if !is_alone("refused::callers_without_memory_for_a_slot_wait_and_are_answered") {
        return;
    }
    let Some(mut mounted) = mounted() else { return };
    let Some(connection) = Connection::of(mounted.folder.path()) else { return };
    raise_open_files();
    for number in 0..SYNCS {
        mounted.tree.put(&format!("sync-{number}"), b"");
    }
    mounted.tree.held.hold_syncs();
    let all_are_there = &Barrier::new(SYNCS + 1);
    let may_begin = &Barrier::new(SYNCS + 1);
    on_one_processor(|| {
        thread::scope(|scope| {
            let sync = |number: usize| {
                let file = File::open(mounted.path(&format!("sync-{number}"))).unwrap();
                caller(scope, move || {
                    all_are_there.wait();
                    may_begin.wait();
                    file.sync_all()
                })
            };
            let callers: Vec<_> = (0..SYNCS).map(sync).collect();
            all_are_there.wait();
            limit_addresses(0);
            may_begin.wait();
            // A ring may have made a request of its own.
            until(|| connection.waiting() >= Some(SYNCS));
            // Those that waited in the kernel are not held back any more.
            mounted.tree.held.take_syncs().into_iter().for_each(|reply| reply.ok(&()));
            for caller in callers {
                caller.join().unwrap().unwrap();
            }
        });
    });
    setrlimit(Resource::As, Rlimit { current: None, maximum: None }).unwrap();
    mounted.end().unwrap();
}

/// Any user who has no process.
const NOBODY: libc::uid_t = 64_321;

/// The thread of the session and two that read the device. A ring on two processors has four.
const THREADS: u64 = 3;

#[test]
fn without_threads_for_its_queues_the_device_serves() {
    if !is_alone("refused::without_threads_for_its_queues_the_device_serves") {
        return;
    }
    if thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
        return println!("skipped: not here: one processor");
    }
    let before = getrlimit(Resource::Nproc);
    let mounted = mounted_under(SessionOptions { threads: 2, ..options() }, || {
        setrlimit(Resource::Nproc, Rlimit { current: Some(THREADS), ..before }).unwrap();
        become_user(NOBODY);
    });
    become_user(0);
    let Some(mut mounted) = mounted else { return };
    serves(&mut mounted, Errno::AGAIN);
    setrlimit(Resource::Nproc, before).unwrap();
    mounted.end().unwrap();
}

/// Gives this thread, and those that it starts, a user; a second call takes it back.
#[expect(unsafe_code, reason = "the C library would do so for all threads")]
fn become_user(user: libc::uid_t) {
    // SAFETY: the call takes numbers.
    let set = unsafe { libc::syscall(libc::SYS_setresuid, user, user, 0) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}
