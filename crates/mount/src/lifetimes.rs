//! Lifetimes of replies in the kernel's cache, while other sessions change files.
//!
//! Alone, a mount sees every change, and names and attributes get the lifetime [`TTL`], except
//! attributes of files that are open for writing ([`AttrTtl`]). Once other sessions exist
//! ([`Lifetimes::set_shared`]):
//!
//! - The nodes and names that a change touches are *marked* from its announcement to its end, and
//!   replies about them get no lifetime. A reply gets none either if its request was sent before
//!   the end of such a change and it comes after: each request takes a [`Sample`] first.
//! - A lifetime is decided and written to the device under the gate ([`ReplyGuard`]). A change
//!   passes the gate after it has marked, so that the kernel has every older reply before the
//!   invalidation.
//! - Attributes that Linux takes over without comparing their version have no lifetime: those of
//!   SETATTR, and of names that were made. Attributes of GETATTR have one: Linux drops a reply
//!   whose request is older than an invalidation.
//! - Attributes of an entry have the lifetime [`ENTRY_TTL`] if a lookup or a listing has found it,
//!   or if the file was made and opened with it. Linux installs an entry in the thread of the
//!   program, perhaps after the invalidation, which then found no inode. So a change waits until
//!   the kernel has installed the inode ([`crate::installing`]). If the kernel has the inode
//!   already, it compares the version.
//!
//! A mount under leases ([`Keeps::Leased`]) always has other sessions beside it, and the recalls of
//! its leases are the changes. By the same rules a reply may get a lifetime; it is the rest of its
//! lease, at most [`LEASED_TTL`].
//!
//! The mount of a server of several sites ([`Keeps::EverythingOfSite`]) keeps directories of other
//! sites under leases of the server, beside all that is of its own site ([`elsewhere`]).
//!
//! [`AttrTtl`]: crate::attr_ttl::AttrTtl

mod changes;
mod elsewhere;

use std::array;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use pelago_client::At;
use pelago_wire::{Attr, Entry, InodeId, Name, Time, Touched};

use crate::attr_ttl::{AttrTtl, Epoch};
use crate::init::{ENTRY_TTL, LEASED_TTL, TTL};
use crate::name_times::NameTimes;
use crate::options::Keeps;

pub(crate) use self::elsewhere::KeptPart;

use self::changes::Changes;
use self::elsewhere::Elsewhere;

/// Decides how long the kernel below a mount may keep a reply.
pub(crate) struct Lifetimes {
    keeps: Keeps,
    /// Odd while other sessions exist; changes with each transition.
    era: AtomicU64,
    gates: [Gate; GATES],
    nodes: Changes,
    names: Changes,
    name_times: NameTimes,
    hasher: RandomState,
    /// Directories of other sites, if some of their replies may be kept.
    elsewhere: Option<Elsewhere>,
}

/// Count of gates, each for some of the threads that reply.
const GATES: usize = 8;

/// A lock of a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Gate(RwLock<()>);

/// The state before a request was sent to the server; its reply is judged by it.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) epoch: Epoch,
    era: u64,
    subject: Subject,
    /// Number of ended changes of any node: which one a name leads to is not known yet.
    nodes_ended: u64,
}

/// The node or name whose lifetime a reply sets, and how many of its changes had ended.
#[derive(Clone, Copy)]
enum Subject {
    /// No other session existed.
    Alone,
    /// The node is of another site. `None` if nothing of those is kept.
    Elsewhere(Option<elsewhere::Sample>),
    Node(InodeId, u64),
    Name(u64, u64),
}

