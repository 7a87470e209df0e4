//! A loss of power of the server's machine, while its clients live.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pelago_server::Options;
use pelago_wire::{Code, OpenFlags, Request, SetAttr, XattrFlags};

use crate::harness::rig::{DEADLINE, by_hand, name};
use crate::replay::served::{ROOT, Served, options};

/// Everything that a client was answered is there after a loss of power: with its inode, its times
/// and its bytes, under its last name, and what was open is open.
#[test]
fn what_was_answered_and_not_safe_comes_back_with_its_client() {
    let served = Served::new();
    let client = served.client();
    let dir = client.make_dir(ROOT, "dir");
    let (closed, open) = client.create(dir.handle, "closed");
    client.write(open, 0, b"some bytes");
    client.close(open);
    let set = SetAttr { mode: Some(0o600), uid: Some(77), ..SetAttr::default() };
    let set = client.attr(Request::SetAttr { node: closed.handle, open: None, set });
    client.rename(dir.handle, "closed", ROOT, "moved");
    let (kept, open) = client.create(dir.handle, "open");
    let second = client.open(kept.handle, OpenFlags::READ);
    client.write(open, 0, b"abcdef");
    client.write(open, 3, b"XYZ123");
    let shorter = SetAttr { size: Some(5), ..SetAttr::default() };
    let shorten = Request::SetAttr { node: kept.handle, open: Some(open), set: shorter };
    client.attr(shorten);
    client.write(open, 5, b"f");
    assert!(!served.is_all_safe(), "nothing has made it safe");
    let left = served.rig.crashed(0, by_hand());
    assert_eq!(left.lookup(ROOT, "dir").err(), Some(Code::NotFound), "the power takes all of it");
    drop(left);

    let served = served.cut(0, options());
    let found = client.lookup(ROOT, "dir").unwrap();
    let names = served.kernel.names.load(Ordering::Relaxed);
    assert_eq!(names, 0, "a program that waits for the server may hold what a name needs");
    assert_eq!((found.attr.ino, found.attr.btime), (dir.attr.ino, dir.attr.btime));
    let found = client.lookup(ROOT, "moved").unwrap();
    assert_eq!(found.attr.ino, closed.attr.ino);
    assert_eq!((found.attr.mode, found.attr.uid, found.attr.btime), (0o600, 77, set.btime));
    assert_eq!(client.attr(Request::GetAttr { node: closed.handle }).ino, closed.attr.ino);
    assert_eq!(client.bytes(closed.handle), b"some bytes");
    assert_eq!(client.lookup(dir.handle, "closed").err(), Some(Code::NotFound));
    // By the opens of before.
    assert_eq!((client.read(open), client.read(second)), (b"abcXYf".to_vec(), b"abcXYf".to_vec()));
    client.write(open, 0, b"123");
    assert_eq!(client.bytes(kept.handle), b"123XYf");
    client.close(open);
    client.close(second);
    let other = client.create(ROOT, "other").0;
    assert!(![dir, closed, kept].map(|entry| entry.attr.ino).contains(&other.attr.ino));
    served.rig.expect_whole("all is back");
}

/// The second loss of power comes when a part of what the first one took was answered anew: the
/// rest still has its place behind that.
#[test]
fn what_is_lost_twice_comes_back_in_its_order() {
    let served = Served::new();
    let (client, relay) = served.client_behind_a_relay();
    let dir = client.make_dir(ROOT, "dir");
    let below = client.make_dir(dir.handle, "below");
    relay.pass(1);
    let served = served.cut(0, options());
    let deadline = std::time::Instant::now() + DEADLINE;
    while relay.lost() == 0 {
        assert!(std::time::Instant::now() < deadline, "only the first one is answered anew");
        std::thread::yield_now();
    }
    relay.pass(usize::MAX);
    let served = served.cut(0, options());
    let found = client.lookup(ROOT, "dir").unwrap();
    assert_eq!(found.attr.ino, dir.attr.ino);
    let found = client.lookup(dir.handle, "below").map(|found| found.attr.ino);
    assert_eq!(found, Ok(below.attr.ino));
    served.rig.expect_whole("all is back");
}

/// A file that existed is emptied and written, and its open has ended.
#[test]
fn what_was_written_by_an_open_that_has_ended_comes_back() {
    let served = Served::new();
    let client = served.client();
    let (file, open) = client.create(ROOT, "file");
    client.write(open, 0, b"some old bytes");
    client.close(open);
    served.rig.sync();
    let truncate = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    let open = client.open(file.handle, truncate);
    client.write(open, 0, b"new");
    client.close(open);
    assert!(!served.is_all_safe());
    let served = served.cut(0, options());
    assert_eq!(client.bytes(file.handle), b"new");
    let deadline = std::time::Instant::now() + DEADLINE;
    while served.rig.server.status().open_files > 0 {
        assert!(std::time::Instant::now() < deadline, "an open is left");
        std::thread::yield_now();
    }
    served.rig.expect_whole("it is back");
}

/// A copy cannot be made again, as what it was made from may have changed: it is safe first.
#[test]
fn a_copy_is_answered_when_it_is_safe() {
    let served = Served::new();
    let client = served.client();
    let (_, from) = client.create(ROOT, "from");
    client.write(from, 0, b"bytes");
    let (copy, to) = client.create(ROOT, "to");
    assert!(!served.is_all_safe());
    let from_offset = 0;
    let to_offset = 0;
    let length = 5;
    client.ask(Request::CopyRange { from, from_offset, to, to_offset, length }, &[]).unwrap();
    assert!(served.is_all_safe());
    let _served = served.cut(0, options());
    assert_eq!(client.bytes(copy.handle), b"bytes");
}

