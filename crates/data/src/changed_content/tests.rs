use std::collections::BTreeMap;

use pelago_store::clock;
use pelago_wire::{AllocateMode, Handle, SetAttr, limits};
use proptest::prelude::*;

use super::*;
use crate::blocking::MayBlock;
use crate::open_key::OpenKey;
use crate::range_ops::{Allocate, Copy};
use crate::testing::{Rig, pattern};

/// More than is kept in the table.
const LARGE: usize = 100_000;

/// The files of a mirror.
type Image = BTreeMap<ContentKey, Vec<u8>>;

/// Reads one piece of a file of the cut into the image. Returns whether there was one.
fn read_one(reader: &CutReader<'_>, image: &mut Image) -> Result<bool, CutError> {
    let file = image.entry(reader.key).or_default();
    file.resize(reader.size() as usize, 0);
    let Some(piece) = reader.next_piece()? else { return Ok(false) };
    let range = piece.range();
    let into = &mut file[range.start as usize..range.end as usize];
    match piece {
        ContentPiece::Bytes { bytes, .. } => into.copy_from_slice(&bytes),
        ContentPiece::Hole { .. } => into.fill(0),
    }
    Ok(true)
}

/// Reads the whole cut into the image.
fn read_cut(rig: &Rig, image: &mut Image) -> Result<(), CutError> {
    let changes = rig.files.changes();
    for key in changes.files_of_cut() {
        if let Some(reader) = changes.open(key, &rig.files.disk.content)? {
            while read_one(&reader, image)? {}
        }
    }
    changes.finish_cut();
    Ok(())
}

fn key_of(rig: &Rig, handle: Handle) -> ContentKey {
    let generation = rig.shard.stored_node(handle).unwrap().rnode.generation.unwrap();
    (handle.ino, generation)
}

fn truncate(rig: &Rig, open: OpenKey, size: u64) {
    let handle = rig.files.handle_of(open).unwrap();
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    rig.files.set_attr(handle, Some(open), &set, clock::now().into(), MayBlock::Yes).unwrap();
}

#[test]
fn a_volume_without_a_mirror_collects_nothing() {
    let rig = Rig::new();
    rig.file("f", &pattern(LARGE));
    assert_eq!(rig.files.changes().risk(), ContentRisk::default());
    rig.files.changes().cut();
    assert_eq!(rig.files.changes().files_of_cut(), []);
}

#[test]
fn what_changes_after_a_cut_is_read_as_it_was() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let (entry, open) = rig.create("f");
    let old = pattern(LARGE);
    rig.write(open, 0, &old).unwrap();
    let key = key_of(&rig, entry.handle);
    rig.files.changes().cut();
    rig.write(open, 10_000, &[7; 50_000]).unwrap();
    truncate(&rig, open, 20_000);
    rig.write(open, 90_000, &[8; 20_000]).unwrap();
    let mut image = Image::new();
    read_cut(&rig, &mut image).unwrap();
    assert!(image[&key] == old, "the bytes at the cut");
    rig.files.changes().cut();
    read_cut(&rig, &mut image).unwrap();
    let mut new = old[..10_000].to_vec();
    new.extend_from_slice(&[7; 10_000]);
    new.resize(90_000, 0);
    new.extend_from_slice(&[8; 20_000]);
    assert!(image[&key] == new, "and those of the next");
    rig.close(open);
}

/// Execution 5 and 4: a removed or replaced file is read by the descriptor that was handed over.
#[test]
fn a_file_that_loses_its_name_is_read_all_the_same() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let old = pattern(LARGE);
    let entry = rig.file("f", &old);
    let key = key_of(&rig, entry.handle);
    rig.files.changes().cut();
    rig.files.content_goes(key.0, key.1);
    rig.remove_content(entry.handle);
    let mut image = Image::new();
    read_cut(&rig, &mut image).unwrap();
    assert!(image[&key] == old);
}

/// A content file that is empty at the cut is in the group too: its row says that there is one.
#[test]
fn an_empty_file_that_loses_its_name_is_found_all_the_same() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let (entry, open) = rig.create("f");
    truncate(&rig, open, LARGE as u64);
    truncate(&rig, open, 0);
    let key = key_of(&rig, entry.handle);
    rig.files.changes().cut();
    rig.close(open);
    rig.files.content_goes(key.0, key.1);
    rig.remove_content(entry.handle);
    let mut image = Image::new();
    read_cut(&rig, &mut image).unwrap();
    assert_eq!(image[&key], b"");
}

