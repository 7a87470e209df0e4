//! What a guest gets for each kind of request.

use pelago_wire::{
    AllocateMode, Asker, Code, Context, Cookie, FileKind, FileLock, ForGuest, Handle, InodeId,
    LockKind, LockMode, LockOwner, NewMode, OpenFlags, OpenId, Operation, RenameFlags, Replayed,
    Reply, Request, Search, SeekFrom, SetAttr, Tags, Whence, WriteFlags, XattrFlags,
};

use super::world::{GUEST, World, done, guest_context, name};

/// An open of the guest in the shared directory.
const OPEN: OpenId = OpenId(5);
/// An open that nobody has.
const NO_OPEN: OpenId = OpenId(99);
const OWNER: LockOwner = LockOwner(1);
const LOCK: FileLock =
    FileLock { kind: LockKind::Posix, mode: LockMode::Read, start: 0, end: 9, pid: 1 };

/// Returns a request of this kind that names this node, or this open. The match has no wildcard, so
/// the compiler names a new kind here.
fn request(operation: Operation, node: Handle, open: OpenId) -> Request {
    let dir = node;
    let file = || name("file");
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ;
    let asker = || Asker { groups: Vec::new(), reads_all: true };
    match operation {
        Operation::Lookup => Request::Lookup { dir, name: file() },
        Operation::Parent => Request::Parent { dir },
        Operation::Find => Request::Find { ino: node.ino },
        Operation::GetAttr => Request::GetAttr { node },
        Operation::SetAttr => {
            let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            Request::SetAttr { node, open: None, set }
        }
        Operation::Create => {
            let open = OpenId(50);
            Request::Create { dir, name: name("new"), mode, flags: OpenFlags::WRITE, open }
        }
        Operation::CreateUnnamed => {
            Request::CreateUnnamed { dir, mode, flags: OpenFlags::WRITE, open: OpenId(51) }
        }
        Operation::MakeDir => Request::MakeDir { dir, name: name("new"), mode },
        Operation::MakeNode => {
            let kind = FileKind::Regular;
            Request::MakeNode { dir, name: name("new"), kind, mode, rdev: 0 }
        }
        Operation::Symlink => Request::Symlink { dir, name: name("new"), target: b"to".to_vec() },
        Operation::ReadLink => Request::ReadLink { node },
        Operation::Link => Request::Link { node, dir, name: name("new") },
        Operation::Unlink => Request::Unlink { dir, name: file() },
        Operation::RemoveDir => Request::RemoveDir { dir, name: name("sub") },
        Operation::Rename => Request::Rename {
            from_dir: dir,
            from: file(),
            to_dir: dir,
            to: name("new"),
            flags: RenameFlags::Replace,
        },
        Operation::Open => Request::Open { node, flags, open: OpenId(52) },
        Operation::Reopen => Request::Reopen { node, flags, open: OpenId(53) },
        Operation::Flush => Request::Flush { open, owner: Some(OWNER) },
        Operation::Release => Request::Release { open },
        Operation::GetLock => Request::GetLock { open, owner: OWNER, lock: LOCK },
        Operation::SetLock => Request::SetLock { open, owner: OWNER, lock: LOCK, wait: true },
        Operation::ReclaimLock => Request::ReclaimLock { open, owner: OWNER, lock: LOCK },
        Operation::Fsync => Request::Fsync { open, data_only: false },
        Operation::FsyncDir => Request::FsyncDir { dir, since: None },
        Operation::Read => Request::Read { open, offset: 0, size: 10 },
        Operation::Write => Request::Write { open, offset: 0, flags: WriteFlags::NONE },
        Operation::List => {
            let after = Cookie(0);
            Request::List { dir, after, behind: None, entries: 10, attributes: true }
        }
        Operation::GetXattr => Request::GetXattr { node, name: b"user.a".to_vec() },
        Operation::ListXattr => Request::ListXattr { node },
        Operation::SetXattr => Request::SetXattr {
            node,
            name: b"user.a".to_vec(),
            value: b"1".to_vec(),
            flags: XattrFlags::Create,
            kill_setgid: false,
        },
        Operation::RemoveXattr => Request::RemoveXattr { node, name: b"user.a".to_vec() },
        Operation::StatFs => Request::StatFs,
        Operation::Allocate => {
            let mode = AllocateMode::Reserve { keep_size: false };
            Request::Allocate { open, offset: 0, length: 10, mode }
        }
        Operation::Seek => {
            Request::Seek { open, from: SeekFrom { whence: Whence::Data, offset: 0 } }
        }
        Operation::CopyRange => {
            Request::CopyRange { from: open, from_offset: 0, to: open, to_offset: 9, length: 1 }
        }
        Operation::Search => {
            let search =
                Search { query: b"name:*".to_vec(), hits: 10, after: None, asker: asker() };
            Request::Search { dir, search }
        }
        Operation::Tags => {
            Request::Tags { dir, tags: Tags { key: None, prefix: Vec::new(), asker: asker() } }
        }
        Operation::Revoke => Request::Revoke { sentence: b"x".to_vec() },
    }
}

