//! Random programs. A seed always gives the same program.
//!
//! The generator runs a model of its own, so that most operations are on files that exist, and
//! takes names from a small pool, so that they collide.

use pelago_random::Random;
use pelago_wire::{
    AllocateMode, FileKind, Name, OpenFlags, RenameFlags, SeekFrom, SetTime, Time, Whence,
    XattrFlags,
};

use crate::model::Model;
use crate::op::{At, Op, Patch, Path, Range, SCANS, SLOTS, Subject};
use crate::target::FsTraits;

/// The depth of the tree: a path of names of 255 bytes stays far below 4096 bytes.
const DEPTH: usize = 4;

/// The traits of the generator's own model.
const TRAITS: FsTraits = FsTraits {
    counts_names: true,
    counts_dirs: true,
    strict_times: false,
    xattrs: true,
    unnamed: true,
    keeps_times_of_failures: true,
};

/// Returns the program of this seed, with `steps` operations.
#[must_use]
pub fn program(seed: u64, steps: usize) -> Vec<Op> {
    let mut generator = Generator::new(seed);
    (0..steps).map(|_| generator.next_op()).collect()
}

struct Generator {
    random: Random,
    model: Model,
    names: Vec<Name>,
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut names = pool();
        // A program uses a part of the names only, so that they recur.
        random.shuffle(&mut names);
        names.truncate(6 + random.index(6));
        Self { random, model: Model::new(TRAITS), names }
    }

    fn next_op(&mut self) -> Op {
        let op = self.make_op();
        self.model.apply(&op);
        op
    }

    /// The ranges are the weights; their sum is 113.
    fn make_op(&mut self) -> Op {
        match self.random.below(113) {
            0..=9 => self.create(),
            10..=15 => Op::MakeDir { at: self.new_name(), mode: self.mode() },
            16 => Op::MakeNode { at: self.new_name(), kind: self.kind(), mode: self.mode() },
            17..=18 => Op::Symlink { at: self.new_name(), target: self.target() },
            19..=22 => Op::Link { from: self.path(), at: self.new_name() },
            23..=27 => Op::Unlink { at: self.name() },
            28..=30 => Op::RemoveDir { at: self.name() },
            31..=38 => self.rename(),
            39..=44 => {
                let path = self.path_of(FileKind::Regular);
                Op::Open { slot: self.slot(), path, flags: self.open_flags(true) }
            }
            45..=46 => Op::Flush { slot: self.used_slot() },
            47..=51 => Op::Close { slot: self.used_slot() },
            52..=64 => self.write(),
            65..=69 => self.read(),
            70..=71 => Op::Fsync { slot: self.used_slot(), data_only: self.random.chance(50) },
            72 => Op::FsyncDir { dir: self.path_of(FileKind::Directory) },
            73..=77 => Op::Truncate { node: self.file(), size: self.offset() },
            78..=79 => Op::ChangeMode { node: self.subject(), mode: self.mode() },
            80..=81 => self.set_times(),
            82 => Op::ReadLink { path: self.path_of(FileKind::Symlink) },
            83..=84 => self.peek(),
            85 => Op::Parent { dir: self.path_of(FileKind::Directory) },
            86 => Op::List { dir: self.path_of(FileKind::Directory) },
            87 => {
                let dir = self.path_of(FileKind::Directory);
                Op::ScanStart { scan: self.random.index(SCANS), dir }
            }
            88..=91 => {
                let entries = 1 + self.random.below(4) as u32;
                Op::ScanNext { scan: self.random.index(SCANS), entries }
            }
            92..=98 => self.xattr(),
            99 => Op::StatFs,
            100..=102 => self.allocate(),
            103..=104 => self.seek(),
            105..=107 => self.copy(),
            108..=109 => self.create_unnamed(),
            _ => Op::LinkOpen { slot: self.used_slot(), at: self.new_name() },
        }
    }

    fn create(&mut self) -> Op {
        let slot = self.slot();
        let at = self.new_name();
        Op::Create { slot, at, mode: self.mode(), flags: self.open_flags(false) }
    }

    fn create_unnamed(&mut self) -> Op {
        let slot = self.slot();
        let dir = self.path_of(FileKind::Directory);
        let flags = OpenFlags { write: true, ..self.open_flags(false) };
        Op::CreateUnnamed { slot, dir, mode: self.mode(), flags }
    }

    fn rename(&mut self) -> Op {
        let flags = match self.random.below(10) {
            0..=5 => RenameFlags::Replace,
            6 => RenameFlags::Whiteout { replace: self.random.chance(80) },
            7 => RenameFlags::NoReplace,
            _ => RenameFlags::Exchange,
        };
        let to = if self.random.chance(40) { self.name() } else { self.new_name() };
        Op::Rename { from: self.name(), to, flags }
    }

    fn write(&mut self) -> Op {
        let length = match self.random.below(20) {
            0..=8 => 1 + self.random.index(200),
            9..=13 => 1 + self.random.index(4000),
            // Around the largest size of an inline file.
            14..=17 => 4090 + self.random.index(12),
            18 => 1 + self.random.index(20_000),
            _ => 1 + self.random.index(200 << 10),
        };
        let patch = Patch { offset: self.offset(), length, seed: self.random.bits() };
        Op::Write { slot: self.used_slot(), patch }
    }

    fn read(&mut self) -> Op {
        let size = self.read_size();
        Op::Read { slot: self.used_slot(), offset: self.offset(), size }
    }

    fn peek(&mut self) -> Op {
        let path = self.path_of(FileKind::Regular);
        let size = self.read_size();
        Op::Peek { path, offset: self.offset(), size }
    }

    fn allocate(&mut self) -> Op {
        let keep_size = self.random.chance(50);
        let mode = match self.random.below(3) {
            0 => AllocateMode::Reserve { keep_size },
            1 => AllocateMode::PunchHole,
            _ => AllocateMode::Zero { keep_size },
        };
        Op::Allocate { slot: self.used_slot(), range: self.range(), mode }
    }

    fn seek(&mut self) -> Op {
        let whence = if self.random.chance(50) { Whence::Data } else { Whence::Hole };
        let offset = self.offset();
        Op::Seek { slot: self.used_slot(), from: SeekFrom { offset, whence } }
    }

    fn copy(&mut self) -> Op {
        let from = self.used_slot();
        let to = self.used_slot();
        Op::Copy { from, range: self.range(), to, to_offset: self.offset() }
    }

    fn range(&mut self) -> Range {
        let length = match self.random.below(10) {
            0..=3 => 1 + self.random.below(300),
            4..=7 => 1 + self.random.below(9000),
            _ => 1 + self.random.below(300_000),
        };
        Range { offset: self.offset(), length }
    }

    fn read_size(&mut self) -> u32 {
        let bound = if self.random.chance(80) { 5000 } else { 300_000 };
        self.random.below(bound) as u32
    }

    /// Returns an offset, mostly in or near existing bytes, seldom far after them.
    fn offset(&mut self) -> u64 {
        match self.random.below(40) {
            0..=9 => 0,
            10..=17 => self.random.below(300),
            18..=25 => 4086 + self.random.below(12),
            26..=33 => self.random.below(5000),
            34..=37 => self.random.below(300_000),
            38 => self.random.below(64 << 20),
            _ => (4 << 30) + self.random.below(1 << 20),
        }
    }

    fn set_times(&mut self) -> Op {
        let mut time = || match self.random.below(4) {
            0 => None,
            1 => Some(SetTime::Now),
            // Seconds from 1970 to 2033, which every file system supports.
            _ => Some(SetTime::To(Time {
                seconds: self.random.below(1 << 30) as i64,
                nanos: self.random.below(1_000_000_000) as u32,
            })),
        };
        let atime = time();
        let mtime = time();
        Op::SetTimes { node: self.subject(), atime, mtime }
    }

    fn xattr(&mut self) -> Op {
        const NAMES: [&[u8]; 3] = [b"user.a", b"user.b", b"user.\xffodd \x01"];
        let path = self.path();
        let name = NAMES.get(self.random.index(NAMES.len())).map_or(vec![], |name| name.to_vec());
        match self.random.below(8) {
            0..=3 => {
                let length = self.random.index(200);
                let value = pelago_random::bytes_of(self.random.bits(), length);
                let flags = [XattrFlags::Any, XattrFlags::Create, XattrFlags::Replace];
                let flags = flags.get(self.random.index(3)).copied().unwrap_or_default();
                Op::SetXattr { path, name, value, flags }
            }
            4..=5 => Op::GetXattr { path, name },
            6 => Op::ListXattr { path },
            _ => Op::RemoveXattr { path, name },
        }
    }

    fn open_flags(&mut self, may_truncate: bool) -> OpenFlags {
        let write = self.random.chance(80);
        OpenFlags {
            read: !write || self.random.chance(60),
            write,
            append: write && self.random.chance(20),
            truncate: may_truncate && write && self.random.chance(20),
            sync: write && self.random.chance(5),
            kill_privileges: false,
            no_atime: self.random.chance(50),
            strict_atime: false,
            passthrough: false,
        }
    }

    /// Returns permission bits with all rights for the user.
    fn mode(&mut self) -> u16 {
        0o700 | self.random.below(0o100) as u16 | if self.random.chance(10) { 0o1000 } else { 0 }
    }

    fn kind(&mut self) -> FileKind {
        let kinds = [FileKind::Regular, FileKind::Fifo, FileKind::Socket];
        self.random.pick(&kinds).copied().unwrap_or(FileKind::Regular)
    }

    fn target(&mut self) -> Vec<u8> {
        let length = if self.random.chance(90) { 20 } else { 3000 };
        pelago_random::bytes_of(self.random.bits(), 1 + self.random.index(length))
    }

    fn slot(&mut self) -> usize {
        self.random.index(SLOTS)
    }

    fn used_slot(&mut self) -> usize {
        let slots = self.model.open_slots();
        self.random.pick(&slots).map_or(0, |(slot, _)| *slot)
    }

    fn subject(&mut self) -> Subject {
        if self.random.chance(30) {
            return Subject::Slot(self.used_slot());
        }
        Subject::Path(self.path())
    }

    fn file(&mut self) -> Subject {
        if self.random.chance(50) {
            return Subject::Slot(self.used_slot());
        }
        Subject::Path(self.path_of(FileKind::Regular))
    }

    /// Returns a path, mostly of a file of this type.
    fn path_of(&mut self, kind: FileKind) -> Path {
        if self.random.chance(10) {
            return self.path();
        }
        let mut paths = self.model.paths();
        paths.retain(|(_, other)| *other == kind);
        self.random.pick(&paths).map(|(path, _)| path.clone()).unwrap_or_default()
    }

    /// Returns a path that mostly exists.
    fn path(&mut self) -> Path {
        if self.random.chance(10) {
            return self.new_name().path();
        }
        let paths = self.model.paths();
        self.random.pick(&paths).map(|(path, _)| path.clone()).unwrap_or_default()
    }

    /// Returns a name that mostly exists.
    fn name(&mut self) -> At {
        let path = self.path();
        path.split().unwrap_or_else(|| self.new_name())
    }

    /// Returns a name that may exist, in a directory that mostly exists.
    fn new_name(&mut self) -> At {
        let mut dirs = self.model.paths();
        let anything = self.random.chance(5);
        dirs.retain(|(path, kind)| {
            path.0.len() < DEPTH && (anything || *kind == FileKind::Directory)
        });
        let dir = self.random.pick(&dirs).map(|(path, _)| path.clone()).unwrap_or_default();
        let name = self.random.pick(&self.names).cloned();
        At { dir, name: name.expect("the pool is never empty") }
    }
}

