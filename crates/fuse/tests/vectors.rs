//! Golden messages: `vectors/` has one a line, written by a C program from the structures of
//! `<linux/fuse.h>` 7.38, whose padding holds the later fields. The kernel defines them, so no code
//! of ours ever rewrites them.
#![cfg(target_endian = "little")]
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::ffi::OsStr;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use pelago_fuse::ids::{FileId, LockOwner, NodeId};
use pelago_fuse::init::{Capabilities, Init, InitOptions, MajorReply, Negotiated};
use pelago_fuse::listing::{Dirent, Listing};
use pelago_fuse::operation::{
    CopyFileRange, Create, Fallocate, FileLock, FileLockKind, Flush, Fsync, Getlk, Link, Lseek,
    Mkdir, Mknod, Open, Read, Readdir, Release, Rename, SetAttr, SetTime, Setlk, Setxattr, Symlink,
    Write,
};
use pelago_fuse::protocol::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, FOPEN_PASSTHROUGH};
use pelago_fuse::reply::{Attributes, Created, Entry, Offset, Opened, Statfs, Written, Xattr};
use pelago_fuse::request::{self, Layouts};
use pelago_fuse::{
    Attr, Encode, FileType, Header, Operation, RingUse, Session, SessionOptions, Timestamp,
};

const REQUESTS: &str = include_str!("../vectors/requests.txt");
const ANSWERS: &str = include_str!("../vectors/answers.txt");
const NOTICES: &str = include_str!("../vectors/notices.txt");

const UNIQUE: u64 = 0x0102_0304_0506_0708;
const NODE: NodeId = NodeId(0x1112_1314_1516_1718);
const FILE: FileId = FileId(0x2122_2324_2526_2728);
const OFFSET: u64 = 0x3132_3334_3536_3738;
const OWNER: LockOwner = LockOwner(0x4142_4344_4546_4748);
const INO: u64 = 0x5152_5354_5556_5758;

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

/// Returns the decoded requests of the vectors, by name.
fn of_names() -> Vec<(&'static str, Operation<'static>)> {
    let to_dir = NodeId(FILE.0);
    let old = name("old");
    let new = name("new");
    vec![
        ("lookup", Operation::Lookup { name: OsStr::from_bytes(b"na\xffme") }),
        ("lookup.extensions", Operation::Lookup { name: name("name") }),
        ("forget", Operation::Forget { lookups: OFFSET }),
        ("readlink", Operation::Readlink),
        ("symlink", Operation::Symlink(Symlink { name: name("name"), target: name("../target") })),
        (
            "mknod",
            Operation::Mknod(Mknod {
                name: name("name"),
                mode: 0o020_644,
                umask: 0o22,
                rdev: 0x0103,
            }),
        ),
        ("mkdir", Operation::Mkdir(Mkdir { name: name("name"), mode: 0o755, umask: 0o22 })),
        ("unlink", Operation::Unlink { name: name("name") }),
        ("rmdir", Operation::Rmdir { name: name("name") }),
        ("rename", Operation::Rename(Rename { name: old, to_dir, to_name: new, flags: 0 })),
        ("rename2", Operation::Rename(Rename { name: old, to_dir, to_name: new, flags: 2 })),
        ("link", Operation::Link(Link { node: NodeId(FILE.0), name: name("name") })),
        ("create", Operation::Create(created(false))),
        ("create.kill", Operation::Create(created(true))),
        (
            "tmpfile",
            Operation::Tmpfile(Create {
                name: name("/"),
                flags: 0o20_200_002,
                mode: 0o100_600,
                umask: 0o77,
                kill_privileges: false,
            }),
        ),
    ]
}

fn created(kill_privileges: bool) -> Create<'static> {
    Create { name: name("name"), flags: 0o302, mode: 0o100_644, umask: 0o22, kill_privileges }
}

