//! Downloads from a server that is no Pelago.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use pelago_random::bytes_of;

use crate::harness::program::run;
use crate::harness::volume::folder;
use crate::lies::read_head;
use crate::world::get;

/// Serves a file with ranges; each answer is cut after `most` bytes. Returns the address, and what
/// it was asked.
fn server(bytes: Vec<u8>, tag: &'static str, most: usize) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, asked) = channel();
    let serve = move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let head = read_head(&mut client).to_ascii_lowercase();
            let first = head.split("range: bytes=").nth(1).and_then(|it| it.split('-').next());
            let has_tag = head.contains(&format!("if-range: {}", tag.to_ascii_lowercase()));
            let first: Option<usize> = first.filter(|_| has_tag).map(|it| it.parse().unwrap());
            let size = bytes.len();
            let (status, range) = match first {
                Some(at) if at >= size => ("416 No", format!("Content-Range: bytes */{size}\r\n")),
                Some(at) => {
                    ("206 Some", format!("Content-Range: bytes {at}-{}/{size}\r\n", size - 1))
                }
                None => ("200 OK", String::new()),
            };
            let rest = bytes.get(first.unwrap_or(0)..).unwrap_or_default();
            let text = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {tag}\r\n{range}\
                 Connection: close\r\n\r\n",
                rest.len()
            );
            sender.send(head).unwrap();
            client.write_all(text.as_bytes()).unwrap();
            let _cut = client.write_all(&rest[..rest.len().min(most)]);
        }
    };
    thread::Builder::new().name("plain".to_owned()).spawn(serve).unwrap();
    (address, asked)
}

#[test]
fn a_download_goes_on_by_ranges_and_says_that_it_is_not_checked() {
    let (_folder, root) = folder();
    let bytes = bytes_of(8, 2_000_000);
    let (address, asked) = server(bytes.clone(), "\"Tag\"", 900_000);
    let url = format!("http://{address}/x");
    let got = run(&mut get(&root, &url, &root.join("x"), &[])).expect_success();
    assert!(got.err.contains("the server sends no blocks"), "{got:?}");
    assert!(got.out.contains("no: the server sends no hashes"), "{got:?}");
    assert!(fs::read(root.join("x")).unwrap() == bytes);
    let asked: Vec<String> = asked.try_iter().collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked[0].contains("accept: application/vnd.pelago.blocks"), "{asked:?}");
    assert!(asked[1].contains("if-range: \"tag\""), "{asked:?}");
}

#[test]
fn without_a_tag_it_begins_again_and_gives_up_at_last() {
    let (_folder, root) = folder();
    let (address, asked) = server(bytes_of(8, 200_000), "W/\"weak\"", 90_000);
    let url = format!("http://{address}/x");
    let got = run(&mut get(&root, &url, &root.join("x"), &["--timeout", "100"])).expect_code(1);
    assert!(got.err.contains("changed 4 times"), "{got:?}");
    assert!(!root.join("x").exists());
    assert_eq!(asked.try_iter().count(), 5);
}
