//! The reply to each kind of request of a guest, for granted nodes and for others.

use pelago_wire::{
    AllocateMode, Asker, AuditPlace, Code, Cookie, FileKind, FileLock, Handle, InodeId, Level,
    LockKind, LockMode, LockOwner, Name, NewMode, OpenFlags, OpenId, Operation, PlaceFlags,
    RenameFlags, Reply, Request, Search, SeekFrom, SessionId, SetAttr, SiteToken, Tags, Time,
    Whence, WriteFlags, XattrFlags,
};

use super::world::{Guest, World};
use crate::harness::requests::next_open;
use crate::harness::rig::name;

/// What a guest may do by a kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// It is carried out on a granted node.
    OnNode,
    /// It is carried out on an open of its own whose file is granted.
    OnOpen,
    /// It is carried out on any open of its own.
    OnOwnOpen,
    /// It is carried out, and names nothing.
    Free,
    /// It is carried out on what the guest itself has signed. Here it is no sentence.
    OfOwnCredential,
    /// It is refused. It names nodes.
    NeverOnNode,
    /// It is refused. It names opens.
    NeverOnOpen,
    /// It is refused, and names neither.
    Never,
}

/// What a request is about.
#[derive(Debug, Clone, Copy)]
struct Target {
    node: Handle,
    open: OpenId,
}

/// The match has no wildcard: the compiler names a new kind here.
const fn rule(operation: Operation) -> Rule {
    match operation {
        Operation::Lookup
        | Operation::Parent
        | Operation::GetAttr
        | Operation::ReadLink
        | Operation::Open
        | Operation::Reopen
        | Operation::FsyncDir
        | Operation::List
        | Operation::GetXattr
        | Operation::ListXattr
        | Operation::Search
        | Operation::Tags
        | Operation::Access => Rule::OnNode,
        Operation::Read | Operation::Seek => Rule::OnOpen,
        Operation::Release | Operation::Flush | Operation::Fsync | Operation::FsyncAt => {
            Rule::OnOwnOpen
        }
        Operation::StatFs => Rule::Free,
        Operation::Find
        | Operation::SetAttr
        | Operation::Create
        | Operation::CreateUnnamed
        | Operation::MakeDir
        | Operation::MakeNode
        | Operation::Symlink
        | Operation::Link
        | Operation::Unlink
        | Operation::RemoveDir
        | Operation::Rename
        | Operation::SetXattr
        | Operation::RemoveXattr
        // The guest has made nothing.
        | Operation::Issue
        // It has no right to audit.
        | Operation::Audited
        | Operation::Step
        | Operation::AddDir
        | Operation::DropDir
        | Operation::RemoveNamedDir
        | Operation::SetBytes
        | Operation::GiveBytes
        | Operation::DropBytes => Rule::NeverOnNode,
        Operation::GetLock
        | Operation::SetLock
        | Operation::ReclaimLock
        | Operation::Write
        | Operation::Allocate
        | Operation::CopyRange
        | Operation::Hashes => Rule::NeverOnOpen,
        Operation::Attach => Rule::Free,
        Operation::Revoke => Rule::OfOwnCredential,
        Operation::SiteAddress
        | Operation::SiteList
        | Operation::LeaveSite
        | Operation::Charter
        | Operation::Revoked
        | Operation::PassRevocation
        | Operation::CharterChanged
        | Operation::Clock
        | Operation::RenewToken
        | Operation::KeepToken
        | Operation::Servers => Rule::Never,
    }
}

const OWNER: LockOwner = LockOwner(7);

fn lock() -> FileLock {
    FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 0, end: 9, pid: 1 }
}

const fn of_node(node: Handle) -> Target {
    Target { node, open: OpenId(0) }
}

