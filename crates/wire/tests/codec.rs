//! Laws of the encoding, with random messages: what is encoded is decoded as it was, and neither a
//! part of a message nor a longer one is a message.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs::File;

use pelago_wire::codec::{
    Call, DecodeError, DecodedReply, ReplyStamp, decode_answer, decode_call, decode_reply,
    encode_answer, encode_call, encode_reply,
};
use pelago_wire::{
    AccessPage, AllocateMode, Attr, AuditPage, AuditPlace, Backing, Buffer, Code, Cookie, DataPath,
    DenialCause, DeniedRight, DirEntry, Entry, Error, FileKind, FileLock, Granted, GuestAccess,
    Handle, InodeId, Leases, Level, LockKind, LockMode, LockOwner, Name, NameHash, NewMode,
    OpenFlags, OpenId, PassedRevocation, PlaceFlags, RenameFlags, Reply, Request, SeekFrom,
    SessionId, SetAttr, SetTime, SiteToken, Time, VolumeStats, Whence, WriteEra, WriteFlags,
    XattrFlags, limits,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

fn name() -> impl Strategy<Value = Name> {
    vec(any::<u8>(), 1..=limits::NAME_BYTES)
        .prop_filter_map("no name", |bytes| Name::new(&bytes).ok())
        .boxed()
        // Random bytes of a long name have a slash or a NUL most of the time.
        .prop_union(vec(b'a'..=b'z', 1..=limits::NAME_BYTES).prop_map(as_name).boxed())
}

fn as_name(bytes: Vec<u8>) -> Name {
    Name::new(&bytes).unwrap()
}

fn ino() -> impl Strategy<Value = InodeId> {
    any::<u64>().prop_map(InodeId::from_raw)
}

fn handle() -> impl Strategy<Value = Handle> {
    (ino(), ino(), any::<u64>()).prop_map(|(ino, dir, hash)| Handle::at(ino, dir, NameHash(hash)))
}

fn open_id() -> impl Strategy<Value = OpenId> {
    any::<u64>().prop_map(OpenId)
}

fn mode() -> impl Strategy<Value = NewMode> {
    (0..=0o7777_u16, 0..=0o777_u16).prop_map(|(mode, umask)| NewMode { mode, umask })
}

fn kind() -> impl Strategy<Value = FileKind> {
    (1..=7_u8).prop_map(|number| FileKind::from_number(number).unwrap())
}

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Time { seconds, nanos })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Now), time().prop_map(SetTime::To)]
}

fn write_flags() -> impl Strategy<Value = WriteFlags> {
    let flags = (any::<[bool; 3]>(), option::of(any::<u32>()));
    flags.prop_map(|([append, commit, kill_privileges], behind)| WriteFlags {
        append,
        behind: behind.map(WriteEra),
        commit,
        kill_privileges,
    })
}

fn place_flags() -> impl Strategy<Value = PlaceFlags> {
    any::<[bool; 3]>().prop_map(|[asks, given, kill_privileges]| PlaceFlags {
        asks,
        given,
        kill_privileges,
    })
}

fn flags() -> impl Strategy<Value = OpenFlags> {
    (any::<[bool; 9]>()).prop_map(|[a, b, c, d, e, f, g, h, i]| OpenFlags {
        read: a,
        write: b,
        append: c,
        truncate: d,
        sync: e,
        kill_privileges: f,
        no_atime: g,
        strict_atime: h,
        passthrough: i,
    })
}

fn set_attr() -> impl Strategy<Value = SetAttr> {
    let numbers = (
        option::of(0..=0o7777_u16),
        option::of(any::<u32>()),
        option::of(any::<u32>()),
        option::of(any::<u64>()),
    );
    let times = (option::of(set_time()), option::of(set_time()), option::of(time()));
    (numbers, times, any::<[bool; 2]>()).prop_map(
        |((mode, uid, gid, size), (atime, mtime, ctime), [kill_privileges, kill_setgid])| SetAttr {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
            ctime,
            kill_privileges,
            kill_setgid,
        },
    )
}

