//! Replies that come later, from another thread, or never.

use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fs, io, thread};

use pelago_fuse::attr::{Attr, FileType, Timestamp};
use pelago_fuse::ids::NodeId;
use pelago_fuse::reply::Entry;
use pelago_fuse::{Errno, RingUse, SessionOptions};
use rustix::process::{Pid, Signal, kill_process};

use crate::tree::TTL;
use crate::{init_options, mounted, mounted_with, until};

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

fn absent() -> Entry {
    let attr = Attr {
        ino: 0,
        size: 0,
        blocks: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        file_type: FileType::Regular,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_bytes: 0,
    };
    Entry { node: NodeId(0), generation: 0, entry_ttl: Duration::ZERO, attr_ttl: TTL, attr }
}

/// More lookups wait than the session has threads; another thread replies, to the last first.
#[test]
fn a_reply_may_come_later_and_from_another_thread() {
    for clone_device in [true, false] {
        let options = SessionOptions {
            threads: 2,
            clone_device,
            ring: crate::ring_is_wanted(),
            init_options: init_options(),
        };
        let Some(mut mounted) = mounted_with(options) else { return };
        thread::scope(|scope| {
            let askers: Vec<_> = (0..5)
                .map(|number| {
                    let path = mounted.path(&format!("held-{number}"));
                    scope.spawn(move || errno(fs::metadata(path)))
                })
                .collect();
            let held: Vec<_> = (0..5).map(|_| mounted.tree.held.take()).collect();
            for (place, (_, reply)) in held.into_iter().rev().enumerate() {
                if place % 2 == 0 { reply.ok(&absent()) } else { reply.error(Errno::NOENT) }
            }
            for asker in askers {
                assert_eq!(asker.join().unwrap(), Some(Errno::NOENT));
            }
        });
        mounted.end().unwrap();
    }
}

#[test]
fn a_request_without_a_reply_fails() {
    let Some(mut mounted) = mounted() else { return };
    for _ in 0..10 {
        assert_eq!(errno(fs::metadata(mounted.path("lost-1"))), Some(Errno::IO));
    }
    mounted.end().unwrap();
}

#[test]
fn a_reply_that_the_kernel_refuses_fails_its_request() {
    let Some(mut mounted) = mounted() else { return };
    mounted.tree.put("file", b"bytes");
    mounted.tree.overlong.store(true, Ordering::Relaxed);
    // The kernel names its own error if the reply came by a ring.
    let refused =
        if crate::ring_is_wanted() == RingUse::IfOffered { Errno::INVAL } else { Errno::IO };
    assert_eq!(errno(fs::read(mounted.path("file"))), Some(refused));
    mounted.tree.overlong.store(false, Ordering::Relaxed);
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"bytes");
    mounted.end().unwrap();
}

/// More panics than threads: each thread survives, and the mount stays usable.
#[test]
fn a_panic_fails_one_request_and_no_other() {
    let Some(mut mounted) = mounted() else { return };
    for _ in 0..10 {
        assert_eq!(errno(fs::metadata(mounted.path("panic-1"))), Some(Errno::IO));
    }
    fs::write(mounted.path("file"), b"1").unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"1");
    mounted.end().unwrap();
}

/// The file system learns that a waiting program was killed, and may reply `EINTR` or anything
/// else.
#[test]
fn a_signal_to_a_waiting_program_is_reported_and_does_no_harm() {
    let Some(mut mounted) = mounted() else { return };
    for interrupted in [true, false] {
        let mut child = Command::new("cat");
        child.arg(mounted.path("held-1")).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let (unique, reply) = mounted.tree.held.take();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        mounted.tree.held.wait_for_interrupt(unique);
        reply.error(if interrupted { Errno::INTR } else { Errno::NOENT });
        assert!(!child.wait().unwrap().success());
        fs::write(mounted.path("file"), b"1").unwrap();
    }
    mounted.end().unwrap();
}

/// It is gone before anything replies. The reply that comes then is told so, and dropped.
#[test]
fn a_killed_program_is_gone_without_its_reply() {
    let Some(mut mounted) = mounted() else { return };
    for signal in [Signal::KILL, Signal::TERM] {
        let mut child = Command::new("cat");
        child.arg(mounted.path("held-1")).stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let (_, mut reply) = mounted.tree.held.take();
        kill_process(Pid::from_child(&child), signal).unwrap();
        until(|| child.try_wait().unwrap().is_some());
        assert!(!reply.claim());
        reply.ok(&absent());
        fs::write(mounted.path("file"), b"1").unwrap();
    }
    mounted.end().unwrap();
}

/// An interrupt of an unknown request goes back to the kernel after another call, and the kernel
/// repeats it.
#[test]
fn an_interrupt_of_an_unknown_request_comes_again_until_it_is_known() {
    let Some(mut mounted) = mounted() else { return };
    fs::write(mounted.path("file"), b"1").unwrap();
    let mut child = Command::new("cat");
    child.arg(mounted.path("held-1")).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let (unique, reply) = mounted.tree.held.take();
    mounted.tree.held.set_deaf(true);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    // Each time the session asks twice, before and after it keeps the interrupt.
    until(|| {
        let twenty_times = mounted.tree.held.unheard(unique) >= 40;
        twenty_times || fs::metadata(mounted.path("absent")).is_ok()
    });
    mounted.tree.held.set_deaf(false);
    assert!(fs::metadata(mounted.path("absent")).is_err());
    mounted.tree.held.wait_for_interrupt(unique);
    reply.error(Errno::INTR);
    assert!(!child.wait().unwrap().success());
    mounted.end().unwrap();
}
