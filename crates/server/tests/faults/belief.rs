//! The belief of a program while calls fail below it: the states that may be there, and those that
//! a loss of power may leave.
//!
//! For each path, and for the bytes of each file, it holds the present state, if that is certain,
//! and all states that a loss of power may leave: those since the last time that it was made safe.
//! An operation that fails may or may not have happened, so both states are possible until the
//! program reads the state again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What each path's file holds; nothing if it is a directory.
pub(crate) type Tree = BTreeMap<String, (u64, Option<Vec<u8>>)>;

/// Nothing, or the rule that was broken.
pub(crate) type Kept<T = ()> = Result<T, String>;

/// All paths and files.
#[derive(Clone, Default)]
pub(crate) struct Belief {
    paths: BTreeMap<String, Path>,
    files: BTreeMap<u64, File>,
    /// Files that had a name when names were last safe, with no attempt to remove them since.
    kept: BTreeSet<u64>,
}

/// Where a path leads.
#[derive(Clone, Default)]
struct Path {
    now: Option<u64>,
    sure: bool,
    /// What it may be after a power failure.
    may: BTreeSet<Option<u64>>,
}

#[derive(Clone)]
struct File {
    now: Arc<Vec<u8>>,
    sure: bool,
    /// All that was written, in order.
    versions: Vec<Arc<Vec<u8>>>,
    /// Which of them is safe.
    safe: usize,
    /// Which of them is safe if this path leads here: it was moved over another.
    over: Option<(String, usize)>,
}

