//! Random programs of changes, equal for equal seeds.

use pelago_wire::{Code, FileKind, Handle, RenameFlags, Request, SetAttr, XattrFlags};

use super::rig::{Rig, name};

/// The names that a program uses in each directory.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A pseudorandom number generator: splitmix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len() as u64) as usize]
    }
}

/// Carries out one random change. Only errors that a program may get are expected.
pub(crate) fn step(rig: &Rig, random: &mut Random) -> Result<(), Code> {
    let dir = some_dir(rig, random);
    let text = random.name();
    match random.below(17) {
        0 | 1 => rig.make_dir(dir, text).map(drop),
        2..=4 => {
            let size = random.below(100) as usize;
            rig.put(dir, text, &vec![b'x'; size]).map(drop)
        }
        5 => {
            let size = 5_000 + random.below(20_000) as usize;
            rig.put(dir, text, &vec![b'y'; size]).map(drop)
        }
        6 | 7 => append(rig, dir, text, random.below(6_000) as usize),
        8 => rig.unlink(dir, text),
        9 => rig.call(Request::RemoveDir { dir, name: name(text) }).map(drop),
        10 | 11 => rename(rig, random, dir, text),
        12 => {
            let node = rig.lookup(dir, text)?.handle;
            let to = some_dir(rig, random);
            rig.call(Request::Link { node, dir: to, name: name(random.name()) }).map(drop)
        }
        13 => {
            let target = vec![b't'; 1 + random.below(50) as usize];
            rig.call(Request::Symlink { dir, name: name(text), target }).map(drop)
        }
        14 => change(rig, random, dir, text),
        15 => removed_while_open(rig, dir, text),
        _ => named_when_written(rig, dir, text),
    }
}

fn some_dir(rig: &Rig, random: &mut Random) -> Handle {
    let mut dir = Handle::ROOT;
    for _ in 0..random.below(3) {
        match rig.lookup(dir, random.name()) {
            Ok(entry) if entry.attr.kind == FileKind::Directory => dir = entry.handle,
            _ => {}
        }
    }
    dir
}

fn append(rig: &Rig, dir: Handle, text: &str, size: usize) -> Result<(), Code> {
    let entry = rig.lookup(dir, text)?;
    if entry.attr.kind != FileKind::Regular {
        return Err(Code::Invalid);
    }
    let open = rig.open(entry.handle)?;
    let written = rig.write(open, entry.attr.size, &vec![b'z'; size]);
    rig.close(open)?;
    written
}

fn rename(rig: &Rig, random: &mut Random, from_dir: Handle, from: &str) -> Result<(), Code> {
    let flags = match random.below(5) {
        0 => RenameFlags::NoReplace,
        1 => RenameFlags::Exchange,
        2 => RenameFlags::Whiteout { replace: true },
        _ => RenameFlags::Replace,
    };
    let to_dir = some_dir(rig, random);
    let to = name(random.name());
    rig.call(Request::Rename { from_dir, from: name(from), to_dir, to, flags }).map(drop)
}

fn change(rig: &Rig, random: &mut Random, dir: Handle, text: &str) -> Result<(), Code> {
    let node = rig.lookup(dir, text)?.handle;
    let attribute = format!("user.{}", random.name()).into_bytes();
    match random.below(3) {
        0 => {
            let set = SetAttr { mode: Some(random.below(0o1000) as u16), ..SetAttr::default() };
            rig.call(Request::SetAttr { node, open: None, set }).map(drop)
        }
        1 => {
            let name = attribute;
            let value = vec![b'v'; 20];
            let flags = XattrFlags::Any;
            rig.call(Request::SetXattr { node, name, value, flags, kill_setgid: false }).map(drop)
        }
        _ => rig.call(Request::RemoveXattr { node, name: attribute }).map(drop),
    }
}

fn removed_while_open(rig: &Rig, dir: Handle, text: &str) -> Result<(), Code> {
    let (_, open) = rig.create(dir, text)?;
    let written = rig.write(open, 0, &[b'w'; 6_000]);
    let removed = rig.unlink(dir, text);
    rig.close(open)?;
    written.and(removed)
}

/// Creates an unnamed file, writes it, and gives it a name.
fn named_when_written(rig: &Rig, dir: Handle, text: &str) -> Result<(), Code> {
    let (entry, open) = rig.create_unnamed(dir)?;
    let written = rig.write(open, 0, &[b'n'; 6_000]);
    let linked = rig.call(Request::Link { node: entry.handle, dir, name: name(text) }).map(drop);
    rig.close(open)?;
    written.and(linked)
}

/// Returns whether a program may get this error.
pub(crate) fn is_expected(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::Exists
            | Code::NotDirectory
            | Code::IsDirectory
            | Code::NotEmpty
            | Code::NotPermitted
            | Code::Invalid
            | Code::WouldLoop
            | Code::NoXattr
    )
}
