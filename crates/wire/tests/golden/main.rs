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
    DecodedReply, LayoutRow, ORIGIN_BYTES, REPLIES, REQUESTS, decode_answer, decode_call,
    decode_origin, decode_recall, decode_replay, encode_answer, encode_call, encode_origin,
    encode_recall, encode_replayed,
};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{
    Closing, ClosingCode, HELLO_BYTES, Hello, MAGIC, RefusalCode, Refused, Welcome,
};
use pelago_wire::present::Present;
use pelago_wire::{
    Attr, Code, Error, FileKind, Granted, InodeId, Leases, Origin, Recalled, Reply, Request,
    SessionId, Touched, WriteEra, limits,
};
use samples::{
    GID, MUTATION, STAMP, UID, closing, hello, present, recalls, refused, replayed, replies,
    requests, welcome,
};

mod blocks;
mod datagram;
mod document;
mod mirror;
mod relay;
mod samples;

fn call(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    encode_call(UID, GID, MUTATION, request, &mut out).unwrap();
    out
}

fn answer(result: &Result<Reply, Error>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_answer(STAMP, result, Granted::default(), &mut out);
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
fn row(rows: &[LayoutRow], body: &[u8], at: usize, seen: &mut BTreeSet<u16>) -> &'static str {
    let number = u16::from_le_bytes([body[at], body[at + 1]]);
    seen.insert(number);
    rows.iter().find(|row| row.number == number).unwrap().name
}

/// Returns the name of a request's row.
fn name_of(request: &Request) -> &'static str {
    row(REQUESTS, &call(request), 16, &mut BTreeSet::new())
}

fn numbers(rows: &[LayoutRow]) -> BTreeSet<u16> {
    rows.iter().map(|row| row.number).collect()
}

