//! Copies of the other office's files on the disk of this one.

use std::fs;
use std::path::PathBuf;

use crate::harness::program::until;
use crate::two_offices::office::Offices;

/// Blocks of 256 KiB of the file.
const BLOCKS: u64 = 64;

impl Offices {
    /// Returns the only map in the folder of the copies, with its bytes.
    fn map(&self) -> Option<(PathBuf, u64)> {
        let found = fs::read_dir(self.berlin.home.join("berlin/copies")).ok()?;
        let mut maps = found.filter_map(|entry| {
            let path = entry.ok()?.path();
            let bytes = path.metadata().ok()?.len();
            path.extension().is_some_and(|end| end == "map").then_some((path, bytes))
        });
        maps.next()
    }

    fn sums(&self) -> [String; 2] {
        let first = self.first.types("sha256sum < ~/pelago/files/large").out;
        [first, self.berlin.types("sha256sum < ~/berlin/files/large").out]
    }
}

/// The second reader of an office moves no bytes, also after a restart of the office.
#[test]
fn a_large_file_crosses_the_line_once() {
    let Some(offices) = Offices::new() else { return };
    offices.first.types("head -c 16777216 /dev/urandom > ~/pelago/files/large");
    let [here, there] = offices.sums();
    assert_eq!(here, there);
    assert!(offices.asked_from_there() >= BLOCKS);
    until("all blocks count as copies", || {
        // The head, each block, and the hash at the end.
        offices.map().is_some_and(|(_, bytes)| bytes == 54 + BLOCKS * 24 + 16)
    });
    let listed = offices.berlin.types("pelago site list -V ~/berlin").out;
    assert!(listed.contains("copies of 1 files of others: 16 MiB of at most 8.0 GiB"), "{listed}");
    offices.berlin.types("pelago unmount -V ~/berlin --timeout 100");
    offices.up_there();
    let before = offices.asked_from_there();
    assert_eq!(offices.sums(), [here.clone(), here]);
    let asked = offices.asked_from_there() - before;
    assert!(asked <= 8, "{asked}");
    // A change at the home makes another version.
    let change =
        "printf new | dd of=$HOME/pelago/files/large bs=1 seek=9000000 conv=notrunc 2> /dev/null";
    offices.first.types(change);
    let [here, there] = offices.sums();
    assert_eq!(here, there);
    offices.finish();
}
