//! Callers that are killed, that exit, and that live.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::thread::{EXIT_CODE, FLAGS, KILL, is_killed};
use super::*;
use crate::device::Device;
use crate::ids::NodeId;

/// The seconds of a file system that has no server.
const HERE: u64 = u64::MAX;

/// Is silent for so many seconds, and records the requests that were given up.
#[derive(Default)]
struct Silent {
    seconds: AtomicU64,
    given_up: Mutex<Vec<u64>>,
}

impl Filesystem for Silent {
    fn given_up(&self, unique: u64) {
        self.given_up.lock().push(unique);
    }

    fn silence(&self) -> Option<Duration> {
        match self.seconds.load(Ordering::Relaxed) {
            HERE => None,
            seconds => Some(Duration::from_secs(seconds)),
        }
    }
}

/// The kernel's end of a descriptor, and the requests that were read from it.
struct Kernel {
    end: UnixDatagram,
    device: Arc<Device>,
}

impl Kernel {
    fn new() -> Self {
        let (end, device) = UnixDatagram::pair().unwrap();
        end.set_nonblocking(true).unwrap();
        Self { end, device: Arc::new(Device::new(device.into())) }
    }

    /// Notes a request that waits.
    fn ask(&self, waiters: &Waiters, unique: u64, thread: u32) -> ReplyTo {
        let to = ReplyTo::device_of(&self.device);
        to.begin(unique);
        let header = Header { unique, node: NodeId(1), uid: 0, gid: 0, pid: thread };
        waiters.add(&to, &header, Wait::Other);
        to
    }

    /// Returns number and error of the next reply, if there is one.
    fn reply(&self) -> Option<(u64, i32)> {
        let mut reply = [0; 64];
        let length = self.end.recv(&mut reply).ok()?;
        let mut cursor = crate::bytes::Cursor::new(&reply[..length]);
        let _bytes = cursor.u32().unwrap();
        let error = cursor.i32().unwrap();
        Some((cursor.u64().unwrap(), error))
    }
}

/// A process that has a pending SIGKILL does not live long enough to be looked at, unless it waits
/// in the kernel: mounted tests do that. Here the status says it.
#[test]
fn a_pending_kill_is_seen_and_no_other_signal() {
    let status = |own: u64, shared: u64| {
        format!("Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{:016x}\n", 0)
    };
    assert!(is_killed(&status(KILL, 0)) && is_killed(&status(0, KILL | 1)));
    assert!(!is_killed(&status(0, 0)) && !is_killed(&status(!KILL, !KILL)) && !is_killed(""));
}

#[test]
fn an_exit_by_a_signal_is_told_from_one_without() {
    let stat = |flags: u64, code: u64| {
        let mut fields = vec!["0".to_owned(); 50];
        fields[0] = "D".to_owned();
        fields[FLAGS] = flags.to_string();
        fields[EXIT_CODE] = code.to_string();
        format!("17 (a name) with) {}\n", fields.join(" "))
    };
    assert_eq!(Thread::of_exit(&stat(0x40_0100, 0)), Thread::Lives);
    assert_eq!(Thread::of_exit(&stat(0x40_0104, 0)), Thread::Exits);
    assert_eq!(Thread::of_exit(&stat(0x40_0104, 3 << 8)), Thread::Exits);
    assert_eq!(Thread::of_exit(&stat(0x40_0104, 9)), Thread::Killed);
    assert_eq!(Thread::of_exit(&stat(0x40_0104, 11 | 0x80)), Thread::Killed);
    assert_eq!(Thread::of_exit(""), Thread::Lives);
    // The fields of a real one are where they are expected.
    let own = fs::read_to_string("/proc/thread-self/stat").unwrap();
    assert_eq!(Thread::of_exit(&own), Thread::Lives);
    let fields = own.rsplit_once(") ").unwrap().1.split(' ').count();
    assert_eq!(fields, EXIT_CODE + 1);
}