fn of_nodes() -> Vec<(&'static str, Operation<'static>)> {
    let to = |seconds, nanos| SetTime::To(Timestamp { seconds, nanos });
    let all = SetAttr {
        mode: Some(0o102_640),
        uid: Some(1000),
        gid: Some(100),
        size: Some(OFFSET),
        atime: Some(to(-1, 999_999_999)),
        mtime: Some(to(5, 6)),
        ctime: Some(Timestamp { seconds: -7, nanos: 8 }),
        file: Some(FILE),
        kill_privileges: true,
    };
    let atime = Some(SetTime::Now);
    let mtime = Some(SetTime::Now);
    let attribute =
        |kill_setgid| Setxattr { name: name("user.name"), value: b"va\0ue", flags: 1, kill_setgid };
    vec![
        ("getattr", Operation::GetAttr { file: None }),
        ("getattr.file", Operation::GetAttr { file: Some(FILE) }),
        ("setattr.nothing", Operation::SetAttr(SetAttr::default())),
        ("setattr.all", Operation::SetAttr(all)),
        ("setattr.now", Operation::SetAttr(SetAttr { atime, mtime, ..SetAttr::default() })),
        ("open", Operation::Open(Open { flags: 0o1002, kill_privileges: false })),
        ("open.kill", Operation::Open(Open { flags: 0o1002, kill_privileges: true })),
        ("opendir", Operation::Opendir { flags: 0o200_000 }),
        ("statfs", Operation::Statfs),
        ("setxattr.short", Operation::Setxattr(attribute(false))),
        ("setxattr.long", Operation::Setxattr(attribute(true))),
        ("getxattr", Operation::Getxattr { name: name("user.name"), size: 256 }),
        ("listxattr", Operation::Listxattr { size: 256 }),
        ("removexattr", Operation::Removexattr { name: name("user.name") }),
        ("access", Operation::Access { mask: 4 }),
    ]
}

fn of_files() -> Vec<(&'static str, Operation<'static>)> {
    let write = Write {
        file: FILE,
        offset: OFFSET,
        data: b"bytes",
        kill_privileges: false,
        from_cache: false,
        owner: None,
        flags: 1,
    };
    let owner = Some(OWNER);
    let release = Release { file: FILE, flags: 0o100_001, flush: true, flock_owner: None };
    let readdir = Readdir { file: FILE, offset: OFFSET, size: 4096 };
    let fallocate = Fallocate { file: FILE, offset: OFFSET, length: OWNER.0, mode: 3 };
    let copy = CopyFileRange {
        from: FILE,
        from_offset: OFFSET,
        to_node: NodeId(OWNER.0),
        to: FileId(0x51),
        to_offset: 0x61,
        length: 0x71,
        flags: 0,
    };
    vec![
        ("read", Operation::Read(Read { file: FILE, offset: OFFSET, size: 131_072 })),
        ("write", Operation::Write(write)),
        (
            "write.kill",
            Operation::Write(Write { data: b"", kill_privileges: true, owner, ..write }),
        ),
        ("write.append", Operation::Write(Write { owner, flags: 0o2001, ..write })),
        ("write.cache", Operation::Write(Write { from_cache: true, flags: 0, ..write })),
        ("flush", Operation::Flush(Flush { file: FILE, owner: OWNER })),
        ("release", Operation::Release(release)),
        (
            "release.flock",
            Operation::Release(Release { flags: 2, flush: false, flock_owner: owner, ..release }),
        ),
        ("fsync", Operation::Fsync(Fsync { file: FILE, data_only: false })),
        ("fsync.data", Operation::Fsync(Fsync { file: FILE, data_only: true })),
        ("readdir", Operation::Readdir(readdir)),
        ("readdirplus", Operation::ReaddirPlus(readdir)),
        ("releasedir", Operation::Releasedir { file: FILE }),
        ("fsyncdir", Operation::Fsyncdir(Fsync { file: FILE, data_only: true })),
        ("fallocate", Operation::Fallocate(fallocate)),
        ("lseek", Operation::Lseek(Lseek { file: FILE, offset: OFFSET, whence: 4 })),
        ("copy-file-range", Operation::CopyFileRange(copy)),
    ]
}