/// Returns whether the rule of a kind names opens only.
fn is_of_open(operation: Operation) -> bool {
    let subjects = request(operation, Handle::ROOT, OPEN).describe().subjects;
    subjects.each_inode().count() == 0 && subjects.each_open().count() > 0
}

#[test]
fn a_guest_may_do_to_what_is_granted_what_the_table_says() {
    let world = World::with_guest();
    let file = world.entry(world.docs, "file").handle;
    world.open(file, OPEN).unwrap();
    for &operation in Operation::ALL {
        for node in [world.docs, file] {
            let request = request(operation, node, OPEN);
            let rule = request.for_guest();
            let got = world.guest(request);
            match rule {
                ForGuest::Never => assert_eq!(done(got), Err(Code::AccessDenied), "{operation:?}"),
                ForGuest::NoXattr(_) => assert_eq!(done(got), Err(Code::NoXattr), "{operation:?}"),
                ForGuest::NoXattrs(_) => {
                    let is_empty = matches!(&got, Ok(Reply::Bytes(names)) if names.is_empty());
                    assert!(is_empty, "{got:?}");
                }
                _ => assert!(
                    !matches!(got, Err(Code::AccessDenied | Code::NotFound)),
                    "{operation:?}: {got:?}"
                ),
            }
            if operation == Operation::Release {
                world.open(file, OPEN).unwrap();
            }
        }
    }
    assert_eq!(world.entry(world.docs, "file").attr.mode, 0o644, "nothing has changed");
    let listed = world.own(request(Operation::List, world.docs, OPEN)).unwrap();
    assert!(matches!(listed, Reply::Listed { entries, .. } if entries.len() == 2));
}

#[test]
fn what_is_not_granted_looks_as_what_does_not_exist() {
    let world = World::with_guest();
    let secret = world.entry(world.secret, "file").handle;
    let nowhere = Handle::own(InodeId::from_raw(0xffff_ffff));
    // A hint is no proof.
    let lie = Handle { ino: secret.ino, ..world.entry(world.docs, "file").handle };
    let stripped = Handle::own(secret.ino);
    for &operation in Operation::ALL {
        if is_of_open(operation) {
            let request = request(operation, nowhere, NO_OPEN);
            assert_eq!(done(world.guest(request)), Err(Code::BadOpen), "{operation:?}");
            continue;
        }
        if matches!(operation, Operation::StatFs | Operation::Revoke) {
            continue;
        }
        let absent = done(world.guest(request(operation, nowhere, NO_OPEN)));
        assert_eq!(absent, Err(Code::Stale), "{operation:?}");
        for node in [Handle::ROOT, world.secret, secret, lie, stripped] {
            let got = done(world.guest(request(operation, node, NO_OPEN)));
            assert_eq!(got, absent, "{operation:?} {node:?}");
        }
    }
}

#[test]
fn the_directory_of_a_credential_is_above_itself() {
    let world = World::with_guest();
    let parent = |dir| match world.guest(Request::Parent { dir }) {
        Ok(Reply::Entry(entry)) => Ok(entry.handle.ino),
        Ok(other) => panic!("{other:?}"),
        Err(code) => Err(code),
    };
    let sub = world.entry(world.docs, "sub").handle;
    assert_eq!(parent(sub), Ok(world.docs.ino));
    assert_eq!(parent(world.docs), Ok(world.docs.ino));
    assert_eq!(parent(Handle::ROOT), Err(Code::Stale));
}

#[test]
fn a_guest_learns_the_space_and_not_how_many_files_there_are() {
    let world = World::with_guest();
    let Ok(Reply::Volume(stats)) = world.guest(Request::StatFs) else { panic!("no volume") };
    assert!(stats.blocks > 0);
    assert_eq!((stats.files, stats.free_files), (0, 0));
}

#[test]
fn the_opens_of_others_are_none() {
    let world = World::with_guest();
    let node = world.entry(world.secret, "file").handle;
    world.own(Request::Open { node, flags: OpenFlags::READ, open: OPEN }).unwrap();
    assert_eq!(world.read(OPEN), Err(Code::BadOpen));
}

#[test]
fn a_guest_replays_nothing() {
    let world = World::with_guest();
    let secret = world.entry(world.secret, "file").handle;
    let stamp = pelago_wire::codec::ReplyStamp { epoch: 0, sequence: 1 };
    let replayed = Some(Replayed { stamp, node: Some(secret), time: None });
    let who = Context { replayed, mutation: 1, ..guest_context() };
    assert_eq!(who.session, GUEST);
    let write = Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE };
    assert_eq!(done(world.ask(&who, write, b"bob")), Err(Code::AccessDenied));
    let open = Request::Open { node: secret, flags: OpenFlags::WRITE, open: OPEN };
    assert_eq!(done(world.ask(&who, open, &[])), Err(Code::AccessDenied));
}