/// A file that was removed before the cut has no bytes to read, and that is no error.
#[test]
fn a_file_that_was_gone_before_the_cut_is_left_out() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let entry = rig.file("f", &pattern(LARGE));
    let key = key_of(&rig, entry.handle);
    rig.remove_content(entry.handle);
    rig.files.changes().cut();
    assert_eq!(rig.files.changes().files_of_cut(), [key]);
    let mut image = Image::new();
    read_cut(&rig, &mut image).unwrap();
    assert!(image.is_empty());
}

#[test]
fn a_cut_of_which_much_changes_is_read_as_it_was() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let (entry, open) = rig.create("f");
    let large = vec![5; limits::MIRROR_KEPT_BYTES + 4096];
    for (number, piece) in large.chunks(1 << 20).enumerate() {
        rig.write(open, (number as u64) << 20, piece).unwrap();
    }
    let key = key_of(&rig, entry.handle);
    rig.files.changes().cut();
    truncate(&rig, open, 1000);
    let mut image = Image::new();
    read_cut(&rig, &mut image).unwrap();
    assert!(image[&key] == large, "beyond the memory too");
    rig.files.changes().cut();
    read_cut(&rig, &mut image).unwrap();
    assert!(image[&key] == large[..1000]);
    rig.close(open);
}

#[test]
fn a_cut_that_takes_too_many_descriptors_is_given_up_and_taken_back() {
    let rig = Rig::with_descriptors(2000);
    rig.files.collect_changes();
    let files = limits::MIRROR_KEPT_FILES + 1;
    let keys: Vec<ContentKey> = (0..files)
        .map(|number| key_of(&rig, rig.file(&format!("f{number}"), &pattern(5000)).handle))
        .collect();
    rig.files.changes().cut();
    keys.iter().for_each(|key| rig.files.content_goes(key.0, key.1));
    let mut image = Image::new();
    assert!(matches!(read_cut(&rig, &mut image), Err(CutError::GivenUp)));
    rig.files.changes().take_back();
    rig.files.changes().cut();
    read_cut(&rig, &mut image).unwrap();
    assert_eq!(image.len(), files);
}

/// A truncate, and an emptying, that a cut falls into: the cut has the new size, not zeros.
#[test]
fn a_cut_within_a_truncate_has_no_zeros_where_bytes_were() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let (entry, open) = rig.create("f");
    rig.write(open, 0, &pattern(LARGE)).unwrap();
    let key = key_of(&rig, entry.handle);
    let inode = rig.files.opens.get(open).unwrap().inode;
    let mut guard = rig.files.lock(&inode);
    let changed = 1000..LARGE as u64;
    let content = guard.content_to_write(&changed).unwrap();
    rig.files.changes().note(key, &changed, changed.start);
    rig.files.changes().cut();
    content.truncate(1000).unwrap();
    guard.note_content_changed(&content, &changed).unwrap();
    drop(guard);
    let mut image = Image::new();
    read_cut(&rig, &mut image).unwrap();
    assert!(image[&key] == pattern(LARGE)[..1000]);
    rig.close(open);
}

/// What is removed is known no more, and beyond the limit nothing is.
#[test]
fn what_is_known_takes_bounded_memory() {
    let rig = Rig::with_descriptors(2000);
    rig.files.collect_changes();
    let changes = rig.files.changes();
    for number in 0..100 {
        let entry = rig.file(&format!("f{number}"), &pattern(5000));
        let key = key_of(&rig, entry.handle);
        rig.files.content_removed(key.0, key.1);
    }
    assert_eq!(changes.risk().memory, 0);
    let mut number = 0;
    while !changes.has_more() {
        number += 1;
        changes.note((InodeId::from_raw(number), Generation::FIRST), &(0..10), 10);
    }
    assert!(number > 100_000, "{number}");
    changes.note((InodeId::from_raw(1), Generation::FIRST), &(0..10), 10);
    assert_eq!(changes.risk().memory, 0);
    assert!(changes.any());
    changes.begin();
    assert!(!changes.any() && !changes.has_more());
}

