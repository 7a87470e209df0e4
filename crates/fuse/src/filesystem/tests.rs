//! Each request reaches its method, and gets exactly one reply.

use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

use crate::device::Device;
use crate::ids::{FileId, LockOwner, NodeId};
use crate::init::Init;
use crate::operation::{
    CopyFileRange, Create, Fallocate, FileLock, FileLockKind, Flush, Forgets, Fsync, Getlk, Link,
    Lseek, Mkdir, Mknod, Open, Read, Readdir, Release, Rename, SetAttr, Setlk, Setxattr, Symlink,
    Write,
};

const HEADER: Header = Header { unique: 7, node: NodeId(5), uid: 0, gid: 0, pid: 0 };
const FILE: FileId = FileId(1);

/// Implements no method that has a reply but `readdir`, and records those without one.
#[derive(Default)]
struct Idle(Mutex<Vec<(u64, u64)>>);

impl Filesystem for Idle {
    fn forget(&self, node: NodeId, lookups: u64) {
        self.0.lock().push((node.0, lookups));
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.0.lock().push((0, unique));
        true
    }

    fn readdir(&self, _: &Header, request: Readdir, listing: Listing, reply: Reply<Listing>) {
        self.0.lock().push((request.size.into(), listing.with_attributes().into()));
        reply.ok(&listing);
    }
}

/// Returns the error of the reply to each request, or `None` without a reply.
fn errors_of(filesystem: &Idle, operations: &[Operation<'_>]) -> Vec<Option<i32>> {
    let (kernel, device) = UnixDatagram::pair().unwrap();
    kernel.set_nonblocking(true).unwrap();
    let to = ReplyTo::device_of(&Arc::new(Device::new(device.into())));
    let mut errors = Vec::new();
    for operation in operations {
        let span = RequestSpan::default();
        dispatch(filesystem, &Interrupts::default(), &to, &HEADER, *operation, &span);
        let mut answer = [0; 64];
        errors.push(kernel.recv(&mut answer).ok().map(|length| {
            let mut cursor = crate::bytes::Cursor::new(&answer[..length]);
            assert_eq!(cursor.u32().unwrap() as usize, length);
            let error = cursor.i32().unwrap();
            assert_eq!(cursor.u64().unwrap(), HEADER.unique);
            error
        }));
        assert!(kernel.recv(&mut answer).is_err(), "answered once: {operation:?}");
    }
    errors
}

#[test]
fn methods_without_an_implementation_answer_enosys() {
    let name = OsStr::new("n");
    let offset = 0;
    let size = 0;
    let flags = 0;
    let owner = LockOwner(0);
    let lock = FileLock { kind: FileLockKind::Read, start: 0, end: 0, pid: 0 };
    let create = Create { name, flags, mode: 0, umask: 0, kill_privileges: false };
    let operations = [
        Operation::Lookup { name },
        Operation::GetAttr { file: None },
        Operation::SetAttr(SetAttr::default()),
        Operation::Readlink,
        Operation::Symlink(Symlink { name, target: name }),
        Operation::Mknod(Mknod { name, mode: 0, umask: 0, rdev: 0 }),
        Operation::Mkdir(Mkdir { name, mode: 0, umask: 0 }),
        Operation::Unlink { name },
        Operation::Rmdir { name },
        Operation::Rename(Rename { name, to_dir: NodeId::ROOT, to_name: name, flags: 0 }),
        Operation::Link(Link { node: NodeId::ROOT, name }),
        Operation::Open(Open { flags, kill_privileges: false }),
        Operation::Create(create),
        Operation::Tmpfile(create),
        Operation::Read(Read { file: FILE, offset, size }),
        Operation::Write(Write {
            file: FILE,
            offset,
            data: b"",
            kill_privileges: false,
            from_cache: false,
            owner: None,
            flags,
        }),
        Operation::Flush(Flush { file: FILE, owner }),
        Operation::Release(Release { file: FILE, flags, flush: false, flock_owner: None }),
        Operation::Getlk(Getlk { file: FILE, owner, lock }),
        Operation::Setlk(Setlk { file: FILE, owner, lock, is_flock: false, wait: true }),
        Operation::Fsync(Fsync { file: FILE, data_only: false }),
        Operation::Opendir { flags },
        Operation::Releasedir { file: FILE },
        Operation::Fsyncdir(Fsync { file: FILE, data_only: false }),
        Operation::Statfs,
        Operation::Setxattr(Setxattr { name, value: b"", flags, kill_setgid: false }),
        Operation::Getxattr { name, size },
        Operation::Listxattr { size },
        Operation::Removexattr { name },
        Operation::Access { mask: 0 },
        Operation::Fallocate(Fallocate { file: FILE, offset, length: 0, mode: 0 }),
        Operation::Lseek(Lseek { file: FILE, offset, whence: 0 }),
        Operation::CopyFileRange(CopyFileRange {
            from: FILE,
            from_offset: 0,
            to_node: NodeId::ROOT,
            to: FILE,
            to_offset: 0,
            length: 0,
            flags: 0,
        }),
        Operation::Other(4096),
    ];
    let expected = vec![Some(-Errno::NOSYS.raw_os_error()); operations.len()];
    assert_eq!(errors_of(&Idle::default(), &operations), expected);
}

#[test]
fn requests_that_need_no_reply_get_none() {
    let filesystem = Idle::default();
    let batch = [3_u64, 4, 8, 9].map(u64::to_ne_bytes).concat();
    let operations = [
        Operation::Forget { lookups: 2 },
        Operation::BatchForget(Forgets(&batch)),
        Operation::Interrupt { unique: 6 },
    ];
    assert_eq!(errors_of(&filesystem, &operations), [None; 3]);
    assert_eq!(*filesystem.0.lock(), [(5, 2), (3, 4), (8, 9), (0, 6)]);
}

#[test]
fn a_listing_is_of_the_requested_kind() {
    let filesystem = Idle::default();
    let request = Readdir { file: FILE, offset: 0, size: 100 };
    let operations = [Operation::Readdir(request), Operation::ReaddirPlus(request)];
    assert_eq!(errors_of(&filesystem, &operations), [Some(0); 2]);
    assert_eq!(*filesystem.0.lock(), [(100, 0), (100, 1)]);
}

#[test]
fn the_session_s_own_requests_are_answered() {
    let init = Init { major: 7, minor: 45, max_readahead: 0, capabilities: 0 };
    let operations = [Operation::Destroy, Operation::Init(init)];
    let expected = [Some(0), Some(-Errno::IO.raw_os_error())];
    assert_eq!(errors_of(&Idle::default(), &operations), expected);
}
