//! How long the kernel may keep what it is answered, while others change it.
//!
//! Alone, a mount sees every change, and all but the attributes of written files ([`AttrTtl`]) hold
//! for [`TTL`]. Once other sessions exist ([`Lifetimes::set_shared`]):
//!
//! - What a change touches is *marked* from its announcement to its end, and has no lifetime. A
//!   reply that was asked for before the end and comes after it has none either: each request takes
//!   a [`Sample`] first.
//! - A lifetime is decided and written to the device under the gate ([`ReplyGuard`]). A change
//!   passes the gate after it has marked, so that the kernel has every older reply before it is
//!   told.
//! - Attributes that the kernel takes over without looking at their version have no lifetime:
//!   those of SETATTR and of names that were made, and those of entries, whose inode it may install
//!   only after it was told. Attributes of GETATTR have one: the kernel drops a reply that is older
//!   than an invalidation.
//!
//! A mount under leases ([`Keeps::Leased`]) is always beside other sessions, and what it is told of
//! are the recalls of its leases. By the same rules a reply may hold; it does for the rest of its
//! lease, at most for [`LEASED_TTL`]. Here attributes of an entry have a lifetime too, if a lookup
//! or a listing has found it, or the file was made and opened with it: a recall waits until the
//! kernel has installed its inode ([`crate::installing`]), and an inode that it has is compared by
//! version.
//!
//! [`AttrTtl`]: crate::attr_ttl::AttrTtl

use std::array;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use pelago_client::At;
use pelago_wire::{Attr, Entry, InodeId, LeaseTimes, Name, Time, Touched};

use crate::attr_ttl::{AttrTtl, Epoch};
use crate::init::{LEASED_TTL, TTL};
use crate::name_times::NameTimes;
use crate::options::Keeps;
use crate::striped::StripedMap;

/// What the kernel below a mount may keep.
pub(crate) struct Lifetimes {
    keeps: Keeps,
    /// Odd while other sessions exist; changes with each transition.
    era: AtomicU64,
    gates: [Gate; GATES],
    nodes: Changes,
    names: Changes,
    name_times: NameTimes,
    hasher: RandomState,
}

/// Gates, each for some of the threads that reply.
const GATES: usize = 8;
/// Counts of changes; those of different nodes may share one.
const COUNTS: usize = 1024;

/// A lock of a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Gate(RwLock<()>);

/// Changes of nodes or names, by their 64-bit keys.
struct Changes {
    /// How many changes of a key are under way.
    marks: StripedMap<u32>,
    marked: AtomicUsize,
    /// Changes that have ended.
    ended: Box<[AtomicU64]>,
}

/// The state before a request was sent to the server; its reply is judged by it.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) epoch: Epoch,
    era: u64,
    subject: Subject,
}

/// What a reply tells the lifetime of, and the changes of it that had ended.
#[derive(Clone, Copy)]
enum Subject {
    /// No other session existed.
    Alone,
    /// It is of another site.
    Elsewhere,
    Node(InodeId, u64),
    Name(u64, u64),
}

impl Sample {
    /// Returns the key of the name that is looked up or made, if other sessions exist.
    pub(crate) const fn name_key(&self) -> Option<u64> {
        match self.subject {
            Subject::Name(key, _) => Some(key),
            Subject::Alone | Subject::Elsewhere | Subject::Node(..) => None,
        }
    }
}

/// Lets a reply decide lifetimes, and is held until the reply is written.
pub(crate) struct ReplyGuard<'a> {
    lifetimes: &'a Lifetimes,
    attr_ttl: &'a AttrTtl,
    /// `None` if the kernel keeps nothing.
    gate: Option<RwLockReadGuard<'a, ()>>,
    era: u64,
}

impl Lifetimes {
    pub(crate) fn new(keeps: Keeps) -> Self {
        let era = u64::from(matches!(keeps, Keeps::Leased(_)));
        Self {
            keeps,
            era: AtomicU64::new(era),
            gates: array::from_fn(|_| Gate::default()),
            nodes: Changes::new(),
            names: Changes::new(),
            name_times: NameTimes::new(),
            hasher: RandomState::new(),
        }
    }

    /// Returns whether the kernel may keep anything.
    pub(crate) const fn keeps_nothing(&self) -> bool {
        matches!(self.keeps, Keeps::Nothing)
    }