fn pool() -> Vec<Name> {
    let mut names: Vec<Vec<u8>> = ["a", "b", "c", "d", "e", "f", "g", "h", "...", ".x", " ", "\n"]
        .map(|name| name.as_bytes().to_vec())
        .into();
    names.extend([vec![0xff, 0xfe], "grüße".as_bytes().to_vec(), b"a\\b*?\"'".to_vec()]);
    names.extend([vec![b'x'; 255], vec![0x80; 255], [vec![b'x'; 254], vec![b'y']].concat()]);
    names.iter().map(|name| Name::new(name).expect("the pool contains valid names")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Expected;

    #[test]
    fn a_seed_gives_the_same_program() {
        assert_eq!(program(5, 300), program(5, 300));
        assert_ne!(program(5, 300), program(6, 300));
    }

    #[test]
    fn most_operations_succeed_and_each_variant_occurs() {
        let traits = FsTraits { strict_times: true, ..TRAITS };
        let mut done = 0;
        let mut failed = 0;
        let mut skipped = 0;
        for seed in 0..20 {
            let mut model = Model::new(traits);
            for op in program(seed, 500) {
                match model.apply(&op) {
                    Expected::Skip => skipped += 1,
                    Expected::Fails(_) => failed += 1,
                    _ => done += 1,
                }
            }
        }
        assert!(done > 5000, "{done} done, {failed} failed, {skipped} skipped");
        assert!(failed > 1000, "{done} done, {failed} failed, {skipped} skipped");
    }
}
