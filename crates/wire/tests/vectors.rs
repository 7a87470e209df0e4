//! Golden messages: the bytes of each message never change, and they mean what they always meant.
//!
//! `vectors/` has one message a line. `PELAGO_GOLDEN=accept` writes the files again: lines may be
//! added, but none of a released version may change.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use pelago_wire::codec::{
    LayoutRow, REPLIES, REQUESTS, ReplyStamp, decode_answer, decode_call, encode_answer,
    encode_call,
};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{
    Closing, ClosingCode, HELLO_BYTES, Hello, MAGIC, RefusalCode, Refused, Welcome,
};
use pelago_wire::{
    AllocateMode, Attr, Buffer, Code, Cookie, DataPath, DirEntry, Entry, Error, FileKind, Handle,
    InodeId, Name, NameHash, NewMode, OpenFlags, OpenId, RenameFlags, Reply, Request, SeekFrom,
    SessionId, SetAttr, SetTime, Time, VolumeStats, Whence, XattrFlags, limits,
};

const NODE: Handle = Handle::at(
    InodeId::from_raw(0x0102_0304_0506_0708),
    InodeId::from_raw(0x1112_1314_1516_1718),
    NameHash(0x2122_2324_2526_2728),
);
const DIR: Handle = Handle::ROOT;
const OPEN: OpenId = OpenId(0x3132_3334_3536_3738);
const OFFSET: u64 = 0x4142_4344_4546_4748;
const MODE: NewMode = NewMode { mode: 0o4751, umask: 0o27 };
const CREDENTIALS: (u32, u32) = (0x0a0b_0c0d, 0x1a1b_1c1d);
const MUTATION: u64 = 0x5152_5354_5556_5758;
const STAMP: ReplyStamp = ReplyStamp { epoch: 0x6162_6364, sequence: 0x7172_7374_7576_7778 };

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
    }
}

/// Requests about names, with the suffix of a variant.
fn of_names() -> Vec<(&'static str, Request)> {
    let (dir, flags) = (DIR, OpenFlags { append: true, ..OpenFlags::READ_WRITE });
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
        ("", Request::Create { dir, name: name("name"), mode: MODE, flags }),
        ("", Request::CreateUnnamed { dir, mode: MODE, flags }),
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
    let (node, open) = (NODE, Some(OPEN));
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
    let (open, offset, length) = (OPEN, OFFSET, 4096);
    let opening = |flags| Request::Open { node: NODE, flags };
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
        ("", Request::Flush { open }),
        ("", Request::Release { open }),
        ("", Request::Fsync { open, data_only: true }),
        ("", Request::Read { open, offset, size: 4096 }),
        ("", Request::Write { open, offset, kill_privileges: true }),
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
    ]
}

fn replies() -> Vec<(&'static str, Reply)> {
    let (attr, path) = (attr(), DataPath::Cached);
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
    vec![
        ("", Reply::Done),
        ("", Reply::Entry(entry)),
        ("", Reply::Attr(attr)),
        (".cached", Reply::Created { entry, open: OPEN, path: path.clone() }),
        (".direct", Reply::Created { entry, open: OPEN, path: DataPath::Direct }),
        ("", Reply::Opened { open: OPEN, attr, path }),
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
    ]
}

fn hello() -> Hello {
    Hello {
        wire_min: 1,
        wire_max: 0x0203,
        role: Hello::CLIENT,
        read_only: true,
        features: 0x0102_0304_0506_0708,
        nonce: *b"0123456789abcdef",
        resume: Some(SessionId(0x1112_1314_1516_1718)),
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0x0102_0304_0506_0708,
        session: SessionId(0x1112_1314_1516_1718),
        resumed: true,
        term_ms: 30_000,
        epoch: 0x2122_2324,
        volume: *b"0123456789abcdef",
        read_only: false,
        requests: 256,
        bulk: 16 << 20,
    }
}

fn refused() -> Refused {
    let text = "wait, Ω".to_owned();
    Refused { code: RefusalCode::Starting, wire_min: 1, wire_max: 2, retry_ms: 5000, text }
}

fn closing() -> Closing {
    Closing { code: ClosingCode::Expired, text: "31 s".to_owned() }
}

