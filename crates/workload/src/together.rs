//! One file in several mounts of one volume.
//!
//! [`run`] performs random operations, each through a mount that is chosen at random, one after the
//! other, and compares every read with one expectation. After each operation all mounts must agree
//! about the file's attributes. Files of each mount stay open over many operations of the others,
//! one of them to append.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use pelago_random::{Random, bytes_of};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

/// Operations that an error shows, the last ones before it.
const SHOWN: usize = 24;

/// The bounds of a run, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most bytes of the file, unless an append makes it a little longer.
    pub longest: usize,
    /// The most bytes of one operation.
    pub largest: usize,
}

/// The first failure.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, operation {number}: {what}\nthe last operations:\n{last}")]
pub struct Divergence {
    seed: u64,
    number: u64,
    what: String,
    last: String,
}

/// Performs this number of operations on a new file, which is called `file-SEED` and is removed in
/// the end. The folders are one folder of a volume, in several mounts.
///
/// # Errors
/// The first operation that failed or returned something wrong.
pub fn run(
    roots: &[PathBuf],
    seed: u64,
    operations: u64,
    bounds: Bounds,
) -> Result<(), Divergence> {
    let mut random = Random::new(seed);
    let failed = |number, what, last| Divergence { seed, number, what, last };
    let start = Together::new(roots, seed, bounds);
    let mut file = start.map_err(|what| failed(0, what, String::new()))?;
    for number in 0..operations {
        let result = file.step(&mut random).and_then(|()| file.compare_attributes(&mut random));
        result.map_err(|what| failed(number, what, file.last_operations()))?;
    }
    let end = file.compare_all().and_then(|()| remove(&file.path(0)));
    end.map_err(|what| failed(operations, what, file.last_operations()))
}

/// The file, and its expected bytes and attributes.
struct Together<'a> {
    roots: &'a [PathBuf],
    name: String,
    bounds: Bounds,
    /// Open in each mount.
    files: Vec<File>,
    /// Open in each mount to append.
    logs: Vec<File>,
    bytes: Vec<u8>,
    last: VecDeque<String>,
}

type Step = Result<(), String>;

impl<'a> Together<'a> {
    fn new(roots: &'a [PathBuf], seed: u64, bounds: Bounds) -> Result<Self, String> {
        let name = format!("file-{seed}");
        let path = roots.first().ok_or("there is no mount")?.join(&name);
        File::create_new(path).map_err(said("create"))?;
        let mut together = Self {
            roots,
            name,
            bounds,
            files: Vec::new(),
            logs: Vec::new(),
            bytes: Vec::new(),
            last: VecDeque::new(),
        };
        for root in roots {
            let (file, log) = together.open(root)?;
            together.files.push(file);
            together.logs.push(log);
        }
        Ok(together)
    }

    fn open(&self, root: &Path) -> Result<(File, File), String> {
        let path = root.join(&self.name);
        let file = File::options().read(true).write(true).open(&path).map_err(said("open"))?;
        let log = File::options().append(true).open(&path).map_err(said("open to append"))?;
        Ok((file, log))
    }

    fn path(&self, mount: usize) -> PathBuf {
        self.roots[mount].join(&self.name)
    }

    /// Performs one operation.
    fn step(&mut self, random: &mut Random) -> Step {
        let mount = random.index(self.roots.len());
        match random.below(100) {
            0..25 => self.write(mount, random),
            25..33 => self.append(mount, random),
            33..53 => self.read(mount, random),
            53..57 => self.read_whole(mount),
            57..66 => self.truncate(mount, random),
            66..73 => self.zero(mount, random),
            73..79 => self.reserve(mount, random),
            79..85 => self.copy(mount, random),
            85..88 => self.sync(mount, random),
            88..95 => self.reopen(mount),
            95..99 => self.rename(mount),
            _ => self.empty(mount),
        }
    }

    fn write(&mut self, mount: usize, random: &mut Random) -> Step {
        let (at, length) = self.range(self.bounds.longest, random);
        self.note(format!("{mount}: write {length} at {at}"));
        let bytes = bytes_of(random.bits(), length);
        self.files[mount].write_all_at(&bytes, at as u64).map_err(said("write"))?;
        self.grow(at + length);
        self.bytes[at..at + length].copy_from_slice(&bytes);
        Ok(())
    }

