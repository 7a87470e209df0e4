//! The table of rights in `docs/semantics.md` is that of the requests.

use std::collections::BTreeSet;

use super::*;
use crate::attr::{NewMode, SetTime, Time};
use crate::audit::AuditPlace;
use crate::flags::{AllocateMode, PlaceFlags, SeekFrom, Whence, WriteFlags, XattrFlags};
use crate::id::{Cookie, InodeId, SessionId};
use crate::level::Level;
use crate::lock::{LockKind, LockOwner};
use crate::name::Name;
use crate::operation::Operation;
use crate::request::Request;
use crate::search::{Asker, Search, Tags};
use crate::site_token::SiteToken;

const DOCUMENT: &str = include_str!("../../../../docs/semantics.md");
const FILE: Handle = Handle::own(InodeId::ROOT);
const DIR: Handle = Handle::own(InodeId::from_raw(2));
const OPEN: OpenId = OpenId(7);
const OTHER: OpenId = OpenId(8);
const OWNER: LockOwner = LockOwner(9);

/// The rows of the document that no request alone decides: the server adds the first one, and the
/// others are no requests.
const ADDED: &[(&str, &str)] = &[
    ("`d`", "the directory of a name that `rename` replaces"),
    ("`x`", "the execute bits of files are shown"),
    ("`g`", "to share it on"),
    ("`a`", "`pelago revoke` of what is shared in it"),
];

/// A request, with the words of the document for each right that it needs, in their order.
type Case = (&'static [&'static str], Request);

fn name() -> Name {
    Name::new(b"a").unwrap()
}

fn set(node: SetAttr) -> Request {
    Request::SetAttr { node: FILE, open: None, set: node }
}

fn rename(flags: RenameFlags) -> Request {
    Request::Rename { from_dir: DIR, from: name(), to_dir: FILE, to: name(), flags }
}

fn locks(mode: LockMode) -> [Request; 3] {
    let lock = FileLock { kind: LockKind::Posix, mode, start: 0, end: 9, pid: 1 };
    [
        Request::GetLock { open: OPEN, owner: OWNER, lock },
        Request::SetLock { open: OPEN, owner: OWNER, lock, wait: false },
        Request::ReclaimLock { open: OPEN, owner: OWNER, lock },
    ]
}

fn set_xattr(name: &[u8]) -> [Request; 2] {
    let name = name.to_vec();
    let flags = XattrFlags::Any;
    let value = b"v".to_vec();
    let set =
        Request::SetXattr { node: FILE, name: name.clone(), value, flags, kill_setgid: false };
    [set, Request::RemoveXattr { node: FILE, name }]
}

fn bytes() -> Vec<Case> {
    let flags = OpenFlags::READ_WRITE;
    let truncate = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    let mode = NewMode::exactly(0o644);
    let reserve = AllocateMode::Reserve { keep_size: false };
    let from = SeekFrom { offset: 0, whence: Whence::Data };
    vec![
        (&["`open` to read", "`open` to write"], Request::Open { node: FILE, flags, open: OPEN }),
        (&["`open` to read", "`open` to write"], Request::Reopen { node: FILE, flags, open: OPEN }),
        (&["`O_TRUNC`"], Request::Open { node: FILE, flags: truncate, open: OPEN }),
        (&["`read`"], Request::Read { open: OPEN, offset: 0, size: 1 }),
        (&["`write`"], Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE }),
        (&["`lseek`"], Request::Seek { open: OPEN, from }),
        (&["`fallocate`"], Request::Allocate { open: OPEN, offset: 0, length: 1, mode: reserve }),
        (
            &["the source of `copy_file_range`", "the target of `copy_file_range`"],
            Request::CopyRange { from: OPEN, from_offset: 0, to: OTHER, to_offset: 0, length: 1 },
        ),
        (&["`O_CREAT`"], Request::Create { dir: DIR, name: name(), mode, flags, open: OPEN }),
        (&["`O_TMPFILE`"], Request::CreateUnnamed { dir: DIR, mode, flags, open: OPEN }),
        (&["`close`"], Request::Release { open: OPEN }),
        (&["`close`"], Request::Flush { open: OPEN, owner: None }),
        (&["`fsync` of a file"], Request::Fsync { open: OPEN, data_only: false }),
        (&["`fsync` of a file"], Request::FsyncAt { open: OPEN, level: Level::Remote }),
    ]
}