fn call(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    encode_call(CREDENTIALS, MUTATION, request, &mut out).unwrap();
    out
}

fn answer(result: &Result<Reply, Error>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_answer(STAMP, result, &mut out);
    out
}

/// Compares with, or writes, a file of vectors.
fn check_vectors(file: &str, values: &[(String, Vec<u8>)]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors").join(file);
    let mut text = String::new();
    for (name, value) in values {
        write!(text, "{name} ").unwrap();
        value.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    if std::env::var_os("PELAGO_GOLDEN").is_some_and(|value| value == "accept") {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "{}", path.display());
    let names: BTreeSet<_> = values.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), values.len(), "each vector has a name of its own");
}

/// Returns the row of a message with this number at `at`, and notes that a vector has it.
fn row<'a>(rows: &'a [LayoutRow], body: &[u8], at: usize, seen: &mut BTreeSet<u16>) -> &'a str {
    let number = u16::from_le_bytes([body[at], body[at + 1]]);
    seen.insert(number);
    rows.iter().find(|row| row.number == number).unwrap().name
}

fn numbers(rows: &[LayoutRow]) -> BTreeSet<u16> {
    rows.iter().map(|row| row.number).collect()
}

#[test]
fn every_request_is_the_bytes_it_always_was() {
    let mut seen = BTreeSet::new();
    let mut vectors = Vec::new();
    for (suffix, request) in [of_names(), of_nodes(), of_opens()].concat() {
        let body = call(&request);
        let decoded = decode_call(&body).unwrap();
        assert_eq!((decoded.uid, decoded.gid), CREDENTIALS);
        assert_eq!((decoded.mutation, &decoded.request), (MUTATION, &request));
        for end in 0..body.len() {
            assert!(decode_call(&body[..end]).is_err(), "{request:?} cut at {end}");
        }
        let name = row(REQUESTS, &body, 16, &mut seen);
        vectors.push((format!("{name}{suffix}"), body));
    }
    assert_eq!(seen, numbers(REQUESTS), "every request has a vector");
    check_vectors("requests.txt", &vectors);
}

#[test]
fn every_reply_is_the_bytes_it_always_was() {
    let mut seen = BTreeSet::new();
    let mut vectors = Vec::new();
    for (suffix, reply) in replies() {
        let bulk = reply.bulk().to_vec();
        let result = Ok(reply);
        let body = answer(&result);
        let (stamp, decoded) = decode_answer(&body, bulk).unwrap();
        assert_eq!(stamp, STAMP);
        assert_eq!(format!("{decoded:?}"), format!("{result:?}"));
        for end in 0..body.len() {
            assert!(decode_answer(&body[..end], Vec::new()).is_err(), "{result:?} cut at {end}");
        }
        let name = row(REPLIES, &body, 14, &mut seen);
        vectors.push((format!("{name}{suffix}"), body));
    }
    assert_eq!(seen, numbers(REPLIES), "every reply has a vector");
    for &code in Code::ALL {
        let body = answer(&Err(code.into()));
        let (_, decoded) = decode_answer(&body, Vec::new()).unwrap();
        assert_eq!(decoded.unwrap_err().code, code);
        vectors.push((format!("error.{code:?}"), body));
    }
    check_vectors("replies.txt", &vectors);
}

/// A reply that a request cannot have is told from one that it can have.
#[test]
fn a_request_takes_the_reply_of_its_row() {
    for (_, request) in [of_names(), of_nodes(), of_opens()].concat() {
        let number = u16::from_le_bytes(call(&request)[16..18].try_into().unwrap());
        let expected = REQUESTS.iter().find(|row| row.number == number).unwrap().reply;
        for (_, reply) in replies() {
            let body = answer(&Ok(reply));
            let reply_number = u16::from_le_bytes(body[14..16].try_into().unwrap());
            let name = REPLIES.iter().find(|row| row.number == reply_number).unwrap().name;
            let (_, decoded) = decode_answer(&body, Vec::new()).unwrap();
            assert_eq!(request.takes(&decoded.unwrap()), name == expected, "{request:?}: {name}");
        }
    }
}

