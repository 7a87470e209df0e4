//! One message of each kind, and of each variant of its fields.

use pelago_wire::codec::ReplyStamp;
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused, Welcome};
use pelago_wire::present::Present;
use pelago_wire::{
    AccessPage, AllocateMode, Asker, Attr, AuditPage, AuditPlace, Buffer, Cookie, DataPath,
    DenialCause, DeniedRight, DirEntry, Entry, FileKind, FileLock, GuestAccess, Handle, Hit,
    InodeId, Level, LockKind, LockMode, LockOwner, Name, NameHash, NewMode, OpenFlags, OpenId,
    PassedRevocation, PlaceFlags, Recalled, RenameFlags, Replayed, Reply, Request, Search,
    SearchAt, SearchPage, SearchPlace, SeekFrom, SessionId, SetAttr, SetTime, SiteToken, TagPage,
    Tags, Time, Touched, VolumeStats, Whence, WriteEra, WriteFlags, XattrFlags, limits,
};

const TOKEN: SiteToken = SiteToken { number: 0x0102_0304_0506_0708, random: [9; 16] };

const NODE: Handle = Handle::at(
    InodeId::from_raw(0x0102_0304_0506_0708),
    InodeId::from_raw(0x1112_1314_1516_1718),
    NameHash(0x2122_2324_2526_2728),
);
const DIR: Handle = Handle::ROOT;
const OPEN: OpenId = OpenId(0x3132_3334_3536_3738);
const OFFSET: u64 = 0x4142_4344_4546_4748;
const MODE: NewMode = NewMode { mode: 0o4751, umask: 0o27 };
pub(crate) const UID: u32 = 0x0a0b_0c0d;
pub(crate) const GID: u32 = 0x1a1b_1c1d;
pub(crate) const MUTATION: u64 = 0x5152_5354_5556_5758;
pub(crate) const STAMP: ReplyStamp =
    ReplyStamp { epoch: 0x6162_6364, sequence: 0x7172_7374_7576_7778 };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn time(seconds: i64) -> Time {
    Time { seconds, nanos: 999_999_999 }
}

fn attr() -> Attr {
    Attr {
        ino: NODE.ino,
        kind: FileKind::Regular,
        mode: 0o2640,
        links: 0x0102_0304,
        uid: 1000,
        gid: 100,
        rdev: 0x0103,
        size: OFFSET,
        blocks: 8,
        atime: time(-1),
        mtime: time(2),
        ctime: time(3),
        btime: time(i64::MIN),
        volatile: true,
        has_xattrs: true,
    }
}

/// Returns what recalls name.
pub(crate) fn recalls() -> Vec<(&'static str, Recalled)> {
    let node = Touched::Node(NODE.ino);
    let named = Touched::Name { dir: DIR.ino, name: Name::new(b"na\xffme").unwrap() };
    vec![
        ("nothing", Recalled::Things(Vec::new())),
        ("node", Recalled::Things(vec![node.clone()])),
        ("both", Recalled::Things(vec![named, node])),
        ("everything", Recalled::Everything),
    ]
}

/// Returns requests, each with what follows its name in the files.
pub(crate) fn requests() -> Vec<(&'static str, Request)> {
    [of_names(), of_nodes(), of_opens(), lock_requests(OPEN), searches()].concat()
}

/// Returns what stands before a request that is replayed.
pub(crate) fn replayed() -> Vec<(&'static str, Replayed)> {
    let nothing = Replayed { stamp: STAMP, node: None, time: None };
    vec![
        ("nothing", nothing),
        ("node", Replayed { node: Some(NODE), ..nothing }),
        ("all", Replayed { node: Some(NODE), time: Some(time(2)), ..nothing }),
    ]
}

