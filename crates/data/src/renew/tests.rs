//! Two servers of a shared store, of which the first was taken for dead and goes on.

use pelago_store::clock;
use pelago_wire::{Entry, SetAttr};

use crate::blocking::{MayBlock, OpError};
use crate::open_key::OpenKey;
use crate::testing::{READ, READ_WRITE, Rig, pattern};
use crate::write::Write;

const LARGE: usize = 100_000;

/// A file of a first owner, which is open there, and the next owner. The bytes are safe.
fn taken_over() -> (Rig, Rig, Entry, OpenKey) {
    let old = Rig::shared();
    let (entry, open) = old.create("f");
    old.write(open, 0, &pattern(LARGE)).unwrap();
    old.fsync(open).unwrap();
    old.commit_all();
    let new = old.next_owner();
    (old, new, entry, open)
}

fn bytes_of(rig: &Rig, entry: Entry) -> Vec<u8> {
    let open = rig.open(entry.handle, READ).unwrap();
    let bytes = rig.read(open, 0, 2 * LARGE as u32).unwrap();
    rig.close(open);
    bytes
}

#[test]
fn what_the_old_owner_writes_late_is_not_in_a_file_that_the_new_one_has_changed() {
    let (old, new, entry, late) = taken_over();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    new.write(open, 10, b"new").unwrap();
    let mut expected = pattern(LARGE);
    expected[10..13].copy_from_slice(b"new");
    old.write(late, 0, &[9; LARGE]).unwrap();
    assert_eq!(bytes_of(&new, entry), expected);
    new.close(open);
    assert_eq!(bytes_of(&new, entry), expected);
    new.commit_all();
    assert_eq!(bytes_of(&new.next_owner(), entry), expected, "the copy was safe before its row");
}

/// Before the row is safe, the next owner would look for the old content file.
#[test]
fn the_old_content_file_is_removed_once_the_new_one_is_safe() {
    let (_old, new, entry, _late) = taken_over();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    new.write(open, 0, b"new").unwrap();
    assert_eq!(new.content_files(), 2);
    assert_eq!(bytes_of(&new.next_owner(), entry), pattern(LARGE), "nothing was safe yet");
    new.commit_all();
    assert_eq!(new.content_files(), 1);
}

/// The old owner was stopped after it had taken the row down, and before it wrote.
#[test]
fn the_next_owner_knows_each_file_that_this_one_may_write() {
    let old = Rig::shared();
    let entry = old.file("f", &pattern(LARGE));
    old.files.write_back().unwrap();
    old.commit_all();
    assert!(!old.has_writing_row(entry.handle));
    let late = old.open(entry.handle, READ_WRITE).unwrap();
    old.write(late, 0, b"old").unwrap();
    let new = old.next_owner();
    assert!(new.has_writing_row(entry.handle), "the row is safe before the first byte is written");
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    new.write(open, 5, b"new").unwrap();
    old.write(late, 0, &[9; LARGE]).unwrap();
    let bytes = bytes_of(&new, entry);
    assert_eq!(bytes[..8], *b"old\x03\x04new");
    assert_eq!(bytes[8..], pattern(LARGE)[8..]);
}

#[test]
fn two_owners_make_one_file_and_neither_has_the_bytes_of_the_other() {
    let old = Rig::shared();
    let (entry, late) = old.create("f");
    old.commit_all();
    let new = old.next_owner();
    old.write(late, 0, &[1; LARGE]).unwrap();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    new.write(open, 0, &[2; LARGE]).unwrap();
    assert_eq!(new.content_files(), 2);
    old.write(late, 0, &[3; LARGE]).unwrap();
    assert_eq!(bytes_of(&new, entry), [2; LARGE]);
}

#[test]
fn a_file_that_is_emptied_is_not_copied() {
    let (old, new, entry, late) = taken_over();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    let now = clock::now();
    new.files.set_attr(entry.handle, Some(open), &set, now.into(), MayBlock::Yes).unwrap();
    old.write(late, 0, &[9; LARGE]).unwrap();
    assert_eq!(bytes_of(&new, entry), b"");
    new.close(open);
    new.commit_all();
    assert_eq!(bytes_of(&new, entry), b"");
}

/// The old owner was in a write after the end of the file, which no client repeats.
#[test]
fn what_the_old_owner_adds_late_is_not_between_the_bytes_of_others() {
    let (old, new, entry, late) = taken_over();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    assert_eq!(new.read(open, 0, 3).unwrap(), pattern(3));
    old.write(late, LARGE as u64, &[9; 5000]).unwrap();
    new.write(open, LARGE as u64, b"new").unwrap();
    assert_eq!(bytes_of(&new, entry), [&pattern(LARGE)[..], b"new"].concat());
}

