//! Looks for the state of a writer that a folder has.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pelago_random::bytes_of;

use super::book::Course;
use super::plan::{Folder, Plan, Step, written};

/// Returns the number of steps of which a folder has everything, the largest that can be; `None` if
/// there is none: then it has names or bytes that never were together.
pub(super) fn last_state(seed: u64, course: &Course, found: &Folder) -> Option<usize> {
    let mut plan = Plan::new(seed);
    let mut search = Search::new(found);
    let mut last = search.happened(0);
    for number in 1..=course.begun {
        // Only if one file differs can a part of the next step be the difference.
        let before = (search.differing.len() == 1).then(|| plan.folder.clone());
        let step = plan.step();
        if before.is_some_and(|before| is_partly(&step, &before, &search.differing, found)) {
            last = last.max(Some(search.oldest(number - 1)));
        }
        search.apply(number, &step, &plan.folder);
        last = last.max(search.happened(number));
    }
    last
}

/// The states of a folder up to a step, beside the one that was found.
struct Search {
    found: BTreeMap<String, u64>,
    /// The hashes of the contents of each file, each with its step, oldest first.
    pasts: BTreeMap<String, Vec<(usize, u64)>>,
    /// Names of one of both folders, and of files that never had the content that was found.
    differing: BTreeSet<String>,
    /// Files that were found with an older content, each with the first step that it lacks.
    behind: BTreeMap<String, usize>,
}

impl Search {
    fn new(found: &Folder) -> Self {
        Self {
            found: found.iter().map(|(name, bytes)| (name.clone(), hash(bytes))).collect(),
            pasts: BTreeMap::new(),
            differing: found.keys().cloned().collect(),
            behind: BTreeMap::new(),
        }
    }

    /// Goes on by a step, after which the folder is this one.
    fn apply(&mut self, number: usize, step: &Step, folder: &Folder) {
        match step {
            Step::Create { name } | Step::Write { name, .. } | Step::Resize { name, .. } => {
                let content = folder.get(name).map_or(0, |bytes| hash(bytes));
                self.pasts.entry(name.clone()).or_default().push((number, content));
            }
            Step::Rename { from, to } => {
                let past = self.pasts.remove(from).unwrap_or_default();
                self.pasts.insert(to.clone(), past);
            }
            Step::Remove { name } => drop(self.pasts.remove(name)),
            Step::Sync { .. } => {}
        }
        step.names().into_iter().for_each(|name| self.compare(name));
    }

    fn compare(&mut self, name: &str) {
        self.behind.remove(name);
        let is_there = match (self.pasts.get(name), self.found.get(name)) {
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
            (Some(past), Some(content)) => {
                let same = past.iter().rposition(|(_, hash)| hash == content);
                let next = same.and_then(|at| past.get(at + 1));
                next.map(|(step, _)| self.behind.insert(name.to_owned(), *step));
                same.is_some()
            }
        };
        if is_there {
            self.differing.remove(name);
        } else {
            self.differing.insert(name.to_owned());
        }
    }

    /// Returns the steps of which the folder that was found has everything, if it has the names
    /// after this step; `None` if it has others.
    fn happened(&self, number: usize) -> Option<usize> {
        self.differing.is_empty().then(|| self.oldest(number))
    }

    /// Returns the steps of up to this one of which no file that was found lacks something.
    fn oldest(&self, number: usize) -> usize {
        self.behind.values().map(|step| step - 1).min().unwrap_or(number)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Returns whether a part of this step alone makes the difference to the folder before it.
fn is_partly(step: &Step, before: &Folder, differing: &BTreeSet<String>, found: &Folder) -> bool {
    let Step::Write { name, offset, seed, length } = step else { return false };
    let (Some(old), Some(found)) = (before.get(name), found.get(name)) else { return false };
    if !differing.contains(name) {
        return false;
    }
    let data = bytes_of(*seed, *length);
    let new = written(old, *offset, &data);
    let there = found.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = old.get(there..).unwrap_or_default();
    there >= usize::try_from(*offset).unwrap_or(usize::MAX)
        && found.get(there..).is_some_and(|tail| tail == rest)
}

/// Describes the state that differs from a folder in the fewest files.
pub(super) fn nearest(seed: u64, course: &Course, found: &Folder) -> String {
    let mut plan = Plan::new(seed);
    let mut best = (usize::MAX, String::new());
    for number in 1..=course.begun {
        let step = plan.step();
        let names = found.keys().chain(plan.folder.keys());
        let names = names.filter(|name| plan.folder.get(*name) != found.get(*name));
        let differing: BTreeSet<&String> = names.collect();
        if differing.len() <= best.0 {
            let told = differing.iter().map(|name| difference(name, &plan.folder, found));
            let told = told.collect::<Vec<_>>().join(", ");
            best = (differing.len(), format!("that of step {number}, {step:?}, but for {told}"));
        }
    }
    format!("the nearest is {}", best.1)
}

/// Describes how a file differs from what it must be.
fn difference(name: &str, must_be: &Folder, found: &Folder) -> String {
    let (Some(must_be), Some(found)) = (must_be.get(name), found.get(name)) else {
        let word = if found.contains_key(name) { "which is there" } else { "which is missing" };
        return format!("{name}, {word}");
    };
    let same = must_be.iter().zip(found).take_while(|(one, other)| one == other).count();
    format!("{name}: {} bytes, not {}, equal up to {same}", found.len(), must_be.len())
}