fn rename_flags() -> impl Strategy<Value = RenameFlags> {
    prop_oneof![
        Just(RenameFlags::Replace),
        Just(RenameFlags::NoReplace),
        Just(RenameFlags::Exchange),
        any::<bool>().prop_map(|replace| RenameFlags::Whiteout { replace }),
    ]
}

fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(&Level::ALL[..])
}

fn allocate_mode() -> impl Strategy<Value = AllocateMode> {
    prop_oneof![
        any::<bool>().prop_map(|keep_size| AllocateMode::Reserve { keep_size }),
        Just(AllocateMode::PunchHole),
        any::<bool>().prop_map(|keep_size| AllocateMode::Zero { keep_size }),
    ]
}

fn xattr_flags() -> impl Strategy<Value = XattrFlags> {
    prop_oneof![Just(XattrFlags::Any), Just(XattrFlags::Create), Just(XattrFlags::Replace)]
}

fn seek_from() -> impl Strategy<Value = SeekFrom> {
    let whence = prop_oneof![Just(Whence::Data), Just(Whence::Hole)];
    (any::<u64>(), whence).prop_map(|(offset, whence)| SeekFrom { offset, whence })
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    // Mostly short, sometimes of the greatest length.
    prop_oneof![9 => vec(any::<u8>(), 0..64), 1 => Just(vec![7; most])]
}

fn of_names() -> impl Strategy<Value = Request> {
    let target = bytes(limits::TARGET_BYTES);
    prop_oneof![
        (handle(), name()).prop_map(|(dir, name)| Request::Lookup { dir, name }),
        handle().prop_map(|dir| Request::Parent { dir }),
        ino().prop_map(|ino| Request::Find { ino }),
        (handle(), name(), mode(), flags(), open_id()).prop_map(
            |(dir, name, mode, flags, open)| Request::Create { dir, name, mode, flags, open }
        ),
        (handle(), mode(), flags(), open_id())
            .prop_map(|(dir, mode, flags, open)| Request::CreateUnnamed { dir, mode, flags, open }),
        (handle(), name(), mode()).prop_map(|(dir, name, mode)| Request::MakeDir {
            dir,
            name,
            mode
        }),
        (handle(), name(), kind(), mode(), any::<u32>()).prop_map(
            |(dir, name, kind, mode, rdev)| Request::MakeNode { dir, name, kind, mode, rdev }
        ),
        (handle(), name(), target).prop_map(|(dir, name, target)| Request::Symlink {
            dir,
            name,
            target
        }),
        handle().prop_map(|node| Request::ReadLink { node }),
        (handle(), handle(), name()).prop_map(|(node, dir, name)| Request::Link {
            node,
            dir,
            name
        }),
        (handle(), name()).prop_map(|(dir, name)| Request::Unlink { dir, name }),
        (handle(), name()).prop_map(|(dir, name)| Request::RemoveDir { dir, name }),
        (handle(), name(), handle(), name(), rename_flags()).prop_map(
            |(from_dir, from, to_dir, to, flags)| Request::Rename {
                from_dir,
                from,
                to_dir,
                to,
                flags
            }
        ),
        (handle(), any::<u64>(), option::of(name()), any::<u32>(), any::<bool>()).prop_map(
            |(dir, after, behind, entries, attributes)| Request::List {
                dir,
                after: Cookie(after),
                behind,
                entries,
                attributes,
            }
        ),
    ]
}

