//! The short form of `cargo xtask fsx`: random operations on one file of a mount, each compared
//! with the same one in memory. A mapping stays open over many of them and must show their changes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pelago_random::{Random, bytes_of};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

use crate::harness::mapping::Mapping;
use crate::harness::volume::{Volume, cannot_mount, passthrough_modes};

/// Operations of each test.
const OPERATIONS: usize = 2500;

/// The parameters of a test.
struct Mode {
    seed: u64,
    /// Longest file, bytes.
    longest: usize,
    /// Longest operation, bytes.
    largest: usize,
    is_mapped: bool,
}

#[test]
fn a_file_in_passthrough_holds_what_a_program_put_there() {
    let mode = Mode { seed: 1, longest: 262_144, largest: 16_384, is_mapped: true };
    exercise("always", &mode);
}

#[test]
fn a_mapped_file_holds_what_a_program_put_there() {
    let mode = Mode { seed: 2, longest: 262_144, largest: 16_384, is_mapped: true };
    exercise("never", &mode);
}

#[test]
fn a_file_without_mappings_holds_what_a_program_put_there() {
    let mode = Mode { seed: 3, longest: 1_048_576, largest: 131_072, is_mapped: false };
    exercise("never", &mode);
}

/// The size crosses the limit of inline files in both directions.
#[test]
fn a_small_file_holds_what_a_program_put_there() {
    let mode = Mode { seed: 4, longest: 6000, largest: 1500, is_mapped: true };
    exercise("never", &mode);
}

/// The volume chooses the data path itself.
#[test]
fn a_file_that_grows_holds_what_a_program_put_there() {
    let mode = Mode { seed: 5, longest: 4_194_304, largest: 262_144, is_mapped: true };
    exercise("auto", &mode);
}

fn exercise(passthrough: &str, mode: &Mode) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    for passthrough in passthrough_modes(&[passthrough]) {
        let volume = Volume::with_passthrough(&passthrough);
        let mut exerciser = Exerciser::new(&volume.files(), mode);
        for operation in 0..OPERATIONS {
            exerciser.step(operation);
        }
        drop(exerciser);
        volume.finish();
    }
}

/// A file and its expected bytes.
struct Exerciser<'a> {
    mode: &'a Mode,
    path: PathBuf,
    other: File,
    file: File,
    mapping: Option<Mapping>,
    bytes: Vec<u8>,
    random: Random,
}