    fn append(&mut self, mount: usize, random: &mut Random) -> Step {
        let length = 1 + random.index(self.bounds.largest.min(10_000));
        if self.bytes.len() > self.bounds.longest {
            return Ok(());
        }
        self.note(format!("{mount}: append {length}"));
        let bytes = bytes_of(random.bits(), length);
        self.logs[mount].write_all(&bytes).map_err(said("append"))?;
        self.bytes.extend(bytes);
        Ok(())
    }

    /// Reads, also after the end.
    fn read(&mut self, mount: usize, random: &mut Random) -> Step {
        let (at, length) = self.range(self.bounds.longest, random);
        self.note(format!("{mount}: read {length} at {at}"));
        let mut found = vec![0; length];
        let mut done = 0;
        while done < length {
            let read = self.files[mount].read_at(&mut found[done..], (at + done) as u64);
            match read.map_err(said("read"))? {
                0 => break,
                more => done += more,
            }
        }
        found.truncate(done);
        let from = at.min(self.bytes.len());
        let expected = &self.bytes[from..(at + length).clamp(from, self.bytes.len())];
        compare(&found, expected, at)
    }

    fn read_whole(&mut self, mount: usize) -> Step {
        self.note(format!("{mount}: open and read all"));
        let found = fs::read(self.path(mount)).map_err(said("read all"))?;
        compare(&found, &self.bytes, 0)
    }

    /// Sets the size by an open file, or by the path.
    fn truncate(&mut self, mount: usize, random: &mut Random) -> Step {
        let size = random.index(self.bounds.longest + 1);
        let by_path = random.chance(50);
        self.note(format!("{mount}: truncate to {size}, by path: {by_path}"));
        let opened;
        let file = if by_path {
            opened = File::options().write(true).open(self.path(mount)).map_err(said("open"))?;
            &opened
        } else {
            &self.files[mount]
        };
        file.set_len(size as u64).map_err(said("truncate"))?;
        self.bytes.resize(size, 0);
        Ok(())
    }

    /// Punches a hole, or zeroes a range, which may make the file longer.
    fn zero(&mut self, mount: usize, random: &mut Random) -> Step {
        let (at, length) = self.range(self.bounds.longest, random);
        let hole = FallocateFlags::PUNCH_HOLE;
        let keep = FallocateFlags::KEEP_SIZE;
        let flags = match random.below(3) {
            0 => hole | keep,
            1 => FallocateFlags::ZERO_RANGE | keep,
            _ => FallocateFlags::ZERO_RANGE,
        };
        self.note(format!("{mount}: zero {length} at {at}, {flags:?}"));
        let done = fallocate(&self.files[mount], flags, at as u64, length as u64);
        done.map_err(said("zero"))?;
        if !flags.contains(keep) {
            self.grow(at + length);
        }
        let size = self.bytes.len();
        self.bytes[at.min(size)..(at + length).min(size)].fill(0);
        Ok(())
    }