#[test]
fn a_file_with_many_ranges_takes_bounded_memory() {
    let rig = Rig::new();
    rig.files.collect_changes();
    let (_, open) = rig.create("f");
    truncate(&rig, open, 1 << 30);
    for number in 0..3 * FILE_RANGES as u64 {
        rig.write(open, number * 8192, b"x").unwrap();
    }
    let risk = rig.files.changes().risk();
    assert!(risk.memory <= FILE_RANGES * RANGE_MEMORY + FILE_MEMORY, "{risk:?}");
    rig.close(open);
}

#[derive(Debug, Clone)]
enum Act {
    Write { offset: u64, length: usize, byte: u8 },
    Truncate(u64),
    Punch { offset: u64, length: u64 },
    Zero { offset: u64, length: u64 },
    Copy { from: u64, to: u64, length: u64 },
    Cut,
    Read,
    TakeBack,
}

fn act() -> impl Strategy<Value = Act> {
    let at = || 0..LARGE as u64;
    prop_oneof![
        4 => (at(), 1..30_000_usize, any::<u8>())
            .prop_map(|(offset, length, byte)| Act::Write { offset, length, byte }),
        1 => at().prop_map(Act::Truncate),
        1 => (at(), 1..50_000_u64).prop_map(|(offset, length)| Act::Punch { offset, length }),
        1 => (at(), 1..50_000_u64).prop_map(|(offset, length)| Act::Zero { offset, length }),
        1 => (at(), at(), 70_000..90_000_u64)
            .prop_map(|(from, to, length)| Act::Copy { from, to, length }),
        2 => Just(Act::Cut),
        6 => Just(Act::Read),
        1 => Just(Act::TakeBack),
    ]
}

fn allocate(rig: &Rig, open: OpenKey, mode: AllocateMode, offset: u64, length: u64) {
    let range = Allocate { offset, length, mode, kill_privileges: false };
    rig.files.allocate(open, range, MayBlock::Yes).unwrap();
}

fn copy(rig: &Rig, open: OpenKey, from: u64, to: u64, length: u64) {
    let copy = Copy {
        from: open,
        from_offset: from,
        to: open,
        to_offset: to,
        length,
        kill_privileges: false,
    };
    // Ranges that overlap are refused, and change nothing.
    let _refused = rig.files.copy_range(copy, MayBlock::Yes);
}

fn bytes_of(rig: &Rig, open: OpenKey) -> Vec<u8> {
    rig.read(open, 0, 1 << 20).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever programs do between two cuts and while one is read, the image has the state of
    /// each cut.
    #[test]
    fn an_image_has_the_state_of_each_cut(acts in prop::collection::vec(act(), 1..60)) {
        let rig = Rig::new();
        rig.files.collect_changes();
        let (entry, open) = rig.create("f");
        rig.write(open, 0, &pattern(LARGE)).unwrap();
        let key = key_of(&rig, entry.handle);
        let changes = rig.files.changes();
        let content = &rig.files.disk.content;
        let mut image = Image::new();
        let mut at_cut = None;
        let mut reader = None;
        for act in acts.into_iter().chain([Act::Cut]).chain((0..100).map(|_| Act::Read)) {
            match act {
                Act::Write { offset, length, byte } => {
                    rig.write(open, offset, &vec![byte; length]).unwrap();
                }
                Act::Truncate(size) => truncate(&rig, open, size),
                Act::Punch { offset, length } => {
                    allocate(&rig, open, AllocateMode::PunchHole, offset, length);
                }
                Act::Zero { offset, length } => {
                    let mode = AllocateMode::Zero { keep_size: length % 2 == 0 };
                    allocate(&rig, open, mode, offset, length);
                }
                Act::Copy { from, to, length } => copy(&rig, open, from, to, length),
                // The one before is read first.
                Act::Cut if at_cut.is_some() => {}
                Act::Cut => {
                    at_cut = Some(bytes_of(&rig, open));
                    changes.cut();
                    let cut = changes.files_of_cut();
                    reader = match cut.contains(&key) {
                        true => changes.open(key, content).unwrap(),
                        false => None,
                    };
                }
                Act::TakeBack => {
                    at_cut = None;
                    reader = None;
                    changes.take_back();
                }
                Act::Read => {
                    let more = match &reader {
                        Some(reader) => read_one(reader, &mut image).unwrap(),
                        None => false,
                    };
                    if !more && let Some(expected) = at_cut.take() {
                        reader = None;
                        changes.finish_cut();
                        prop_assert!(image[&key] == expected, "the state of the cut");
                    }
                }
            }
        }
        prop_assert!(at_cut.is_none(), "the last cut was read");
        rig.close(open);
    }
}
