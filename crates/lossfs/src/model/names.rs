//! Changes of names that are not on the disk yet.

use std::collections::{BTreeMap, BTreeSet};

use super::Names;
use crate::random::Random;

/// The names of one directory.
pub(super) type Folder = BTreeMap<Vec<u8>, u64>;

/// One change of names, which happens whole or not at all.
#[derive(Debug, Clone)]
pub(super) struct NameChange {
    /// Directory, name and the new inode of the name; `None` removes the name.
    pub(super) sets: Vec<(u64, Vec<u8>, Option<u64>)>,
}

/// The changes that are not on the disk, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingNames(Vec<NameChange>);

impl NameChange {
    /// Applies the change to one directory.
    pub(super) fn apply(&self, dir: u64, folder: &mut Folder) {
        for (_, name, ino) in self.sets.iter().filter(|(at, ..)| *at == dir) {
            match ino {
                Some(ino) => folder.insert(name.clone(), *ino),
                None => folder.remove(name),
            };
        }
    }

    fn dirs(&self) -> impl Iterator<Item = u64> {
        self.sets.iter().map(|(dir, ..)| *dir)
    }
}

impl PendingNames {
    pub(super) fn push(&mut self, change: NameChange) {
        self.0.push(change);
    }

    /// Removes and returns the changes that a sync of `dir` makes safe: those of the directory, and
    /// earlier changes of other directories that these share.
    pub(super) fn take(&mut self, dir: u64) -> Vec<NameChange> {
        let mut dirs = BTreeSet::from([dir]);
        let mut taken = Vec::new();
        let mut left = Vec::new();
        for change in self.0.drain(..).rev() {
            if change.dirs().any(|dir| dirs.contains(&dir)) {
                dirs.extend(change.dirs());
                taken.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        taken.reverse();
        self.0 = left;
        taken
    }

    /// Returns the changes that survive a power cut.
    pub(super) fn some(&self, names: Names, random: &mut Random) -> Vec<NameChange> {
        // Often few changes are lost, sometimes many.
        let odds = 2 + random.below(6);
        let mut broken = BTreeSet::new();
        let mut left = Vec::new();
        for change in &self.0 {
            let keys: Vec<(u64, &[u8])> = change
                .sets
                .iter()
                .map(|(dir, name, _)| match names {
                    Names::Ordered => (0, &b""[..]),
                    Names::PerFolder => (*dir, &b""[..]),
                    Names::Any => (*dir, name.as_slice()),
                })
                .collect();
            if keys.iter().any(|key| broken.contains(key)) || random.below(odds) == 0 {
                broken.extend(keys);
            } else {
                left.push(change.clone());
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(dir: u64, name: &str, ino: u64) -> NameChange {
        NameChange { sets: vec![(dir, name.into(), Some(ino))] }
    }

    fn inos(changes: &[NameChange]) -> Vec<u64> {
        changes.iter().filter_map(|change| change.sets.last().and_then(|set| set.2)).collect()
    }

    fn five() -> PendingNames {
        let mut pending = PendingNames::default();
        pending.push(set(1, "a", 10));
        pending.push(set(2, "b", 11));
        let moved = vec![(1, b"a".to_vec(), None), (2, b"a".to_vec(), Some(12))];
        pending.push(NameChange { sets: moved });
        pending.push(set(1, "c", 13));
        pending.push(set(3, "d", 14));
        pending
    }

    #[test]
    fn a_sync_includes_earlier_changes() {
        let mut pending = five();
        assert_eq!(inos(&pending.take(2)), [10, 11, 12]);
        assert_eq!(inos(&pending.take(1)), [13]);
        assert_eq!(inos(&pending.0), [14]);
        assert_eq!(inos(&five().take(1)), [10, 11, 12, 13]);
    }

    /// In order: a prefix. By directory: a prefix of each. In any order: a rename only after the
    /// change that it builds upon.
    #[test]
    fn surviving_changes_keep_the_promised_order() {
        let seen = [Names::Ordered, Names::PerFolder, Names::Any].map(|names| {
            let left = (0..500).map(|seed| inos(&five().some(names, &mut Random(seed))));
            left.collect::<BTreeSet<_>>()
        });
        let any = &seen[2];
        assert!(seen[0].iter().all(|left| [10, 11, 12, 13, 14].starts_with(left)));
        assert!(seen[1].contains(&vec![10, 14]) && seen[1].contains(&vec![11, 14]));
        assert!(any.contains(&vec![11, 13, 14]) && any.contains(&vec![10, 13]));
        for left in seen.iter().flatten() {
            assert!(!left.contains(&12) || left.contains(&10), "{left:?}");
        }
    }
}