#[test]
fn a_caller_that_lives_is_left_alone_and_looked_at_less_often() {
    let waiters = Waiters::default();
    let filesystem = Silent::default();
    let kernel = Kernel::new();
    filesystem.seconds.store(60, Ordering::Relaxed);
    let to = kernel.ask(&waiters, 8, std::process::id());
    waiters.interrupted(8);
    let mut looks = Vec::new();
    for number in 1..=20 {
        let before = waiters.state.lock().waiting[0].next;
        waiters.round(&filesystem, &mut || ());
        if waiters.state.lock().waiting[0].next > before {
            looks.push(number);
        }
    }
    assert_eq!(looks, [2, 3, 5, 9, 13, 17]);
    assert_eq!(kernel.reply(), None);
    assert!(to.claim(8));
    waiters.round(&filesystem, &mut || ());
    assert!(waiters.state.lock().waiting.is_empty(), "it has a reply");
}

/// Without an interrupt it is left alone, and before a long silence.
#[test]
fn a_caller_that_cannot_be_seen_is_given_up_at_an_interrupt_after_a_long_silence() {
    let waiters = Waiters::default();
    let filesystem = Silent::default();
    let kernel = Kernel::new();
    let _other = kernel.ask(&waiters, 6, 0);
    let to = kernel.ask(&waiters, 8, 0);
    waiters.interrupted(8);
    for _ in 0..8 {
        waiters.round(&filesystem, &mut || ());
    }
    assert_eq!(kernel.reply(), None);
    filesystem.seconds.store(11, Ordering::Relaxed);
    for _ in 0..8 {
        waiters.round(&filesystem, &mut || ());
    }
    assert_eq!(kernel.reply(), Some((8, -Errno::INTR.raw_os_error())));
    assert_eq!(kernel.reply(), None);
    assert!(!to.claim(8), "a later reply is dropped");
    assert_eq!(*filesystem.given_up.lock(), [8]);
}

/// A request that was answered is not kept, however fast others come.
#[test]
fn answered_requests_take_no_room() {
    let waiters = Waiters::default();
    let kernel = Kernel::new();
    for unique in 1..10_000 {
        assert!(kernel.ask(&waiters, unique, 1).claim(unique));
        assert!(waiters.state.lock().waiting.len() <= LEAST_NOTED);
    }
}

/// Kills its child at the end of a test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

#[test]
fn a_stopped_process_with_a_pending_signal_lives() {
    let child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let child = Sleeper(child);
    for wait in [Wait::Other, Wait::Close] {
        assert_eq!(Thread::look(child.0.id(), wait), Thread::Lives);
    }
    assert_eq!(Thread::look(0, Wait::Other), Thread::Unseen);
    assert_eq!(Thread::look(u32::MAX, Wait::Close), Thread::Unseen);
}

