//! Begin and end of a session.

use std::fs::{self, File};
use std::sync::atomic::Ordering;
use std::{io, thread};

use pelago_fuse::{Errno, Session, SessionOptions};
use rustix::mount::{UnmountFlags, unmount};

use crate::connection::Connection;
use crate::{MAX_WRITE, attach, init_options, mounted, mounted_with};

#[test]
fn an_unmount_ends_the_session_and_calls_end_once() {
    for threads in [0, 1, 4] {
        let options = SessionOptions {
            threads,
            clone_device: true,
            ring: crate::ring_is_wanted(),
            init_options: init_options(),
        };
        let Some(mut mounted) = mounted_with(options) else { return };
        fs::write(mounted.path("file"), b"1").unwrap();
        assert_eq!(mounted.tree.seen.ends.load(Ordering::Relaxed), 0);
        mounted.end().unwrap();
        assert_eq!(mounted.tree.seen.ends.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn notices_after_the_end_fail() {
    let Some(mut mounted) = mounted() else { return };
    let node = mounted.tree.put("file", b"1");
    mounted.end().unwrap();
    assert!(mounted.notifier.inval_inode(node, 0, 0).is_err());
    assert!(mounted.notifier.inval_entry(node, "x".as_ref()).is_err());
}

/// Waiting programs get an error, and a reply after that does no harm.
#[test]
fn an_aborted_connection_ends_the_session() {
    let Some(mut mounted) = mounted() else { return };
    let Some(connection) = Connection::of(mounted.folder.path()) else {
        return mounted.end().unwrap();
    };
    let path = mounted.path("held-1");
    thread::scope(|scope| {
        let asker = scope.spawn(|| fs::metadata(&path).unwrap_err().raw_os_error());
        let (_, reply) = mounted.tree.held.take();
        connection.abort().unwrap();
        assert_eq!(asker.join().unwrap(), Some(Errno::CONNABORTED.raw_os_error()));
        reply.error(Errno::NOENT);
    });
    mounted.end().unwrap();
    assert_eq!(mounted.tree.seen.ends.load(Ordering::Relaxed), 1);
}

#[test]
fn the_result_of_the_negotiation_is_visible() {
    let Some(mut mounted) = mounted() else { return };
    let negotiated = mounted.negotiated;
    assert_eq!(negotiated.max_write, MAX_WRITE);
    assert!(!negotiated.passthrough, "it was not wanted");
    assert!(negotiated.capabilities.has(init_options().capabilities));
    mounted.end().unwrap();
}

/// A mount that is gone before the negotiation is an error, as is a file that is not the device.
#[test]
fn a_negotiation_without_a_mount_fails() {
    let options = SessionOptions {
        threads: 1,
        clone_device: true,
        ring: crate::ring_is_wanted(),
        init_options: init_options(),
    };
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let refused = Session::start(null.into(), options).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    let folder = tempfile::tempdir().unwrap();
    let device = match attach(folder.path()) {
        Ok(device) => device,
        Err(error) => return println!("skipped: not here: needs root and /dev/fuse ({error})"),
    };
    unmount(folder.path(), UnmountFlags::DETACH).unwrap();
    let refused = Session::start(device, options).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
}
