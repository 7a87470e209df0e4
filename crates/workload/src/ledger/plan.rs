//! The steps of a writer, one after the other.

use std::collections::BTreeMap;

use pelago_random::{Random, bytes_of};

/// The bytes of one write, at most: below the most that the kernel puts into one request.
const WRITE: u64 = 6_000;
/// Files of a writer, at most.
const FILES: usize = 12;
/// Bytes of a file, at most; small files lie in rows, and larger ones in files of the server.
const FILE: u64 = 120_000;

/// The files of a folder.
pub(super) type Folder = BTreeMap<String, Vec<u8>>;

/// A step of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Create { name: String },
    Write { name: String, offset: u64, seed: u64, length: usize },
    Resize { name: String, size: u64 },
    Rename { from: String, to: String },
    Remove { name: String },
    Sync { name: String },
}

/// A writer: its folder as it must be, and what it does next.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) folder: Folder,
    random: Random,
    made: u64,
    /// The file that was written last, and how often since it was synced.
    current: Option<String>,
    unsynced: u64,
}

impl Plan {
    pub(super) const fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        Self { folder: Folder::new(), random, made: 0, current: None, unsynced: 0 }
    }

    /// Chooses the next step and applies it to the folder.
    pub(super) fn step(&mut self) -> Step {
        let step = self.choose();
        self.apply(&step);
        step
    }

    fn choose(&mut self) -> Step {
        let synced = self.random.below(8) < self.unsynced;
        if let Some(name) = self.current.clone().filter(|_| synced) {
            return Step::Sync { name };
        }
        let Some(name) = self.any() else { return self.create() };
        match self.random.below(100) {
            0..=9 if self.folder.len() < FILES => self.create(),
            0..=11 => Step::Remove { name },
            12..=17 => Step::Rename { from: name, to: self.new_name() },
            18..=20 => {
                let size = self.size(&name);
                Step::Resize { size: self.random.below(size + 9_000).min(FILE), name }
            }
            21..=35 => {
                let size = self.size(&name);
                self.write(name, size)
            }
            _ => {
                let name = self.current.clone().unwrap_or(name);
                let size = self.size(&name);
                if size >= FILE { Step::Remove { name } } else { self.write_at(name, size) }
            }
        }
    }

    /// Writes somewhere in a file, or behind it.
    fn write(&mut self, name: String, size: u64) -> Step {
        let offset = self.random.below(size + 1);
        self.write_at(name, offset)
    }

    fn write_at(&mut self, name: String, offset: u64) -> Step {
        let length = 1 + self.random.index(WRITE as usize);
        Step::Write { name, offset, seed: self.random.bits(), length }
    }

    fn create(&mut self) -> Step {
        Step::Create { name: self.new_name() }
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("file-{}", self.made)
    }

    fn any(&mut self) -> Option<String> {
        let index = self.random.index(self.folder.len());
        self.folder.keys().nth(index).cloned()
    }

    fn size(&self, name: &str) -> u64 {
        self.folder.get(name).map_or(0, |bytes| bytes.len() as u64)
    }

    fn apply(&mut self, step: &Step) {
        self.unsynced += 1;
        match step {
            Step::Create { name } => {
                self.folder.insert(name.clone(), Vec::new());
                self.current = Some(name.clone());
            }
            Step::Write { name, offset, seed, length } => {
                let bytes = self.folder.entry(name.clone()).or_default();
                *bytes = written(bytes, *offset, &bytes_of(*seed, *length));
                self.current = Some(name.clone());
            }
            Step::Resize { name, size } => {
                let size = usize::try_from(*size).unwrap_or(usize::MAX);
                self.folder.entry(name.clone()).or_default().resize(size, 0);
                self.current = Some(name.clone());
            }
            Step::Rename { from, to } => {
                let bytes = self.folder.remove(from).unwrap_or_default();
                self.folder.insert(to.clone(), bytes);
                self.current = Some(to.clone());
            }
            Step::Remove { name } => {
                self.folder.remove(name);
                self.current = self.current.take().filter(|current| current != name);
            }
            Step::Sync { .. } => self.unsynced = 0,
        }
    }
}

impl Step {
    /// Returns the names that it changes.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { name }
            | Self::Write { name, .. }
            | Self::Resize { name, .. }
            | Self::Remove { name } => vec![name],
            Self::Rename { from, to } => vec![from, to],
            Self::Sync { .. } => Vec::new(),
        }
    }
}

/// Returns the bytes of a file after a write that begins at or before its end.
pub(super) fn written(before: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut bytes = before.to_vec();
    bytes.resize(before.len().max(offset.saturating_add(data.len())), 0);
    if let Some(there) = bytes.get_mut(offset..offset.saturating_add(data.len())) {
        there.copy_from_slice(data);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_goes_the_same_way_again_and_does_all_kinds_of_steps() {
        let of = |seed| {
            let mut plan = Plan::new(seed);
            (0..2_000).map(|_| plan.step()).collect::<Vec<_>>()
        };
        let steps = of(5);
        assert_eq!(steps, of(5));
        assert_ne!(steps, of(6));
        let kinds: std::collections::BTreeSet<_> = steps
            .iter()
            .map(|step| format!("{step:?}").split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        let syncs = steps.iter().filter(|step| matches!(step, Step::Sync { .. })).count();
        assert!((300..1_000).contains(&syncs), "{syncs}");
    }
}