fn of_nodes() -> impl Strategy<Value = Request> {
    let xattr = || bytes(limits::XATTR_NAME_BYTES);
    let value = bytes(limits::XATTR_VALUE_BYTES);
    prop_oneof![
        handle().prop_map(|node| Request::GetAttr { node }),
        (handle(), option::of(open_id()), set_attr())
            .prop_map(|(node, open, set)| Request::SetAttr { node, open, set }),
        (handle(), option::of(any::<u64>()))
            .prop_map(|(dir, since)| Request::FsyncDir { dir, since }),
        (handle(), xattr()).prop_map(|(node, name)| Request::GetXattr { node, name }),
        handle().prop_map(|node| Request::ListXattr { node }),
        (handle(), xattr(), value, xattr_flags(), any::<bool>()).prop_map(
            |(node, name, value, flags, kill_setgid)| Request::SetXattr {
                node,
                name,
                value,
                flags,
                kill_setgid
            }
        ),
        (handle(), xattr()).prop_map(|(node, name)| Request::RemoveXattr { node, name }),
        Just(Request::StatFs),
        vec(vec(any::<u8>(), 1..200), 0..16).prop_map(|chain| Request::Attach { chain }),
        (vec(any::<u8>(), 0..=limits::REVOCATION_BYTES), vec(vec(any::<u8>(), 1..200), 0..16))
            .prop_map(|(sentence, chain)| Request::Revoke { sentence, chain }),
        (handle(), option::of(name())).prop_map(|(dir, to)| Request::Step { dir, to }),
        (handle(), name(), ino()).prop_map(|(dir, name, made)| Request::AddDir { dir, name, made }),
        (handle(), name(), ino()).prop_map(|(dir, name, removed)| Request::DropDir {
            dir,
            name,
            removed
        }),
        (handle(), ino(), name()).prop_map(|(dir, parent, name)| Request::RemoveNamedDir {
            dir,
            parent,
            name
        }),
        vec(any::<u8>(), 0..=limits::SITE_ADDRESS_BYTES)
            .prop_map(|address| Request::SiteAddress { address }),
        vec(any::<u8>(), 0..1000).prop_map(|text| Request::SiteList { text }),
        Just(Request::LeaveSite),
        any::<u64>().prop_map(|known| Request::Charter { known }),
        (vec(any::<u8>(), 0..=limits::REVOKED_PARTS_BYTES), option::of(any::<[u8; 32]>()))
            .prop_map(|(parts, after)| Request::Revoked { parts, after }),
        (vec(any::<u8>(), 0..=limits::REVOCATION_BYTES), any::<u64>())
            .prop_map(|(sentence, end)| Request::PassRevocation { sentence, end }),
        Just(Request::CharterChanged),
        (handle(), ino(), any::<u64>(), time(), time(), place_flags()).prop_map(
            |(node, at, size, mtime, since, flags)| Request::SetBytes {
                node,
                at,
                size,
                mtime,
                since,
                flags
            }
        ),
        (handle(), ino()).prop_map(|(node, file)| Request::GiveBytes { node, file }),
        (handle(), ino()).prop_map(|(node, file)| Request::DropBytes { node, file }),
        (handle(), vec(vec(any::<u8>(), 1..200), 0..16), any::<u64>()).prop_map(
            |(node, chain, after)| Request::Access { node, chain, after: SessionId(after) }
        ),
        handle().prop_map(|node| Request::Issue { node }),
        (handle(), audit_place()).prop_map(|(dir, after)| Request::Audited { dir, after }),
        Just(Request::Clock),
        site_token().prop_map(|token| Request::RenewToken { token }),
        site_token().prop_map(|token| Request::KeepToken { token }),
        Just(Request::Servers),
    ]
}

fn site_token() -> impl Strategy<Value = SiteToken> {
    any::<(u64, [u8; 16])>().prop_map(|(number, random)| SiteToken { number, random })
}