#[test]
fn the_thread_rests_until_a_request_waits_and_ends() {
    let waiters = Waiters::default();
    let kernel = Kernel::new();
    let filesystem = Silent::default();
    thread::scope(|scope| {
        let run = scope.spawn(|| waiters.run(&filesystem, || ()));
        while !waiters.rests.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        assert_eq!(waiters.state.lock().round, 0);
        let to = kernel.ask(&waiters, 8, std::process::id());
        while waiters.state.lock().round < 2 {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(to.claim(8));
        while !waiters.rests.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        waiters.end();
        run.join().unwrap();
    });
}

/// Returns the hand of a thread that reads from the kernel's descriptor, with a request.
fn hand(kernel: &Kernel, waiters: &Waiters, header: &Header, wait: Wait) -> Arc<Hand> {
    let hand = Arc::new(Hand::of(&kernel.device));
    waiters.add_reader(&hand);
    hand.takes(header, wait);
    hand.reply_to().begin(header.unique);
    hand
}

const fn header(unique: u64, pid: u32) -> Header {
    Header { unique, node: NodeId(1), uid: 0, gid: 0, pid }
}

/// A call that hangs reports no request.
#[test]
fn a_request_in_a_hand_is_given_up_when_its_call_hangs() {
    let waiters = Waiters::default();
    let filesystem = Silent::default();
    let kernel = Kernel::new();
    filesystem.seconds.store(11, Ordering::Relaxed);
    let hand = hand(&kernel, &waiters, &header(8, 0), Wait::Other);
    waiters.interrupted(8);
    waiters.round(&filesystem, &mut || ());
    assert_eq!(kernel.reply(), None, "it may have come just now");
    waiters.round(&filesystem, &mut || ());
    assert_eq!(kernel.reply(), Some((8, -Errno::INTR.raw_os_error())));
    assert!(!hand.reply_to().claim(8), "a later reply is dropped");
    for _ in 0..8 {
        waiters.round(&filesystem, &mut || ());
    }
    assert_eq!(kernel.reply(), None);
    assert_eq!(*filesystem.given_up.lock(), [8]);
}

/// Nor are the bytes that have no other owner given up, nor what changes in every round.
#[test]
fn requests_in_hands_that_move_or_belong_to_nobody_are_left_alone() {
    let waiters = Waiters::default();
    let filesystem = Silent::default();
    let kernel = Kernel::new();
    filesystem.seconds.store(11, Ordering::Relaxed);
    let moves = hand(&kernel, &waiters, &header(10, 0), Wait::Other);
    let _stays = hand(&kernel, &waiters, &header(8, 0), Wait::WriteBack);
    waiters.interrupted(8);
    for unique in (10..40).step_by(2) {
        moves.takes(&header(unique, 0), Wait::Other);
        moves.reply_to().begin(unique);
        waiters.interrupted(unique);
        waiters.round(&filesystem, &mut || ());
    }
    assert_eq!(kernel.reply(), None);
}

#[test]
fn all_hands_hang_only_if_each_has_had_its_request_for_a_while() {
    let waiters = Waiters::default();
    let filesystem = Silent::default();
    let kernel = Kernel::new();
    let first = hand(&kernel, &waiters, &header(8, 1), Wait::Other);
    let _second = hand(&kernel, &waiters, &header(10, 1), Wait::WriteBack);
    let mut rounds = Vec::new();
    for round in 0..12 {
        if round == 6 {
            first.is_free();
            first.takes(&header(12, 1), Wait::Other);
        }
        waiters.round(&filesystem, &mut || rounds.push(round));
    }
    assert_eq!(rounds, [4, 5, 10, 11]);
    first.is_free();
    waiters.round(&filesystem, &mut || unreachable!("one is free"));
}

/// Without a server that could be silent, a program that exits waits as long as that one would.
#[test]
fn a_close_of_a_program_that_exits_is_given_up_by_its_age_where_no_server_is() {
    let kernel = Kernel::new();
    let waiting = |since| {
        let to = ReplyTo::device_of(&kernel.device);
        Waiting::new(InHand { request: 8, thread: 0, wait: Wait::Close, to }, since)
    };
    let interrupted = Vec::new();
    let silence = Duration::ZERO;
    let round = Round { number: 50, interrupted, silence, is_remote: false };
    assert_eq!(waiting(10).age(&round), LONG_SILENCE);
    assert_eq!(waiting(51).age(&round), Duration::ZERO);
}

/// A thread that begins a request wakes the one that looks, if that one rests.
#[test]
fn a_request_in_a_hand_ends_a_rest() {
    let waiters = Waiters::default();
    let filesystem = Silent::default();
    let kernel = Kernel::new();
    let hand = Arc::new(Hand::of(&kernel.device));
    waiters.add_reader(&hand);
    thread::scope(|scope| {
        let run = scope.spawn(|| waiters.run(&filesystem, || ()));
        for _ in 0..2 {
            while !waiters.rests.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            let before = waiters.state.lock().round;
            hand.takes(&header(8, std::process::id()), Wait::Other);
            waiters.begins();
            while waiters.state.lock().round < before + 3 {
                thread::sleep(Duration::from_millis(1));
            }
            hand.is_free();
        }
        waiters.end();
        run.join().unwrap();
    });
}