impl Sample {
    /// Returns the key of the name that is looked up or made, if other sessions exist.
    pub(crate) const fn name_key(&self) -> Option<u64> {
        match self.subject {
            Subject::Name(key, _) => Some(key),
            Subject::Alone | Subject::Elsewhere(_) | Subject::Node(..) => None,
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
        let elsewhere = match &keeps {
            Keeps::EverythingOfSite(_, leases) => Some(Elsewhere::new(Arc::clone(leases))),
            Keeps::Everything | Keeps::Nothing | Keeps::Leased(_) => None,
        };
        Self {
            keeps,
            era: AtomicU64::new(era),
            gates: array::from_fn(|_| Gate::default()),
            nodes: Changes::new(),
            names: Changes::new(),
            name_times: NameTimes::new(),
            hasher: RandomState::new(),
            elsewhere,
        }
    }

    /// Returns whether the kernel may keep no reply at all.
    pub(crate) const fn keeps_nothing(&self) -> bool {
        matches!(self.keeps, Keeps::Nothing)
    }

    /// Returns whether the kernel may keep all replies.
    pub(crate) const fn keeps_everything(&self) -> bool {
        self.keeps.site().is_some()
    }

    /// Returns whether a node is of another site: the kernel may keep no reply about it but under a
    /// lease, and only if it is a directory, although it may keep all others.
    pub(crate) fn is_elsewhere(&self, ino: InodeId) -> bool {
        self.keeps.site().is_some_and(|own| ino.site() != own && !ino.is_of_mount())
    }

    /// Returns whether the kernel may keep replies that are under a lease.
    pub(crate) const fn is_leased(&self) -> bool {
        matches!(self.keeps, Keeps::Leased(_))
    }

    /// Returns the longest lifetime of attributes in an entry while other sessions exist.
    pub(crate) const fn entry_ttl(&self) -> Duration {
        if self.is_leased() { LEASED_TTL } else { ENTRY_TTL }
    }

    /// Returns whether the kernel may keep no attributes of a node: it may keep no replies, or
    /// there is no lease on the node.
    pub(crate) fn keeps_nothing_of(&self, ino: InodeId) -> bool {
        match &self.keeps {
            Keeps::Everything | Keeps::EverythingOfSite(..) => false,
            Keeps::Nothing => true,
            Keeps::Leased(leases) => leases.attr_left(ino).is_zero(),
        }
    }

    /// Returns the change time (ctime) under which the pages of a file or of a listing are valid,
    /// if the attributes are under a lease.
    pub(crate) fn leased_version(&self, attr: &Attr) -> Option<Time> {
        let Keeps::Leased(leases) = &self.keeps else { return None };
        let holds = !attr.volatile
            && !self.nodes.is_marked(attr.ino.raw())
            && !leases.attr_left(attr.ino).is_zero();
        holds.then_some(attr.ctime)
    }

    /// Returns a copy of the name for [`ReplyGuard::name_at`] of a later reply, if the name may be
    /// kept under a lease.
    pub(crate) fn leased_name(&self, at: &At) -> Option<Box<At>> {
        let is_leased = self.is_leased() || self.is_elsewhere(at.dir.ino);
        is_leased.then(|| Box::new(at.clone()))
    }

    /// Marks the nodes and names of other sites that changes touch. Returns what the kernel keeps
    /// of them, once every reply that did not see the marks is written.
    pub(crate) fn mark_elsewhere(&self, changes: &[Touched]) -> KeptPart {
        let Some(elsewhere) = &self.elsewhere else { return KeptPart::default() };
        elsewhere.mark(changes, |dir, name| self.key(dir, name.as_bytes()));
        self.pass_gate();
        elsewhere.touched(changes)
    }

    /// Removes the marks of changes at other sites that have ended.
    pub(crate) fn unmark_elsewhere(&self, changes: &[Touched]) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.unmark(changes, |dir, name| self.key(dir, name.as_bytes()));
        }
    }

    /// Ends all leases of another site: replies on their way get no lifetime. Returns what the
    /// kernel keeps of that site, once all earlier ones are written. The caller has it dropped.
    pub(crate) fn lose_elsewhere(&self, site: u16) -> KeptPart {
        let Some(elsewhere) = &self.elsewhere else { return KeptPart::default() };
        elsewhere.lose();
        self.pass_gate();
        elsewhere.of_site(site)
    }

    /// Returns whether the kernel keeps one of these names of other sites.
    pub(crate) fn keeps_elsewhere(&self, names: [&At; 2]) -> bool {
        self.elsewhere_of(names).is_some_and(|elsewhere| elsewhere.keeps_one(names))
    }

    /// Returns whether one of these names is of another site, and its server is perhaps not told of
    /// its changes. Asked before a rename is sent.
    pub(crate) fn is_unleased_elsewhere(&self, names: [&At; 2]) -> bool {
        self.elsewhere_of(names).is_some_and(|elsewhere| !elsewhere.are_leased(names))
    }

    /// Records that the kernel is about to move one name to the other, with its lifetime, or to
    /// exchange both, if they are of another site.
    pub(crate) fn moves_elsewhere(&self, names: [&At; 2]) {
        self.elsewhere_of(names).into_iter().for_each(|elsewhere| elsewhere.moves(names));
    }

    /// Returns the lifetimes of directories of other sites, if one of these names may have one.
    fn elsewhere_of(&self, names: [&At; 2]) -> Option<&Elsewhere> {
        let is_elsewhere = names.iter().any(|at| self.is_elsewhere(at.dir.ino));
        self.elsewhere.as_ref().filter(|_| is_elsewhere)
    }

    /// Sets whether other sessions exist. Replies on their way get no lifetime. Returns once all
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

    /// Marks the nodes and names that changes touch. Returns once every reply that did not see the
    /// marks is written. Under leases a name marks its directory too, because listings have the
    /// name and its recall need not come with one of the directory.
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

    /// Returns whether others may have changed a node since other sessions exist.
    pub(crate) fn may_have_changed(&self, ino: InodeId) -> bool {
        self.is_shared() && (self.nodes.ended(ino.raw()) > 0 || self.nodes.is_marked(ino.raw()))
    }

    /// Returns whether others change a node, or have it open for writing.
    pub(crate) fn changes_now(&self, ino: InodeId) -> bool {
        self.nodes.is_marked(ino.raw())
    }

    /// Returns whether the kernel may have a name, or its absence, with a lifetime. Asked once the
    /// name is marked.
    pub(crate) fn may_keep(&self, dir: InodeId, name: &Name) -> bool {
        !self.is_leased() || self.name_times.may_be_kept(self.key(dir, name.as_bytes()))
    }

    /// Returns the present time, before all names are invalidated.
    pub(crate) fn name_time(&self) -> u64 {
        self.name_times.now()
    }

    /// Records that names which were sent before this time are invalid, except those of listings.
    pub(crate) fn names_invalidated(&self, time: u64) {
        self.name_times.invalidated(time);
    }

    /// Records that the kernel is about to move one name to the other, with its lifetime, or to
    /// exchange both.
    pub(crate) fn moves(&self, one: &At, other: &At) {
        if self.is_leased() {
            let key = |at: &At| self.key(at.dir.ino, at.name.as_bytes());
            self.name_times.moved(key(one), key(other));
            self.name_times.moved(key(other), key(one));
        }
    }

    /// Samples a node, before its attributes or its names are requested.
    pub(crate) fn sample(&self, epoch: Epoch, ino: InodeId) -> Sample {
        let elsewhere = |elsewhere: &Elsewhere| elsewhere.sample(ino);
        self.sampled(epoch, ino, elsewhere, || Subject::Node(ino, self.nodes.ended(ino.raw())))
    }

    /// Samples a name, before it is looked up or made.
    pub(crate) fn sample_name(&self, epoch: Epoch, at: &At) -> Sample {
        let key = || self.key(at.dir.ino, at.name.as_bytes());
        let elsewhere = |elsewhere: &Elsewhere| elsewhere.sample_name(key());
        self.sampled(epoch, at.dir.ino, elsewhere, || {
            let key = key();
            Subject::Name(key, self.names.ended(key))
        })
    }

    /// Returns the guard under which a reply decides its lifetimes and is written.
    pub(crate) fn reply_guard<'a>(&'a self, attr_ttl: &'a AttrTtl) -> ReplyGuard<'a> {
        let gate = (!self.keeps_nothing()).then(|| self.gate());
        ReplyGuard { lifetimes: self, attr_ttl, gate, era: self.era.load(Ordering::Acquire) }
    }

    /// Samples `ino`, the node or the directory of the name, by `elsewhere` if it is of another
    /// site, and by `subject` if other sessions exist.
    fn sampled(
        &self,
        epoch: Epoch,
        ino: InodeId,
        elsewhere: impl FnOnce(&Elsewhere) -> elsewhere::Sample,
        subject: impl FnOnce() -> Subject,
    ) -> Sample {
        let era = self.era.load(Ordering::Acquire);
        let subject = match era % 2 == 1 {
            _ if self.is_elsewhere(ino) => {
                Subject::Elsewhere(self.elsewhere.as_ref().map(elsewhere))
            }
            true => subject(),
            false => Subject::Alone,
        };
        Sample { epoch, era, subject, nodes_ended: self.nodes.all_ended() }
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

impl ReplyGuard<'_> {
    /// Returns the lifetime of attributes in a reply to GETATTR or STATX.
    pub(crate) fn attr(&self, attr: &Attr, sample: &Sample) -> Duration {
        if let Subject::Elsewhere(Some(sample)) = &sample.subject {
            let elsewhere = self.lifetimes.elsewhere.as_ref().filter(|_| self.gate.is_some());
            return elsewhere.map_or(Duration::ZERO, |all| all.give_attr(sample, attr));
        }
        if !self.holds(sample) {
            return Duration::ZERO;
        }
        let ttl = self.attr_ttl.ttl(attr, sample.epoch);
        match &self.lifetimes.keeps {
            Keeps::Leased(leases) if !ttl.is_zero() => leases.attr_left(attr.ino).min(LEASED_TTL),
            _ => ttl,
        }
    }

    /// Returns the lifetime of attributes in an entry that was looked up or listed. The kernel's
    /// reference to it must be counted before.
    pub(crate) fn found_attr(&self, entry: &Entry, sample: &Sample) -> Duration {
        match self.attr_ttl.ttl(&entry.attr, sample.epoch) {
            Duration::ZERO => Duration::ZERO,
            _ if self.is_shared() => self.shared_attr(entry, sample),
            _ => self.attr(&entry.attr, sample),
        }
    }

    /// Returns the lifetime of attributes in an entry while other sessions exist. It is zero unless
    /// the file has one name, because the references to other files are not counted.
    fn shared_attr(&self, entry: &Entry, sample: &Sample) -> Duration {
        let Lifetimes { keeps, nodes, .. } = self.lifetimes;
        let holds = entry.handle.is_under_a_name()
            && !nodes.is_marked(entry.attr.ino.raw())
            && self.holds(sample);
        match keeps {
            _ if !holds => Duration::ZERO,
            Keeps::Leased(leases) => leases.attr_holds(&entry.attr).min(LEASED_TTL),
            // No lease says whether the node has changed since it was read.
            _ if nodes.all_ended() == sample.nodes_ended => ENTRY_TTL,
            _ => Duration::ZERO,
        }
    }

    /// Returns whether other sessions exist.
    const fn is_shared(&self) -> bool {
        self.era % 2 == 1
    }

    /// Returns the lifetime of attributes in the entry of a name that was made, or in a reply to
    /// SETATTR.
    pub(crate) fn unversioned_attr(&self, attr: &Attr, sample: &Sample) -> Duration {
        if self.is_shared() { Duration::ZERO } else { self.attr(attr, sample) }
    }

    /// Returns the lifetime of attributes in the entry of a file that is opened with it (CREATE).
    /// The kernel sees every change of a new file by this mount, also while it is written.
    pub(crate) fn created_attr(&self, entry: &Entry, sample: &Sample) -> Duration {
        if self.is_shared() { self.shared_attr(entry, sample) } else { self.name(sample) }
    }

    /// Returns the lifetime of a name that is under no lease, or of its absence.
    pub(crate) fn name(&self, sample: &Sample) -> Duration {
        let holds = !self.lifetimes.is_leased() && self.holds(sample);
        if holds { TTL } else { Duration::ZERO }
    }

    /// Returns the lifetime of a name, or of its absence; `at` is the result of
    /// [`Lifetimes::leased_name`].
    pub(crate) fn name_at(&self, sample: &Sample, at: Option<&At>) -> Duration {
        match at {
            Some(At { dir, name }) => self.leased_name(sample, dir.ino, name, false),
            None => self.name(sample),
        }
    }

    /// Returns the lifetime of a name that was looked up and leads to this entry; `at` is the
    /// result of [`Lifetimes::leased_name`].
    pub(crate) fn found_name(&self, sample: &Sample, at: Option<&At>, entry: &Entry) -> Duration {
        match (&self.lifetimes.elsewhere, &sample.subject, at) {
            (Some(elsewhere), Subject::Elsewhere(Some(sample)), Some(at)) => {
                elsewhere.give_name(sample, at, entry)
            }
            _ => self.name_at(sample, at),
        }
    }

    /// Returns the lifetime of a name in a listing; the sample is that of its directory.
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
                Subject::Elsewhere(_) => false,
                Subject::Node(ino, ended) => nodes.holds(ino.raw(), ended),
                Subject::Name(key, ended) => names.holds(key, ended),
            }
    }
}

#[cfg(test)]
mod tests;