fn names() -> Vec<Case> {
    let mode = NewMode::exactly(0o644);
    let made = |kind| Request::MakeNode { dir: DIR, name: name(), kind, mode, rdev: 0 };
    let list = Request::List {
        dir: DIR,
        after: Cookie::START,
        behind: None,
        entries: 1,
        attributes: true,
    };
    let whiteout = RenameFlags::Whiteout { replace: true };
    vec![
        (&["a name in a directory"], Request::Lookup { dir: DIR, name: name() }),
        (&["`..`"], Request::Parent { dir: DIR }),
        (&["`readdir`"], list),
        (&["`fsync` of a directory"], Request::FsyncDir { dir: DIR, since: None }),
        (&["`mkdir`"], Request::MakeDir { dir: DIR, name: name(), mode }),
        (&["`mkfifo`"], made(FileKind::Fifo)),
        (&["`bind` of a socket"], made(FileKind::Socket)),
        (&["devices"], made(FileKind::CharDevice)),
        (&["devices"], made(FileKind::BlockDevice)),
        (&["`symlink`"], Request::Symlink { dir: DIR, name: name(), target: b"t".to_vec() }),
        (&["`readlink`"], Request::ReadLink { node: FILE }),
        (
            &["the file of `link`", "the directory of `link`"],
            Request::Link { node: FILE, dir: DIR, name: name() },
        ),
        (&["`unlink`"], Request::Unlink { dir: DIR, name: name() }),
        (&["`rmdir`"], Request::RemoveDir { dir: DIR, name: name() }),
        (
            &["the old directory of `rename`", "the new directory of `rename`"],
            rename(RenameFlags::Replace),
        ),
        (&["both directories of `RENAME_EXCHANGE`"; 4], rename(RenameFlags::Exchange)),
        (&["whiteouts"], rename(whiteout)),
    ]
}

fn attributes() -> Vec<Case> {
    let time = Time { seconds: 1, nanos: 0 };
    let none = SetAttr::default();
    let size = SetAttr { size: Some(3), ..none };
    let by_open = Request::SetAttr { node: FILE, open: Some(OPEN), set: size };
    let get = |name: &[u8]| Request::GetXattr { node: FILE, name: name.to_vec() };
    let mut all: Vec<Case> = vec![
        (&["`stat`"], Request::GetAttr { node: FILE }),
        (&["the file of `ftruncate`", "`ftruncate`"], by_open),
        (&["`truncate`"], set(size)),
        (&["`chmod`"], set(SetAttr { mode: Some(0o700), ..none })),
        (&["`utimensat`"], set(SetAttr { mtime: Some(SetTime::To(time)), ..none })),
        (&["another owner or group"], set(SetAttr { uid: Some(1), ..none })),
        (&["another owner or group"], set(SetAttr { gid: Some(1), ..none })),
        (&["a `ctime`"], set(SetAttr { ctime: Some(time), ..none })),
        (&["`user.` attributes are read"], get(b"user.mine")),
        (&["the names of `user.` attributes"], Request::ListXattr { node: FILE }),
        (&["other attributes are read: `ENODATA`"], get(b"security.selinux")),
        (&["other attributes are read: `ENODATA`"], get(b"system.posix_acl_access")),
    ];
    let special = [0o4755, 0o2755, 0o1755].map(|mode| SetAttr { mode: Some(mode), ..none });
    all.extend(special.map(|mode| (&["set-id and sticky bits"] as _, set(mode))));
    let changed: [(&'static [&'static str], &[u8]); 5] = [
        (&["`user.` attributes are changed"], b"user.mine"),
        (&["`user.pelago.` attributes are changed"], b"user.pelago.level"),
        (&["access lists are changed: `EOPNOTSUPP`"], b"system.posix_acl_default"),
        (&["`trusted.` and `security.` attributes are changed"], b"trusted.mine"),
        (&["`trusted.` and `security.` attributes are changed"], b"security.capability"),
    ];
    let changed = changed.into_iter().flat_map(|(says, name)| set_xattr(name).map(|it| (says, it)));
    all.extend(changed);
    all
}

