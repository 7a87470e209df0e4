//! Compares a directory with the log.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use pelago_random::bytes_of;
use rustix::fs::{FileType, Mode, OFlags};

use crate::model::SparseBytes;
use crate::witness::action::{Action, Change, NodeId};
use crate::witness::log::{LogContents, ThreadLog};
use crate::witness::snapshot::{self, Entry};
use crate::witness::state::{Kept, Node, NodeKind, ThreadState};
use crate::witness::{THREADS, WitnessError};

/// Problems of one thread in a report.
const PROBLEMS: usize = 20;

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Runs in the log.
    pub runs: u64,
    /// Acknowledged operations.
    pub answered: u64,
    /// Names that were compared.
    pub names: u64,
    /// Bytes that were compared.
    pub bytes: u64,
    /// Operations in flight at the crash.
    pub in_flight: u64,
    /// Those operations in flight that have happened.
    pub happened: u64,
    /// Acknowledged changes, neither closed nor fsynced, that are missing.
    pub unsafe_lost: u64,
    /// Milliseconds from the oldest missing change to the last record of the log.
    pub unsafe_lost_ms: u64,
    /// One sentence per problem; of each thread the first 20.
    pub problems: Vec<String>,
}

impl VerifyReport {
    /// Returns whether there are no problems.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs, {} acknowledged operations", self.runs, self.answered)?;
        writeln!(f, "{} names and {} bytes compared", self.names, self.bytes)?;
        writeln!(f, "{} in flight, {} of them happened", self.in_flight, self.happened)?;
        writeln!(
            f,
            "{} unsafe changes lost, the oldest {} ms before the end",
            self.unsafe_lost, self.unsafe_lost_ms
        )?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "problem: {problem}"))
    }
}

/// Checks that `dir` contains everything that the log promises, and nothing else. Missing and wrong
/// files are in the report.
///
/// # Errors
/// [`WitnessError::Log`], [`WitnessError::Line`] or [`WitnessError::Dir`] if the log or the
/// directory cannot be read.
pub fn verify(log: &Path, dir: &Path) -> Result<VerifyReport, WitnessError> {
    let contents = LogContents::read(log)?;
    if contents.runs == 0 {
        return Ok(VerifyReport::default());
    }
    check_threads(&contents, &open_dir(dir)?).map(|(report, _)| report)
}

/// The uncertain operations of one thread that a crash has left.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    /// True if the operation in flight has happened; `None` if there was none.
    pub(super) done: Option<bool>,
    /// The pending changes of each file that have survived.
    pub(super) kept: Vec<(NodeId, Kept)>,
}

pub(super) fn open_dir(dir: &Path) -> Result<OwnedFd, WitnessError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .map_err(|source| WitnessError::Dir { path: dir.display().to_string(), source })
}

/// Compares the directory with the log, and settles the uncertain operations of each thread.
pub(super) fn check_threads(
    contents: &LogContents,
    root: &OwnedFd,
) -> Result<(VerifyReport, Vec<Settlement>), WitnessError> {
    let mut all = snapshot::take(root)?;
    let mut report = VerifyReport {
        runs: contents.runs,
        answered: contents.answered,
        ..VerifyReport::default()
    };
    report.names = all.len() as u64;
    let mut settlements = Vec::new();
    for (index, thread) in contents.threads.iter().enumerate() {
        let top = format!("t{index}");
        let shared = format!("shared/t{index}-");
        let below = format!("{top}/");
        let own: BTreeMap<String, Entry> = all
            .extract_if(.., |path, _| path.starts_with(&below) || path.starts_with(&shared))
            .collect();
        if all.remove(&top).is_none() {
            report.problems.push(format!("{top} is missing"));
        }
        let check = ThreadCheck { root, own: &own, last_ms: contents.last_ms };
        settlements.push(check.settle(thread, &mut report)?);
    }
    all.remove("shared");
    report
        .problems
        .extend(all.keys().take(PROBLEMS).map(|path| format!("{path} belongs to no thread")));
    debug_assert_eq!(settlements.len(), THREADS);
    Ok((report, settlements))
}

/// Compares the directory part of one thread.
struct ThreadCheck<'a> {
    root: &'a OwnedFd,
    own: &'a BTreeMap<String, Entry>,
    last_ms: u64,
}

