//! Directories of other sites in the kernel's cache, below the mount of a server of several sites.
//!
//! Each path to an own directory leads through some. The kernel keeps their attributes, and the
//! names in them that lead to directories, for the rest of the leases that the server has on them.
//! It is a cache beside that of own files: other sessions, or none, have no effect on it. Its
//! changes are the recalls of these leases, and what other sessions of this site change there. By
//! the rules of [`super::Lifetimes`] a reply may get a lifetime, but only one to GETATTR, or to a
//! LOOKUP for its name.
//!
//! All that got a lifetime is recorded until that is over, and a change sends a notice for nothing
//! else. A notice for a name takes the kernel's lock of its directory, which a program may hold
//! until the other site answers, and one for a file that programs read drops its size.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_client::At;
use pelago_wire::{Attr, DirectoryLeases, Entry, FileKind, InodeId, Name, Touched};

use super::changes::Changes;
use crate::init::{INSTALLS, LEASED_TTL};
use crate::notices::DirEntryKey;

/// Time by which the kernel may end a lifetime later than the server its lease: it counts in ticks,
/// from the arrival of the reply.
const SLACK: Duration = Duration::from_millis(50);
/// Most directories, and most names, that have a lifetime at the same time. Further ones get none.
const MOST_KEPT: usize = 65_536;
/// Count of records from which those that are over are searched for, and the pause between two
/// searches.
const SWEEP_FROM: usize = 1024;
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// Decides how long the kernel may keep a directory of another site, and records what it keeps.
pub(super) struct Elsewhere {
    leases: Arc<dyn DirectoryLeases>,
    /// Changes when all leases of a site have ended.
    era: AtomicU64,
    nodes: Changes,
    names: Changes,
    /// A leaf lock.
    kept: Mutex<KeptElsewhere>,
}

/// The directories and names of other sites that the kernel keeps.
struct KeptElsewhere {
    nodes: Kept<InodeId>,
    names: Kept<DirEntryKey>,
}

/// Things to which a lifetime was given, with the time at which that is over.
struct Kept<K> {
    until: HashMap<K, Instant>,
    /// Count of records at which those that are over are searched for.
    sweep_at: usize,
    swept: Instant,
}

/// The state before a request was sent; see [`super::Sample`].
#[derive(Clone, Copy)]
pub(super) struct Sample {
    era: u64,
    subject: Subject,
}

/// The node or name whose lifetime a reply sets, and how many of its changes had ended.
#[derive(Clone, Copy)]
enum Subject {
    Node(InodeId, u64),
    Name(u64, u64),
}

/// The directories and names among them that a change touches, or that are of one site.
#[derive(Default)]
pub(crate) struct KeptPart {
    pub(crate) nodes: Vec<InodeId>,
    pub(crate) names: Vec<DirEntryKey>,
    /// When the last lifetime of these names is over.
    pub(crate) names_until: Option<Instant>,
}

impl Elsewhere {
    pub(super) fn new(leases: Arc<dyn DirectoryLeases>) -> Self {
        let kept = KeptElsewhere { nodes: Kept::new(), names: Kept::new() };
        Self {
            leases,
            era: AtomicU64::new(0),
            nodes: Changes::new(),
            names: Changes::new(),
            kept: Mutex::new(kept),
        }
    }

    /// Samples a node, before its attributes are requested.
    pub(super) fn sample(&self, ino: InodeId) -> Sample {
        let era = self.era.load(Ordering::Acquire);
        Sample { era, subject: Subject::Node(ino, self.nodes.ended(ino.raw())) }
    }

    /// Samples a name by its key, before it is looked up.
    pub(super) fn sample_name(&self, key: u64) -> Sample {
        let era = self.era.load(Ordering::Acquire);
        Sample { era, subject: Subject::Name(key, self.names.ended(key)) }
    }

    /// Returns the lifetime of attributes in a reply to GETATTR or STATX, and records it. The gate
    /// is held.
    pub(super) fn give_attr(&self, sample: &Sample, attr: &Attr) -> Duration {
        let is_asked = matches!(sample.subject, Subject::Node(ino, _) if ino == attr.ino);
        if !is_asked || attr.kind != FileKind::Directory || !self.holds(sample) {
            return Duration::ZERO;
        }
        let ttl = lifetime(self.leases.attr_holds(attr));
        self.kept.lock().nodes.give(attr.ino, ttl)
    }

    /// Returns the lifetime of a name that was looked up and leads to this entry, and records it.
    /// The gate is held.
    pub(super) fn give_name(&self, sample: &Sample, at: &At, entry: &Entry) -> Duration {
        let is_asked = matches!(sample.subject, Subject::Name(..));
        if !is_asked || entry.attr.kind != FileKind::Directory || !self.holds(sample) {
            return Duration::ZERO;
        }
        let ttl = lifetime(self.leases.name_holds(at.dir.ino, &at.name, entry.attr.ino));
        self.kept.lock().names.give(DirEntryKey::from(at), ttl)
    }

    /// Marks the nodes and names that changes touch. The caller passes the gate then.
    pub(super) fn mark(&self, changes: &[Touched], key: impl Fn(InodeId, &Name) -> u64) {
        self.each(changes, key, Changes::mark);
    }

    /// Removes the marks of changes that have ended.
    pub(super) fn unmark(&self, changes: &[Touched], key: impl Fn(InodeId, &Name) -> u64) {
        self.each(changes, key, Changes::unmark);
    }