fn others() -> Vec<Case> {
    let to_read = locks(LockMode::Read).map(|it| (&["a shared lock"] as _, it));
    let to_write = locks(LockMode::Write).map(|it| (&["an exclusive lock"] as _, it));
    let unlocked = locks(LockMode::Unlock).map(|it| (&["an unlock"] as _, it));
    let asker = Asker::default();
    let search = Search { query: Vec::new(), hits: 1, after: None, asker: asker.clone() };
    let tags = Tags { key: None, prefix: Vec::new(), asker };
    let access = |chain| Request::Access { node: FILE, chain, after: SessionId(0) };
    let found: &[&str] = &["`pelago find`"];
    let of_servers: &[&str] = &["what servers ask each other"];
    let rest: Vec<Case> = vec![
        (&["`statfs`"], Request::StatFs),
        (&["another credential of `pelago attach`"], Request::Attach { chain: Vec::new() }),
        (
            &["`pelago revoke` of what it has shared on"],
            Request::Revoke { sentence: Vec::new(), chain: Vec::new() },
        ),
        (&["its own rights"], access(Vec::new())),
        (&["a credential for what it has made"], Request::Issue { node: FILE }),
        (&["the rights of others"], access(vec![vec![b'x']])),
        (
            &["`pelago log --audit` of what is in it"],
            Request::Audited { dir: DIR, after: AuditPlace::START },
        ),
        (&["a file by its inode number"], Request::Find { ino: InodeId::ROOT }),
        (found, Request::Search { dir: DIR, search }),
        (found, Request::Tags { dir: DIR, tags }),
        (of_servers, Request::Step { dir: DIR, to: None }),
        (of_servers, Request::AddDir { dir: DIR, name: name(), made: InodeId::ROOT }),
        (of_servers, Request::DropDir { dir: DIR, name: name(), removed: InodeId::ROOT }),
        (of_servers, Request::RemoveNamedDir { dir: DIR, parent: InodeId::ROOT, name: name() }),
        (of_servers, Request::SiteAddress { address: Vec::new() }),
        (of_servers, Request::SiteList { text: Vec::new() }),
        (of_servers, Request::LeaveSite),
        (of_servers, Request::Charter { known: 0 }),
        (of_servers, Request::Revoked { parts: Vec::new(), after: None }),
        (of_servers, Request::PassRevocation { sentence: Vec::new(), end: 0 }),
        (of_servers, Request::CharterChanged),
        (
            of_servers,
            Request::SetBytes {
                node: DIR,
                at: InodeId::ROOT,
                size: 1,
                mtime: Time::default(),
                since: Time::default(),
                flags: PlaceFlags::default(),
            },
        ),
        (of_servers, Request::GiveBytes { node: DIR, file: InodeId::ROOT }),
        (of_servers, Request::DropBytes { node: DIR, file: InodeId::ROOT }),
        (of_servers, Request::Clock),
        (of_servers, Request::Hashes { open: OPEN, offset: 0, blocks: 1 }),
        (of_servers, Request::RenewToken { token: SiteToken::NONE }),
        (of_servers, Request::KeepToken { token: SiteToken::NONE }),
        (of_servers, Request::Servers),
    ];
    to_read.into_iter().chain(to_write).chain(unlocked).chain(rest).collect()
}

fn cases() -> Vec<Case> {
    [bytes(), names(), attributes(), others()].into_iter().flatten().collect()
}

/// Returns the first cells of the rows in which the words of a case stand.
fn rows_of(rule: ForGuest) -> Vec<&'static str> {
    match rule {
        ForGuest::Needs(needs) => needs.each().map(|(right, _)| row_of(right)).collect(),
        ForGuest::Parent(_)
        | ForGuest::CommitDir(_)
        | ForGuest::NoXattr(_)
        | ForGuest::NotSupported(_) => vec!["any"],
        ForGuest::Own
        | ForGuest::Commit(_)
        | ForGuest::Space
        | ForGuest::Attach
        | ForGuest::Revoke => {
            vec!["none"]
        }
        ForGuest::Never => vec!["nobody"],
    }
}

const fn row_of(right: GuestRight) -> &'static str {
    match right {
        GuestRight::Any => "any",
        GuestRight::Read => "`r`",
        GuestRight::Write => "`w`",
        GuestRight::Create => "`c`",
        GuestRight::Delete => "`d`",
        GuestRight::Audit => "`a`",
    }
}

#[test]
fn the_cases_are_of_all_operations() {
    let cases = cases();
    let met: BTreeSet<&str> =
        cases.iter().map(|(_, request)| request.describe().operation.name()).collect();
    let all: BTreeSet<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    assert_eq!(met, all);
}

#[test]
fn the_document_has_the_same_table() {
    let mut rows: BTreeSet<(&str, &str)> = ADDED.iter().copied().collect();
    for (says, request) in cases() {
        let needed = rows_of(request.for_guest());
        assert_eq!(says.len(), needed.len(), "{request:?}: {needed:?}");
        rows.extend(needed.into_iter().zip(says.iter().copied()));
    }
    let (_, table) = DOCUMENT.split_once("| right | requests |\n|---|---|\n").unwrap();
    let lines = table.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let listed = lines.flat_map(|line| {
        let (right, requests) = line.split_once(" | ").unwrap();
        requests.split(", ").map(move |request| (right, request))
    });
    assert_eq!(listed.collect::<BTreeSet<_>>(), rows);
}

#[test]
fn a_reopen_needs_what_the_open_needed() {
    let truncate = OpenFlags { truncate: true, ..OpenFlags::READ };
    for flags in [OpenFlags::READ, OpenFlags::WRITE, OpenFlags::READ_WRITE, truncate] {
        let open = Request::Open { node: FILE, flags, open: OPEN };
        let again = Request::Reopen { node: FILE, flags, open: OPEN };
        assert_eq!(open.for_guest(), again.for_guest(), "{flags:?}");
    }
}
