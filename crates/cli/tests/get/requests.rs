//! The bytes of the server's responses to requests for blocks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pelago_random::bytes_of;
use pelago_wire::blocks::{BlockEvent, BlockReader, HaveMap};
use pelago_wire::limits::HAVE_BYTES;

use crate::get::MIB;
use crate::get::world::Served;

type Headers<'a> = &'a [(&'a str, &'a str)];

const BLOCKS: (&str, &str) = ("Accept", "application/vnd.pelago.blocks");
const HAVE: (&str, &str) = ("Content-Type", "application/vnd.pelago.have");
/// A deadline for what must come; no test waits for it.
const DEADLINE: Duration = Duration::from_secs(60);

/// Sends a request, and returns the head of the answer and its body.
fn ask(served: &Served, method: &str, headers: Headers<'_>, body: &[u8]) -> (String, Vec<u8>) {
    let mut text = format!(
        "{method} /file HTTP/1.1\r\nConnection: close\r\nHost: {}\r\nContent-Length: {}\r\n",
        served.address,
        body.len()
    );
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
    // The server may have answered before it has read all of it.
    let _sent = stream.write_all(body);
    let mut all = Vec::new();
    let _ended = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap().to_ascii_lowercase();
    let body = &all[end + 4..];
    let is_chunked = head.contains("transfer-encoding: chunked");
    (head, if is_chunked { unchunked(body) } else { body.to_vec() })
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let end = body.windows(2).position(|it| it == b"\r\n").unwrap();
        let size = std::str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return all;
        }
        all.extend(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Returns the numbers of the blocks, of the extents with a hash, and whether there is a root. They
/// come in any order.
fn read(bytes: &[u8], file: &[u8]) -> (Vec<u64>, Vec<u64>, bool) {
    let mut reader = BlockReader::default();
    let mut blocks = Vec::new();
    let mut hashes = Vec::new();
    let mut has_root = false;
    let mut rest = bytes;
    while let Some(event) = reader.next(&mut rest).unwrap() {
        match event {
            BlockEvent::Block { block, bytes } => {
                let at = (block << 16) as usize;
                assert!(file[at..at + bytes.len()] == *bytes, "block {block}");
                blocks.push(block);
            }
            BlockEvent::Hash { extent, .. } => hashes.push(extent),
            BlockEvent::End { root } => has_root = root.is_some(),
            event => assert!(matches!(event, BlockEvent::Head(_)), "{event:?}"),
        }
    }
    reader.finish().unwrap();
    blocks.sort_unstable();
    hashes.sort_unstable();
    (blocks, hashes, has_root)
}

#[test]
fn a_client_gets_the_blocks_that_it_lacks_and_the_hashes_of_their_extents() {
    let Some(served) = Served::new() else { return };
    let bytes = bytes_of(1, 3 * MIB + 70_000);
    served.put("file", &bytes);
    // A first request, of a client with all but the last two blocks: other hashes are not known.
    let tag = |head: &str| {
        let line = head.lines().find(|line| line.starts_with("etag: ")).unwrap();
        line["etag: ".len()..].to_owned()
    };
    let (head, body) = ask(&served, "HEAD", &[BLOCKS], b"");
    assert!(status(&head) == 200 && body.is_empty(), "{head}");
    assert!(head.contains("content-type: application/vnd.pelago.blocks"), "{head}");
    let tag = tag(&head);
    let resume = |have: &HaveMap| {
        let headers = [BLOCKS, HAVE, ("If-Match", tag.as_str())];
        let (head, body) = ask(&served, "POST", &headers, &have.encode());
        assert_eq!(status(&head), 200, "{head}");
        read(&body, &bytes)
    };
    // A HEAD reads nothing: the server knows no hash.
    assert_eq!(resume(&HaveMap::of(0..48)), (vec![48, 49], vec![3], false));
    assert_eq!(resume(&HaveMap::of((0..20).chain(21..50))), (vec![20], vec![1], false));
    let (head, body) = ask(&served, "GET", &[BLOCKS], b"");
    assert_eq!(status(&head), 200);
    assert_eq!(read(&body, &bytes), ((0..50).collect(), (0..4).collect(), true));
    assert_eq!(resume(&HaveMap::of(0..50)), (vec![], vec![], true));
    served.volume.finish();
}

#[test]
fn a_request_that_lies_is_refused_with_one_line() {
    let Some(served) = Served::new() else { return };
    served.put("file", &bytes_of(1, 2 * MIB));
    let (head, _) = ask(&served, "HEAD", &[BLOCKS], b"");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let good = HaveMap::of(0..3).encode();
    let with = |runs: &[(u64, u64)]| {
        let mut bytes = HaveMap::default().encode();
        bytes[12..16].copy_from_slice(&(runs.len() as u32).to_le_bytes());
        for (first, blocks) in runs {
            bytes.extend(first.to_le_bytes());
            bytes.extend(blocks.to_le_bytes());
        }
        bytes
    };
    let matches = ("If-Match", tag);
    let cases: [(Headers<'_>, Vec<u8>, u16, &str); 12] = [
        (&[BLOCKS, HAVE, matches], with(&[(0, 5), (4, 2)]), 400, "overlaps"),
        (&[BLOCKS, HAVE, matches], with(&[(5, 5), (1, 2)]), 400, "begins before"),
        (&[BLOCKS, HAVE, matches], with(&[(30, 3)]), 400, "beyond the 32 blocks"),
        (&[BLOCKS, HAVE, matches], with(&[(3, 0)]), 400, "empty"),
        (&[BLOCKS, HAVE, matches], good[..20].to_vec(), 400, "its runs need"),
        (&[BLOCKS, HAVE, matches], b"PELHAVE\n\x01\0\0\0\xff\xff\0\0".to_vec(), 400, "65535 runs"),
        (&[BLOCKS, HAVE, matches], Vec::new(), 400, "no have-map"),
        (&[BLOCKS, HAVE, matches], vec![0; HAVE_BYTES + 1], 413, "too long"),
        (&[BLOCKS, matches], good.clone(), 415, "have-map"),
        (&[BLOCKS, HAVE], good.clone(), 428, "If-Match"),
        (&[BLOCKS, HAVE, ("If-Match", "*")], good.clone(), 428, "If-Match"),
        (&[HAVE, matches], good.clone(), 405, ""),
    ];
    for (headers, body, code, says) in cases {
        let (head, text) = ask(&served, "POST", headers, &body);
        let text = String::from_utf8(text).unwrap();
        assert!(status(&head) == code && text.contains(says), "{headers:?}: {head} {text}");
        assert!(text.lines().count() <= 1, "{text}");
    }
    let moved = [BLOCKS, HAVE, ("If-Match", "\"other\"")];
    assert_eq!(status(&ask(&served, "POST", &moved, &good).0), 412);
    served.volume.finish();
}