    fn reserve(&mut self, mount: usize, random: &mut Random) -> Step {
        let (at, length) = self.range(self.bounds.longest, random);
        let keeps = random.chance(50);
        self.note(format!("{mount}: reserve {length} at {at}, keep the size: {keeps}"));
        let flags = if keeps { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let done = fallocate(&self.files[mount], flags, at as u64, length as u64);
        done.map_err(said("reserve"))?;
        if !keeps {
            self.grow(at + length);
        }
        Ok(())
    }

    /// Copies between two ranges of the file that do not overlap.
    fn copy(&mut self, mount: usize, random: &mut Random) -> Step {
        let (from, length) = self.range(self.bytes.len(), random);
        let to = random.index(self.bounds.longest);
        if length == 0 || (from < to + length && to < from + length) {
            return Ok(());
        }
        self.note(format!("{mount}: copy {length} from {from} to {to}"));
        let file = &self.files[mount];
        // As `cp` does. Without it a copy ends where the kernel of this mount saw the end last.
        file.metadata().map_err(said("look"))?;
        let mut from_at = from as u64;
        let mut to_at = to as u64;
        while from_at < (from + length) as u64 {
            let left = from + length - from_at as usize;
            let copied = copy_file_range(file, Some(&mut from_at), file, Some(&mut to_at), left);
            if copied.map_err(said("copy"))? == 0 {
                return Err(format!("nothing copied, {left} bytes left"));
            }
        }
        self.grow(to + length);
        self.bytes.copy_within(from..from + length, to);
        Ok(())
    }

    fn sync(&mut self, mount: usize, random: &mut Random) -> Step {
        self.note(format!("{mount}: sync"));
        let file = &self.files[mount];
        let synced = if random.chance(50) { file.sync_all() } else { file.sync_data() };
        synced.map_err(said("sync"))
    }

    /// Closes the files of one mount and opens them again.
    fn reopen(&mut self, mount: usize) -> Step {
        self.note(format!("{mount}: reopen"));
        (self.files[mount], self.logs[mount]) = self.open(&self.roots[mount])?;
        Ok(())
    }

    fn rename(&mut self, mount: usize) -> Step {
        let name = match self.name.strip_suffix("-moved") {
            Some(name) => name.to_owned(),
            None => format!("{}-moved", self.name),
        };
        self.note(format!("{mount}: rename to {name}"));
        let root = &self.roots[mount];
        fs::rename(root.join(&self.name), root.join(&name)).map_err(said("rename"))?;
        if let Some(root) = self.roots.iter().find(|root| root.join(&self.name).exists()) {
            return Err(format!("{} still has the old name", root.display()));
        }
        self.name = name;
        Ok(())
    }

    /// Empties the file by opening it.
    fn empty(&mut self, mount: usize) -> Step {
        self.note(format!("{mount}: open with O_TRUNC"));
        File::create(self.path(mount)).map_err(said("open with O_TRUNC"))?;
        self.bytes.clear();
        Ok(())
    }

    /// Asserts that each mount has the size, and the same attributes, by the open file; and one of
    /// them by the name.
    fn compare_attributes(&self, random: &mut Random) -> Step {
        let by_name = random.index(self.roots.len());
        let named = fs::metadata(self.path(by_name)).map_err(said("stat"))?;
        let expected = attributes(&named);
        self.compare_size(&named).map_err(|wrong| format!("{by_name}: by name {wrong}"))?;
        for (mount, file) in self.files.iter().enumerate() {
            let found = file.metadata().map_err(said("fstat"))?;
            self.compare_size(&found).map_err(|wrong| format!("{mount}: {wrong}"))?;
            if attributes(&found) != expected {
                let found = attributes(&found);
                return Err(format!("{mount}: {found:?}, and {expected:?} by name in {by_name}"));
            }
        }
        Ok(())
    }

    fn compare_size(&self, found: &Metadata) -> Step {
        let is = found.len();
        let should = self.bytes.len() as u64;
        if is == should { Ok(()) } else { Err(format!("the size is {is}, not {should}")) }
    }

    fn compare_all(&mut self) -> Step {
        (0..self.roots.len()).try_for_each(|mount| self.read_whole(mount))
    }

    fn note(&mut self, operation: String) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(operation);
    }

    fn last_operations(&self) -> String {
        let lines: Vec<&str> = self.last.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    fn grow(&mut self, end: usize) {
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
    }

    /// Returns a range before `end`, of at least one byte unless `end` is 0.
    fn range(&self, end: usize, random: &mut Random) -> (usize, usize) {
        let at = random.index(end);
        let most = self.bounds.largest.min(end - at);
        (at, if most == 0 { 0 } else { 1 + random.index(most) })
    }
}

/// Inode number, names, mode, and the times of the last changes in nanoseconds.
fn attributes(found: &Metadata) -> (u64, u64, u32, [(i64, i64); 2]) {
    let times = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
    (found.ino(), found.nlink(), found.mode(), times)
}

fn compare(found: &[u8], expected: &[u8], at: usize) -> Step {
    if found.len() != expected.len() {
        return Err(format!("{} bytes at {at}, not {}", found.len(), expected.len()));
    }
    let wrong = found.iter().zip(expected).position(|(one, other)| one != other);
    wrong.map_or(Ok(()), |wrong| {
        let is = found[wrong];
        let should = expected[wrong];
        Err(format!("byte {} is {is:#x}, not {should:#x}", at + wrong))
    })
}

fn remove(path: &Path) -> Step {
    fs::remove_file(path).map_err(said("remove"))
}

fn said<E: Into<io::Error>>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {}", error.into())
}
