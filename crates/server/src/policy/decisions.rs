//! The cache of decisions: the rights of a guest in a directory, or to one object there.
//!
//! If nothing but the directory and the present time decides, a decision is cached for all in the
//! directory. If the object or its name decides, it is cached for that object alone, and with a
//! name for the version of its rnode, which each change of its names counts up. A decision holds
//! until the next time that a link names, and until a directory gets another parent or the rights
//! change: the number of each is part of it.

use parking_lot::Mutex;
use pelago_keynote::share::attribute;
use pelago_keynote::{Reads, Right};
use pelago_wire::{InodeId, SessionId};
use quick_cache::sync::Cache;

use super::Guest;
use super::decision::Decision;
use super::right_set::RightSet;

/// The limit for the directories and objects whose rights are cached.
const DECISIONS: usize = 65_536;

/// The circumstances of a decision. It holds for the same ones alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The moves of directories so far.
    pub(super) directory_moves: u64,
    /// The rights number.
    pub(super) rights_number: u64,
}

/// The object of a decision, and the directory in which it is decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecidedAt {
    pub(super) dir: InodeId,
    /// The directory itself, or a file in it.
    pub(super) object: InodeId,
    /// The version of the file; `None` for a directory.
    pub(super) version: Option<u64>,
}

impl DecidedAt {
    /// Returns the directory itself as the object of a decision.
    pub(super) const fn directory(dir: InodeId) -> Self {
        Self { dir, object: dir, version: None }
    }
}

/// Something whose rights are cached: a directory, with all in it, or one object there.
type CacheKey = (SessionId, InodeId, Option<InodeId>);

/// The rights that were decided.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Decided {
    decided: RightSet,
    /// Those of them that are granted.
    pub(super) granted: RightSet,
}

impl Decided {
    /// Returns whether all rights were decided.
    pub(super) const fn knows_all(self) -> bool {
        self.decided.has_all(RightSet::ALL)
    }

    /// Returns whether a right was decided.
    pub(super) const fn knows(self, right: Right) -> bool {
        self.decided.has(right)
    }

    /// Adds the decisions about other rights.
    fn add(&mut self, others: Self) {
        self.decided = self.decided.or(others.decided);
        self.granted = self.granted.or(others.granted);
    }

    /// Adds a decision.
    pub(super) const fn decide(&mut self, right: Right, is_granted: bool) {
        self.decided.set(right, true);
        self.granted.set(right, is_granted);
    }
}

/// The rights of a guest in a directory or to an object, as far as they are known.
#[derive(Debug, Clone, Copy)]
struct CachedRights {
    epoch: Epoch,
    /// The version of the file, if a name decides.
    version: Option<u64>,
    rights: Decided,
    /// The seconds since 1970 at which the first of these decisions ends.
    ends: u64,
}

impl CachedRights {
    fn holds(&self, at: DecidedAt, epoch: Epoch, seconds: u64) -> bool {
        self.epoch == epoch
            && seconds < self.ends
            && (self.version.is_none() || self.version == at.version)
    }
}

/// The rights of one guest in the directory about which it has asked last, if nothing but the
/// directory and the time decides. Most requests are about the directory of the one before.
#[derive(Default)]
pub(super) struct LastDirectory(Mutex<Option<(InodeId, CachedRights)>>);

impl LastDirectory {
    /// Returns all rights, if they are known and hold at this time.
    #[inline]
    pub(super) fn get(&self, at: DecidedAt, epoch: Epoch, seconds: u64) -> Option<RightSet> {
        let last = self.0.lock();
        let (dir, known) = last.as_ref()?;
        let holds = *dir == at.dir && known.holds(at, epoch, seconds) && known.rights.knows_all();
        holds.then_some(known.rights.granted)
    }
}

/// The decisions of all guests.
pub(super) struct Decisions {
    known: Cache<CacheKey, CachedRights>,
}

impl Decisions {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(DECISIONS) }
    }

    /// Returns the decisions that are known and hold at this time.
    #[inline]
    pub(super) fn get(&self, guest: &Guest, at: DecidedAt, epoch: Epoch, seconds: u64) -> Decided {
        let find = |object| {
            let known = self.known.get(&(guest.session, at.dir, object));
            known.filter(|known| known.holds(at, epoch, seconds))
        };
        let of_directory = find(None);
        if let Some(known) = of_directory.filter(|known| known.rights.knows_all()) {
            *guest.last_directory.0.lock() = Some((at.dir, known));
        }
        let mut decided = of_directory.map(|known| known.rights).unwrap_or_default();
        if !decided.knows_all()
            && let Some(of_object) = find(Some(at.object))
        {
            decided.add(of_object.rights);
        }
        decided
    }

    /// Caches the rights to the directory `above` as those to the directory `at`, if all of them
    /// are known and hold at this time, and returns them. The caller knows that they are equal.
    pub(super) fn inherit(
        &self,
        guest: &Guest,
        above: InodeId,
        at: DecidedAt,
        epoch: Epoch,
        seconds: u64,
    ) -> Option<RightSet> {
        let known = self.known.get(&(guest.session, above, None))?;
        if !known.holds(at, epoch, seconds) || !known.rights.knows_all() {
            return None;
        }
        self.known.insert((guest.session, at.dir, None), known);
        Some(known.rights.granted)
    }

    /// Caches a decision of this time, if it may be cached.
    pub(super) fn insert(
        &self,
        session: SessionId,
        at: DecidedAt,
        right: Right,
        epoch: Epoch,
        seconds: u64,
        decision: &Decision,
    ) {
        let Some(ends) = end_of(&decision.reads) else { return };
        let reads_name = decision.reads.has(attribute::NAME);
        let is_of_object = reads_name || decision.reads.has(attribute::OBJECT);
        let key = (session, at.dir, is_of_object.then_some(at.object));
        let before = self.known.get(&key).filter(|known| known.holds(at, epoch, seconds));
        let rights = Decided::default();
        let none = CachedRights { epoch, version: None, rights, ends: u64::MAX };
        let mut known = before.unwrap_or(none);
        if reads_name {
            known.version = at.version;
        }
        known.rights.decide(right, decision.is_granted);
        known.ends = known.ends.min(ends);
        self.known.insert(key, known);
    }
}

/// Returns the time at which a decision ends; `None` if it may not be cached.
fn end_of(reads: &Reads) -> Option<u64> {
    // What is fixed for a session, a right, and a directory or an object.
    const FIXED: [&str; 9] = [
        attribute::APP_DOMAIN,
        attribute::VOLUME,
        attribute::RIGHT,
        attribute::ANCESTORS,
        attribute::OBJECT,
        attribute::NAME,
        attribute::ADDRESS,
        attribute::CHAIN,
        attribute::ISSUED,
    ];
    if !reads.attributes().all(|name| FIXED.contains(&name)) {
        return None;
    }
    let mut ends = reads.clocks().map(|(_, end)| match end {
        None => Some(u64::MAX),
        Some(end) => super::moment::seconds_of(end),
    });
    ends.try_fold(u64::MAX, |earliest, end| Some(earliest.min(end?)))
}
