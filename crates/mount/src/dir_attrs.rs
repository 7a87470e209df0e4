//! Attributes of directories, held for milliseconds for further requests of the same system call.
//!
//! Linux checks the permissions of one directory up to three times in one call, and drops its
//! attributes when it changes a name there. If it may cache nothing, it sends GETATTR each time.
//! For a far server that would be one or two round trips for each file that is made. So the
//! attributes that a GETATTR has brought answer the next ones too, and so do those that came with
//! the reply to a change, for [`HOLDS`] from the moment at which that request was sent.
//!
//! Held attributes must not lack a change that this mount has made before they are used. So
//! attributes of a GETATTR count only if no change of the directory has begun or ended while it was
//! under way, and only until the next change begins. Attributes that came with the reply to a
//! change count only if no other change of the directory was under way: they cannot be
//! distinguished from those of the other change. Under a lease its holder answers instead.

use std::array;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_wire::{Attr, InodeId};

/// Time for which attributes are held. One call checks permissions within microseconds, unless the
/// machine is loaded.
const HOLDS: Duration = Duration::from_millis(2);
/// Count of slots; directories that share one displace each other.
const SLOTS: usize = 64;

/// The attributes of directories that were changed or requested a moment ago.
pub struct DirAttrs([Mutex<Slot>; SLOTS]);

#[derive(Default)]
struct Slot {
    /// Changes that have begun or ended.
    events: u64,
    /// Changes that have begun and not ended.
    under_way: u32,
    /// The attributes that came with the reply to a change, and when that was requested.
    told: Option<(Attr, Instant)>,
    /// The attributes that no other change can have overtaken, and when they were requested.
    known: Option<(Attr, Instant)>,
}

/// A change of a directory that is under way.
#[derive(Debug)]
#[must_use = "a change that does not end keeps the attributes of its directory from being known"]
pub(crate) struct DirChange {
    dir: InodeId,
    event: u64,
}

impl DirChange {
    /// Returns the directory.
    pub(crate) const fn dir(&self) -> InodeId {
        self.dir
    }
}

/// A request for the attributes of a directory that is under way.
#[derive(Debug)]
pub(crate) struct DirQuestion {
    dir: InodeId,
    event: u64,
    since: Instant,
}

impl Default for DirAttrs {
    fn default() -> Self {
        Self(array::from_fn(|_| Mutex::default()))
    }
}

impl std::fmt::Debug for DirAttrs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DirAttrs")
    }
}

impl DirAttrs {
    /// Records the attributes of a directory that came with the reply to a change of a name, which
    /// was requested at `since`. To be called before that reply is given to the mount.
    pub fn tell(&self, attr: Attr, since: Instant) {
        let mut slot = self.slot(attr.ino).lock();
        slot.told = (slot.under_way == 1).then_some((attr, since));
    }

    /// Begins a change of a directory.
    pub(crate) fn begin(&self, dir: InodeId) -> DirChange {
        let mut slot = self.slot(dir).lock();
        slot.under_way += 1;
        DirChange { dir, event: slot.changes() }
    }

    /// Begins a request for the attributes of a directory.
    pub(crate) fn ask(&self, dir: InodeId) -> DirQuestion {
        DirQuestion { dir, event: self.slot(dir).lock().events, since: Instant::now() }
    }

    /// Records the reply to such a request, unless this mount has changed the directory meanwhile.
    pub(crate) fn learn(&self, question: &DirQuestion, attr: Attr) {
        let mut slot = self.slot(question.dir).lock();
        if slot.events == question.event {
            slot.known = Some((attr, question.since));
        }
    }

    /// Ends a change of a directory.
    pub(crate) fn end(&self, change: &DirChange) {
        let mut slot = self.slot(change.dir).lock();
        let told = slot.told.take().filter(|(attr, _)| attr.ino == change.dir);
        let is_alone = slot.events == change.event;
        slot.known = told.filter(|_| is_alone);
        slot.events += 1;
        slot.under_way -= 1;
    }

    /// Drops the attributes of a directory that was changed.
    pub(crate) fn changes(&self, dir: InodeId) {
        self.slot(dir).lock().changes();
    }

    /// Returns the attributes of a directory, if they are held and not too old.
    pub(crate) fn get(&self, dir: InodeId) -> Option<Attr> {
        let known = self.slot(dir).lock().known;
        known
            .filter(|(attr, since)| attr.ino == dir && since.elapsed() < HOLDS)
            .map(|known| known.0)
    }

    fn slot(&self, dir: InodeId) -> &Mutex<Slot> {
        &self.0[dir.raw() as usize % SLOTS]
    }
}