fn of_names() -> Vec<(&'static str, Request)> {
    let dir = DIR;
    let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
    let rename = |flags| Request::Rename {
        from_dir: DIR,
        from: name("old"),
        to_dir: NODE,
        to: name("new"),
        flags,
    };
    vec![
        ("", Request::Lookup { dir: NODE, name: Name::new(b"na\xffme").unwrap() }),
        ("", Request::Parent { dir: NODE }),
        ("", Request::Find { ino: NODE.ino }),
        ("", Request::Create { dir, name: name("name"), mode: MODE, flags, open: OPEN }),
        ("", Request::CreateUnnamed { dir, mode: MODE, flags, open: OPEN }),
        ("", Request::MakeDir { dir, name: name("name"), mode: MODE }),
        (
            "",
            Request::MakeNode {
                dir,
                name: name("name"),
                kind: FileKind::BlockDevice,
                mode: MODE,
                rdev: 0x0103,
            },
        ),
        ("", Request::Symlink { dir, name: name("name"), target: b"../target".to_vec() }),
        ("", Request::ReadLink { node: NODE }),
        ("", Request::Link { node: NODE, dir, name: name("name") }),
        ("", Request::Unlink { dir, name: name("name") }),
        ("", Request::RemoveDir { dir, name: name("name") }),
        (".replace", rename(RenameFlags::Replace)),
        (".no-replace", rename(RenameFlags::NoReplace)),
        (".exchange", rename(RenameFlags::Exchange)),
        (".whiteout", rename(RenameFlags::Whiteout { replace: false })),
        (".whiteout-replace", rename(RenameFlags::Whiteout { replace: true })),
        (
            "",
            Request::List {
                dir,
                after: Cookie(OFFSET),
                behind: None,
                entries: 128,
                attributes: true,
            },
        ),
        (
            ".behind",
            Request::List {
                dir,
                after: Cookie(OFFSET),
                behind: Some(name("name")),
                entries: 1024,
                attributes: false,
            },
        ),
    ]
}

fn of_nodes() -> Vec<(&'static str, Request)> {
    let node = NODE;
    let open = Some(OPEN);
    let all = SetAttr {
        mode: Some(0o1777),
        uid: Some(1000),
        gid: Some(100),
        size: Some(OFFSET),
        atime: Some(SetTime::To(time(-1))),
        mtime: Some(SetTime::To(time(2))),
        ctime: Some(time(3)),
        kill_privileges: true,
        kill_setgid: true,
    };
    let now =
        SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let xattr = b"user.name".to_vec();
    let set_xattr = |flags, kill_setgid| Request::SetXattr {
        node,
        name: b"user.name".to_vec(),
        value: b"va\0ue".to_vec(),
        flags,
        kill_setgid,
    };
    vec![
        ("", Request::GetAttr { node }),
        (".nothing", Request::SetAttr { node, open: None, set: SetAttr::default() }),
        (".all", Request::SetAttr { node, open, set: all }),
        (".now", Request::SetAttr { node, open, set: now }),
        ("", Request::FsyncDir { dir: DIR, since: None }),
        (".since", Request::FsyncDir { dir: DIR, since: Some(9) }),
        ("", Request::GetXattr { node, name: xattr.clone() }),
        ("", Request::ListXattr { node }),
        ("", set_xattr(XattrFlags::Any, false)),
        (".create", set_xattr(XattrFlags::Create, false)),
        (".replace", set_xattr(XattrFlags::Replace, true)),
        ("", Request::RemoveXattr { node, name: xattr }),
        ("", Request::StatFs),
    ]
}

fn of_opens() -> Vec<(&'static str, Request)> {
    let open = OPEN;
    let offset = OFFSET;
    let length = 4096;
    let opening = |flags| Request::Open { node: NODE, flags, open: OPEN };
    let [append, behind, kill_privileges] = [0, 1, 2].map(|at| WriteFlags {
        append: at == 0,
        behind: (at == 1).then_some(WriteEra(0x0102)),
        commit: at == 1,
        kill_privileges: at == 2,
    });
    let allocate = |mode| Request::Allocate { open, offset, length, mode };
    let all = OpenFlags {
        append: true,
        truncate: true,
        sync: true,
        kill_privileges: true,
        no_atime: true,
        strict_atime: true,
        passthrough: true,
        ..OpenFlags::READ_WRITE
    };
    vec![
        (".read", opening(OpenFlags::READ)),
        (".write", opening(OpenFlags::WRITE)),
        (".all", opening(all)),
        ("", Request::Flush { open, owner: None }),
        (".owner", Request::Flush { open, owner: Some(OWNER) }),
        ("", Request::Release { open }),
        ("", Request::Fsync { open, data_only: true }),
        ("", Request::Read { open, offset, size: 4096 }),
        ("", Request::Write { open, offset, flags: kill_privileges }),
        (".append", Request::Write { open, offset, flags: append }),
        (".behind", Request::Write { open, offset, flags: behind }),
        (".reserve", allocate(AllocateMode::Reserve { keep_size: false })),
        (".reserve-keep", allocate(AllocateMode::Reserve { keep_size: true })),
        (".punch", allocate(AllocateMode::PunchHole)),
        (".zero", allocate(AllocateMode::Zero { keep_size: false })),
        (".zero-keep", allocate(AllocateMode::Zero { keep_size: true })),
        (".data", Request::Seek { open, from: SeekFrom { offset, whence: Whence::Data } }),
        (".hole", Request::Seek { open, from: SeekFrom { offset, whence: Whence::Hole } }),
        (
            "",
            Request::CopyRange {
                from: open,
                from_offset: 1,
                to: OpenId(8),
                to_offset: offset,
                length,
            },
        ),
        ("", Request::Reopen { node: NODE, flags: OpenFlags::READ_WRITE, open }),
    ]
}

