//! The history of a program: the operations that were done, and so the states that a loss of power
//! may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where each path leads.
pub(crate) type Names = BTreeMap<String, u64>;
/// What each path's file holds; nothing where it is a directory.
pub(crate) type Tree = BTreeMap<String, (u64, Option<Vec<u8>>)>;

/// Bytes of a file, and the operation from which on it has them.
type Version = (usize, Arc<Vec<u8>>);

/// Operations are numbered from 1; the state "at" a number is the one after that operation.
#[derive(Default)]
pub(crate) struct History {
    /// The names at 0, 1, and so on.
    names: Vec<Names>,
    /// The bytes of each file, each with the number it holds from.
    bytes: BTreeMap<u64, Vec<Version>>,
    /// At which numbers everything was safe that had a name.
    synced: Vec<usize>,
    /// At which numbers whose bytes were safe.
    fsynced: Vec<(usize, u64)>,
    /// At which numbers whose bytes were safe, if the names are those at that number or later.
    moved_over: Vec<(usize, u64)>,
    /// All numbers of inodes, with when they were seen.
    inos: Vec<(usize, u64)>,
}

/// When the power failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant {
    /// Operations that were answered.
    pub(crate) answered: usize,
    /// Operations that were begun.
    pub(crate) begun: usize,
}

impl History {
    /// An empty volume.
    pub(crate) fn new() -> Self {
        Self { names: vec![Names::new()], synced: vec![0], ..Self::default() }
    }

    /// The number of the operation that is about to be noted.
    pub(crate) fn number(&self) -> usize {
        self.names.len()
    }

    /// An operation was answered, and these are the names.
    pub(crate) fn done(&mut self, names: &Names) {
        self.names.push(names.clone());
    }

    pub(crate) fn made(&mut self, ino: u64) {
        self.inos.push((self.number(), ino));
    }

    pub(crate) fn changed(&mut self, ino: u64, bytes: &[u8]) {
        let number = self.number();
        self.bytes.entry(ino).or_default().push((number, Arc::new(bytes.to_vec())));
    }

    pub(crate) fn names_synced(&mut self) {
        self.synced.push(self.number());
    }

    pub(crate) fn fsynced(&mut self, ino: u64) {
        self.fsynced.push((self.number(), ino));
    }

    pub(crate) fn moved_over(&mut self, ino: u64) {
        self.moved_over.push((self.number(), ino));
    }

    /// Numbers that were given away before.
    pub(crate) fn inos(&self, instant: Instant) -> BTreeSet<u64> {
        let given = self.inos.iter().filter(|(at, _)| *at <= instant.answered);
        given.map(|(_, ino)| *ino).collect()
    }

    /// Asserts that `found` is a possible state after the loss of power: the names of one moment,
    /// with all that were safe; for each file the bytes that were safe, or, if they were changed
    /// since, only bytes that the program wrote.
    pub(crate) fn expect(&self, found: &Tree, instant: Instant, when: &str) {
        let led: Names = found.iter().map(|(path, (ino, _))| (path.clone(), *ino)).collect();
        let safe = last(self.synced.iter().copied(), instant.answered);
        let last = instant.begun.min(self.names.len() - 1);
        let Some(at) = (safe..=last).find(|at| self.names[*at] == led) else {
            panic!(
                "{when}: names as at no moment from {safe} to {last}: {led:#?}\nsafe were: {:#?}",
                self.names[safe]
            );
        };
        for (path, (ino, bytes)) in found {
            if let Some(bytes) = bytes {
                let when = format!("{when}: {path}, {ino:x}");
                self.expect_bytes(*ino, bytes, at, instant, &when);
            }
        }
    }

    /// Asserts that a file has bytes that a loss of power may leave. `names_at` is the number of
    /// the operation after which the names are those that were found.
    fn expect_bytes(&self, ino: u64, found: &[u8], names_at: usize, instant: Instant, when: &str) {
        let of = |list: &[(usize, u64)], until| {
            last(list.iter().filter(|(_, other)| *other == ino).map(|(at, _)| *at), until)
        };
        let safe = of(&self.fsynced, instant.answered).max(of(&self.moved_over, names_at));
        let all = self.bytes.get(&ino).map_or(&[][..], Vec::as_slice);
        let first = all.iter().rposition(|(at, _)| *at <= safe);
        let empty = Arc::new(Vec::new());
        let mut may: Vec<&Arc<Vec<u8>>> = first.is_none().then_some(&empty).into_iter().collect();
        let from = first.unwrap_or(0);
        may.extend(all[from..].iter().filter(|(at, _)| *at <= instant.begun).map(|it| &it.1));
        let sizes = may.iter().map(|bytes| bytes.len());
        // A write that was not synced may have grown the file by some of its blocks.
        let least = sizes.clone().min().unwrap_or(0);
        let most = sizes.max().unwrap_or(0);
        let size = found.len();
        assert!((least..=most).contains(&size), "{when}: {size} bytes, not {least} to {most}");
        for (at, byte) in found.iter().enumerate() {
            let known = may.iter().any(|bytes| bytes.get(at).copied().unwrap_or(0) == *byte);
            assert!(known, "{when}: byte {at} of {} is {byte}; safe since {safe}", found.len());
        }
    }
}

fn last(numbers: impl Iterator<Item = usize>, until: usize) -> usize {
    numbers.filter(|number| *number <= until).max().unwrap_or(0)
}