impl Slot {
    /// Drops all attributes of the slot. Returns the number of this event.
    const fn changes(&mut self) -> u64 {
        self.known = None;
        self.told = None;
        self.events += 1;
        self.events
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::FileKind;

    use super::*;

    const DIR: InodeId = InodeId::from_raw(9);
    /// It shares a slot with the other one.
    const TWIN: InodeId = InodeId::from_raw(9 + SLOTS as u64);

    fn attr(dir: InodeId) -> Attr {
        Attr::empty(dir, FileKind::Directory)
    }

    fn changed(dirs: &DirAttrs, dir: InodeId) {
        let change = dirs.begin(dir);
        dirs.tell(attr(dir), Instant::now());
        dirs.end(&change);
    }

    #[test]
    fn the_answer_to_a_change_tells_the_attributes_of_its_directory_for_a_moment() {
        let dirs = DirAttrs::default();
        assert_eq!(dirs.get(DIR), None);
        changed(&dirs, DIR);
        assert_eq!(dirs.get(DIR), Some(attr(DIR)));
        assert_eq!(dirs.get(TWIN), None);
        // They are forgotten by the clock.
        std::thread::sleep(HOLDS);
        assert_eq!(dirs.get(DIR), None);
    }

    #[test]
    fn the_moment_begins_when_the_change_is_asked_for() {
        let dirs = DirAttrs::default();
        let change = dirs.begin(DIR);
        let since = Instant::now();
        // They are forgotten by the clock.
        std::thread::sleep(HOLDS);
        dirs.tell(attr(DIR), since);
        dirs.end(&change);
        assert_eq!(dirs.get(DIR), None);
    }

    #[test]
    fn a_change_that_begins_forgets_them() {
        let dirs = DirAttrs::default();
        changed(&dirs, DIR);
        let change = dirs.begin(DIR);
        assert_eq!(dirs.get(DIR), None);
        dirs.end(&change);
        assert_eq!(dirs.get(DIR), None, "its answer told nothing");
        changed(&dirs, DIR);
        dirs.changes(DIR);
        assert_eq!(dirs.get(DIR), None);
    }

    /// The attributes may be older than the change whose answer came first.
    #[test]
    fn of_changes_at_one_time_none_tells_them() {
        let dirs = DirAttrs::default();
        let one = dirs.begin(DIR);
        let two = dirs.begin(DIR);
        for change in [one, two] {
            dirs.tell(attr(DIR), Instant::now());
            dirs.end(&change);
            assert_eq!(dirs.get(DIR), None);
        }
        changed(&dirs, DIR);
        assert_eq!(dirs.get(DIR), Some(attr(DIR)));
    }

    /// A change of names gets its reply, then one of attributes, and then a third one, which brings
    /// no attributes: those of the first one are older than the second one.
    #[test]
    fn what_one_change_has_told_is_not_known_behind_another_one() {
        let dirs = DirAttrs::default();
        let rename = dirs.begin(DIR);
        dirs.tell(attr(DIR), Instant::now());
        dirs.changes(DIR);
        dirs.end(&dirs.begin(DIR));
        assert_eq!(dirs.get(DIR), None);
        dirs.end(&rename);
        assert_eq!(dirs.get(DIR), None);
        // The answer to the first one comes later.
        let rename = dirs.begin(DIR);
        dirs.changes(DIR);
        let remove = dirs.begin(DIR);
        dirs.tell(attr(DIR), Instant::now());
        dirs.end(&remove);
        assert_eq!(dirs.get(DIR), None);
        dirs.end(&rename);
        assert_eq!(dirs.get(DIR), None);
        changed(&dirs, DIR);
        assert_eq!(dirs.get(DIR), Some(attr(DIR)));
    }

    /// Linux asks up to three times in one call.
    #[test]
    fn the_answer_to_a_question_is_known_for_a_moment_unless_the_directory_changes() {
        let dirs = DirAttrs::default();
        dirs.learn(&dirs.ask(DIR), attr(DIR));
        assert_eq!(dirs.get(DIR), Some(attr(DIR)));
        // They are forgotten by the clock.
        std::thread::sleep(HOLDS);
        assert_eq!(dirs.get(DIR), None);
        let question = dirs.ask(DIR);
        dirs.end(&dirs.begin(DIR));
        dirs.learn(&question, attr(DIR));
        assert_eq!(dirs.get(DIR), None, "it may be older than the change");
    }

    #[test]
    fn directories_that_share_a_slot_are_not_mixed_up() {
        let dirs = DirAttrs::default();
        let change = dirs.begin(DIR);
        dirs.tell(attr(TWIN), Instant::now());
        dirs.end(&change);
        assert_eq!((dirs.get(DIR), dirs.get(TWIN)), (None, None));
    }
}