/// Returns a request of this kind about a target.
fn request(operation: Operation, target: Target) -> Request {
    let Target { node, open } = target;
    match operation {
        Operation::Read
        | Operation::Seek
        | Operation::Flush
        | Operation::Release
        | Operation::Fsync
        | Operation::FsyncAt
        | Operation::GetLock
        | Operation::SetLock
        | Operation::ReclaimLock
        | Operation::Write
        | Operation::Allocate
        | Operation::CopyRange
        | Operation::Hashes => about_open(operation, open),
        Operation::Create
        | Operation::CreateUnnamed
        | Operation::MakeDir
        | Operation::MakeNode
        | Operation::Symlink
        | Operation::Link
        | Operation::Unlink
        | Operation::RemoveDir
        | Operation::Rename => changing_names(operation, node),
        Operation::Lookup
        | Operation::Parent
        | Operation::Find
        | Operation::GetAttr
        | Operation::SetAttr
        | Operation::ReadLink
        | Operation::Open
        | Operation::Reopen
        | Operation::FsyncDir
        | Operation::List
        | Operation::GetXattr
        | Operation::ListXattr
        | Operation::SetXattr
        | Operation::RemoveXattr
        | Operation::StatFs
        | Operation::Search
        | Operation::Tags
        | Operation::Attach
        | Operation::Revoke
        | Operation::Issue
        | Operation::Access
        | Operation::Audited
        | Operation::Step
        | Operation::AddDir
        | Operation::DropDir
        | Operation::RemoveNamedDir
        | Operation::SiteAddress
        | Operation::SiteList
        | Operation::LeaveSite
        | Operation::Charter
        | Operation::Revoked
        | Operation::PassRevocation
        | Operation::CharterChanged
        | Operation::SetBytes
        | Operation::GiveBytes
        | Operation::DropBytes
        | Operation::Clock
        | Operation::RenewToken
        | Operation::KeepToken
        | Operation::Servers => about_node(operation, target),
    }
}

fn about_open(operation: Operation, open: OpenId) -> Request {
    let owner = OWNER;
    let lock = lock();
    match operation {
        Operation::Read => Request::Read { open, offset: 0, size: 100 },
        Operation::Seek => {
            Request::Seek { open, from: SeekFrom { offset: 0, whence: Whence::Hole } }
        }
        Operation::Flush => Request::Flush { open, owner: Some(owner) },
        Operation::Release => Request::Release { open },
        Operation::Fsync => Request::Fsync { open, data_only: false },
        Operation::FsyncAt => Request::FsyncAt { open, level: Level::Local },
        Operation::GetLock => Request::GetLock { open, owner, lock },
        Operation::SetLock => Request::SetLock { open, owner, lock, wait: false },
        Operation::ReclaimLock => Request::ReclaimLock { open, owner, lock },
        Operation::Write => Request::Write { open, offset: 0, flags: WriteFlags::NONE },
        Operation::Allocate => {
            let mode = AllocateMode::Reserve { keep_size: false };
            Request::Allocate { open, offset: 0, length: 1 << 16, mode }
        }
        Operation::CopyRange => {
            Request::CopyRange { from: open, from_offset: 0, to: open, to_offset: 50, length: 4 }
        }
        Operation::Hashes => Request::Hashes { open, offset: 0, blocks: 1 },
        other => panic!("{other:?} names no open"),
    }
}

fn changing_names(operation: Operation, dir: Handle) -> Request {
    let old = name("f");
    let new = name("new");
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let open = next_open();
    match operation {
        Operation::Create => Request::Create { dir, name: new, mode, flags, open },
        Operation::CreateUnnamed => Request::CreateUnnamed { dir, mode, flags, open },
        Operation::MakeDir => Request::MakeDir { dir, name: new, mode },
        Operation::MakeNode => {
            Request::MakeNode { dir, name: new, kind: FileKind::Fifo, mode, rdev: 0 }
        }
        Operation::Symlink => Request::Symlink { dir, name: new, target: b"t".to_vec() },
        Operation::Link => Request::Link { node: dir, dir, name: new },
        Operation::Unlink => Request::Unlink { dir, name: old },
        Operation::RemoveDir => Request::RemoveDir { dir, name: old },
        Operation::Rename => {
            let flags = RenameFlags::Replace;
            Request::Rename { from_dir: dir, from: old, to_dir: dir, to: new, flags }
        }
        other => panic!("{other:?} changes no name"),
    }
}