const OWNER: LockOwner = LockOwner(0x0102_0304_0506_0708);
const LOCK: FileLock = FileLock {
    kind: LockKind::Posix,
    mode: LockMode::Write,
    start: 1 << 30,
    end: FileLock::TO_END,
    pid: 4711,
};

/// Requests for locks.
fn lock_requests(open: OpenId) -> Vec<(&'static str, Request)> {
    let owner = OWNER;
    let flock = FileLock { kind: LockKind::Flock, mode: LockMode::Unlock, ..LOCK };
    let ofd = FileLock { kind: LockKind::OpenFile, mode: LockMode::Read, ..LOCK };
    vec![
        ("", Request::GetLock { open, owner, lock: ofd }),
        ("", Request::SetLock { open, owner, lock: flock, wait: false }),
        (".wait", Request::SetLock { open, owner, lock: LOCK, wait: true }),
        ("", Request::ReclaimLock { open, owner, lock: LOCK }),
    ]
}

fn searches() -> Vec<(&'static str, Request)> {
    let search = |after, asker| Request::Search {
        dir: NODE,
        search: Search { query: b"project=reef".to_vec(), hits: 256, after, asker },
    };
    let at = |at| Some(SearchPlace { now: time(7), at });
    let tags = |key: Option<&[u8]>, prefix: &[u8], asker| Request::Tags {
        dir: NODE,
        tags: Tags { key: key.map(<[u8]>::to_vec), prefix: prefix.to_vec(), asker },
    };
    let member = Asker { groups: vec![4, 1000], reads_all: false };
    vec![
        ("", search(None, member.clone())),
        (".all", search(None, Asker { groups: Vec::new(), reads_all: true })),
        (".path", search(at(SearchAt::Path(b"a/na\xffme".to_vec())), member.clone())),
        (".node", search(at(SearchAt::Node { ino: NODE.ino, names: 3 }), member.clone())),
        (".rank", search(at(SearchAt::Rank(256)), member.clone())),
        ("", tags(None, b"", member.clone())),
        (".values", tags(Some(b"project"), b"re\xff", member)),
        ("", Request::Attach { chain: vec![b"KeyNote-Version: 2\n".to_vec(), b"x".to_vec()] }),
        ("", Request::Issue { node: NODE }),
        ("", Request::Revoke { sentence: b"Pelago-Revocation: 1\n".to_vec(), chain: vec![] }),
        (
            ".guest",
            Request::Revoke {
                sentence: b"Pelago-Revocation: 1\n".to_vec(),
                chain: vec![b"KeyNote-Version: 2\n".to_vec(), b"x".to_vec()],
            },
        ),
        ("", Request::Access { node: NODE, chain: vec![], after: SessionId(0) }),
        (
            ".chain",
            Request::Access {
                node: NODE,
                chain: vec![b"KeyNote-Version: 2\n".to_vec()],
                after: SessionId(0x1112_1314_1516_1718),
            },
        ),
        ("", Request::Audited { dir: NODE, after: AuditPlace::START }),
        (
            ".next",
            Request::Audited { dir: NODE, after: AuditPlace { day: 20_261_231, offset: OFFSET } },
        ),
        ("", Request::Step { dir: NODE, to: Some(name("berlin")) }),
        (".parent", Request::Step { dir: NODE, to: None }),
        ("", Request::AddDir { dir: NODE, name: name("berlin"), made: NODE.ino }),
        ("", Request::DropDir { dir: NODE, name: name("berlin"), removed: NODE.ino }),
        ("", Request::RemoveNamedDir { dir: NODE, parent: NODE.ino, name: name("berlin") }),
        ("", Request::SiteAddress { address: b"office.example:7440".to_vec() }),
        ("", Request::SiteList { text: b"Pelago-Sites: 1\n".to_vec() }),
        ("", Request::LeaveSite),
        ("", Request::Charter { known: 0x0102_0304_0506_0708 }),
        ("", Request::Revoked { parts: vec![7; limits::REVOKED_PARTS_BYTES], after: None }),
        (".after", Request::Revoked { parts: vec![7; 16], after: Some([9; 32]) }),
        ("", Request::PassRevocation { sentence: b"Pelago-Revocation: 1\n".to_vec(), end: 7 }),
        ("", Request::CharterChanged),
        (
            "",
            Request::SetBytes {
                node: NODE,
                at: NODE.ino,
                size: OFFSET,
                mtime: Time { seconds: 1_700_000_000, nanos: 5 },
                since: Time { seconds: 1_600_000_000, nanos: 6 },
                flags: PlaceFlags::default(),
            },
        ),
        (
            ".flags",
            Request::SetBytes {
                node: NODE,
                at: NODE.ino,
                size: 0,
                mtime: Time::default(),
                since: Time::default(),
                flags: PlaceFlags { asks: true, given: true, kill_privileges: true },
            },
        ),
        ("", Request::GiveBytes { node: NODE, file: NODE.ino }),
        ("", Request::DropBytes { node: NODE, file: NODE.ino }),
        ("", Request::Clock),
        ("", Request::Hashes { open: OpenId(7), offset: 1 << 24, blocks: 64 }),
        ("", Request::RenewToken { token: TOKEN }),
        ("", Request::KeepToken { token: TOKEN }),
        ("", Request::FsyncAt { open: OPEN, level: Level::Remote }),
        ("", Request::Servers),
    ]
}

