//! The index of texts by itself: odd texts, many hits, and what is skipped.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::path::Path;

use pelago_folder::Folder;
use pelago_index::{Covered, Error, Origin, TextHit, Texts};
use pelago_wire::limits::INDEX_TEXT_BYTES;
use pelago_wire::{Handle, InodeId, NameHash, Time};

const COVERED: Covered = Covered {
    origin: Origin { volume: [7; 16], commit: 1 },
    epoch: 1,
    sequence: 2,
    as_of: Time { seconds: 3, nanos: 4 },
    is_complete: false,
};

/// Returns an open folder.
fn at(folder: &Path) -> Folder {
    Folder::open(folder).unwrap()
}

fn handle(ino: u64) -> Handle {
    Handle::at(InodeId::from_raw(ino), InodeId::from_raw(1), NameHash(ino))
}

fn search(texts: &Texts, words: &str, at_most: usize) -> Vec<TextHit> {
    texts.search(&pelago_find::words(words).collect::<Vec<_>>(), at_most).unwrap()
}

fn hit(ino: u64, frequencies: &[u32], length: u32) -> TextHit {
    TextHit { handle: handle(ino), frequencies: frequencies.to_vec(), length }
}

#[test]
fn odd_texts_are_found_by_their_words() {
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::open(&at(folder.path())).unwrap();
    let long = "x".repeat(1 << 20);
    let odd = format!("{long} {long} Straße\0\u{1}\u{202e}x\r\n\u{feff}ÉCOLE");
    texts.replace(handle(1), 7, &odd).unwrap();
    texts.replace(handle(2), 8, "").unwrap();
    texts.replace(handle(3), 9, "-- \u{1}\u{7f} --").unwrap();
    texts.commit(&COVERED).unwrap();
    assert_eq!(search(&texts, &long, 9), [hit(1, &[2], 5)]);
    assert_eq!(search(&texts, "école STRASSE", 9), []);
    assert_eq!(search(&texts, "école straße x école", 9), [hit(1, &[1, 1, 1, 1], 5)]);
    assert_eq!(search(&texts, &format!("{long}x"), 9), []);
    assert_eq!(search(&texts, "", 9), []);
    let versions = [1, 2, 3, 4].map(|ino| texts.version(InodeId::from_raw(ino)).unwrap());
    assert_eq!(versions, [Some(7), Some(8), Some(9), None]);
    assert_eq!(texts.covered(), Some(COVERED));
}

#[test]
fn a_text_is_replaced_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::open(&at(folder.path())).unwrap();
    texts.replace(handle(1), 1, "first text").unwrap();
    texts.replace(handle(1), 2, "second text").unwrap();
    assert_eq!(texts.version(InodeId::from_raw(1)).unwrap(), None);
    texts.commit(&COVERED).unwrap();
    assert_eq!(search(&texts, "first", 9), []);
    assert_eq!(search(&texts, "text", 9), [hit(1, &[1], 2)]);
    assert_eq!(texts.version(InodeId::from_raw(1)).unwrap(), Some(2));
    texts.remove(InodeId::from_raw(1)).unwrap();
    texts.commit(&COVERED).unwrap();
    assert_eq!(search(&texts, "text", 9), []);
    assert_eq!(texts.version(InodeId::from_raw(1)).unwrap(), None);
}

#[test]
fn of_many_hits_the_best_ones_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::open(&at(folder.path())).unwrap();
    for ino in 1..=100 {
        let other = "other ".repeat(usize::try_from(ino * 37 % 101).unwrap());
        texts.replace(handle(ino), 1, &format!("coral reef {other}")).unwrap();
        if ino % 30 == 0 {
            texts.commit(&COVERED).unwrap();
        }
    }
    texts.commit(&COVERED).unwrap();
    assert_eq!(search(&texts, "reef coral", 1000).len(), 100);
    let mut lengths: Vec<u32> = (1..=100).map(|ino| ino * 37 % 101 + 2).collect();
    lengths.sort_unstable();
    let best = search(&texts, "reef coral", 7);
    let found: Vec<u32> = best.iter().map(|hit| hit.length).collect();
    assert_eq!(found, lengths[..7]);
    assert_eq!(search(&texts, "reef coral", 0), []);
}

#[test]
fn a_text_that_is_too_long_is_refused_and_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::open(&at(folder.path())).unwrap();
    let text = "a".repeat(INDEX_TEXT_BYTES + 1);
    let error = texts.replace(handle(1), 1, &text).unwrap_err();
    assert!(matches!(error, Error::LongText { bytes } if bytes == text.len()), "{error}");
    texts.replace(handle(1), 1, &text[1..]).unwrap();
    texts.commit(&COVERED).unwrap();
    assert_eq!(search(&texts, &text[1..], 9), [hit(1, &[1], 1)]);
}