impl Belief {
    /// What is there is safe.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut belief = Self::default();
        for (path, (ino, bytes)) in tree {
            belief.moved(path, Some(*ino));
            if let Some(bytes) = bytes {
                belief.made(*ino);
                belief.wrote(*ino, bytes);
                belief.bytes_safe(*ino);
            }
        }
        belief.names_safe();
        belief
    }

    /// The paths that a program has used.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.paths.keys()
    }

    /// Where a path leads; `Err(())`: that is not known.
    pub(crate) fn at(&self, path: &str) -> Result<Option<u64>, ()> {
        match self.paths.get(path) {
            None => Ok(None),
            Some(path) if path.sure => Ok(path.now),
            Some(_) => Err(()),
        }
    }

    /// A path leads there now.
    pub(crate) fn moved(&mut self, path: &str, to: Option<u64>) {
        let path = self.paths.entry(path.to_owned()).or_insert_with(Path::none);
        path.now = to;
        path.sure = true;
        path.may.insert(to);
    }

    /// An operation failed that would have made a path lead there.
    pub(crate) fn may_have_moved(&mut self, path: &str, to: Option<u64>) {
        let path = self.paths.entry(path.to_owned()).or_insert_with(Path::none);
        path.sure = false;
        path.may.insert(to);
    }

    /// An operation that removes this file's name was tried.
    pub(crate) fn tried_to_remove(&mut self, ino: u64) {
        self.kept.remove(&ino);
    }

    /// Whether this file has a name that is safe, wherever that is.
    pub(crate) fn is_kept(&self, ino: u64) -> bool {
        self.kept.contains(&ino)
    }

    /// Whether a path may lead there.
    pub(crate) fn may_lead(&self, path: &str, to: Option<u64>) -> bool {
        self.paths.get(path).map_or_else(|| to.is_none(), |path| path.may.contains(&to))
    }

    /// All names that are sure are safe.
    pub(crate) fn names_safe(&mut self) {
        for path in self.paths.values_mut().filter(|path| path.sure) {
            path.may = BTreeSet::from([path.now]);
        }
        let sure = self.paths.values().filter(|path| path.sure);
        self.kept = sure.filter_map(|path| path.now).collect();
        // A move that may have happened hides where its file is.
        for path in self.paths.values().filter(|path| !path.sure) {
            for ino in path.may.iter().flatten() {
                self.kept.remove(ino);
            }
        }
    }

    pub(crate) fn made(&mut self, ino: u64) {
        let empty = Arc::new(Vec::new());
        let versions = vec![Arc::clone(&empty)];
        self.files.insert(ino, File { now: empty, sure: true, versions, safe: 0, over: None });
    }

    /// Whether this number was given to a file before.
    pub(crate) fn knows(&self, ino: u64) -> bool {
        self.files.contains_key(&ino)
            || self.paths.values().any(|path| path.may.contains(&Some(ino)))
    }

    /// The bytes as the program believes them to be.
    pub(crate) fn bytes(&self, ino: u64) -> Vec<u8> {
        self.files[&ino].now.to_vec()
    }

    /// Whether they are sure.
    pub(crate) fn are_bytes_sure(&self, ino: u64) -> bool {
        self.files[&ino].sure
    }

    pub(crate) fn wrote(&mut self, ino: u64, all: &[u8]) {
        let file = self.files.get_mut(&ino).unwrap();
        file.now = Arc::new(all.to_vec());
        file.versions.push(Arc::clone(&file.now));
    }

    /// A change failed that would have made these the bytes.
    pub(crate) fn may_have_written(&mut self, ino: u64, all: &[u8]) {
        let file = self.files.get_mut(&ino).unwrap();
        file.versions.push(Arc::new(all.to_vec()));
        file.sure = false;
    }

    /// The bytes are not sure any more.
    pub(crate) fn doubt(&mut self, ino: u64) {
        self.files.get_mut(&ino).unwrap().sure = false;
    }

    /// These are the bytes: a program has read them.
    pub(crate) fn adopt(&mut self, ino: u64, found: &[u8]) -> Kept {
        let file = self.files.get_mut(&ino).unwrap();
        expect_bytes(&file.versions[file.safe..], found)?;
        file.now = Arc::new(found.to_vec());
        file.versions.push(Arc::clone(&file.now));
        file.sure = true;
        Ok(())
    }

    pub(crate) fn bytes_safe(&mut self, ino: u64) {
        let file = self.files.get_mut(&ino).unwrap();
        if file.sure {
            file.versions = vec![Arc::clone(&file.now)];
            file.safe = 0;
            file.over = None;
        }
    }

    /// A file was moved over another: where its new name is, its bytes are.
    pub(crate) fn moved_over(&mut self, ino: u64, path: &str) {
        if let Some(file) = self.files.get_mut(&ino)
            && file.sure
        {
            file.over = Some((path.to_owned(), file.versions.len() - 1));
        }
    }

    /// Proves that this may be there after the power failed.
    pub(crate) fn expect(&self, found: &Tree) -> Kept {
        let mut led: BTreeMap<u64, usize> = BTreeMap::new();
        for (path, (ino, bytes)) in found {
            *led.entry(*ino).or_default() += 1;
            if !self.may_lead(path, Some(*ino)) {
                return Err(format!(
                    "{path} leads to {ino:x}, which the program did not put there"
                ));
            }
            let (Some(file), Some(bytes)) = (self.files.get(ino), bytes) else { continue };
            let over = file.over.as_ref().filter(|(over, _)| over == path).map(|(_, at)| *at);
            let versions = &file.versions[over.map_or(file.safe, |at| at.max(file.safe))..];
            expect_bytes(versions, bytes).map_err(|why| format!("{path}, {ino:x}: {why}"))?;
        }
        for (path, may) in &self.paths {
            if !found.contains_key(path) && !may.may.contains(&None) {
                return Err(format!("{path} is lost: it was safe, {:x?}", may.may));
            }
        }
        for ino in &self.kept {
            match led.get(ino) {
                Some(1) => {}
                Some(_) => return Err(format!("{ino:x} has two names")),
                None => return Err(format!("{ino:x} is lost: its name was safe")),
            }
        }
        Ok(())
    }
}

impl Path {
    fn none() -> Self {
        Self { now: None, sure: true, may: BTreeSet::from([None]) }
    }
}

/// Proves that each byte was written at its place in one of these versions.
fn expect_bytes(may: &[Arc<Vec<u8>>], found: &[u8]) -> Kept {
    let sizes = may.iter().map(|bytes| bytes.len());
    let least = sizes.clone().min().unwrap_or(0);
    let most = sizes.max().unwrap_or(0);
    let size = found.len();
    if !(least..=most).contains(&size) {
        return Err(format!("{size} bytes, not {least} to {most}"));
    }
    for (at, byte) in found.iter().enumerate() {
        if !may.iter().any(|bytes| bytes.get(at).copied().unwrap_or(0) == *byte) {
            let safe = may[0].get(at);
            return Err(format!("byte {at} of {size} is {byte}; {safe:?} was safe"));
        }
    }
    Ok(())
}