fn about_node(operation: Operation, target: Target) -> Request {
    let Target { node, open } = target;
    let attribute = || b"user.mine".to_vec();
    match operation {
        Operation::Lookup => Request::Lookup { dir: node, name: name("f") },
        Operation::Parent => Request::Parent { dir: node },
        Operation::Find => Request::Find { ino: node.ino },
        Operation::GetAttr => Request::GetAttr { node },
        Operation::SetAttr => {
            let set = SetAttr { mode: Some(0o777), size: Some(0), ..SetAttr::default() };
            Request::SetAttr { node, open: Some(open), set }
        }
        Operation::ReadLink => Request::ReadLink { node },
        Operation::Open => Request::Open { node, flags: OpenFlags::READ, open: next_open() },
        Operation::Reopen => Request::Reopen { node, flags: OpenFlags::READ, open: next_open() },
        Operation::FsyncDir => Request::FsyncDir { dir: node, since: None },
        Operation::List => {
            let after = Cookie::START;
            Request::List { dir: node, after, behind: None, entries: 100, attributes: true }
        }
        Operation::GetXattr => Request::GetXattr { node, name: attribute() },
        Operation::ListXattr => Request::ListXattr { node },
        Operation::SetXattr => {
            let value = b"v".to_vec();
            let flags = XattrFlags::Any;
            Request::SetXattr { node, name: attribute(), value, flags, kill_setgid: false }
        }
        Operation::RemoveXattr => Request::RemoveXattr { node, name: attribute() },
        Operation::StatFs => Request::StatFs,
        Operation::Search => {
            let asker = Asker { groups: vec![0], reads_all: true };
            let search = Search { query: b"name~*".to_vec(), hits: 100, after: None, asker };
            Request::Search { dir: node, search }
        }
        Operation::Tags => {
            let asker = Asker { groups: vec![0], reads_all: true };
            Request::Tags { dir: node, tags: Tags { key: None, prefix: Vec::new(), asker } }
        }
        Operation::Attach => Request::Attach { chain: vec![b"garbage".to_vec()] },
        Operation::Revoke => Request::Revoke { sentence: b"garbage".to_vec(), chain: vec![] },
        Operation::Issue => Request::Issue { node },
        Operation::Access => Request::Access { node, chain: vec![], after: SessionId(0) },
        Operation::Audited => Request::Audited { dir: node, after: AuditPlace::START },
        Operation::Step => Request::Step { dir: node, to: None },
        Operation::AddDir => {
            let made = InodeId::new(7, 0, 9).unwrap();
            Request::AddDir { dir: node, name: Name::new(b"theirs").unwrap(), made }
        }
        Operation::DropDir => {
            let removed = InodeId::new(7, 0, 9).unwrap();
            Request::DropDir { dir: node, name: Name::new(b"theirs").unwrap(), removed }
        }
        Operation::RemoveNamedDir => {
            let parent = InodeId::new(7, 0, 9).unwrap();
            Request::RemoveNamedDir { dir: node, parent, name: Name::new(b"theirs").unwrap() }
        }
        Operation::SiteAddress => Request::SiteAddress { address: b"h:1".to_vec() },
        Operation::SiteList => Request::SiteList { text: b"Pelago-Sites: 1\n".to_vec() },
        Operation::LeaveSite => Request::LeaveSite,
        Operation::Charter => Request::Charter { known: 0 },
        Operation::Revoked => Request::Revoked { parts: vec![0; 4096], after: None },
        Operation::PassRevocation => {
            Request::PassRevocation { sentence: b"garbage".to_vec(), end: 0 }
        }
        Operation::CharterChanged => Request::CharterChanged,
        Operation::SetBytes => {
            let at = InodeId::new(7, 0, 9).unwrap();
            let [mtime, since] = [Time::default(); 2];
            Request::SetBytes { node, at, size: 1, mtime, since, flags: PlaceFlags::default() }
        }
        Operation::GiveBytes => Request::GiveBytes { node, file: InodeId::new(7, 0, 9).unwrap() },
        Operation::DropBytes => Request::DropBytes { node, file: InodeId::new(7, 0, 9).unwrap() },
        Operation::Clock => Request::Clock,
        Operation::RenewToken => Request::RenewToken { token: SiteToken::NONE },
        Operation::KeepToken => Request::KeepToken { token: SiteToken::NONE },
        Operation::Servers => Request::Servers,
        other => panic!("{other:?} names no node"),
    }
}

