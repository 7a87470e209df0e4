//! Changes of two sites that are to be finished: which ones the other site is to be asked for.

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use pelago_meta::shard::Shard;
use pelago_wire::{Error, InodeId};

/// The changes, each of a directory of this site.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    changes: HashMap<InodeId, Change>,
    /// A thread asks for them.
    has_thread: bool,
    /// Requests that wait for the end of a change.
    waiters: Vec<Waiter>,
}

/// A request that waits for the end of a change.
struct Waiter {
    dir: InodeId,
    until: Instant,
    then: WhenFinished,
}

/// Called with whether the change has ended.
pub(crate) type WhenFinished = Box<dyn FnOnce(bool) + Send>;

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiter").field(&self.dir).finish()
    }
}

#[derive(Debug)]
struct Change {
    /// The site that is to do its part. The record of the change says which part.
    site: u16,
    /// The other site is being asked.
    is_asked: bool,
}

impl Unfinished {
    /// Returns the changes that the last run has not finished, each a directory and the other site.
    pub(crate) fn new(changes: Vec<(InodeId, u16)>) -> Self {
        let mut unfinished = Self::default();
        unfinished.insert(changes);
        unfinished
    }

    fn insert(&mut self, changes: Vec<(InodeId, u16)>) {
        for (dir, site) in changes {
            self.changes.entry(dir).or_insert(Change { site, is_asked: false });
        }
    }

    /// Adds changes, each a directory and the other site. Returns whether a thread is to be started
    /// that asks for them.
    pub(crate) fn add(&mut self, changes: Vec<(InodeId, u16)>) -> bool {
        self.insert(changes);
        !self.changes.is_empty() && !std::mem::replace(&mut self.has_thread, true)
    }

    /// Takes the directories for whose changes the other site is to be asked now; `None` if there
    /// is no change, and the thread ends.
    pub(crate) fn take_due(&mut self) -> Option<Vec<InodeId>> {
        if self.changes.is_empty() && self.waiters.is_empty() {
            self.has_thread = false;
            return None;
        }
        let due = self.changes.iter_mut().filter(|(_, change)| !change.is_asked);
        let due = due.map(|(dir, change)| {
            change.is_asked = true;
            *dir
        });
        Some(due.collect())
    }

    /// Has a function called once the change of a directory with this other site has ended, or at
    /// this time.
    pub(crate) fn wait(&mut self, dir: InodeId, site: u16, until: Instant, then: WhenFinished) {
        self.insert(vec![(dir, site)]);
        self.waiters.push(Waiter { dir, until, then });
    }

    /// Takes the functions whose change has ended, or whose time has come; each with whether the
    /// change has ended.
    pub(crate) fn take_waiters(&mut self, now: Instant) -> Vec<(WhenFinished, bool)> {
        let is_finished = |waiter: &Waiter| !self.changes.contains_key(&waiter.dir);
        let is_over = |waiter: &mut Waiter| is_finished(waiter) || waiter.until <= now;
        let over: Vec<Waiter> = self.waiters.extract_if(.., is_over).collect();
        over.into_iter()
            .map(|waiter| {
                let is_finished = !self.changes.contains_key(&waiter.dir);
                (waiter.then, is_finished)
            })
            .collect()
    }

    /// Records that the other site could not do its part now: it is asked again.
    pub(crate) fn answered(&mut self, dir: InodeId) {
        if let Some(change) = self.changes.get_mut(&dir) {
            change.is_asked = false;
        }
    }

    /// Records that what this site was asked may never be answered: the connection was replaced.
    pub(crate) fn ask_again(&mut self, site: u16) {
        for change in self.changes.values_mut().filter(|change| change.site == site) {
            change.is_asked = false;
        }
    }

    /// Forgets a change.
    pub(crate) fn finished(&mut self, dir: InodeId) {
        self.changes.remove(&dir);
    }

    /// Returns the number of changes that this site is to do its part of.
    pub(crate) fn count(&self, site: u16) -> usize {
        self.changes.values().filter(|change| change.site == site).count()
    }

    /// Records that there is no thread. Returns the functions that wait for it.
    pub(crate) fn end_thread(&mut self) -> Vec<WhenFinished> {
        self.has_thread = false;
        self.waiters.drain(..).map(|waiter| waiter.then).collect()
    }
}

/// Returns the directories with a change that is not finished, each with the other site.
///
/// # Errors
/// As [`Shard::take_up_intents`].
pub(crate) fn changes_of_sites(shard: &Shard) -> Result<Vec<(InodeId, u16)>, Error> {
    let intents = shard.take_up_intents()?;
    Ok(intents.into_iter().map(|(dir, row)| (dir, row.parent.site())).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_waits_until_a_change_has_ended_or_for_a_time() {
        let [dir, other] = [7, 8].map(InodeId::from_raw);
        let mut unfinished = Unfinished::new(vec![(dir, 0), (other, 0)]);
        let now = Instant::now();
        let (sender, told) = mpsc::channel();
        for (dir, seconds) in [(dir, 100), (other, 1)] {
            let sender = sender.clone();
            let then = Box::new(move |is_finished| sender.send((dir, is_finished)).unwrap());
            unfinished.wait(dir, 0, now + Duration::from_secs(seconds), then);
        }
        let tell = |unfinished: &mut Unfinished, now| -> Vec<_> {
            unfinished.take_waiters(now).into_iter().for_each(|(then, is)| then(is));
            told.try_iter().collect()
        };
        assert_eq!(tell(&mut unfinished, now), []);
        unfinished.finished(dir);
        assert_eq!(tell(&mut unfinished, now), [(dir, true)]);
        assert_eq!(tell(&mut unfinished, now + Duration::from_secs(2)), [(other, false)]);
    }

    #[test]
    fn a_change_is_asked_for_once_at_a_time_until_it_is_finished() {
        let dir = InodeId::from_raw(7);
        let mut unfinished = Unfinished::default();
        assert!(!unfinished.add(vec![]));
        assert!(unfinished.add(vec![(dir, 0)]));
        assert!(!unfinished.add(vec![(dir, 0)]), "there is a thread");
        assert_eq!(unfinished.take_due(), Some(vec![dir]));
        assert_eq!(unfinished.take_due(), Some(vec![]));
        unfinished.answered(dir);
        assert_eq!(unfinished.take_due(), Some(vec![dir]));
        unfinished.ask_again(1);
        assert_eq!(unfinished.take_due(), Some(vec![]), "of another site");
        unfinished.ask_again(0);
        assert_eq!(unfinished.take_due(), Some(vec![dir]));
        unfinished.finished(dir);
        assert_eq!(unfinished.take_due(), None);
        assert!(unfinished.add(vec![(dir, 0)]), "the thread has ended");
    }
}