#[test]
fn the_handshake_is_the_bytes_it_always_was() {
    assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
    assert_eq!(Welcome::decode(&welcome().encode()), Ok(welcome()));
    assert_eq!(Refused::decode(&refused().encode()), Ok(refused()));
    assert_eq!(Closing::decode(&closing().encode()), Ok(closing()));
    let messages = [
        ("Hello", hello().encode().to_vec()),
        ("Hello.new", Hello { resume: None, read_only: false, ..hello() }.encode().to_vec()),
        ("Welcome", welcome().encode()),
        ("Refused", refused().encode()),
        ("Closing", closing().encode()),
    ];
    for (name, bytes) in &messages {
        let decodes = |bytes: &[u8]| match *name {
            "Hello" | "Hello.new" => Hello::decode(bytes).is_ok(),
            "Welcome" => Welcome::decode(bytes).is_ok(),
            "Refused" => Refused::decode(bytes).is_ok(),
            _ => Closing::decode(bytes).is_ok(),
        };
        assert!(decodes(bytes) && !decodes(&[bytes, &[0][..]].concat()), "{name}");
        assert!((0..bytes.len()).all(|end| !decodes(&bytes[..end])), "{name}");
    }
    check_vectors("handshake.txt", &messages.map(|(name, bytes)| (name.to_owned(), bytes)));
}

#[test]
fn every_frame_is_the_bytes_it_always_was() {
    let mut vectors = Vec::new();
    for &kind in FrameKind::ALL {
        let bulk_limit = u32::try_from(kind.bulk_limit()).unwrap();
        let header = Header {
            body: u32::try_from(kind.body_limit()).unwrap().min(0x0001_0203),
            bulk: bulk_limit.min(0x0004_0506),
            kind,
            number: if kind.has_number() { 0x1112_1314_1516_1718 } else { 0 },
            progress: 0x2122_2324_2526_2728,
        };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        vectors.push((format!("{kind:?}"), header.encode().to_vec()));
    }
    check_vectors("frames.txt", &vectors);
}

/// Every version must be able to read the hello and the refusal of every other. This test repeats
/// their layout, and changes for no version.
#[test]
fn a_hello_and_a_refusal_never_change() {
    let mut frame = Header::new(FrameKind::Hello, 96, 0).encode().to_vec();
    frame.extend(hello().encode());
    let mut expected = vec![0_u8; 32 + HELLO_BYTES];
    expected[0] = 96;
    expected[8] = 1;
    expected[32..40].copy_from_slice(b"PELAGO\r\n");
    expected[40..48].copy_from_slice(&[1, 0, 3, 2, 1, 0, 1, 0]);
    expected[48..56].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    expected[56..72].copy_from_slice(b"0123456789abcdef");
    expected[72..80].copy_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
    assert_eq!(frame, expected);
    assert_eq!(MAGIC, *b"PELAGO\r\n");

    let mut expected = vec![8, 0, 1, 0, 2, 0, 0x88, 0x13, 0, 0, 8, 0];
    expected.extend("wait, Ω".as_bytes());
    assert_eq!(refused().encode(), expected);
}

/// A newer client may use bits and bytes that mean nothing yet, and gets an answer.
#[test]
fn what_a_newer_peer_adds_is_ignored() {
    let mut bytes = hello().encode();
    bytes[95] = 1;
    bytes[15] = 0x80;
    assert_eq!(Hello::decode(&bytes), Ok(hello()));
    bytes[0] = b'p';
    assert!(Hello::decode(&bytes).is_err());
    let newer = Refused { code: RefusalCode::Other(999), ..refused() };
    assert_eq!(Refused::decode(&newer.encode()), Ok(newer));
    for &code in RefusalCode::ALL {
        assert_eq!(RefusalCode::from_number(code.number()), code);
    }
    for &code in ClosingCode::ALL {
        assert_eq!(ClosingCode::from_number(code.number()), code);
    }
}

/// A text that is too long is cut between two characters.
#[test]
fn a_long_text_is_cut() {
    let text = format!("x{}", "Ω".repeat(limits::TEXT_BYTES));
    let decoded = Closing::decode(&Closing { text, ..closing() }.encode()).unwrap();
    assert_eq!(decoded.text, format!("x{}", "Ω".repeat(255)));
    let mut bytes = closing().encode();
    bytes[4] = 0xff;
    assert!(Closing::decode(&bytes).is_err());
}