/// A cut in place would remove bytes that the next owner has already answered.
#[test]
fn a_late_cut_of_the_old_owner_takes_nothing_away() {
    for size in [0, 5, LARGE as u64 / 2] {
        let (old, new, entry, late) = taken_over();
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let now = clock::now();
        old.files.set_attr(entry.handle, Some(late), &set, now.into(), MayBlock::Yes).unwrap();
        assert_eq!(bytes_of(&new, entry), pattern(LARGE));
        let open = new.open(entry.handle, READ_WRITE).unwrap();
        new.write(open, 0, b"new").unwrap();
        assert_eq!(bytes_of(&new, entry)[3..], pattern(LARGE)[3..]);
        assert_eq!(bytes_of(&old, entry), pattern(LARGE)[..size as usize]);
    }
}

#[test]
fn a_file_that_is_cut_off_keeps_its_first_bytes() {
    let rig = Rig::shared();
    let (entry, open) = rig.create("f");
    rig.write(open, 0, &pattern(LARGE)).unwrap();
    let reader = rig.open(entry.handle, READ).unwrap();
    for size in [90_000, 70_001, 1] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let now = clock::now();
        rig.files.set_attr(entry.handle, Some(open), &set, now.into(), MayBlock::Yes).unwrap();
        assert_eq!(rig.read(reader, 0, LARGE as u32).unwrap(), pattern(LARGE)[..size as usize]);
        assert_eq!(rig.shard.attr(entry.handle).unwrap().size, size);
    }
    rig.commit_all();
    assert_eq!(rig.content_files(), 1);
    assert_eq!(bytes_of(&rig.next_owner(), entry), pattern(1));
}

/// The owner after the next one must know it too, however often the bytes were synced meanwhile.
#[test]
fn a_file_stays_copy_on_write_until_it_changes() {
    let (old, new, entry, late) = taken_over();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    assert_eq!(new.read(open, 0, 3).unwrap(), pattern(3));
    new.fsync(open).unwrap();
    new.close(open);
    assert_eq!(new.files.write_back(), Ok(0));
    new.commit_all();
    assert_eq!(new.files.inodes_copy_on_write(), [entry.handle.ino]);
    let third = new.next_owner();
    let open = third.open(entry.handle, READ_WRITE).unwrap();
    third.write(open, 0, b"third").unwrap();
    old.write(late, 0, &[9; LARGE]).unwrap();
    assert_eq!(bytes_of(&third, entry)[..6], *b"third\x05");
    assert!(third.files.inodes_copy_on_write().is_empty());
    third.close(open);
    assert_eq!(third.files.write_back(), Ok(1));
}

/// A copy, or a wait for the journal, would hold up the connections of all clients.
#[test]
fn a_caller_that_may_not_block_changes_no_content_file() {
    let (_old, new, entry, _late) = taken_over();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    let write =
        Write { offset: 0, append: false, once: None, bytes: b"new", kill_privileges: false };
    assert_eq!(new.files.write(open, write, MayBlock::No), Err(OpError::WouldBlock));
    let set = SetAttr { size: Some(5), ..SetAttr::default() };
    let now = clock::now();
    let cut = new.files.set_attr(entry.handle, Some(open), &set, now.into(), MayBlock::No);
    assert!(matches!(cut, Err(OpError::WouldBlock)), "{cut:?}");
    assert_eq!(new.content_files(), 1, "nothing was copied");
    assert_eq!(bytes_of(&new, entry), pattern(LARGE));
}

#[test]
fn the_copy_of_a_sparse_file_has_its_holes() {
    let old = Rig::shared();
    let (entry, open) = old.create("f");
    old.write(open, 0, &pattern(LARGE)).unwrap();
    old.write(open, 64 << 20, &pattern(LARGE)).unwrap();
    old.fsync(open).unwrap();
    old.commit_all();
    let new = old.next_owner();
    let open = new.open(entry.handle, READ_WRITE).unwrap();
    new.write(open, 0, b"x").unwrap();
    assert_eq!(new.read(open, 64 << 20, LARGE as u32).unwrap(), pattern(LARGE));
    new.close(open);
    let attr = new.shard.attr(entry.handle).unwrap();
    assert_eq!(attr.size, (64 << 20) + LARGE as u64);
    assert!(attr.blocks * 512 < 1 << 20, "{} blocks", attr.blocks);
}