fn of_opens() -> impl Strategy<Value = Request> {
    prop_oneof![
        (handle(), flags(), open_id()).prop_map(|(node, flags, open)| Request::Open {
            node,
            flags,
            open
        }),
        (handle(), flags(), open_id()).prop_map(|(node, flags, open)| Request::Reopen {
            node,
            flags,
            open
        }),
        (open_id(), option::of(owner())).prop_map(|(open, owner)| Request::Flush { open, owner }),
        (open_id(), owner(), lock()).prop_map(|(open, owner, lock)| Request::GetLock {
            open,
            owner,
            lock
        }),
        (open_id(), owner(), lock(), any::<bool>())
            .prop_map(|(open, owner, lock, wait)| Request::SetLock { open, owner, lock, wait }),
        (open_id(), owner(), lock()).prop_map(|(open, owner, lock)| Request::ReclaimLock {
            open,
            owner,
            lock
        }),
        open_id().prop_map(|open| Request::Release { open }),
        (open_id(), any::<bool>()).prop_map(|(open, data_only)| Request::Fsync { open, data_only }),
        (open_id(), level()).prop_map(|(open, level)| Request::FsyncAt { open, level }),
        (open_id(), any::<u64>(), any::<u32>()).prop_map(|(open, offset, size)| Request::Read {
            open,
            offset,
            size
        }),
        (open_id(), any::<u64>(), write_flags()).prop_map(|(open, offset, flags)| Request::Write {
            open,
            offset,
            flags
        }),
        (open_id(), any::<u64>(), any::<u64>(), allocate_mode()).prop_map(
            |(open, offset, length, mode)| Request::Allocate { open, offset, length, mode }
        ),
        (open_id(), seek_from()).prop_map(|(open, from)| Request::Seek { open, from }),
        (open_id(), any::<u64>(), any::<u32>())
            .prop_map(|(open, offset, blocks)| Request::Hashes { open, offset, blocks }),
        (open_id(), any::<u64>(), open_id(), any::<u64>(), any::<u64>()).prop_map(
            |(from, from_offset, to, to_offset, length)| Request::CopyRange {
                from,
                from_offset,
                to,
                to_offset,
                length
            }
        ),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let request = prop_oneof![of_names(), of_nodes(), of_opens()];
    (any::<u32>(), any::<u32>(), any::<u64>(), request)
        .prop_map(|(uid, gid, mutation, request)| Call { uid, gid, mutation, request })
}

fn attr() -> impl Strategy<Value = Attr> {
    let numbers = (any::<[u32; 4]>(), any::<[u64; 2]>(), any::<[bool; 2]>());
    let times = (time(), time(), time(), time());
    (ino(), kind(), 0..=0o7777_u16, numbers, times).prop_map(
        |(
            ino,
            kind,
            mode,
            (words, [size, blocks], [volatile, has_xattrs]),
            (atime, mtime, ctime, btime),
        )| {
            let [links, uid, gid, rdev] = words;
            Attr {
                ino,
                kind,
                mode,
                links,
                uid,
                gid,
                rdev,
                size,
                blocks,
                atime,
                mtime,
                ctime,
                btime,
                volatile,
                has_xattrs,
            }
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    (handle(), attr()).prop_map(|(handle, attr)| Entry { handle, attr })
}

fn dir_entry() -> impl Strategy<Value = DirEntry> {
    (name(), ino(), kind(), any::<u64>(), option::of(entry())).prop_map(
        |(name, ino, kind, cookie, entry)| DirEntry {
            name,
            ino,
            kind,
            cookie: Cookie(cookie),
            entry,
        },
    )
}

fn path() -> impl Strategy<Value = DataPath> {
    prop_oneof![Just(DataPath::Cached), Just(DataPath::Direct)]
}

fn owner() -> impl Strategy<Value = LockOwner> {
    any::<u64>().prop_map(LockOwner)
}

fn lock() -> impl Strategy<Value = FileLock> {
    let kinds = prop_oneof![Just(LockKind::Flock), Just(LockKind::Posix), Just(LockKind::OpenFile)];
    let modes = prop_oneof![Just(LockMode::Read), Just(LockMode::Write), Just(LockMode::Unlock)];
    (kinds, modes, any::<[u64; 2]>(), any::<u32>())
        .prop_map(|(kind, mode, [start, end], pid)| FileLock { kind, mode, start, end, pid })
}

fn volume() -> impl Strategy<Value = VolumeStats> {
    (any::<u32>(), any::<[u64; 5]>()).prop_map(
        |(block_bytes, [blocks, free, available, files, free_files])| VolumeStats {
            block_bytes,
            blocks,
            free,
            available,
            files,
            free_files,
        },
    )
}

fn access_page() -> impl Strategy<Value = AccessPage> {
    let letter = || (0..7_usize).prop_map(|at| b"rwxcdga"[at]);
    let causes = prop_oneof![
        Just(DenialCause::Right),
        Just(DenialCause::Ended),
        Just(DenialCause::Conditions),
        Just(DenialCause::Steps),
        Just(DenialCause::Modes),
        Just(DenialCause::User),
    ];
    let denied = (letter(), any::<u8>(), any::<[u8; 32]>(), causes, "\\PC{0,100}").prop_map(
        |(right, link, signer, cause, detail)| DeniedRight { right, link, signer, cause, detail },
    );
    let ids = (any::<u64>(), any::<[u8; 32]>(), any::<[u8; 32]>(), any::<u8>());
    let guest = (ids, vec(letter(), 0..=7), vec(denied, 0..=7)).prop_map(
        |((session, key, credential, links), rights, denied)| {
            let session = SessionId(session);
            GuestAccess { session, key, credential, links, rights, denied }
        },
    );
    (vec(guest, 0..4), any::<bool>()).prop_map(|(guests, more)| AccessPage { guests, more })
}

fn audit_place() -> impl Strategy<Value = AuditPlace> {
    (any::<u32>(), any::<u64>()).prop_map(|(day, offset)| AuditPlace { day, offset })
}

fn audit_page() -> impl Strategy<Value = AuditPage> {
    (vec(any::<u8>(), 0..1000), option::of(audit_place()))
        .prop_map(|(lines, next)| AuditPage { lines, next })
}

fn passed_revocation() -> impl Strategy<Value = PassedRevocation> {
    (vec(any::<u8>(), 0..=limits::REVOCATION_BYTES), any::<u64>())
        .prop_map(|(sentence, end)| PassedRevocation { sentence, end })
}

/// `Reply` has no clone, so a strategy makes the bytes of one by a function.
fn reply() -> impl Strategy<Value = Reply> {
    let entries = vec(dir_entry(), 0..4);
    prop_oneof![
        Just(()).prop_map(|()| Reply::Done),
        entry().prop_map(Reply::Entry),
        attr().prop_map(Reply::Attr),
        (entry(), path()).prop_map(|(entry, path)| Reply::Created { entry, path }),
        (attr(), path()).prop_map(|(attr, path)| Reply::Opened { attr, path }),
        attr().prop_map(Reply::Removed),
        (handle(), option::of(entry()))
            .prop_map(|(moved, replaced)| Reply::Renamed { moved, replaced }),
        bytes(limits::IO_BYTES).prop_map(|bytes| Reply::Data(Buffer::new(bytes))),
        bytes(limits::XATTR_VALUE_BYTES).prop_map(Reply::Bytes),
        any::<[u64; 2]>().prop_map(|[bytes, size]| Reply::Written { bytes, size }),
        (entries, any::<bool>()).prop_map(|(entries, end)| Reply::Listed { entries, end }),
        any::<u64>().prop_map(Reply::Offset),
        volume().prop_map(Reply::Volume),
        option::of(lock()).prop_map(Reply::Lock),
        vec("\\PC{0,100}", 0..4).prop_map(Reply::Servers),
        (vec("[a-z]{1,63}", 0..4), vec("[a-z]{1,63}", 0..4))
            .prop_map(|(away, refused)| Reply::Unreached { away, refused }),
        (time(), "\\PC{0,100}").prop_map(|(now, program)| Reply::Clock { now, program }),
        vec(any::<[u8; 32]>(), 0..=limits::HASHED_BLOCKS).prop_map(Reply::Hashes),
        site_token().prop_map(Reply::Token),
        (option::of(vec(any::<u8>(), 0..1000)), any::<[u8; 32]>())
            .prop_map(|(text, revoked)| Reply::Charter { text, revoked }),
        (vec(passed_revocation(), 0..5), any::<[u8; 32]>(), any::<bool>()).prop_map(
            |(revocations, differing, more)| Reply::Revoked { revocations, differing, more }
        ),
        access_page().prop_map(Reply::Access),
        audit_page().prop_map(Reply::Audited),
        vec(vec(any::<u8>(), 1..200), 0..16).prop_map(Reply::Issued),
    ]
}

fn result() -> impl Strategy<Value = Result<Reply, Error>> {
    let error = (0..Code::ALL.len()).prop_map(|at| Err(Code::ALL[at].into()));
    prop_oneof![9 => reply().prop_map(Ok), 1 => error]
}

fn stamp() -> impl Strategy<Value = ReplyStamp> {
    (any::<u32>(), any::<u64>()).prop_map(|(epoch, sequence)| ReplyStamp { epoch, sequence })
}

/// Returns lengths to cut a body at: all, or some of a long one.
fn cuts(body: &[u8]) -> impl Iterator<Item = usize> + use<> {
    (0..body.len()).step_by(1 + body.len() / 512)
}

fn encoded(call: &Call) -> Vec<u8> {
    let mut body = Vec::new();
    encode_call(call.uid, call.gid, call.mutation, &call.request, &mut body).unwrap();
    body
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_is_decoded_as_it_was(call in call()) {
        let body = encoded(&call);
        prop_assert_eq!(decode_call(&body), Ok(call));
        for end in cuts(&body) {
            prop_assert!(decode_call(&body[..end]).is_err(), "cut at {}", end);
        }
        let longer = [body.as_slice(), &[0]].concat();
        let expected = Err(DecodeError::Trailing { what: "a request", bytes: 1 });
        prop_assert_eq!(decode_call(&longer), expected);
    }

    #[test]
    fn an_answer_is_decoded_as_it_was(
        stamp in stamp(),
        result in result(),
        changed in option::of(attr()),
        bits in 0..16u8,
        era in option::of(any::<u32>()),
    ) {
        let mut body = Vec::new();
        let bit = |number: u8| bits & 1 << number != 0;
        let [node, names, changed_leased, made] = [0, 1, 2, 3].map(bit);
        let bytes = era.map(WriteEra);
        let leases = Leases { node, names, changed: changed_leased, made, bytes };
        encode_answer(stamp, &result, Granted { leases, changed, may_be_done: false }, &mut body);
        let bulk = result.as_ref().map_or(&[][..], Reply::bulk).to_vec();
        let DecodedReply { stamp: decoded_stamp, result: decoded, granted } =
            decode_answer(&body, bulk).unwrap();
        prop_assert_eq!(decoded_stamp, stamp);
        prop_assert_eq!(format!("{:?}", decoded), format!("{:?}", result));
        let changed = changed.filter(|_| result.is_ok());
        prop_assert_eq!(granted, Granted { leases, changed, may_be_done: false });
        for end in cuts(&body) {
            prop_assert!(decode_answer(&body[..end], Vec::new()).is_err(), "cut at {}", end);
        }
        let longer = [body.as_slice(), &[0]].concat();
        let expected = DecodeError::Trailing { what: "an answer", bytes: 1 };
        prop_assert_eq!(decode_answer(&longer, Vec::new()).unwrap_err(), expected);
    }

    #[test]
    fn a_reply_alone_is_decoded_as_it_was(reply in reply()) {
        let mut bytes = Vec::new();
        encode_reply(&reply, &mut bytes).unwrap();
        let decoded = decode_reply(&bytes).unwrap();
        if !matches!(reply, Reply::Data(_)) {
            prop_assert_eq!(format!("{:?}", decoded), format!("{:?}", reply));
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(body in vec(any::<u8>(), 0..200), at in 1..32_u16) {
        // Most random numbers are no request, so a legal one is put in its place.
        let mut body = body;
        if let Some(number) = body.get_mut(16..18) {
            number.copy_from_slice(&at.to_le_bytes());
        }
        if let Ok(call) = decode_call(&body) {
            prop_assert_eq!(encoded(&call), body);
        }
    }
}

#[test]
fn bulk_bytes_belong_to_data_only() {
    let mut body = Vec::new();
    encode_answer(ReplyStamp::default(), &Ok(Reply::Done), Granted::default(), &mut body);
    let error = decode_answer(&body, vec![1, 2, 3]).unwrap_err();
    assert_eq!(error, DecodeError::Trailing { what: "an answer", bytes: 3 });
    assert!(decode_answer(&body, Vec::new()).is_ok());
}

/// A descriptor cannot be sent; and the other process must not cache what the kernel here changes.
#[test]
fn passthrough_is_sent_as_direct() {
    let backing = Backing::new(File::open("/dev/null").unwrap().into());
    let attr = Attr::empty(InodeId::ROOT, FileKind::Regular);
    let path = DataPath::Passthrough(backing);
    let mut body = Vec::new();
    let opened = Reply::Opened { attr, path };
    encode_answer(ReplyStamp::default(), &Ok(opened), Granted::default(), &mut body);
    let result = decode_answer(&body, Vec::new()).unwrap().result;
    assert!(matches!(result, Ok(Reply::Opened { path: DataPath::Direct, .. })), "{result:?}");
}

/// A request that no server accepts is not sent: the client's caller gets the server's error.
#[test]
fn a_value_over_its_limit_is_not_encoded() {
    let node = Handle::ROOT;
    let long = |bytes: usize| vec![b'x'; bytes + 1];
    let dir = node;
    let flags = XattrFlags::Any;
    let set = |name, value| Request::SetXattr { node, name, value, flags, kill_setgid: false };
    let refused = [
        (
            Request::Symlink { dir, name: as_name(vec![b'x']), target: long(limits::TARGET_BYTES) },
            Code::NameTooLong,
        ),
        (Request::GetXattr { node, name: long(limits::XATTR_NAME_BYTES) }, Code::Range),
        (set(Vec::new(), long(limits::XATTR_VALUE_BYTES)), Code::TooBig),
    ];
    for (request, code) in refused {
        let mut body = vec![1, 2, 3];
        assert_eq!(encode_call(0, 0, 0, &request, &mut body), Err(code.into()));
        assert_eq!(body, [1, 2, 3], "{request:?}");
    }
    let mut body = Vec::new();
    let too_long = Ok(Reply::Bytes(long(limits::XATTR_VALUE_BYTES)));
    encode_answer(ReplyStamp::default(), &too_long, Granted::default(), &mut body);
    let result = decode_answer(&body, Vec::new()).unwrap().result;
    assert_eq!(result.unwrap_err().code, Code::Bug);
}

/// A length is checked before any byte behind it, and before memory is taken.
#[test]
fn a_length_over_its_limit_is_an_error() {
    let mut body = encoded(&Call {
        uid: 0,
        gid: 0,
        mutation: 0,
        request: Request::GetXattr { node: Handle::ROOT, name: Vec::new() },
    });
    let length = body.len() - 4;
    body[length..].copy_from_slice(&u32::MAX.to_le_bytes());
    let length = u32::MAX as usize;
    let limit = limits::XATTR_NAME_BYTES;
    let expected = DecodeError::TooLong { what: "GetXattr.name", length, limit };
    assert_eq!(decode_call(&body), Err(expected));
}

#[test]
fn the_longest_listing_fits_a_frame() {
    let attr = Attr::empty(InodeId::ROOT, FileKind::Regular);
    let entry = DirEntry {
        name: as_name(vec![b'x'; limits::NAME_BYTES]),
        ino: InodeId::ROOT,
        kind: FileKind::Regular,
        cookie: Cookie::START,
        entry: Some(Entry { handle: Handle::ROOT, attr }),
    };
    let entries = vec![entry; limits::LIST_ENTRIES];
    let mut body = Vec::new();
    encode_answer(
        ReplyStamp::default(),
        &Ok(Reply::Listed { entries, end: false }),
        Granted::default(),
        &mut body,
    );
    assert!(body.len() <= limits::FRAME_BODY_BYTES, "{}", body.len());
    let result = decode_answer(&body, Vec::new()).unwrap().result;
    assert!(matches!(result, Ok(Reply::Listed { entries, .. }) if entries.len() == 1024));
}