    /// Returns whether the kernel may keep all that it is answered.
    pub(crate) const fn keeps_everything(&self) -> bool {
        self.keeps.site().is_some()
    }

    /// Returns whether a node is of another site, so that nothing of it may be kept although
    /// everything else may.
    pub(crate) fn is_elsewhere(&self, ino: InodeId) -> bool {
        self.keeps.site().is_some_and(|own| ino.site() != own && !ino.is_of_mount())
    }

    /// Returns whether the kernel may keep what is under a lease.
    pub(crate) const fn is_leased(&self) -> bool {
        matches!(self.keeps, Keeps::Leased(_))
    }

    /// Returns whether the kernel may keep no attributes of a node, because it may keep nothing or
    /// there is no lease on them.
    pub(crate) fn keeps_nothing_of(&self, ino: InodeId) -> bool {
        match &self.keeps {
            Keeps::Everything | Keeps::EverythingOfSite(_) => false,
            Keeps::Nothing => true,
            Keeps::Leased(leases) => leases.attr_left(ino).is_zero(),
        }
    }

    /// Returns the change time under which pages hold of a file or of a listing, if its attributes
    /// are under a lease.
    pub(crate) fn leased_version(&self, attr: &Attr) -> Option<Time> {
        let Keeps::Leased(leases) = &self.keeps else { return None };
        let holds = !attr.volatile
            && !self.nodes.is_marked(attr.ino.raw())
            && !leases.attr_left(attr.ino).is_zero();
        holds.then_some(attr.ctime)
    }

    /// Returns the name for [`ReplyGuard::name_at`] of a reply that comes later, if that needs it.
    pub(crate) fn leased_name(&self, at: &At) -> Option<Box<At>> {
        self.is_leased().then(|| Box::new(at.clone()))
    }

    /// Says whether other sessions exist. Replies on their way get no lifetime. Returns once all
    /// earlier ones are written.
    pub(crate) fn set_shared(&self, shared: bool) {
        let shared = shared || self.is_leased();
        let era = self.era.load(Ordering::Acquire);
        if (era % 2 == 1) != shared {
            self.era.store(era + 1, Ordering::Release);
        }
        self.pass_gate();
    }

    /// Ends all leases: replies on their way get no lifetime. Returns once all earlier ones are
    /// written.
    pub(crate) fn lose(&self) {
        self.era.fetch_add(2, Ordering::AcqRel);
        self.pass_gate();
    }

    /// Returns whether other sessions exist.
    pub(crate) fn is_shared(&self) -> bool {
        self.era.load(Ordering::Acquire) % 2 == 1
    }

    /// Returns whether other sessions exist, or have existed.
    pub(crate) fn was_shared(&self) -> bool {
        self.era.load(Ordering::Acquire) > 0
    }

    /// Marks what changes touch. Returns once every reply that did not see the mark is written. A
    /// recall of a name need not be one of its directory, whose listings have the name.
    pub(crate) fn mark(&self, changes: &[Touched]) {
        for change in changes {
            match change {
                Touched::Node(ino) => self.nodes.mark(ino.raw()),
                Touched::Name { dir, name } => {
                    self.names.mark(self.key(*dir, name.as_bytes()));
                    if self.is_leased() {
                        self.name_times.changed(dir.raw());
                        self.nodes.mark(dir.raw());
                    }
                }
                Touched::Bytes(_) => {}
            }
        }
        self.pass_gate();
    }

    /// Removes the marks of changes that have ended.
    pub(crate) fn unmark(&self, changes: &[Touched]) {
        for change in changes {
            match change {
                Touched::Node(ino) => self.nodes.unmark(ino.raw()),
                Touched::Name { dir, name } => {
                    self.names.unmark(self.key(*dir, name.as_bytes()));
                    if self.is_leased() {
                        self.nodes.unmark(dir.raw());
                    }
                }
                Touched::Bytes(_) => {}
            }
        }
    }

    /// Returns whether others may have changed a node since there are other sessions.
    pub(crate) fn may_have_changed(&self, ino: InodeId) -> bool {
        self.is_shared() && (self.nodes.ended(ino.raw()) > 0 || self.nodes.is_marked(ino.raw()))
    }

    /// Returns whether others change a node, or have it open for writing.
    pub(crate) fn changes_now(&self, ino: InodeId) -> bool {
        self.nodes.is_marked(ino.raw())
    }

