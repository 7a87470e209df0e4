//! Files that were removed a moment ago and are brought back: their rows are what they would be had
//! they been open.

use std::time::{Duration, Instant};

use pelago_store::rows::{Inline, Rnode};
use pelago_store::table::{Error as TableError, TableRead};
use pelago_wire::xattr::ACL_ACCESS;
use pelago_wire::{Generation, InodeId, limits};

use super::*;
use crate::shard::stored;

const LONG: Duration = Duration::from_secs(limits::REMOVED_SECONDS);

/// A shard that remembers what it removes.
fn rig() -> Rig {
    let rig = Rig::new();
    rig.shard.remember_removed(true);
    rig
}

impl Rig {
    fn small(&self, text: &str, bytes: &[u8]) -> Handle {
        let file = self.file(ROOT, text, 110).handle;
        let size = bytes.len() as u64;
        let live = LiveAttrs { size, blocks: 8, mtime: at(111), ctime: at(111) };
        let live = Some(live);
        let inline = InlineBytes::Put(bytes);
        let change = BytesChange { live, inline, ..BytesChange::NOTHING };
        self.shard.commit_bytes(file, &change).unwrap();
        file
    }

    fn large(&self, text: &str) -> Handle {
        let file = self.file(ROOT, text, 110).handle;
        let generation = Some(Generation::FIRST);
        let change = BytesChange { generation, ..BytesChange::NOTHING };
        self.shard.commit_bytes(file, &change).unwrap();
        file
    }

    fn put_xattr(&self, file: Handle, name: &[u8], value: &[u8]) {
        self.shard.set_xattr(file, &xattr(name, value, XattrFlags::Any), at(115)).unwrap();
    }

    fn rm(&self, text: &str) {
        self.shard.unlink(ROOT, &name(text), at(120)).unwrap();
    }

    fn is_gone(&self, file: Handle) -> bool {
        self.shard.attr(file).is_err_and(|error| error.code == Code::Stale)
    }

    fn inline_bytes(&self, file: Handle) -> Vec<u8> {
        let value = self.table.get(&key::inline(file.ino)).unwrap().unwrap();
        Inline::decode(&value).unwrap().1.bytes.to_vec()
    }

    fn rnode(&self, file: Handle) -> Rnode {
        stored::rnode(&self.table, file.ino).unwrap().unwrap()
    }
}

/// The rows of a volume whose files are all gone.
fn without_files() -> std::collections::BTreeSet<Vec<u8>> {
    let rig = Rig::new();
    let _gone = rig.file(ROOT, "f", 110);
    rig.rm("f");
    rig.row_keys()
}