    /// Calls `act` with the key of each node and name that changes touch.
    fn each(
        &self,
        changes: &[Touched],
        key: impl Fn(InodeId, &Name) -> u64,
        act: fn(&Changes, u64),
    ) {
        for change in changes {
            match change {
                Touched::Node(ino) => act(&self.nodes, ino.raw()),
                Touched::Name { dir, name } => act(&self.names, key(*dir, name)),
                Touched::Bytes(_) => {}
            }
        }
    }

    /// Returns what the kernel keeps of the things that changes touch. Asked once they are marked,
    /// and the gate is passed.
    pub(super) fn touched(&self, changes: &[Touched]) -> KeptPart {
        let now = Instant::now();
        let kept = self.kept.lock();
        let mut part = KeptPart::default();
        for change in changes {
            match change {
                Touched::Node(ino) if kept.nodes.until(ino, now).is_some() => {
                    part.nodes.push(*ino);
                }
                Touched::Name { dir, name } => {
                    let key = DirEntryKey { dir: *dir, name: name.clone() };
                    if let Some(until) = kept.names.until(&key, now) {
                        part.names_until = part.names_until.max(Some(until));
                        part.names.push(key);
                    }
                }
                Touched::Node(_) | Touched::Bytes(_) => {}
            }
        }
        part
    }

    /// Returns whether the kernel keeps one of these names.
    pub(super) fn keeps_one(&self, names: [&At; 2]) -> bool {
        let now = Instant::now();
        let kept = self.kept.lock();
        names.iter().any(|at| kept.names.until(&DirEntryKey::from(*at), now).is_some())
    }

    /// Returns whether the server is told of each change of these names.
    pub(super) fn are_leased(&self, names: [&At; 2]) -> bool {
        names.iter().all(|at| self.leases.has_names(at.dir.ino, &at.name))
    }

    /// Records that the kernel is about to move one name to the other, with its lifetime, or to
    /// exchange both.
    pub(super) fn moves(&self, [one, other]: [&At; 2]) {
        let now = Instant::now();
        let [one, other] = [one, other].map(DirEntryKey::from);
        let names = &mut self.kept.lock().names;
        let [of_one, of_other] = [&one, &other].map(|key| names.until(key, now));
        of_one.into_iter().for_each(|until| names.record(other.clone(), until));
        of_other.into_iter().for_each(|until| names.record(one.clone(), until));
    }

    /// Ends all leases of a site: replies on their way get no lifetime. The caller passes the gate
    /// then, and calls [`Elsewhere::of_site`].
    pub(super) fn lose(&self) {
        self.era.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns what the kernel keeps of a site, without the single names.
    pub(super) fn of_site(&self, site: u16) -> KeptPart {
        let now = Instant::now();
        let kept = self.kept.lock();
        let nodes = kept.nodes.all(now).map(|(ino, _)| *ino).filter(|ino| ino.site() == site);
        let mut part = KeptPart { nodes: nodes.collect(), ..KeptPart::default() };
        let names = kept.names.all(now).filter(|(key, _)| key.dir.site() == site);
        part.names_until = names.map(|(_, until)| until).max();
        part
    }

    fn holds(&self, sample: &Sample) -> bool {
        self.era.load(Ordering::Acquire) == sample.era
            && match sample.subject {
                Subject::Node(ino, ended) => self.nodes.holds(ino.raw(), ended),
                Subject::Name(key, ended) => self.names.holds(key, ended),
            }
    }
}

impl<K: Hash + Eq> Kept<K> {
    fn new() -> Self {
        Self { until: HashMap::new(), sweep_at: SWEEP_FROM, swept: Instant::now() }
    }

    /// Records the lifetime of a thing. Returns it, or zero if there is no room.
    fn give(&mut self, key: K, ttl: Duration) -> Duration {
        if ttl.is_zero() {
            return ttl;
        }
        let now = Instant::now();
        if self.until.len() >= self.sweep_at && now > self.swept + SWEEP_PAUSE {
            self.until.retain(|_, until| *until > now);
            self.sweep_at = (2 * self.until.len()).clamp(SWEEP_FROM, MOST_KEPT);
            self.swept = now;
        }
        if self.until.len() >= MOST_KEPT {
            return Duration::ZERO;
        }
        // A program installs the reply some time later.
        self.record(key, now + ttl + INSTALLS);
        ttl
    }

    /// Records that the lifetime of a thing is over at this time, or later.
    fn record(&mut self, key: K, until: Instant) {
        let kept = self.until.entry(key).or_insert(until);
        *kept = until.max(*kept);
    }

    /// Returns when the lifetime of a thing is over, if it is not yet.
    fn until(&self, key: &K, now: Instant) -> Option<Instant> {
        self.until.get(key).copied().filter(|until| *until > now)
    }

    /// Returns all things whose lifetime is not over, and when it is.
    fn all(&self, now: Instant) -> impl Iterator<Item = (&K, Instant)> {
        self.until.iter().map(|(key, until)| (key, *until)).filter(move |(_, until)| *until > now)
    }
}

/// Returns the lifetime that a reply gets of a lease that lasts for `left`.
fn lifetime(left: Duration) -> Duration {
    left.saturating_sub(SLACK).min(LEASED_TTL)
}

#[cfg(test)]
mod tests;
