//! Calls the method of a file system that a request names.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::Errno;
use crate::device::Device;
use crate::filesystem::Filesystem;
use crate::listing::Listing;
use crate::operation::Operation;
use crate::reply::{Encode, Reply};
use crate::request::Header;

/// Calls the method of `operation`. The reply goes to `device`, from which the request was read. A
/// request without a method gets `ENOSYS`.
pub(crate) fn dispatch(
    filesystem: &dyn Filesystem,
    device: &Arc<Device>,
    header: &Header,
    operation: Operation<'_>,
) {
    let to = filesystem;
    let caller = Caller { header, device };
    match operation {
        // The session has negotiated already; the kernel sends FUSE_INIT once.
        Operation::Init(_) => caller.reply::<()>().error(Errno::IO),
        // Nothing needs to happen before the unmount: `Filesystem::end` follows.
        Operation::Destroy => caller.reply().ok(&()),
        Operation::Lookup { name } => to.lookup(header, name, caller.reply()),
        Operation::Forget { lookups } => to.forget(header.node, lookups),
        Operation::BatchForget(nodes) => nodes.for_each(|(node, count)| to.forget(node, count)),
        Operation::GetAttr { file } => to.get_attr(header, file, caller.reply()),
        Operation::SetAttr(request) => to.set_attr(header, request, caller.reply()),
        Operation::Readlink => to.readlink(header, caller.reply()),
        Operation::Symlink(request) => to.symlink(header, request, caller.reply()),
        Operation::Mknod(request) => to.mknod(header, request, caller.reply()),
        Operation::Mkdir(request) => to.mkdir(header, request, caller.reply()),
        Operation::Unlink { name } => to.unlink(header, name, caller.reply()),
        Operation::Rmdir { name } => to.rmdir(header, name, caller.reply()),
        Operation::Rename(request) => to.rename(header, request, caller.reply()),
        Operation::Link(request) => to.link(header, request, caller.reply()),
        Operation::Open(request) => to.open(header, request, caller.reply()),
        Operation::Create(request) => to.create(header, request, caller.reply()),
        Operation::Tmpfile(request) => to.tmpfile(header, request, caller.reply()),
        Operation::Read(request) => to.read(header, request, caller.reply()),
        Operation::Write(request) => to.write(header, request, caller.reply()),
        Operation::Flush(request) => to.flush(header, request, caller.reply()),
        Operation::Release(request) => to.release(header, request, caller.reply()),
        Operation::Fsync(request) => to.fsync(header, request, caller.reply()),
        Operation::Opendir { flags } => to.opendir(header, flags, caller.reply()),
        Operation::Readdir(request) => {
            to.readdir(header, request, Listing::of_names(request.size), caller.reply());
        }
        Operation::ReaddirPlus(request) => {
            to.readdir(header, request, Listing::of_entries(request.size), caller.reply());
        }
        Operation::Releasedir { file } => to.releasedir(header, file, caller.reply()),
        Operation::Fsyncdir(request) => to.fsyncdir(header, request, caller.reply()),
        Operation::Statfs => to.statfs(header, caller.reply()),
        Operation::Setxattr(request) => to.setxattr(header, request, caller.reply()),
        Operation::Getxattr { name, size } => to.getxattr(header, name, size, caller.reply()),
        Operation::Listxattr { size } => to.listxattr(header, size, caller.reply()),
        Operation::Removexattr { name } => to.removexattr(header, name, caller.reply()),
        Operation::Access { mask } => to.access(header, mask, caller.reply()),
        Operation::Interrupt { unique } => to.interrupt(unique),
        Operation::Fallocate(request) => to.fallocate(header, request, caller.reply()),
        Operation::Lseek(request) => to.lseek(header, request, caller.reply()),
        Operation::CopyFileRange(request) => to.copy_file_range(header, request, caller.reply()),
        Operation::Statx => to.statx(header, caller.reply()),
        Operation::Other(_) => caller.reply::<()>().error(Errno::NOSYS),
    }
}

/// The waiting caller of a request, and the descriptor that takes the reply.
struct Caller<'a> {
    header: &'a Header,
    device: &'a Arc<Device>,
}

impl Caller<'_> {
    fn reply<T: Encode + ?Sized>(&self) -> Reply<T> {
        let device = Some(Arc::clone(self.device));
        Reply { unique: self.header.unique, device, answer: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::net::UnixDatagram;

    use parking_lot::Mutex;

    use super::*;
    use crate::ids::{FileId, LockOwner, NodeId};
    use crate::init::Init;
    use crate::operation::{
        CopyFileRange, Create, Fallocate, Flush, Forgets, Fsync, Link, Lseek, Mkdir, Mknod, Open,
        Read, Readdir, Release, Rename, SetAttr, Setxattr, Symlink, Write,
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

        fn interrupt(&self, unique: u64) {
            self.0.lock().push((0, unique));
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
        let device = Arc::new(Device::new(device.into()));
        let mut errors = Vec::new();
        for operation in operations {
            dispatch(filesystem, &device, &HEADER, *operation);
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
        let (offset, size, flags) = (0, 0, 0);
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
                flags: 0,
            }),
            Operation::Flush(Flush { file: FILE, owner: LockOwner(0) }),
            Operation::Release(Release { file: FILE, flags }),
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
}