#[test]
fn every_request_is_the_bytes_it_always_was() {
    let mut seen = BTreeSet::new();
    let mut vectors = Vec::new();
    for (suffix, request) in requests() {
        let body = call(&request);
        let decoded = decode_call(&body).unwrap();
        assert_eq!((decoded.uid, decoded.gid), (UID, GID));
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
fn every_replay_is_the_bytes_it_always_was() {
    let call = call(&requests()[0].1);
    let mut vectors = Vec::new();
    for (name, replayed) in replayed() {
        let mut body = Vec::new();
        encode_replayed(&replayed, &mut body);
        let head = body.len();
        body.extend(&call);
        assert_eq!(decode_replay(&body), Ok((replayed, &call[..])));
        assert!((0..head).all(|end| decode_replay(&body[..end]).is_err()), "{name}");
        vectors.push((name.to_owned(), body));
    }
    check_vectors("replays.txt", &vectors);
}

#[test]
fn every_origin_is_the_bytes_it_always_was() {
    let call = call(&requests()[0].1);
    let mut vectors = Vec::new();
    for may_be_repeated in [false, true] {
        let session = SessionId(0x0102_0304_0506_0708);
        let origin = Origin { session, mutation: 9, acknowledged: 7, may_be_repeated };
        let mut body = Vec::new();
        encode_origin(&origin, &mut body);
        let head = body.len();
        assert_eq!(head, ORIGIN_BYTES);
        body.extend(&call);
        assert_eq!(decode_origin(&body), Ok((origin, &call[..])));
        assert!((0..head).all(|end| decode_origin(&body[..end]).is_err()));
        body[head - 1] = 2;
        assert!(decode_origin(&body).is_err(), "it is 0 or 1");
        body[head - 1] = may_be_repeated.into();
        let name = if may_be_repeated { "Repeated" } else { "First" };
        vectors.push((name.to_owned(), body));
    }
    check_vectors("origins.txt", &vectors);
}

#[test]
fn every_reply_is_the_bytes_it_always_was() {
    let mut seen = BTreeSet::new();
    let mut vectors = Vec::new();
    for (suffix, reply) in replies() {
        let bulk = reply.bulk().to_vec();
        let result = Ok(reply);
        let body = answer(&result);
        let DecodedReply { stamp, result: decoded, granted } = decode_answer(&body, bulk).unwrap();
        assert_eq!((stamp, granted), (STAMP, Granted::default()));
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
        let decoded = decode_answer(&body, Vec::new()).unwrap().result;
        assert_eq!(decoded.unwrap_err().code, code);
        vectors.push((format!("error.{code:?}"), body));
    }
    check_vectors("replies.txt", &vectors);
}

#[test]
fn what_comes_with_a_reply_is_the_bytes_it_always_was() {
    let changed = Some(Attr::empty(InodeId::ROOT, FileKind::Directory));
    let all =
        Leases { node: true, names: true, changed: true, made: true, bytes: Some(WriteEra(2)) };
    let cases = [
        ("leases", Ok(Reply::Done), Granted { leases: all, changed: None, may_be_done: false }),
        (
            "dir",
            Ok(Reply::Done),
            Granted {
                leases: Leases { changed: true, ..Leases::default() },
                changed,
                may_be_done: false,
            },
        ),
        (
            "absent",
            Err(Code::NotFound.into()),
            Granted {
                leases: Leases { names: true, ..Leases::default() },
                changed: None,
                may_be_done: false,
            },
        ),
    ];
    let mut vectors = Vec::new();
    for (name, result, granted) in cases {
        let mut body = Vec::new();
        encode_answer(STAMP, &result, granted, &mut body);
        let decoded = decode_answer(&body, Vec::new()).unwrap();
        assert_eq!(decoded.granted, granted, "{name}");
        assert!((0..body.len()).all(|end| decode_answer(&body[..end], Vec::new()).is_err()));
        vectors.push((name.to_owned(), body.clone()));
        // The bits, which an era of leases on bytes follows.
        let bits = body.len() - 1 - granted.leases.bytes.map_or(0, |_| 4);
        body[bits] = 0x80;
        assert!(decode_answer(&body, Vec::new()).is_err(), "a lease of no kind");
    }
    check_vectors("granted.txt", &vectors);
}

#[test]
fn a_recall_is_the_bytes_it_always_was() {
    let mut vectors = Vec::new();
    for (name, recalled) in recalls() {
        let mut body = Vec::new();
        encode_recall(&recalled, &mut body).unwrap();
        assert_eq!(decode_recall(&body).unwrap(), recalled);
        assert!((0..body.len()).all(|end| decode_recall(&body[..end]).is_err()), "{name}");
        assert!(decode_recall(&[&body[..], &[0]].concat()).is_err(), "{name}");
        vectors.push((name.to_owned(), body));
    }
    check_vectors("recalls.txt", &vectors);
    let one = Touched::Node(InodeId::ROOT);
    let mut body = Vec::new();
    let too_many = Recalled::Things(vec![one; limits::RECALL_THINGS + 1]);
    assert!(encode_recall(&too_many, &mut body).is_err());
    assert!(body.is_empty());
    for wrong in [&[9, 1][..], &[1, 4], &[1, 3, 0], &[2, 3, 3], &[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 3]]
    {
        assert!(decode_recall(wrong).is_err(), "{wrong:?}");
    }
}

/// A reply that a request cannot have is told from one that it can have.
#[test]
fn a_request_takes_the_reply_of_its_row() {
    for (_, request) in requests() {
        let number = u16::from_le_bytes(call(&request)[16..18].try_into().unwrap());
        let expected = REQUESTS.iter().find(|row| row.number == number).unwrap().reply;
        for (_, reply) in replies() {
            let body = answer(&Ok(reply));
            let reply_number = u16::from_le_bytes(body[14..16].try_into().unwrap());
            let name = REPLIES.iter().find(|row| row.number == reply_number).unwrap().name;
            let decoded = decode_answer(&body, Vec::new()).unwrap().result;
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
        ("Hello.guest", Hello { role: Hello::GUEST, ..hello() }.encode().to_vec()),
        ("Present", present().encode().unwrap()),
        ("Hello.new", Hello { wire_min: 1, wire_max: 1, ..Hello::new([9; 16]) }.encode().to_vec()),
        ("Welcome", welcome().encode()),
        ("Refused", refused().encode()),
        ("Closing", closing().encode()),
    ];
    for (name, bytes) in &messages {
        let decodes = |bytes: &[u8]| match *name {
            "Present" => Present::decode(bytes) == Ok(present()),
            "Hello" | "Hello.new" | "Hello.guest" => Hello::decode(bytes).is_ok(),
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
            is_overdue: false,
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
    // Version 1 has zeros there.
    expected[80..96].copy_from_slice(b"fedcba9876543210");
    expected[96..100].copy_from_slice(&[0x22, 0x21, 0x32, 0x31]);
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
