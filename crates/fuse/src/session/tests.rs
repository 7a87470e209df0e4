//! A ring that the kernel has agreed to and then refuses.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::fd::AsRawFd;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::reply::{Entry, Reply};

/// Has no names.
struct Empty;

impl Filesystem for Empty {
    fn lookup(&self, _header: &Header, _name: &OsStr, reply: Reply<Entry>) {
        reply.error(Errno::NOENT);
    }
}

/// A payload that is too short stands for whatever the kernel may not like.
#[test]
fn a_refused_ring_leaves_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
        return println!("skipped: not here: no /dev/fuse");
    };
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = CString::new(data).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    if let Err(error) = mount("a test", folder.path(), "fuse", flags, data.as_c_str()) {
        return println!("skipped: not here: needs root ({error})");
    }
    let init_options = InitOptions {
        capabilities: Capabilities::default(),
        max_write: 1 << 20,
        max_readahead: 1 << 20,
        max_background: 16,
        passthrough: false,
    };
    let options =
        SessionOptions { threads: 2, clone_device: true, ring: RingUse::IfOffered, init_options };
    let mut session = Session::start(device.into(), options).unwrap();
    let offered = session.path.ring();
    let path = session.request_path().clone();
    if offered.is_ok() {
        session.ring = Ring::new(&session.device, 4096, RingUse::IfOffered);
    }
    let name = folder.path().join("name");
    thread::scope(|scope| {
        let served = scope.spawn(|| session.run(Arc::new(Empty)));
        let found = fs::metadata(&name).map_err(|error| error.kind());
        unmount(folder.path(), UnmountFlags::DETACH).unwrap();
        served.join().unwrap().unwrap();
        assert_eq!(found.err(), Some(io::ErrorKind::NotFound));
    });
    assert!(path.ring().is_err());
    if let Err(no_ring) = offered {
        println!("skipped: not here: {no_ring}");
    }
}