/// Opens for writing are other requests than those for reading, as far as a guest is concerned.
fn writing_opens(target: Target) -> Vec<Request> {
    let node = target.node;
    let truncates = OpenFlags { truncate: true, ..OpenFlags::READ };
    let flags = [OpenFlags::READ_WRITE, OpenFlags::WRITE, truncates];
    let opens = flags.map(|flags| {
        let again = Request::Reopen { node, flags, open: next_open() };
        [Request::Open { node, flags, open: next_open() }, again]
    });
    opens.into_iter().flatten().collect()
}

/// A volume with a shared directory and a secret one, each with a file, a directory and a link.
struct Place {
    world: World,
    guest: Guest,
    other: Guest,
    granted: [Handle; 4],
    outside: [Handle; 4],
    /// An open of the guest, and one of the other guest.
    opens: [OpenId; 2],
}

impl Place {
    fn new() -> Self {
        let world = World::new();
        let [shared, secret] = ["shared", "secret"].map(|text| world.make_dir(Handle::ROOT, text));
        let filled = [shared, secret].map(|dir| {
            let file = world.put(dir, "f", b"some bytes");
            let below = world.make_dir(dir, "below");
            world.put(below, "f", b"more bytes");
            let target = b"f".to_vec();
            world.call(Request::Symlink { dir, name: name("link"), target }).unwrap();
            world.call(about_node(Operation::SetXattr, of_node(file))).unwrap();
            let link = world.call(Request::Lookup { dir, name: name("link") });
            let Ok(Reply::Entry(link)) = link else { panic!("{link:?}") };
            [dir, file, below, link.handle]
        });
        let [granted, outside] = filled;
        let guest = world.guest(2, shared.ino);
        let other = world.guest(3, secret.ino);
        let opens =
            [world.open(&guest, granted[1]).unwrap(), world.open(&other, outside[1]).unwrap()];
        Self { world, guest, other, granted, outside, opens }
    }

    /// Returns what the guest is told of this request, and makes sure that nothing has changed.
    fn told(&self, request: Request) -> Result<Reply, Code> {
        let before = self.world.seen();
        let says = format!("{request:?}");
        let told = self.world.ask(&self.guest, request);
        assert_eq!(self.world.seen(), before, "{says}");
        told
    }
}

#[test]
fn each_kind_of_request_is_carried_out_or_refused_on_what_is_granted() {
    let place = Place::new();
    for &operation in Operation::ALL {
        for node in place.granted {
            let open = place.world.open(&place.guest, place.granted[1]).unwrap();
            let told = place.told(request(operation, Target { node, open }));
            let is_well = match (rule(operation), &told) {
                (Rule::OnNode, Ok(_)) => true,
                // What is no file was never open.
                (Rule::OnNode, Err(Code::BadOpen)) => operation == Operation::Reopen,
                // Not a directory, not a link, not a file, or one without that attribute.
                (Rule::OnNode, Err(code)) => matches!(
                    code,
                    Code::NotDirectory
                        | Code::IsDirectory
                        | Code::Invalid
                        | Code::NotFound
                        | Code::NoXattr
                ),
                (Rule::OnOpen | Rule::OnOwnOpen | Rule::Free, told) => told.is_ok(),
                (Rule::OfOwnCredential, told) => matches!(told, Err(Code::Invalid)),
                (Rule::NeverOnNode | Rule::NeverOnOpen | Rule::Never, told) => {
                    matches!(told, Err(Code::AccessDenied))
                }
            };
            assert!(is_well, "{operation:?} on {node:?}: {told:?}");
        }
    }
    for node in place.granted {
        for request in writing_opens(of_node(node)) {
            let says = format!("{request:?}");
            assert!(matches!(place.told(request), Err(Code::AccessDenied)), "{says}");
        }
    }
}

