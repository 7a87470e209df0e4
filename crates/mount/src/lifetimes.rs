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
//!   those of entries, whose inode it may install only after it was told, and those of SETATTR.
//!   Attributes of GETATTR have one: the kernel drops a reply that is older than an invalidation.
//!
//! [`AttrTtl`]: crate::attr_ttl::AttrTtl

use std::array;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use pelago_client::At;
use pelago_wire::{Attr, InodeId, Touched};

use crate::attr_ttl::{AttrTtl, Epoch};
use crate::init::TTL;
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
    Node(InodeId, u64),
    Name(u64, u64),
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
        Self {
            keeps,
            era: AtomicU64::new(0),
            gates: array::from_fn(|_| Gate::default()),
            nodes: Changes::new(),
            names: Changes::new(),
            hasher: RandomState::new(),
        }
    }

    /// Returns whether the kernel may keep anything.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.keeps == Keeps::Nothing
    }

    /// Says whether other sessions exist. Replies on their way get no lifetime. Returns once all
    /// earlier ones are written.
    pub(crate) fn set_shared(&self, shared: bool) {
        let era = self.era.load(Ordering::Acquire);
        if (era % 2 == 1) != shared {
            self.era.store(era + 1, Ordering::Release);
        }
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

    /// Marks what changes touch. Returns once every reply that did not see the mark is written.
    pub(crate) fn mark(&self, changes: &[Touched]) {
        for change in changes {
            match change {
                Touched::Node(ino) => self.nodes.mark(ino.raw()),
                Touched::Name { dir, name } => self.names.mark(self.key(*dir, name.as_bytes())),
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
                Touched::Name { dir, name } => self.names.unmark(self.key(*dir, name.as_bytes())),
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

    /// Samples a node, before its attributes or its names are requested.
    pub(crate) fn sample(&self, epoch: Epoch, ino: InodeId) -> Sample {
        self.sampled(epoch, || Subject::Node(ino, self.nodes.ended(ino.raw())))
    }

    /// Samples a name, before it is looked up or made.
    pub(crate) fn sample_name(&self, epoch: Epoch, at: &At) -> Sample {
        self.sampled(epoch, || {
            let key = self.key(at.dir.ino, at.name.as_bytes());
            Subject::Name(key, self.names.ended(key))
        })
    }

    /// Returns the guard under which a reply decides its lifetimes and is written.
    pub(crate) fn reply_guard<'a>(&'a self, attr_ttl: &'a AttrTtl) -> ReplyGuard<'a> {
        let gate = (!self.keeps_nothing()).then(|| self.gate());
        ReplyGuard { lifetimes: self, attr_ttl, gate, era: self.era.load(Ordering::Acquire) }
    }

    fn sampled(&self, epoch: Epoch, subject: impl FnOnce() -> Subject) -> Sample {
        let era = self.era.load(Ordering::Acquire);
        let subject = if era % 2 == 1 { subject() } else { Subject::Alone };
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
        if self.holds(sample) { self.attr_ttl.ttl(attr, sample.epoch) } else { Duration::ZERO }
    }

    /// Returns how long attributes hold that ride on an entry, or answer SETATTR.
    pub(crate) fn unversioned_attr(&self, attr: &Attr, sample: &Sample) -> Duration {
        if self.era.is_multiple_of(2) { self.attr(attr, sample) } else { Duration::ZERO }
    }

    /// Returns how long attributes hold that ride on the entry of a file that is opened with it.
    pub(crate) fn created_attr(&self, sample: &Sample) -> Duration {
        if self.era.is_multiple_of(2) { self.name(sample) } else { Duration::ZERO }
    }

    /// Returns how long a name holds, or its absence.
    pub(crate) fn name(&self, sample: &Sample) -> Duration {
        if self.holds(sample) { TTL } else { Duration::ZERO }
    }

    fn holds(&self, sample: &Sample) -> bool {
        let Lifetimes { nodes, names, .. } = self.lifetimes;
        self.gate.is_some()
            && self.era == sample.era
            && match sample.subject {
                Subject::Alone => true,
                Subject::Node(ino, ended) => nodes.holds(ino.raw(), ended),
                Subject::Name(key, ended) => names.holds(key, ended),
            }
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, Handle, Name};

    use super::*;

    const DIR: InodeId = InodeId::ROOT;
    const FILE: InodeId = InodeId::from_raw(9);

    /// A mount that has no file open.
    struct Mount {
        lifetimes: Lifetimes,
        attr_ttl: AttrTtl,
    }

    impl Mount {
        fn new(keeps: Keeps) -> Self {
            Self { lifetimes: Lifetimes::new(keeps), attr_ttl: AttrTtl::default() }
        }

        /// Samples a file and a name.
        fn sample(&self, ino: InodeId, text: &str) -> (Sample, Sample) {
            let epoch = self.attr_ttl.epoch();
            (self.lifetimes.sample(epoch, ino), self.lifetimes.sample_name(epoch, &at(text)))
        }

        /// Returns the lifetimes of attributes and of a name.
        fn given(&self, (node, name): (Sample, Sample)) -> (Duration, Duration) {
            let guard = self.lifetimes.reply_guard(&self.attr_ttl);
            (guard.attr(&attr(), &node), guard.name(&name))
        }

        /// Returns the lifetime of attributes that ride on an entry.
        fn given_on_entry(&self, name: Sample) -> Duration {
            self.lifetimes.reply_guard(&self.attr_ttl).unversioned_attr(&attr(), &name)
        }
    }

    fn at(text: &str) -> At {
        At::new(Handle::own(DIR), Name::new(text.as_bytes()).unwrap())
    }

    fn attr() -> Attr {
        Attr::empty(FILE, FileKind::Regular)
    }

    #[test]
    fn alone_everything_holds_and_with_keeps_nothing_does() {
        for (keeps, ttl) in [(Keeps::Everything, TTL), (Keeps::Nothing, Duration::ZERO)] {
            let mount = Mount::new(keeps);
            let sample = mount.sample(FILE, "a");
            assert_eq!((mount.given(sample), mount.given_on_entry(sample.1)), ((ttl, ttl), ttl));
        }
    }

    #[test]
    fn a_mount_that_keeps_nothing_gives_no_lifetime() {
        let mount = Mount::new(Keeps::Nothing);
        let (node, name) = mount.sample(DIR, "a");
        let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
        let dir = Attr::empty(DIR, FileKind::Directory);
        assert_eq!(
            (guard.attr(&dir, &node), guard.unversioned_attr(&dir, &name)),
            (Duration::ZERO, Duration::ZERO)
        );
        assert_eq!(guard.name(&name), Duration::ZERO);
        assert_eq!(guard.attr(&attr(), &node), Duration::ZERO, "a file");
    }

    #[test]
    fn a_reply_on_its_way_when_the_first_session_begins_or_the_last_ends_holds_nothing() {
        let mount = Mount::new(Keeps::Everything);
        for shared in [true, false] {
            let sample = mount.sample(FILE, "a");
            mount.lifetimes.set_shared(shared);
            assert_eq!(mount.given(sample), Default::default());
        }
    }

    #[test]
    fn beside_other_sessions_names_and_versioned_attributes_hold() {
        let mount = Mount::new(Keeps::Everything);
        mount.lifetimes.set_shared(true);
        let sample = mount.sample(FILE, "a");
        assert_eq!(mount.given(sample), (TTL, TTL));
        assert_eq!(mount.given_on_entry(sample.1), Duration::ZERO);
    }

    /// A reply that was asked for before, during or after a change holds only in the last case.
    #[test]
    fn what_changes_holds_only_if_it_was_asked_for_after_the_change() {
        let mount = Mount::new(Keeps::Everything);
        mount.lifetimes.set_shared(true);
        let changes =
            [Touched::Node(FILE), Touched::Name { dir: DIR, name: Name::new(b"a").unwrap() }];
        let sample = || mount.sample(FILE, "a");
        let before = sample();
        mount.lifetimes.mark(&changes);
        mount.lifetimes.mark(&changes);
        let during = sample();
        assert_eq!((mount.given(before), mount.given(during)), Default::default());
        let other = mount.given(mount.sample(DIR, "b"));
        assert_eq!(other, (TTL, TTL), "nothing else is touched");
        mount.lifetimes.unmark(&changes);
        assert_eq!(mount.given(sample()), Default::default(), "one of two changes goes on");
        mount.lifetimes.unmark(&changes);
        assert_eq!((mount.given(before), mount.given(during)), Default::default());
        assert_eq!(mount.given(sample()), (TTL, TTL));
        assert!(mount.lifetimes.may_have_changed(FILE));
    }
}