/// An access list with an entry for one user.
fn access_list() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 0, 30),
        (4, 4, u32::MAX),
        (16, 6, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// The same files in two shards: in one they are open when they are removed, in the other they are
/// brought back.
#[test]
fn what_is_brought_back_has_the_rows_of_an_open_file() {
    let open = rig();
    let back = rig();
    let make = |rig: &Rig| {
        let small = rig.small("small", b"bytes");
        let large = rig.large("large");
        let empty = rig.file(ROOT, "empty", 110).handle;
        let tagged = rig.small("tagged", b"tagged bytes");
        rig.put_xattr(tagged, ACL_ACCESS, &access_list());
        rig.put_xattr(tagged, b"user.some", b"value");
        rig.put_xattr(tagged, b"user.tag.color", b"blue");
        let several = rig.small("several", b"of two names");
        rig.shard.link(several, ROOT, &name("second"), at(116)).unwrap();
        rig.rm("several");
        [
            (small, "small"),
            (large, "large"),
            (empty, "empty"),
            (tagged, "tagged"),
            (several, "second"),
        ]
    };
    let files = make(&open);
    assert_eq!(files, make(&back));
    for (file, text) in files {
        open.shard.acquire(file).unwrap();
        open.rm(text);
        back.rm(text);
        assert!(back.is_gone(file) && back.shard.can_bring_back(file.ino), "{text}");
        assert_eq!(back.shard.removed_attr(file.ino), open.shard.attr(file).ok());
        assert!(back.shard.bring_back(file.ino).unwrap());
        assert!(back.shard.bring_back(file.ino).unwrap(), "it is back: {text}");
        assert_eq!(back.rnode(file), open.rnode(file), "{text}");
    }
    assert_eq!(back.row_keys(), open.row_keys());
    let [small, _, _, tagged, several] = files.map(|(file, _)| file);
    assert_eq!(back.inline_bytes(small), b"bytes");
    assert_eq!(back.inline_bytes(several), b"of two names");
    let get = |name| back.shard.get_xattr(tagged, name).unwrap();
    assert_eq!(get(ACL_ACCESS), access_list());
    assert_eq!(get(b"user.some"), b"value");
    assert_eq!(get(b"user.tag.color"), b"blue");
    assert_eq!(back.names(ROOT), strings(&[]));
}

#[test]
fn what_is_not_opened_in_time_is_removed() {
    let rig = rig();
    let back = rig.large("back");
    let gone = rig.large("gone");
    rig.rm("back");
    rig.rm("gone");
    assert!(rig.shard.has_removed_news() && !rig.shard.has_removed_news());
    assert!(rig.shard.bring_back(back.ino).unwrap());
    for file in [back, gone] {
        assert_eq!(rig.shard.remove_unnamed(file.ino), Ok(None), "it can be opened still");
    }
    let (forgotten, next) = rig.shard.expire_removed(Instant::now());
    assert!(!forgotten && next.unwrap() <= LONG);
    assert_eq!(rig.shard.expire_removed(Instant::now() + LONG), (true, None));
    assert!(!rig.shard.bring_back(gone.ino).unwrap());
    for file in [back, gone] {
        assert!(rig.shard.remove_unnamed(file.ino).unwrap().is_some());
        assert!(rig.is_gone(file) && !rig.shard.bring_back(file.ino).unwrap());
    }
    let inos = [back.ino, gone.ino];
    rig.shard.delete_orphan_rows(&inos).unwrap();
    assert_eq!(rig.row_keys(), without_files());
}

/// Another kernel may hold a file that this one had open when it lost its name.
#[test]
fn a_file_that_is_closed_without_a_name_can_be_opened_for_a_while() {
    let rig = rig();
    let file = rig.small("f", b"bytes");
    rig.shard.acquire(file).unwrap();
    rig.rm("f");
    assert!(rig.shard.release(file.ino), "the worker is told of the first one");
    assert_eq!(rig.shard.remove_unnamed(file.ino), Ok(None));
    // It is opened and closed again: its time does not begin anew.
    let seen = Instant::now();
    assert_eq!(rig.shard.expire_removed(seen), (false, Some(LONG)));
    rig.shard.acquire(file).unwrap();
    assert!(!rig.shard.release(file.ino));
    assert_eq!(rig.shard.expire_removed(seen + LONG), (true, None));
    rig.shard.acquire(file).unwrap();
    assert!(rig.shard.release(file.ino));
    assert_eq!(rig.shard.remove_unnamed(file.ino), Ok(None));
    let seen = Instant::now();
    assert_eq!(rig.shard.expire_removed(seen), (false, Some(LONG)));
    assert_eq!(rig.shard.expire_removed(seen + LONG), (true, None));
    assert!(rig.shard.remove_unnamed(file.ino).unwrap().is_some());
}

/// The time of a file begins when the worker sees it, at most a moment after the last look.
#[test]
fn each_file_is_kept_for_its_time_and_a_moment() {
    let rig = rig();
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    let remove = |text: &str| {
        let file = rig.small(text, b"bytes");
        rig.rm(text);
        file.ino
    };
    let first = remove("first");
    assert_eq!(rig.shard.expire_removed(after(0)), (false, Some(LONG)));
    // Within a moment of the last look: the next one is soon.
    let second = remove("second");
    let (_, next) = rig.shard.expire_removed(after(100));
    assert!(next.unwrap() < LONG / 4);
    let third = remove("third");
    let _next = rig.shard.expire_removed(after(400));
    let is_kept = |inodes: [InodeId; 3]| inodes.map(|ino| rig.shard.can_bring_back(ino));
    let inodes = [first, second, third];
    let _next = rig.shard.expire_removed(after(1_999));
    assert_eq!(is_kept(inodes), [true; 3]);
    // Looked up before, so they are in the map.
    assert!(rig.shard.bring_back(second).unwrap());
    let (_, next) = rig.shard.expire_removed(after(2_000));
    assert_eq!(is_kept(inodes), [false, false, true]);
    assert!(rig.shard.bring_back(second).unwrap(), "it is back, and waits for an open");
    assert_eq!(next, Some(Duration::from_millis(400)));
    let fourth = remove("fourth");
    assert_eq!(rig.shard.expire_removed(after(2_400)), (true, Some(LONG)));
    assert_eq!(is_kept([third, fourth, first]), [false, true, false]);
}

#[test]
fn a_file_that_nothing_refers_to_is_removed_at_once() {
    let rig = rig();
    let files = ["first", "second", "third"].map(|text| (rig.large(text), text));
    for (_, text) in files {
        rig.rm(text);
    }
    let [first, second, third] = files.map(|(file, _)| file.ino);
    for ino in [second, first] {
        assert_eq!(rig.shard.remove_unnamed(ino), Ok(None), "it can be opened still");
        assert!(rig.shard.forget_removed(ino), "the worker is told");
        assert!(!rig.shard.forget_removed(ino) && !rig.shard.bring_back(ino).unwrap());
        assert!(rig.shard.remove_unnamed(ino).unwrap().is_some());
    }
    assert!(rig.shard.can_bring_back(third));
    let small = rig.file(ROOT, "small", 110).handle;
    rig.rm("small");
    assert!(!rig.shard.forget_removed(small.ino), "it has no rows");
    assert!(rig.shard.forget_removed(third));
    assert_eq!(rig.shard.expire_removed(Instant::now()), (false, None));
}

/// Files are found among the newest, and in the map of all.
#[test]
fn any_of_many_files_can_be_forgotten() {
    let rig = rig();
    let make = |number: u64| {
        let file = rig.large(&number.to_string());
        rig.rm(&number.to_string());
        file.ino
    };
    let inodes: Vec<InodeId> = (0..100).map(make).collect();
    let odd = |number: &usize| number % 2 == 1;
    for number in (0..100).filter(odd).rev() {
        assert!(rig.shard.forget_removed(inodes[number]));
    }
    let more: Vec<InodeId> = (100..150).map(make).collect();
    let all = [inodes, more].concat();
    for (number, ino) in all.iter().enumerate() {
        assert_eq!(rig.shard.can_bring_back(*ino), number >= 100 || !odd(&number), "{number}");
    }
    let start = Instant::now();
    let _next = rig.shard.expire_removed(start);
    for ino in all {
        let _was_kept = rig.shard.forget_removed(ino);
    }
    assert_eq!(rig.shard.expire_removed(start + LONG), (false, None));
}

#[test]
fn of_many_files_the_oldest_cannot_be_brought_back() {
    let rig = rig();
    let files: Vec<_> = (0..=limits::REMOVED_FILES)
        .map(|number| {
            let file = rig.file(ROOT, &number.to_string(), 110).handle;
            rig.rm(&number.to_string());
            file
        })
        .collect();
    assert!(!rig.shard.bring_back(files[0].ino).unwrap());
    assert!(rig.shard.bring_back(files[1].ino).unwrap());
    assert!(!rig.shard.expire_removed(Instant::now()).0, "it had no rows of its own");
    let large = rig.large("large");
    rig.rm("large");
    assert!(rig.shard.remember_removed(false));
    assert!(rig.shard.expire_removed(Instant::now()).0);
    assert!(!rig.shard.bring_back(large.ino).unwrap());
    assert!(!rig.shard.bring_back(files[2].ino).unwrap());
}

#[test]
fn a_volume_that_remembers_nothing_brings_nothing_back() {
    let rig = Rig::new();
    let file = rig.small("f", b"bytes");
    rig.rm("f");
    assert!(!rig.shard.has_removed_news());
    assert!(!rig.shard.can_bring_back(file.ino) && !rig.shard.bring_back(file.ino).unwrap());
    rig.shard.remember_removed(true);
    let file = rig.small("g", b"bytes");
    rig.rm("g");
    assert!(rig.shard.remember_removed(false));
    assert!(!rig.shard.bring_back(file.ino).unwrap());
}

/// The removal may be lost with the table: then the file has its name.
#[test]
fn nothing_is_brought_back_after_the_table_was_opened_again() {
    let rig = rig();
    let file = rig.small("f", b"bytes");
    rig.table.persist().unwrap();
    rig.rm("f");
    rig.table.fail_sync();
    assert!(rig.table.persist().is_err());
    assert!(rig.shard.reopen().unwrap());
    assert!(!rig.shard.bring_back(file.ino).unwrap());
    assert_eq!(rig.lookup(ROOT, "f").unwrap().attr.links, 1);
}

#[test]
fn a_file_that_cannot_be_brought_back_stays_removed() {
    let rig = rig();
    let file = rig.small("f", b"bytes");
    rig.rm("f");
    rig.table.fail_at(0, TableError::NoSpace);
    assert!(rig.shard.bring_back(file.ino).is_err());
    assert!(rig.is_gone(file));
    let large = rig.small("large", b"bytes");
    let value = vec![7; limits::XATTR_VALUE_BYTES];
    for number in 0..=limits::REMOVED_XATTR_BYTES / value.len() {
        rig.put_xattr(large, format!("user.{number}").as_bytes(), &value);
    }
    rig.rm("large");
    assert_eq!(rig.shard.bring_back(large.ino).unwrap_err().code, Code::TooBig);
    assert!(rig.is_gone(large));
}

/// More extended attributes than are deleted with the name.
#[test]
fn many_extended_attributes_come_back() {
    let rig = rig();
    let file = rig.small("f", b"bytes");
    for number in 0..limits::LOCK_ROWS / 8 + 1 {
        rig.put_xattr(file, format!("user.{number:04}").as_bytes(), b"value");
    }
    rig.put_xattr(file, ACL_ACCESS, &access_list());
    let listed = rig.shard.list_xattr(&CALLER, file).unwrap();
    rig.rm("f");
    assert!(rig.shard.bring_back(file.ino).unwrap());
    assert_eq!(rig.shard.list_xattr(&CALLER, file).unwrap(), listed);
    assert_eq!(rig.shard.get_xattr(file, b"user.0512").unwrap(), b"value");
    assert_eq!(rig.shard.get_xattr(file, ACL_ACCESS).unwrap(), access_list());
    assert!(rig.shard.remember_removed(false));
    assert!(rig.shard.remove_unnamed(file.ino).unwrap().is_some());
    rig.shard.delete_orphan_rows(&[file.ino]).unwrap();
    assert_eq!(rig.row_keys(), without_files());
}