    /// Returns whether the kernel may keep what a name leads to, or that it does not exist. Asked
    /// once the name is marked.
    pub(crate) fn may_keep(&self, dir: InodeId, name: &Name) -> bool {
        !self.is_leased() || self.name_times.may_be_kept(self.key(dir, name.as_bytes()))
    }

    /// Returns the present time, before all names are invalidated.
    pub(crate) fn name_time(&self) -> u64 {
        self.name_times.now()
    }

    /// The kernel uses no name any more that it was answered before this time, except in listings.
    pub(crate) fn names_invalidated(&self, time: u64) {
        self.name_times.invalidated(time);
    }

    /// The kernel is about to move what it keeps of one name to the other, or to exchange both.
    pub(crate) fn moves(&self, one: &At, other: &At) {
        if self.is_leased() {
            let key = |at: &At| self.key(at.dir.ino, at.name.as_bytes());
            self.name_times.moved(key(one), key(other));
            self.name_times.moved(key(other), key(one));
        }
    }

    /// Samples a node, before its attributes or its names are requested.
    pub(crate) fn sample(&self, epoch: Epoch, ino: InodeId) -> Sample {
        self.sampled(epoch, ino, || Subject::Node(ino, self.nodes.ended(ino.raw())))
    }

    /// Samples a name, before it is looked up or made.
    pub(crate) fn sample_name(&self, epoch: Epoch, at: &At) -> Sample {
        self.sampled(epoch, at.dir.ino, || {
            let key = self.key(at.dir.ino, at.name.as_bytes());
            Subject::Name(key, self.names.ended(key))
        })
    }

    /// Returns the guard under which a reply decides its lifetimes and is written.
    pub(crate) fn reply_guard<'a>(&'a self, attr_ttl: &'a AttrTtl) -> ReplyGuard<'a> {
        let gate = (!self.keeps_nothing()).then(|| self.gate());
        ReplyGuard { lifetimes: self, attr_ttl, gate, era: self.era.load(Ordering::Acquire) }
    }

    /// `ino`: the node, or the directory of the name.
    fn sampled(&self, epoch: Epoch, ino: InodeId, subject: impl FnOnce() -> Subject) -> Sample {
        let era = self.era.load(Ordering::Acquire);
        let subject = match era % 2 == 1 {
            _ if self.is_elsewhere(ino) => Subject::Elsewhere,
            true => subject(),
            false => Subject::Alone,
        };
        Sample { epoch, era, subject }
    }

    fn key(&self, dir: InodeId, name: &[u8]) -> u64 {
        self.hasher.hash_one((dir.raw(), name))
    }

    /// Waits for the replies that hold the gate.
    fn pass_gate(&self) {
        for gate in &self.gates {
            drop(gate.0.write());
        }
    }

    fn gate(&self) -> RwLockReadGuard<'_, ()> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        self.gates[NUMBER.with(Cell::get) % GATES].0.read()
    }
}

impl Changes {
    fn new() -> Self {
        let ended = (0..COUNTS).map(|_| AtomicU64::new(0)).collect();
        Self { marks: StripedMap::default(), marked: AtomicUsize::new(0), ended }
    }

    fn count(&self, key: u64) -> &AtomicU64 {
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.ended[spread as usize % COUNTS]
    }

    fn mark(&self, key: u64) {
        self.marked.fetch_add(1, Ordering::AcqRel);
        *self.marks.lock(key).entry(key).or_insert(0) += 1;
    }

    fn unmark(&self, key: u64) {
        // First the count: who no longer sees the mark sees the count.
        self.count(key).fetch_add(1, Ordering::AcqRel);
        let mut stripe = self.marks.lock(key);
        let Some(count) = stripe.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            stripe.remove(&key);
        }
        self.marked.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_marked(&self, key: u64) -> bool {
        self.marked.load(Ordering::Acquire) > 0 && self.marks.contains(key)
    }

    fn ended(&self, key: u64) -> u64 {
        self.count(key).load(Ordering::Acquire)
    }

    /// Returns whether nothing has changed since `ended` changes had ended, and nothing changes.
    fn holds(&self, key: u64, ended: u64) -> bool {
        !self.is_marked(key) && self.ended(key) == ended
    }
}

