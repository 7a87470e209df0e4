//! Servers that break the protocol: each causes one clear error within bounded memory, and nothing
//! is at the target.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use pelago_wire::blocks::{BlockFrame, BlockFrameKind, BlocksHead, Extents, HASH_BYTES};
use pelago_wire::limits::{BLOCK_BYTES, BLOCKS_FILE_BYTES};

use crate::harness::program::{Ran, bare, run};
use crate::harness::volume::folder;

const SIZE: u64 = (1 << 20) + (128 << 10);

/// Serves these bytes to requests, in turn, the last ones for ever, and closes the connections.
fn server(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = move || {
        for (client, at) in listener.incoming().zip(0..) {
            let mut client = client.unwrap();
            read_head(&mut client);
            // The client may hang up as soon as it has found the lie.
            let _sent = client.write_all(&answers[answers.len().min(at + 1) - 1]);
        }
    };
    thread::Builder::new().name("liar".to_owned()).spawn(serve).unwrap();
    address
}

/// Reads a request to the end of its headers.
pub(crate) fn read_head(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap() == 1 {
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns an answer with blocks whose body is this.
fn blocks(body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.pelago.blocks\r\nETag: \"t\"\r\n\
                Connection: close\r\n\r\n";
    [head.as_bytes(), body].concat()
}

fn file() -> Extents {
    Extents::of(SIZE).unwrap()
}

fn head() -> Vec<u8> {
    BlocksHead { extents: file() }.encode().to_vec()
}

fn block(number: u64) -> Vec<u8> {
    [&BlockFrame::block(file(), number).encode()[..], &[7; BLOCK_BYTES]].concat()
}

fn hash(extent: u64, of: &[u8; HASH_BYTES]) -> Vec<u8> {
    [&BlockFrame::hash(file(), extent).encode()[..], of].concat()
}

fn get(answer: Vec<u8>) -> Ran {
    get_in_turn(vec![answer])
}

/// Downloads with at most a gigabyte of address space, which a length of 32 bits exceeds.
fn get_in_turn(answers: Vec<Vec<u8>>) -> Ran {
    let (_folder, root) = folder();
    let url = format!("http://{}/file", server(answers));
    let mut shell = Command::new("sh");
    let script = "ulimit -v 1048576; exec \"$0\" get \"$1\" file --timeout 1";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_pelago"), &url]);
    bare(&mut shell, &root);
    let ran = run(&mut shell);
    assert!(!root.join("file").exists() && !ran.err.contains("bug"), "{ran:?}");
    ran
}

#[test]
fn each_lie_of_a_server_is_one_clear_error() {
    let frame = |kind, offset, length| BlockFrame { offset, length, kind }.encode().to_vec();
    let block_kind = BlockFrameKind::Block;
    let huge = {
        let mut head = head();
        head[16..].copy_from_slice(&(BLOCKS_FILE_BYTES + 1).to_le_bytes());
        head
    };
    let end = BlockFrame::end(false).encode().to_vec();
    let all: Vec<u8> = (0..18).flat_map(block).collect();
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("huge frame", frame(block_kind, 0, u32::MAX), "has 4294967295 bytes"),
        ("beyond the end", frame(block_kind, 64 << 20, 65_536), "has the offset 67108864"),
        ("not a block", frame(block_kind, 5, 65_536), "has the offset 5"),
        ("duplicate", [block(3), block(3)].concat(), "the client has it"),
        ("early hash", [block(16), hash(1, &[0; 32])].concat(), "at the wrong time"),
        ("left out", [block(16), end.clone()].concat(), "without the extent at 0"),
        ("no hashes", [all, end].concat(), "without the extent at 0"),
        ("unknown kind", vec![0; 16], "unknown kind 0"),
        (
            "behind its end",
            [BlockFrame::changed().encode().to_vec(), vec![1]].concat(),
            "was changed",
        ),
    ];
    for (what, body, says) in cases {
        let ran = get(blocks(&[head(), body].concat()));
        assert!(matches!(ran.code, Some(1 | 5)) && ran.err.contains(says), "{what}: {ran:?}");
    }
    let ran = get(blocks(&huge)).expect_code(1);
    assert!(ran.err.contains("the limit is 17592186044416"), "{ran:?}");
    get(blocks(b"nothing of that kind at all")).expect_code(1);
    let untagged = String::from_utf8(blocks(b"")).unwrap().replace("ETag", "X-Other");
    let ran = get([untagged.as_bytes(), &head()].concat()).expect_code(1);
    assert!(ran.err.contains("entity tag"), "{ran:?}");
}

#[test]
fn an_answer_that_is_always_cut_ends_with_unreachable() {
    let ran = get(blocks(&[head(), block(0), block(1)[..100].to_vec()].concat()));
    // The second answer sends block 0 again, although the client has it.
    assert!(matches!(ran.code, Some(1 | 5)), "{ran:?}");
    let ran = get(blocks(&head()[..10])).expect_code(5);
    assert!(ran.err.contains("cut"), "{ran:?}");
    get(b"HTTP/1.1 200".to_vec()).expect_code(5);
    get(b"\0\0\0\0 no HTTP".to_vec()).expect_code(5);
}

/// It sends wrong extents, and nothing when these are asked for again.
#[test]
fn a_server_that_does_not_send_an_extent_again_is_given_up() {
    let extent: Vec<u8> = (16..18).flat_map(block).collect();
    let whole: Vec<u8> = (0..16).flat_map(block).collect();
    let body = [head(), whole, hash(0, &[1; HASH_BYTES]), extent, hash(1, &[1; HASH_BYTES])];
    let end = BlockFrame::end(false).encode().to_vec();
    let first = blocks(&[body.concat(), end.clone()].concat());
    let ran = get_in_turn(vec![first, blocks(&[head(), end].concat())]).expect_code(1);
    assert!(ran.err.contains("extent 1 (offset 1048576) does not match"), "{ran:?}");
    assert!(ran.err.contains("without the extent at 0"), "{ran:?}");
}

#[test]
fn a_file_that_is_always_another_one_is_given_up() {
    let cut = blocks(&[head(), block(0)].concat());
    let moved = b"HTTP/1.1 412 Moved\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answers = (0..9).flat_map(|_| [cut.clone(), moved.to_vec()]).collect();
    let ran = get_in_turn(answers).expect_code(1);
    assert!(ran.err.contains("was changed 4 times"), "{ran:?}");
    assert_eq!(ran.err.matches("it begins from nothing").count(), 3, "{ran:?}");
}

/// 16 TiB that do not come take neither disk nor more memory than the limit.
#[test]
fn a_file_of_the_greatest_size_is_begun_and_its_wrong_extents_are_named() {
    let extents = Extents::of(BLOCKS_FILE_BYTES).unwrap();
    let last = extents.blocks() - 1;
    let mut body = BlocksHead { extents }.encode().to_vec();
    body.extend(BlockFrame::block(extents, last).encode());
    body.extend([7; BLOCK_BYTES]);
    body.extend(BlockFrame::unreadable(extents, 5).encode());
    body.extend([25, 0]);
    body.extend(BlockFrame::end(false).encode());
    let ran = get(blocks(&body));
    // A disk may not have files that large.
    let is_right = ran.err.contains("cannot read extent 5 (offset 5242880)")
        || ran.err.contains("File too large");
    assert!(ran.code == Some(1) && is_right, "{ran:?}");
}