/// What is there and not granted looks as what is not there, by each kind of request.
#[test]
fn nothing_tells_what_is_outside_from_what_does_not_exist() {
    let place = Place::new();
    let never = Handle::own(InodeId::from_raw(place.outside[3].ino.raw() + 1_000));
    let gone = {
        let gone = place.world.put(Handle::ROOT, "gone", b"");
        place.world.unlink(Handle::ROOT, "gone");
        gone
    };
    let not_there = Target { node: never, open: OpenId(1 << 40) };
    let mut nodes = place.outside.to_vec();
    nodes.extend([Handle::ROOT, gone, Handle::own(place.outside[1].ino)]);
    // A hint that lies: a secret file that is said to be in the granted directory.
    nodes.push(Handle { dir: place.granted[0].ino, ..place.outside[1] });
    nodes.push(Handle { ino: place.outside[1].ino, ..place.granted[1] });
    for &operation in Operation::ALL {
        let there = format!("{:?}", place.told(request(operation, not_there)));
        for &node in &nodes {
            let target = Target { node, open: place.opens[1] };
            let told = format!("{:?}", place.told(request(operation, target)));
            match rule(operation) {
                Rule::Free => assert!(told.starts_with("Ok"), "{operation:?}: {told}"),
                Rule::OfOwnCredential => assert_eq!(told, "Err(Invalid)", "{operation:?}"),
                Rule::Never => assert_eq!(told, "Err(AccessDenied)", "{operation:?}"),
                Rule::OnOpen | Rule::OnOwnOpen | Rule::NeverOnOpen => {
                    assert_eq!(told, "Err(BadOpen)", "{operation:?}");
                    assert_eq!(there, told, "{operation:?}");
                }
                Rule::OnNode | Rule::NeverOnNode => {
                    assert_eq!(told, "Err(Stale)", "{operation:?} on {node:?}");
                    assert_eq!(there, told, "{operation:?}");
                }
            }
        }
    }
    for node in nodes {
        for request in writing_opens(of_node(node)) {
            let says = format!("{request:?}");
            assert!(matches!(place.told(request), Err(Code::Stale)), "{says}");
        }
    }
    let read = place.world.read(&place.other, place.opens[1]);
    assert_eq!(read.unwrap(), b"some bytes", "its open is still there");
}

/// A request with two subjects is refused as for what does not exist if only one is granted.
#[test]
fn two_subjects_are_refused_alike_if_one_is_not_granted() {
    let place = Place::new();
    let never = Handle::own(InodeId::from_raw(place.outside[3].ino.raw() + 1_000));
    let flags = RenameFlags::Replace;
    for other in [place.outside[0], never] {
        let own = place.granted[0];
        for (from_dir, to_dir) in [(own, other), (other, own)] {
            let rename =
                Request::Rename { from_dir, from: name("f"), to_dir, to: name("n"), flags };
            assert!(matches!(place.told(rename), Err(Code::Stale)));
            let link = Request::Link { node: from_dir, dir: to_dir, name: name("n") };
            assert!(matches!(place.told(link), Err(Code::Stale)));
        }
    }
    let own = place.opens[0];
    for other in [place.opens[1], OpenId(1 << 40)] {
        for (from, to) in [(own, other), (other, own)] {
            let copy = Request::CopyRange { from, from_offset: 0, to, to_offset: 0, length: 1 };
            assert!(matches!(place.told(copy), Err(Code::BadOpen)));
        }
    }
}

