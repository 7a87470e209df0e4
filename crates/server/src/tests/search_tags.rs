//! Questions about tags by themselves, through the router.

use pelago_wire::{Asker, Code, Context, Handle, Reply, Request, TagPage, Tags, limits};

use super::search::{ANN, make_dir, move_to, set_mode, tag};
use crate::testing::{ROOT, Rig, name};

fn ask(
    rig: &Rig,
    uid: u32,
    dir: Handle,
    key: Option<&str>,
    prefix: &[u8],
) -> Result<TagPage, Code> {
    let asker = Asker { groups: Vec::new(), reads_all: uid == 0 };
    let key = key.map(|key| key.as_bytes().to_vec());
    let tags = Tags { key, prefix: prefix.to_vec(), asker };
    match rig.call_as(&Context::direct(uid, uid), Request::Tags { dir, tags })? {
        Reply::Tagged(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

fn keys(rig: &Rig, uid: u32, dir: Handle, prefix: &str) -> Vec<String> {
    let page = ask(rig, uid, dir, None, prefix.as_bytes()).unwrap();
    assert!(!page.more);
    page.parts.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
}

fn values(rig: &Rig, uid: u32, key: &str, prefix: &[u8]) -> Vec<Vec<u8>> {
    let page = ask(rig, uid, ROOT, Some(key), prefix).unwrap();
    assert!(!page.more);
    page.parts
}

/// Makes a file with a mode in a directory.
fn make(rig: &Rig, dir: Handle, text: &str, mode: u16) -> Handle {
    let node = rig.file(text, b"").handle;
    set_mode(rig, node, mode);
    if dir != ROOT {
        move_to(rig, text, dir, text);
    }
    node
}

#[test]
fn keys_and_values_come_once_and_in_their_order() {
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    let dir = make_dir(&rig, ROOT, "d", 0o755);
    for number in 0..20_u8 {
        let file =
            make(&rig, if number % 2 == 0 { dir } else { ROOT }, &format!("f{number}"), 0o644);
        tag(&rig, file, "project", if number < 10 { b"reef" } else { b"re\0\xff" });
        tag(&rig, file, if number % 2 == 0 { "even" } else { "pro" }, &[number]);
    }
    tag(&rig, dir, "folder", b"");
    assert_eq!(keys(&rig, 0, ROOT, ""), ["even", "folder", "pro", "project"]);
    assert_eq!(keys(&rig, 0, ROOT, "pro"), ["pro", "project"]);
    assert_eq!(keys(&rig, 0, dir, ""), ["even", "project"], "what is below it");
    assert!(keys(&rig, 0, ROOT, "pro\0").is_empty() && keys(&rig, 0, ROOT, "x y").is_empty());
    assert!(keys(&rig, 0, ROOT, &"k".repeat(200)).is_empty());
    assert_eq!(values(&rig, 0, "project", b""), [&b"re\0\xff"[..], b"reef"]);
    assert_eq!(values(&rig, 0, "project", b"re\0"), [b"re\0\xff"]);
    assert_eq!(values(&rig, 0, "pro", b"").len(), 10);
    assert_eq!(values(&rig, 0, "folder", b""), [b""]);
    assert!(values(&rig, 0, "fold", b"").is_empty() && values(&rig, 0, "even", b"zzz").is_empty());
    // A tag that has gone has left nothing behind.
    let name = b"user.tag.folder".to_vec();
    rig.call(Request::RemoveXattr { node: dir, name }).unwrap();
    assert_eq!(keys(&rig, 0, ROOT, "f"), Vec::<String>::new());
}

#[test]
fn values_that_are_too_long_are_left_out() {
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    for (number, bytes) in [256, 257, 300].into_iter().enumerate() {
        let file = make(&rig, ROOT, &format!("f{number}"), 0o644);
        tag(&rig, file, "long", &vec![b'v'; bytes]);
    }
    tag(&rig, make(&rig, ROOT, "last", 0o644), "long", b"w");
    assert_eq!(values(&rig, 0, "long", b""), [vec![b'v'; 256], b"w".to_vec()]);
    assert_eq!(values(&rig, 0, "long", &[b'v'; 256]), [vec![b'v'; 256]]);
}

#[test]
fn what_an_asker_may_not_see_leaves_no_trace() {
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    let open = make_dir(&rig, ROOT, "open", 0o755);
    let hidden = make_dir(&rig, ROOT, "hid", 0o700);
    let listed = make_dir(&rig, ROOT, "listed", 0o711);
    let inner = make_dir(&rig, hidden, "inner", 0o777);
    tag(&rig, make(&rig, open, "seen", 0o644), "project", b"reef");
    let all = [(ROOT, 0o644), (open, 0o644), (open, 0o600), (hidden, 0o644), (inner, 0o644)];
    for uid in [ANN, 0] {
        let before = ask(&rig, uid, open, None, b"").unwrap();
        assert_eq!((before.parts, before.more), (vec![b"project".to_vec()], false));
    }
    for number in 0..300 {
        let (dir, mode) = all[2 + number % 3];
        let file = make(&rig, dir, &format!("h{number}"), mode);
        tag(&rig, file, &format!("hidden{number}"), b"x");
        tag(&rig, file, "project", format!("secret{number}").as_bytes());
    }
    tag(&rig, make(&rig, listed, "below", 0o644), "unlisted", b"x");
    for (key, prefix) in [("hidden7", ""), ("project", "secret"), ("unlisted", ""), ("none", "")] {
        assert!(values(&rig, ANN, key, prefix.as_bytes()).is_empty(), "{key}");
    }
    assert_eq!(keys(&rig, ANN, ROOT, ""), ["project"]);
    assert_eq!(values(&rig, ANN, "project", b""), [b"reef"]);
    let page = ask(&rig, 0, ROOT, None, b"").unwrap();
    assert_eq!((page.parts.len(), page.more), (limits::TAG_PARTS, true));
    for dir in [hidden, inner] {
        let found = ask(&rig, ANN, dir, None, b"").map(|page| page.parts.is_empty());
        assert_eq!(found, if dir == hidden { Err(Code::AccessDenied) } else { Ok(false) });
    }
    // One name that may be seen is enough.
    let file = rig.call(Request::Lookup { dir: inner, name: name("h2") }).unwrap();
    let Reply::Entry(file) = file else { panic!("{file:?}") };
    rig.call(Request::Link { node: file.handle, dir: open, name: name("link") }).unwrap();
    assert_eq!(keys(&rig, ANN, ROOT, ""), ["hidden2", "project"]);
    assert_eq!(values(&rig, ANN, "project", b"s"), [b"secret2"]);
}

/// More rows than a server once read for one answer: it then said `more`, which told an asker
/// without rights, letter by letter, how the hidden values begin.
#[test]
fn what_is_hidden_changes_nothing_however_much_it_is() {
    const HIDDEN: u32 = 17_000;
    let rig = Rig::new();
    rig.shard.set_tags_complete();
    let hidden = make_dir(&rig, ROOT, "hidden", 0o700);
    for number in 0..HIDDEN {
        let file = make(&rig, hidden, &format!("h{number}"), 0o644);
        tag(&rig, file, "patient", format!("smith-{number:05}").as_bytes());
        if number <= 1024 {
            tag(&rig, file, "many", b"x");
        }
    }
    let last = make(&rig, ROOT, "last", 0o644);
    for (key, value) in [("many", "x"), ("next", "x"), ("patient", "zoe")] {
        tag(&rig, last, key, value.as_bytes());
    }
    for (key, prefix, seen) in [
        (None, "", &["many", "next", "patient"][..]),
        (Some("patient"), "", &["zoe"][..]),
        (Some("patient"), "s", &[][..]),
        (Some("patient"), "smith-", &[][..]),
        (Some("many"), "", &["x"][..]),
    ] {
        let page = ask(&rig, ANN, ROOT, key, prefix.as_bytes()).unwrap();
        let parts: Vec<_> = page.parts.iter().map(|part| str::from_utf8(part).unwrap()).collect();
        assert_eq!((parts.as_slice(), page.more), (seen, false), "{key:?} {prefix}");
    }
    let page = ask(&rig, 0, ROOT, Some("patient"), b"s").unwrap();
    assert_eq!((page.parts.len(), page.more), (limits::TAG_PARTS, true));
}

#[test]
fn bad_questions_have_errors() {
    let rig = Rig::new();
    let file = rig.file("f", b"").handle;
    assert_eq!(ask(&rig, 0, ROOT, None, b""), Err(Code::Busy), "tags have no rows yet");
    rig.shard.set_tags_complete();
    assert_eq!(ask(&rig, 0, file, None, b""), Err(Code::NotDirectory));
    assert_eq!(ask(&rig, 0, ROOT, Some("a b"), b""), Err(Code::Invalid));
    assert_eq!(ask(&rig, 0, ROOT, Some(""), b""), Err(Code::Invalid));
}
