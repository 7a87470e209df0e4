//! Downloads from a server that is no Pelago.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use pelago_random::bytes_of;

use crate::get::lies::read_head;
use crate::get::world::get;
use crate::harness::program::run;
use crate::harness::volume::folder;

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

/// A file that is written twice in the second that its date names: a date that young is no name of
/// a version.
#[test]
fn two_versions_of_one_second_are_not_joined() {
    const SIZE: usize = 200_000;
    let (_folder, root) = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = move || {
        for (client, at) in listener.incoming().zip(0..) {
            let mut client = client.unwrap();
            let head = read_head(&mut client).to_ascii_lowercase();
            let date = "Wed, 25 Nov 2026 19:00:00 GMT";
            let common = format!("Last-Modified: {date}\r\nDate: {date}\r\nConnection: close\r\n");
            let first = head.split("range: bytes=").nth(1).and_then(|it| it.split('-').next());
            let first: usize = first.map_or(0, |first| first.parse().unwrap());
            let range = match first {
                0 => "200 OK\r\n".to_owned(),
                _ => format!("206 Some\r\nContent-Range: bytes {first}-{}/{SIZE}\r\n", SIZE - 1),
            };
            let head = format!("HTTP/1.1 {range}{common}Content-Length: {}\r\n\r\n", SIZE - first);
            client.write_all(head.as_bytes()).unwrap();
            let bytes = if at == 0 { vec![b'A'; SIZE / 2] } else { vec![b'B'; SIZE - first] };
            let _cut = client.write_all(&bytes);
        }
    };
    thread::Builder::new().name("plain".to_owned()).spawn(serve).unwrap();
    let url = format!("http://{address}/x");
    let got = run(&mut get(&root, &url, &root.join("x"), &["--timeout", "100"])).expect_success();
    assert!(got.err.contains("begins from nothing"), "{got:?}");
    assert!(fs::read(root.join("x")).unwrap() == vec![b'B'; SIZE]);
}

#[test]
fn a_device_is_no_target() {
    let (_folder, root) = folder();
    let got =
        run(&mut get(&root, "http://127.0.0.1:1/x", "/dev/null".as_ref(), &[])).expect_code(1);
    assert!(got.err.contains("/dev/null is no regular file"), "{got:?}");
    assert!(!got.err.contains("/dev/null/"), "{got:?}");
}

#[test]
fn without_a_tag_it_begins_again_and_gives_up_at_last() {
    let (_folder, root) = folder();
    let (address, asked) = server(bytes_of(8, 200_000), "W/\"weak\"", 90_000);
    let url = format!("http://{address}/x");
    let got = run(&mut get(&root, &url, &root.join("x"), &["--timeout", "100"])).expect_code(1);
    assert!(got.err.contains("was cut 4 times"), "{got:?}");
    assert!(!root.join("x").exists());
    assert_eq!(asked.try_iter().count(), 5);
}