/// The credentials of a guest.
pub(crate) fn present() -> Present {
    Present { chain: vec![b"KeyNote-Version: 2\n".to_vec(), b"another\n".to_vec()] }
}

/// The rights of two guests.
fn access() -> AccessPage {
    let denied = |right, link, cause, detail: &str| DeniedRight {
        right,
        link,
        signer: [link; 32],
        cause,
        detail: detail.to_owned(),
    };
    let session = SessionId(0x1112_1314_1516_1718);
    let reader = GuestAccess {
        session,
        key: [7; 32],
        credential: [8; 32],
        links: 2,
        rights: b"rx".to_vec(),
        denied: vec![
            denied(b'w', 1, DenialCause::Right, ""),
            denied(b'c', 2, DenialCause::Conditions, "right == \"r\""),
        ],
    };
    let ended = vec![
        denied(b'r', 1, DenialCause::Ended, "20261231180000"),
        denied(b'w', 0, DenialCause::User, ""),
    ];
    let nothing = GuestAccess { rights: Vec::new(), denied: ended, ..reader.clone() };
    AccessPage { guests: vec![reader, nothing], more: true }
}

pub(crate) fn replies() -> Vec<(&'static str, Reply)> {
    let attr = attr();
    let path = DataPath::Cached;
    let entry = Entry { handle: NODE, attr };
    let listed =
        |name, kind, entry| DirEntry { name, ino: NODE.ino, kind, cookie: Cookie(OFFSET), entry };
    let entries = vec![
        listed(name("a"), FileKind::Directory, None),
        listed(name("name"), FileKind::Regular, Some(entry)),
    ];
    let volume = VolumeStats {
        block_bytes: 4096,
        blocks: 1 << 40,
        free: 1 << 39,
        available: 1 << 38,
        files: 1 << 36,
        free_files: 1 << 35,
    };
    let hit = |kind, path: &[u8]| Hit { ino: NODE.ino, kind, path: path.to_vec() };
    let found = SearchPage {
        hits: vec![hit(FileKind::Regular, b"a/na\xffme"), hit(FileKind::Directory, b"b")],
        as_of: time(5),
        after: Some(SearchPlace { now: time(7), at: SearchAt::Node { ino: NODE.ino, names: 3 } }),
        examined: 12,
    };
    let parts = vec![b"reef".to_vec(), b"re\xff".to_vec()];
    let tagged = TagPage { parts, as_of: time(5), more: true };
    let none = TagPage { parts: Vec::new(), as_of: time(5), more: false };
    let last = SearchPage { hits: Vec::new(), as_of: time(5), after: None, examined: 0 };
    vec![
        ("", Reply::Done),
        ("", Reply::Entry(entry)),
        ("", Reply::Attr(attr)),
        (".cached", Reply::Created { entry, path: path.clone() }),
        (".direct", Reply::Created { entry, path: DataPath::Direct }),
        ("", Reply::Opened { attr, path }),
        ("", Reply::Removed(attr)),
        ("", Reply::Renamed { moved: NODE, replaced: None }),
        (".replaced", Reply::Renamed { moved: NODE, replaced: Some(entry) }),
        ("", Reply::Data(Buffer::new(b"the bytes of a file".to_vec()))),
        ("", Reply::Bytes(b"../target".to_vec())),
        ("", Reply::Written { bytes: 4096, size: OFFSET }),
        ("", Reply::Listed { entries, end: false }),
        (".end", Reply::Listed { entries: Vec::new(), end: true }),
        ("", Reply::Offset(OFFSET)),
        ("", Reply::Volume(volume)),
        ("", Reply::Lock(None)),
        (".held", Reply::Lock(Some(LOCK))),
        ("", Reply::Found(found)),
        (".end", Reply::Found(last)),
        ("", Reply::Tagged(tagged)),
        (".end", Reply::Tagged(none)),
        ("", Reply::Issued(vec![b"KeyNote-Version: 2\n".to_vec(), b"x".to_vec()])),
        ("", Reply::Access(access())),
        (".none", Reply::Access(AccessPage { guests: Vec::new(), more: false })),
        (
            "",
            Reply::Audited(AuditPage {
                lines: b"{\"what\":\"use\"}\n".to_vec(),
                next: Some(AuditPlace { day: 20_261_231, offset: OFFSET }),
            }),
        ),
        (".end", Reply::Audited(AuditPage { lines: Vec::new(), next: None })),
        ("", Reply::Stepped { node: NODE, attr: Some(attr) }),
        (".elsewhere", Reply::Stepped { node: NODE, attr: None }),
        (
            "",
            Reply::Servers(vec!["pelago1key@host:7440".to_owned(), "pelago1Ω@[::1]:1".to_owned()]),
        ),
        (".none", Reply::Servers(Vec::new())),
        ("", Reply::Charter { text: Some(b"Pelago-Charter: 1\n".to_vec()), revoked: [7; 32] }),
        (".known", Reply::Charter { text: None, revoked: [7; 32] }),
        (
            "",
            Reply::Revoked {
                revocations: vec![PassedRevocation {
                    sentence: b"Pelago-Revocation: 1\n".to_vec(),
                    end: 0x0102_0304_0506_0708,
                }],
                differing: [9; 32],
                more: true,
            },
        ),
        (
            "",
            Reply::Unreached {
                away: vec!["berlin".to_owned(), "rome".to_owned()],
                refused: vec!["oslo".to_owned()],
            },
        ),
        (
            "",
            Reply::Clock {
                now: Time { seconds: 1_700_000_000, nanos: 5 },
                program: "0.1.0".to_owned(),
            },
        ),
        ("", Reply::Hashes(vec![[3; 32], [4; 32]])),
        ("", Reply::Token(TOKEN)),
    ]
}

pub(crate) fn hello() -> Hello {
    Hello {
        wire_min: 1,
        wire_max: 0x0203,
        role: Hello::CLIENT,
        read_only: true,
        features: 0x0102_0304_0506_0708,
        nonce: *b"0123456789abcdef",
        resume: Some(SessionId(0x1112_1314_1516_1718)),
        volume: Some(*b"fedcba9876543210"),
        shard: 0x2122,
        site: 0x3132,
    }
}

pub(crate) fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0x0102_0304_0506_0708,
        session: SessionId(0x1112_1314_1516_1718),
        resumed: true,
        term_ms: 30_000,
        lease_ms: 20_000,
        epoch: 0x2122_2324,
        volume: *b"0123456789abcdef",
        read_only: false,
        requests: 256,
        bulk: 16 << 20,
    }
}

pub(crate) fn refused() -> Refused {
    let text = "wait, Ω".to_owned();
    Refused { code: RefusalCode::Starting, wire_min: 1, wire_max: 2, retry_ms: 5000, text }
}

pub(crate) fn closing() -> Closing {
    Closing { code: ClosingCode::Expired, text: "31 s".to_owned() }
}