impl<'a> Exerciser<'a> {
    fn new(folder: &Path, mode: &'a Mode) -> Self {
        let path = folder.join("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let other = File::create_new(folder.join("other")).unwrap();
        let random = Random::new(mode.seed);
        Self { mode, path, other, file, mapping: None, bytes: Vec::new(), random }
    }

    /// Performs one operation and compares the size.
    fn step(&mut self, operation: usize) {
        let what = self.random.below(100);
        match what {
            0..25 => self.write(operation),
            25..45 => self.read(operation),
            45..55 => self.store(operation),
            55..65 => self.load(operation),
            65..73 => self.truncate(),
            73..79 => self.free(),
            79..85 => self.reserve(),
            85..91 => self.copy(),
            91..94 => self.file.sync_data().unwrap(),
            94..97 => self.reopen(),
            _ => self.mapping = None,
        }
        let found = self.file.metadata().unwrap().len();
        assert_eq!(found, self.bytes.len() as u64, "size after operation {operation}: {what}");
    }

    fn write(&mut self, operation: usize) {
        let (at, length) = self.range(self.mode.longest);
        let new = letters(operation as u64, length);
        self.file.write_all_at(&new, at as u64).unwrap();
        self.grow(at + length);
        self.bytes[at..at + length].copy_from_slice(&new);
    }

    fn read(&mut self, operation: usize) {
        let (at, length) = self.range(self.bytes.len());
        let mut found = vec![0; length];
        self.file.read_exact_at(&mut found, at as u64).unwrap();
        self.compare(&found, at, operation, "read");
    }

    /// Stores through the mapping, and sometimes calls `msync`.
    fn store(&mut self, operation: usize) {
        // At most the capacity of a pipe.
        let (at, length) = self.range(self.bytes.len());
        let length = length.min(4096);
        if length == 0 || !self.map() {
            return;
        }
        let new = letters(operation as u64, length);
        let mapping = self.mapping.as_mut().unwrap();
        mapping.put(at, str::from_utf8(&new).unwrap());
        if self.random.chance(20) {
            mapping.sync();
        }
        self.bytes[at..at + length].copy_from_slice(&new);
    }

    fn load(&mut self, operation: usize) {
        let (at, length) = self.range(self.bytes.len());
        let length = length.min(4096);
        if length == 0 || !self.map() {
            return;
        }
        let found = self.mapping.as_mut().unwrap().get(at, length);
        self.compare(found.as_bytes(), at, operation, "load");
    }

    fn truncate(&mut self) {
        let size = self.random.index(self.mode.longest + 1);
        self.file.set_len(size as u64).unwrap();
        self.bytes.resize(size, 0);
    }

    /// Punches a hole.
    fn free(&mut self) {
        let (at, length) = self.range(self.bytes.len());
        if length == 0 {
            return;
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, hole, at as u64, length as u64).unwrap();
        self.bytes[at..at + length].fill(0);
    }

    /// Reserves space; new bytes are zero.
    fn reserve(&mut self) {
        let (at, length) = self.range(self.mode.longest);
        fallocate(&self.file, FallocateFlags::empty(), at as u64, length as u64).unwrap();
        self.grow(at + length);
    }

    /// Copies within the file, or to the other one, which is not compared.
    fn copy(&mut self) {
        let (from, length) = self.range(self.bytes.len());
        let to = self.random.index(self.mode.longest - length);
        if length == 0 {
            return;
        }
        let is_apart = from + length <= to || to + length <= from;
        let target = if is_apart { &self.file } else { &self.other };
        let mut from_at = from as u64;
        let mut to_at = to as u64;
        while from_at < (from + length) as u64 {
            let left = from + length - usize::try_from(from_at).unwrap();
            let source = &self.file;
            let copied =
                copy_file_range(source, Some(&mut from_at), target, Some(&mut to_at), left);
            assert!(copied.unwrap() > 0, "nothing copied, {left} bytes left");
        }
        if is_apart {
            self.grow(to + length);
            self.bytes.copy_within(from..from + length, to);
        }
    }

    /// Reopens the file; the mapping may stay.
    fn reopen(&mut self) {
        self.file = File::options().read(true).write(true).open(&self.path).unwrap();
    }

    /// Returns whether there is a mapping now. It covers the longest size of the file.
    fn map(&mut self) -> bool {
        if !self.mode.is_mapped || Mapping::cannot().is_some() {
            return false;
        }
        let path = &self.path;
        let longest = self.mode.longest;
        self.mapping.get_or_insert_with(|| Mapping::of(path, longest));
        true
    }

    /// Returns a range of at least one byte, unless `end` is 0.
    fn range(&mut self, end: usize) -> (usize, usize) {
        let at = self.random.index(end);
        let most = self.mode.largest.min(end - at);
        (at, if most == 0 { 0 } else { 1 + self.random.index(most) })
    }

    fn grow(&mut self, end: usize) {
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
    }

    fn compare(&self, found: &[u8], at: usize, operation: usize, how: &str) {
        let expected = &self.bytes[at..at + found.len()];
        let wrong = found.iter().zip(expected).position(|(one, other)| one != other);
        if let Some(wrong) = wrong {
            let is = found[wrong];
            let should = expected[wrong];
            panic!("{how} {operation} at {}: {is:#x} and not {should:#x}", at + wrong);
        }
    }
}

/// Returns text without NUL and line ends, which the mapping's program can receive.
fn letters(seed: u64, length: usize) -> Vec<u8> {
    bytes_of(seed, length).into_iter().map(|byte| b'a' + byte % 26).collect()
}