fn of_locks() -> Vec<(&'static str, Operation<'static>)> {
    let kind = FileLockKind::Write;
    let to_end = FileLock { kind, start: 5, end: i64::MAX.unsigned_abs(), pid: 4242 };
    let lock = FileLock { kind: FileLockKind::Read, end: OFFSET, ..to_end };
    let unlock = FileLock { kind: FileLockKind::Unlock, pid: 0, ..lock };
    let setlk = Setlk { file: FILE, owner: OWNER, lock, is_flock: false, wait: false };
    let whole = FileLock { start: 0, ..to_end };
    vec![
        ("getlk", Operation::Getlk(Getlk { file: FILE, owner: OWNER, lock: to_end })),
        ("setlk", Operation::Setlk(setlk)),
        ("setlk.unlock", Operation::Setlk(Setlk { lock: unlock, ..setlk })),
        (
            "setlkw.flock",
            Operation::Setlk(Setlk { lock: whole, is_flock: true, wait: true, ..setlk }),
        ),
    ]
}

fn of_the_session() -> Vec<(&'static str, Operation<'static>)> {
    let init = |major, minor, max_readahead, capabilities| {
        Operation::Init(Init { major, minor, max_readahead, capabilities })
    };
    vec![
        ("init.7.31", init(7, 31, 131_072, 0x03ff_fffb)),
        ("init.7.45", init(7, 45, 131_072, 0x21_73ff_fffb)),
        ("init.8.3", init(8, 3, 0, 0)),
        ("destroy", Operation::Destroy),
        ("interrupt", Operation::Interrupt { unique: OFFSET }),
        ("syncfs", Operation::Other(50)),
    ]
}

fn entry() -> Entry {
    Entry {
        node: NODE,
        generation: 9,
        entry_ttl: Duration::new(3, 500_000_000),
        attr_ttl: Duration::new(0x7fff_ffff, 7),
        attr: attr(),
    }
}

fn attr() -> Attr {
    Attr {
        ino: INO,
        size: 0x6162_6364,
        blocks: 0x7172_7374,
        atime: Timestamp { seconds: 1, nanos: 2 },
        mtime: Timestamp { seconds: -2, nanos: 999_999_999 },
        ctime: Timestamp { seconds: i64::MAX, nanos: 3 },
        file_type: FileType::Regular,
        mode: 0o4755,
        links: 5,
        uid: 1000,
        gid: 100,
        rdev: 0x0801,
        block_bytes: 4096,
    }
}

fn listing(mut listing: Listing) -> Listing {
    for (name, entry) in [(&b"a"[..], Some(entry())), (&b"eightlet"[..], None)] {
        let listed = Dirent { ino: INO, offset: OFFSET, file_type: FileType::Regular, name };
        assert!(listing.add(listed, entry.as_ref()));
    }
    listing
}

fn negotiated() -> Negotiated {
    Negotiated {
        minor: 38,
        capabilities: Capabilities::ASYNC_READ
            | Capabilities::BIG_WRITES
            | Capabilities::AUTO_INVAL_DATA
            | Capabilities::MAX_PAGES
            | Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::SETXATTR_EXT
            | Capabilities::INIT_EXT
            | Capabilities::PASSTHROUGH,
        max_write: 1 << 20,
        max_readahead: 131_072,
        max_background: 16,
        passthrough: true,
    }
}

/// Returns encoded replies, by the name of their vector.
fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let flags = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH;
    let passed = Opened { file: FILE, flags: FOPEN_PASSTHROUGH, backing: Some(11) };
    let direct = Opened { file: FILE, flags: FOPEN_DIRECT_IO, backing: None };
    let statfs = Statfs {
        blocks: 1 << 40,
        free: 3,
        available: 2,
        files: 1 << 41,
        free_files: 5,
        block_bytes: 4096,
        name_bytes: 255,
    };
    let ttl = Duration::from_millis(3500);
    vec![
        ("entry", bytes(&entry())),
        ("attributes", bytes(&Attributes { ttl, attr: attr() })),
        ("opened", bytes(&Opened { file: FILE, flags, backing: None })),
        ("opened.backing", bytes(&passed)),
        ("created", bytes(&Created { entry: entry(), opened: direct })),
        ("written", bytes(&Written(0x0102_0304))),
        ("offset", bytes(&Offset(OFFSET))),
        (
            "lock",
            bytes(&FileLock {
                kind: FileLockKind::Write,
                start: 5,
                end: i64::MAX.unsigned_abs(),
                pid: 4242,
            }),
        ),
        ("xattr.size", bytes(&Xattr::Size(0x0102_0304))),
        ("xattr.value", bytes(&Xattr::Value(b"va\0ue".to_vec()))),
        ("statfs", bytes(&statfs)),
        ("names", bytes(&listing(Listing::of_names(4096)))),
        ("entries", bytes(&listing(Listing::of_entries(4096)))),
        ("init", bytes(&negotiated())),
        ("init.our-major", bytes(&MajorReply)),
    ]
}