#[test]
fn the_top_is_above_itself_and_shows_no_more_than_itself() {
    let place = Place::new();
    let [top, _, below, _] = place.granted;
    let parent = |dir| match place.world.ask(&place.guest, Request::Parent { dir }) {
        Ok(Reply::Entry(entry)) => entry.attr.ino,
        other => panic!("{other:?}"),
    };
    assert_eq!(parent(below), top.ino);
    assert_eq!(parent(top), top.ino);
    let lies = Handle { dir: place.outside[0].ino, ..top };
    assert_eq!(parent(lies), top.ino);
    let list = request(Operation::List, of_node(top));
    let Ok(Reply::Listed { entries, end: true }) = place.world.ask(&place.guest, list) else {
        panic!("a listing");
    };
    let names: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let up = Name::new(b"..");
    assert!(up.is_err(), "`..` is no name");
}

#[test]
fn of_extended_attributes_those_of_users_are_shown_and_of_files_no_count() {
    let place = Place::new();
    let file = place.granted[1];
    for attribute in ["trusted.theirs", "security.theirs", "user.tag.project"] {
        let flags = XattrFlags::Any;
        let name = attribute.as_bytes().to_vec();
        let value = b"v".to_vec();
        let set = Request::SetXattr { node: file, name, value, flags, kill_setgid: false };
        place.world.call(set).unwrap();
    }
    let names = place.world.ask(&place.guest, Request::ListXattr { node: file }).unwrap();
    let Reply::Bytes(names) = names else { panic!("{names:?}") };
    assert_eq!(names, b"user.mine\0user.tag.project\0");
    let get = |name: &str| {
        let name = name.as_bytes().to_vec();
        place.world.ask(&place.guest, Request::GetXattr { node: file, name })
    };
    assert!(matches!(get("user.mine"), Ok(Reply::Bytes(value)) if value == b"v"));
    for hidden in ["trusted.theirs", "security.theirs", "system.posix_acl_access", "user.none"] {
        assert!(matches!(get(hidden), Err(Code::NoXattr)), "{hidden}");
    }
    match place.world.ask(&place.guest, Request::StatFs).unwrap() {
        Reply::Volume(stats) => {
            assert_eq!((stats.files, stats.free_files), (0, 0));
            assert!(stats.blocks > 0);
        }
        other => panic!("{other:?}"),
    }
}

/// It can claim the number of another user's lost file, or write what others have written since.
#[test]
fn a_request_that_says_it_was_answered_before_is_refused() {
    let place = Place::new();
    for &operation in Operation::ALL {
        let node = place.granted[0];
        let request = request(operation, Target { node, open: place.opens[0] });
        let replayed = Some(pelago_wire::Replayed {
            stamp: pelago_wire::codec::ReplyStamp::default(),
            node: Some(place.outside[1]),
            time: None,
        });
        let before = place.world.seen();
        let context = pelago_wire::Context { replayed, ..place.guest.context(&request) };
        let told = place.world.ask_as(&context, request);
        let is_refused = matches!(told, Err(Code::AccessDenied | Code::TimedOut | Code::BadOpen));
        assert!(is_refused, "{operation:?}: {told:?}");
        assert_eq!(place.world.seen(), before);
    }
}

#[test]
fn a_cancel_of_a_guest_changes_nothing() {
    let place = Place::new();
    let service = place.world.server.service();
    for number in 0..50 {
        let read = Request::Read { open: place.opens[0], offset: 0, size: 9 };
        let context = place.guest.context(&read);
        service.cancel(&context);
        let request = pelago_wire::RequestId(number);
        service.cancel(&pelago_wire::Context { request, ..context });
        assert!(place.world.ask_as(&context, read).is_ok());
        service.cancel(&context);
    }
}