impl ThreadCheck<'_> {
    /// Compares with both states: the operation in flight has not happened, or it has.
    fn settle(
        &self,
        thread: &ThreadLog,
        report: &mut VerifyReport,
    ) -> Result<Settlement, WitnessError> {
        let Some(action) = &thread.in_flight else {
            let (mut problems, kept) = self.check(&thread.state, None, report)?;
            report.problems.append(&mut problems);
            return Ok(Settlement { done: None, kept });
        };
        report.in_flight += 1;
        let mut before = thread.state.clone();
        before.forget_time(action);
        let mut trial = VerifyReport::default();
        let (mut problems, kept) = self.check(&before, None, &mut trial)?;
        if problems.is_empty() {
            report.add(&trial);
            return Ok(Settlement { done: Some(false), kept });
        }
        let mut after = before;
        // The file system refuses an impossible action, so only "before" remains.
        if after.apply(action, self.last_ms).is_some() {
            after.forget_time(action);
            let mut trial = VerifyReport::default();
            let (problems, kept) = self.check(&after, Some(action), &mut trial)?;
            if problems.is_empty() {
                report.add(&trial);
                report.happened += 1;
                return Ok(Settlement { done: Some(true), kept });
            }
        }
        problems.push(format!("with `{action}`, which was in flight, there are problems too"));
        report.problems.append(&mut problems);
        Ok(Settlement { done: Some(false), kept })
    }

    fn check(
        &self,
        state: &ThreadState,
        in_flight: Option<&Action>,
        report: &mut VerifyReport,
    ) -> Result<CheckResult, WitnessError> {
        let mut problems = Vec::new();
        let mut kept = BTreeMap::new();
        let mut inos: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (path, id) in &state.names {
            let (Some(found), Some(node)) = (self.own.get(path), state.nodes.get(id)) else {
                problems.push(format!("{path} is missing"));
                continue;
            };
            problems.extend(check_attributes(path, node, found));
            if node.kind != NodeKind::Directory && state.links(*id) != found.links {
                let links = state.links(*id);
                problems.push(format!("{path} has {} names, not {links}", found.links));
            }
            if *inos.entry(*id).or_insert(found.ino) != found.ino {
                problems.push(format!("{path} is not the same file as its other names"));
            }
            if node.kind != NodeKind::File || found.kind != FileType::RegularFile {
                continue;
            }
            problems.extend(self.check_xattrs(path, node));
            match self.match_bytes(path, node, is_cut(in_flight, *id))? {
                None => problems.push(format!("{path} ({id}) has wrong bytes or a wrong size")),
                Some(fit) => {
                    report.bytes += found.size;
                    report.lose(node, fit.applied, self.last_ms);
                    kept.insert(*id, fit);
                }
            }
        }
        let extra = self.own.keys().filter(|path| !state.names.contains_key(*path));
        problems.extend(extra.map(|path| format!("{path} should not be there")));
        problems.truncate(PROBLEMS);
        kept.retain(|id, _| state.nodes.get(id).is_some_and(|node| !node.pending.is_empty()));
        Ok((problems, kept.into_iter().collect()))
    }

    /// Returns the pending changes that yield the bytes of the file; `None` if no number of them
    /// does.
    fn match_bytes(
        &self,
        path: &str,
        node: &Node,
        may_be_cut: bool,
    ) -> Result<Option<Kept>, WitnessError> {
        let found = snapshot::read(self.root, path)?;
        let count = node.pending.len();
        for applied in (0..=count).rev() {
            if is_same(&node.bytes(applied), &found) {
                return Ok(Some(Kept { applied, cut: None }));
            }
        }
        let Some((_, Change::Write { offset, length, seed })) =
            node.pending.last().filter(|_| may_be_cut)
        else {
            return Ok(None);
        };
        let data = bytes_of(*seed, *length);
        let there = usize::try_from(*offset).ok().and_then(|offset| found.get(offset..));
        let same = there.unwrap_or_default().iter().zip(&data).take_while(|(a, b)| a == b);
        let cut = same.count();
        let mut bytes = node.bytes(count - 1);
        bytes.write(*offset, data.get(..cut).unwrap_or_default());
        Ok(is_same(&bytes, &found).then_some(Kept { applied: count, cut: Some(cut) }))
    }

    fn check_xattrs(&self, path: &str, node: &Node) -> Vec<String> {
        let wrong = node.xattrs.iter().filter(|(name, seed)| {
            snapshot::xattr(self.root, path, name) != Some(xattr_value(**seed))
        });
        wrong.map(|(name, _)| format!("{path} has a wrong extended attribute {name}")).collect()
    }
}

/// The problems, and the pending changes of each file that have survived.
type CheckResult = (Vec<String>, Vec<(NodeId, Kept)>);

impl VerifyReport {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.unsafe_lost += other.unsafe_lost;
        self.unsafe_lost_ms = self.unsafe_lost_ms.max(other.unsafe_lost_ms);
    }

    fn lose(&mut self, node: &Node, applied: usize, last_ms: u64) {
        self.unsafe_lost += (node.pending.len() - applied) as u64;
        if let Some((at, _)) = node.pending.get(applied) {
            self.unsafe_lost_ms = self.unsafe_lost_ms.max(last_ms.saturating_sub(*at));
        }
    }
}

/// Returns the value that a run gives an extended attribute.
pub(super) fn xattr_value(seed: u64) -> Vec<u8> {
    bytes_of(seed, 20)
}

fn is_cut(in_flight: Option<&Action>, id: NodeId) -> bool {
    matches!(in_flight, Some(Action::Change { node, .. }) if *node == id)
}

fn is_same(expected: &SparseBytes, found: &[u8]) -> bool {
    let size = found.len() as u64;
    expected.size() == size && expected.read(0, size) == found
}

fn check_attributes(path: &str, node: &Node, found: &Entry) -> Vec<String> {
    let mut problems = Vec::new();
    let kind = match node.kind {
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink(_) => FileType::Symlink,
        NodeKind::File => FileType::RegularFile,
    };
    if kind != found.kind {
        problems.push(format!("{path} is a {:?}, not a {kind:?}", found.kind));
        return problems;
    }
    match &node.kind {
        NodeKind::Symlink(target) if *target != found.target => {
            problems.push(format!("{path} points to {}, not {target}", found.target));
        }
        _ => {}
    }
    if let Some(mode) = node.mode
        && mode != found.mode
    {
        problems.push(format!("{path} has mode {:o}, not {mode:o}", found.mode));
    }
    if let Some(mtime) = node.mtime
        && node.kind == NodeKind::File
        && node.pending.is_empty()
        && mtime != found.mtime
    {
        problems.push(format!("{path} has mtime {:?}, not {mtime:?}", found.mtime));
    }
    problems
}