#[test]
fn requests_are_decoded_as_the_kernel_wrote_them() {
    let mut expected = [of_names(), of_nodes(), of_files(), of_locks(), of_the_session()].concat();
    // A batch borrows its bytes, so it is compared as an iterator.
    let batch = vector(REQUESTS, "batch-forget");
    let (_, forgets) = request::parse(&batch, Layouts::default()).unwrap();
    expected.push(("batch-forget", forgets));
    assert_names(REQUESTS, &expected);
    for (name, operation) in expected {
        let bytes = vector(REQUESTS, name);
        let layouts = Layouts { setxattr_ext: name != "setxattr.short" };
        let header = Header { unique: UNIQUE, node: NODE, uid: 1000, gid: 100, pid: 4242 };
        assert_eq!(request::parse(&bytes, layouts), Ok((header, operation)), "{name}");
    }
}

#[test]
fn a_batch_of_forgets_has_each_node() {
    let bytes = vector(REQUESTS, "batch-forget");
    let Ok((_, Operation::BatchForget(forgets))) = request::parse(&bytes, Layouts::default())
    else {
        panic!("no batch");
    };
    let expected = [(NodeId(FILE.0), 1), (NodeId(OFFSET), 2)];
    assert_eq!(forgets.collect::<Vec<_>>(), expected);
}

#[test]
fn replies_are_what_the_kernel_reads() {
    let answers = answers();
    assert_names(ANSWERS, &answers);
    for (name, bytes) in answers {
        assert_eq!(hex(&bytes), hex(&vector(ANSWERS, name)), "{name}");
    }
}

/// A datagram socket stands in for the device.
#[test]
fn notices_are_what_the_kernel_reads() {
    let (kernel, device) = UnixDatagram::pair().unwrap();
    kernel.send(&vector(REQUESTS, "init.7.45")).unwrap();
    let init_options = InitOptions {
        capabilities: Capabilities::default(),
        max_write: 1 << 20,
        max_readahead: 131_072,
        max_background: 16,
        passthrough: false,
    };
    let options =
        SessionOptions { threads: 1, clone_device: false, ring: RingUse::Never, init_options };
    let session = Session::start(OwnedFd::from(device), options).unwrap();
    let mut received = [0; 256];
    assert_eq!(kernel.recv(&mut received).unwrap(), 16 + 64);
    let notifier = session.notifier();
    notifier.inval_inode(NodeId(FILE.0), -1, 0).unwrap();
    notifier.inval_entry(NodeId(FILE.0), name("name")).unwrap();
    notifier.expire_entry(NodeId(FILE.0), name("name")).unwrap();
    notifier.inc_epoch().unwrap();
    notifier.prune(&[NodeId(FILE.0), NodeId(FILE.0 + 1)]).unwrap();
    for name in ["inval-inode", "inval-entry", "expire-entry", "inc-epoch", "prune"] {
        let length = kernel.recv(&mut received).unwrap();
        assert_eq!(hex(&received[..length]), hex(&vector(NOTICES, name)), "{name}");
    }
}

fn bytes<T: Encode + ?Sized>(answer: &T) -> Vec<u8> {
    let mut sent = Vec::new();
    answer.with_bytes(&mut |bytes| sent.push(bytes.to_vec()));
    assert_eq!(sent.len(), 1, "sent once");
    sent.remove(0)
}

/// Each value has a vector, and each vector a value.
fn assert_names<T: Debug>(file: &str, values: &[(&str, T)]) {
    let mut there: Vec<&str> = file.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut named: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    there.sort_unstable();
    named.sort_unstable();
    assert_eq!(there, named);
}

fn vector(file: &str, name: &str) -> Vec<u8> {
    let mut lines = file.lines().filter_map(|line| line.split_once(' '));
    let (_, digits) = lines.find(|(found, _)| *found == name).unwrap();
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