/// Whatever part of it the power takes, what was answered is there, once.
#[test]
fn a_part_that_is_left_is_not_done_twice() {
    let mut keep = 0;
    loop {
        let served = Served::new();
        let client = served.client();
        let dir = client.make_dir(ROOT, "dir");
        let (file, open) = client.create(dir.handle, "file");
        client.write(open, 0, b"first");
        client.write(open, 5, b" second");
        client.rename(dir.handle, "file", ROOT, "moved");
        let link = Request::Link { node: file.handle, dir: dir.handle, name: name("link") };
        client.entry(link).unwrap();
        client.ask(Request::Unlink { dir: ROOT, name: name("moved") }, &[]).unwrap();
        let all = served.rig.table.unsafe_batches();
        let served = served.cut(keep, options());
        let found = client.lookup(dir.handle, "link").unwrap();
        assert_eq!((found.attr.ino, found.attr.links), (file.attr.ino, 1), "{keep} batches kept");
        assert_eq!(client.lookup(ROOT, "moved").err(), Some(Code::NotFound));
        assert_eq!(client.read(open), b"first second", "{keep} batches kept");
        client.close(open);
        served.rig.expect_whole("all is back");
        keep += 1;
        if keep > all {
            return;
        }
    }
}

/// What is left of one session is not undone by what was left too of another one, and what was lost
/// of both is done again in the order in which it was done.
#[test]
fn what_several_sessions_did_comes_back_in_its_order() {
    let mut keep = 0;
    loop {
        let served = Served::new();
        let one = served.client();
        let two = served.client();
        let (file, open) = one.create(ROOT, "file");
        served.rig.sync();
        let other = two.open(file.handle, OpenFlags::READ_WRITE);
        one.write(open, 0, b"aaaa");
        two.write(other, 0, b"bb");
        one.write(open, 3, b"ccc");
        two.write(other, 5, b"d");
        let all = served.rig.table.unsafe_batches();
        let served = served.cut(keep, options());
        assert_eq!(one.bytes(file.handle), b"bbaccd", "{keep} batches kept");
        assert_eq!(two.bytes(file.handle), b"bbaccd", "{keep} batches kept");
        served.rig.expect_whole("both are back");
        keep += 1;
        if keep > all {
            return;
        }
    }
}

/// What is safe is not kept, and needs no message of its own.
#[test]
fn a_client_keeps_what_is_not_safe_and_nothing_else() {
    let served = Served::new();
    let client = served.client();
    for number in 0..3 {
        client.make_dir(ROOT, &format!("dir-{number}"));
    }
    assert_eq!(client.remote.status().kept, 3);
    served.rig.sync();
    client.attr(Request::GetAttr { node: ROOT });
    assert_eq!(client.remote.status().kept, 0, "the next answer says that it is safe");
    let (_, open) = client.create(ROOT, "file");
    client.write(open, 0, &vec![7; 1 << 20]);
    assert_eq!(client.remote.status().kept, 1, "bytes of a content file are not kept");
}

/// More changes than a client keeps go on, although no timed group commit comes.
#[test]
fn a_client_that_can_keep_no_more_asks_what_is_safe() {
    let served = Served::new();
    let client = served.client();
    let (file, _) = client.create(ROOT, "file");
    for number in 0..100_u32 {
        let value = vec![number as u8; 60_000];
        let request = Request::SetXattr {
            node: file.handle,
            name: b"user.a".to_vec(),
            value,
            flags: XattrFlags::Any,
            kill_setgid: false,
        };
        client.ask(request, &[]).unwrap();
    }
    assert!(client.remote.status().kept < 60);
}

/// A change that builds on one of a client that does not come back is not lost for that.
#[test]
fn what_builds_on_another_session_s_change_needs_no_other_client() {
    let served = Served::new();
    let one = served.client();
    let two = served.client();
    let dir = one.make_dir(ROOT, "dir");
    assert!(!served.is_all_safe());
    let own = one.make_dir(dir.handle, "own");
    assert!(!served.is_all_safe(), "it builds on its own change");
    let (file, open) = two.create(dir.handle, "file");
    assert!(served.is_all_safe(), "the other one's directory is safe first");
    two.write(open, 0, b"bytes");
    one.rename(dir.handle, "file", own.handle, "moved");
    assert!(!served.is_all_safe());
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    two.attr(Request::SetAttr { node: file.handle, open: None, set });
    two.make_dir(own.handle, "more");
    drop(one);
    let short = Options { grace: Duration::from_secs(2), ..by_hand() };
    let served = served.cut(0, short);
    assert_eq!(two.lookup(own.handle, "moved").unwrap().attr.ino, file.attr.ino);
    two.lookup(own.handle, "more").unwrap();
    assert_eq!(two.read(open), b"bytes");
    served.rig.expect_whole("one client is back");
}

/// The server's own mount does not come back either.
#[test]
fn what_builds_on_a_change_of_the_server_s_own_mount_waits_for_it() {
    let served = Served::new();
    let client = served.client();
    let dir = served.rig.make_dir(ROOT, "dir").unwrap();
    assert!(!served.is_all_safe());
    let made = client.make_dir(dir.handle, "made");
    assert!(served.is_all_safe());
    let other = client.make_dir(ROOT, "other");
    assert!(!served.is_all_safe(), "nothing of another session is in it");
    served.rig.create(other.handle, "file").unwrap();
    assert!(!served.is_all_safe(), "it is lost with what it builds on, and nothing repeats it");
    let served = served.cut(0, options());
    assert_eq!(client.lookup(dir.handle, "made").unwrap().attr.ino, made.attr.ino);
    served.rig.expect_whole("the client is back");
}