impl ReplyGuard<'_> {
    /// Returns how long attributes hold that answer GETATTR or STATX.
    pub(crate) fn attr(&self, attr: &Attr, sample: &Sample) -> Duration {
        if !self.holds(sample) {
            return Duration::ZERO;
        }
        let ttl = self.attr_ttl.ttl(attr, sample.epoch);
        match &self.lifetimes.keeps {
            Keeps::Leased(leases) if !ttl.is_zero() => leases.attr_left(attr.ino).min(LEASED_TTL),
            _ => ttl,
        }
    }

    /// Returns how long attributes hold that ride on an entry which was looked up or listed. The
    /// kernel's references to it are counted by then.
    pub(crate) fn found_attr(&self, entry: &Entry, sample: &Sample) -> Duration {
        let Keeps::Leased(leases) = &self.lifetimes.keeps else {
            return self.unversioned_attr(&entry.attr, sample);
        };
        match self.attr_ttl.ttl(&entry.attr, sample.epoch).is_zero() {
            true => Duration::ZERO,
            false => self.leased_attr(&**leases, entry, sample),
        }
    }

    /// Returns how long attributes under a lease hold that ride on an entry. Only the references to
    /// files that have one name are counted.
    fn leased_attr(&self, leases: &dyn LeaseTimes, entry: &Entry, sample: &Sample) -> Duration {
        let holds = entry.handle.is_under_a_name()
            && !self.lifetimes.nodes.is_marked(entry.attr.ino.raw())
            && self.holds(sample);
        if holds { leases.attr_holds(&entry.attr).min(LEASED_TTL) } else { Duration::ZERO }
    }

    /// Returns how long attributes hold that ride on the entry of a name that was made, or answer
    /// SETATTR.
    pub(crate) fn unversioned_attr(&self, attr: &Attr, sample: &Sample) -> Duration {
        if self.era.is_multiple_of(2) { self.attr(attr, sample) } else { Duration::ZERO }
    }

    /// Returns how long attributes hold that ride on the entry of a file that is opened with it.
    /// The kernel sees every change of a new file by this mount, also while it is written.
    pub(crate) fn created_attr(&self, entry: &Entry, sample: &Sample) -> Duration {
        match &self.lifetimes.keeps {
            _ if self.era.is_multiple_of(2) => self.name(sample),
            Keeps::Leased(leases) => self.leased_attr(&**leases, entry, sample),
            _ => Duration::ZERO,
        }
    }

    /// Returns how long a name holds that is under no lease, or its absence.
    pub(crate) fn name(&self, sample: &Sample) -> Duration {
        let holds = !self.lifetimes.is_leased() && self.holds(sample);
        if holds { TTL } else { Duration::ZERO }
    }

    /// Returns how long a name holds, or its absence; `at` is what [`Lifetimes::leased_name`] has
    /// returned.
    pub(crate) fn name_at(&self, sample: &Sample, at: Option<&At>) -> Duration {
        match at {
            Some(At { dir, name }) => self.leased_name(sample, dir.ino, name, false),
            None => self.name(sample),
        }
    }

    /// Returns how long a name holds that a listing has; the sample is that of its directory.
    pub(crate) fn name_listed(&self, sample: &Sample, name: &Name) -> Duration {
        match sample.subject {
            Subject::Node(dir, _) if self.lifetimes.is_leased() => {
                self.leased_name(sample, dir, name, true)
            }
            _ => self.name(sample),
        }
    }

    fn leased_name(&self, sample: &Sample, dir: InodeId, name: &Name, is_listed: bool) -> Duration {
        match &self.lifetimes.keeps {
            Keeps::Leased(leases) if self.holds(sample) => {
                let key = self.lifetimes.key(dir, name.as_bytes());
                let ttl = leases.name_left(dir, name).min(LEASED_TTL);
                self.lifetimes.name_times.give(dir.raw(), key, ttl, is_listed)
            }
            _ => Duration::ZERO,
        }
    }

    fn holds(&self, sample: &Sample) -> bool {
        let Lifetimes { nodes, names, .. } = self.lifetimes;
        self.gate.is_some()
            && self.era == sample.era
            && match sample.subject {
                Subject::Alone => true,
                Subject::Elsewhere => false,
                Subject::Node(ino, ended) => nodes.holds(ino.raw(), ended),
                Subject::Name(key, ended) => names.holds(key, ended),
            }
    }
}

#[cfg(test)]
mod tests;
