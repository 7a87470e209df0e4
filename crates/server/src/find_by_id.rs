//! The search for files of which only the inode id is known.
//!
//! A file with one name lives in the row of that name, and no other row leads there. So a request
//! that has only an id, as from a file handle that outlived its mount, may have to wait for a scan
//! of all names. One thread scans for all requests that wait, and ends when none is left. Requests
//! that arrive during a scan wait for the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Mutex, RwLockReadGuard};
use pelago_data::MayBlock;
use pelago_meta::shard::Shard;
use pelago_wire::{Code, Error, Handle, InodeId, Reply};

use crate::completion::Completion;
use crate::group_gate::GroupGate;

/// Finds files by their inode ids alone.
pub(crate) struct FindById {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    shard: Arc<Shard>,
    /// `None` unless the requests are those of a mirror's readers.
    groups: Option<Arc<GroupGate>>,
    /// A leaf lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiters: Waiters,
    /// True if a thread scans, or is about to.
    is_scanning: bool,
    stopped: bool,
    /// Number of scans that were begun.
    #[cfg(test)]
    scans: u64,
}

/// Requests that wait, by the raw inode id.
type Waiters = HashMap<u64, Vec<Completion>>;

impl FindById {
    /// Returns a finder with no request waiting.
    #[must_use]
    pub(crate) fn new(shard: Arc<Shard>, groups: Option<Arc<GroupGate>>) -> Self {
        let shared = Arc::new(Shared { shard, groups, state: Mutex::default() });
        Self { shared, thread: Mutex::default() }
    }

    /// Replies with the entry of the file; with `Stale` if no name leads to it; with `Unavailable`
    /// after a stop, `Busy` if no thread can be started, or the error of the scan.
    pub(crate) fn find(&self, ino: InodeId, done: Completion) {
        let mut thread = self.thread.lock();
        {
            let mut state = self.shared.state.lock();
            if state.stopped {
                drop(state);
                return done.reply(Err(Code::Unavailable.into()));
            }
            state.waiters.entry(ino.raw()).or_default().push(done);
            if std::mem::replace(&mut state.is_scanning, true) {
                return;
            }
        }
        let shared = Arc::clone(&self.shared);
        match pelago_threads::spawn("pelago-find", move || shared.run()) {
            // The earlier thread has ended, or does not use the state any more.
            Ok(started) => *thread = Some(started),
            Err(error) => {
                tracing::error!(%error, "cannot start a thread that finds a file by its inode id");
                let mut state = self.shared.state.lock();
                state.is_scanning = false;
                let waiters = std::mem::take(&mut state.waiters);
                drop(state);
                fail_all(waiters, Code::Busy.into());
            }
        }
    }

    /// Stops: requests that wait, and later ones, get `Unavailable`.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopped = true;
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that finds files by inode id has panicked");
        }
    }

    #[cfg(test)]
    fn scans(&self) -> u64 {
        self.shared.state.lock().scans
    }
}

impl Shared {
    fn run(&self) {
        while let Some(mut waiters) = self.take_waiters() {
            if let Err(error) = self.scan(&mut waiters) {
                fail_all(waiters, error);
            }
        }
    }

    /// Returns the requests that wait now; `None` ends the thread.
    fn take_waiters(&self) -> Option<Waiters> {
        let mut state = self.state.lock();
        assert!(state.is_scanning, "one thread scans at a time");
        let waiters = std::mem::take(&mut state.waiters);
        if state.stopped || waiters.is_empty() {
            state.is_scanning = false;
            drop(state);
            fail_all(waiters, Code::Unavailable.into());
            return None;
        }
        #[cfg(test)]
        (state.scans += 1);
        Some(waiters)
    }

    /// Reads all names until each request has its file, and replies to all.
    fn scan(&self, waiters: &mut Waiters) -> Result<(), Error> {
        let mut next = Some(Vec::new());
        while let Some(from) = next.filter(|_| !waiters.is_empty()) {
            if self.state.lock().stopped {
                return Err(Code::Unavailable.into());
            }
            let began = Instant::now();
            let no_group = self.between_groups()?;
            let is_wanted = |ino: InodeId| waiters.contains_key(&ino.raw());
            let (found, more) = self.shard.find_embedded(&from, &is_wanted)?;
            for handle in found {
                self.reply(waiters, handle);
            }
            next = more;
            drop(no_group);
            // Uses at most half of one processor.
            thread::sleep(began.elapsed());
        }
        // A file that was renamed during the scan now has a row that leads to it.
        let _no_group = self.between_groups()?;
        let left: Vec<u64> = waiters.keys().copied().collect();
        for ino in left {
            self.reply(waiters, Handle::own(InodeId::from_raw(ino)));
        }
        Ok(())
    }

    /// Waits until no group is carried out.
    fn between_groups(&self) -> Result<Option<RwLockReadGuard<'_, bool>>, Error> {
        let gate = self.groups.as_ref();
        let entered = gate.map(|gate| gate.enter(MayBlock::Yes)).transpose();
        entered.map_err(|_| Code::Unavailable.into())
    }

    fn reply(&self, waiters: &mut Waiters, handle: Handle) {
        for done in waiters.remove(&handle.ino.raw()).into_iter().flatten() {
            done.reply(self.shard.entry(handle).map(Reply::Entry));
        }
    }
}

fn fail_all(waiters: Waiters, error: Error) {
    for done in waiters.into_values().flatten() {
        done.reply(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::testing::{BOTH, Rig};

    const FILES: u64 = 40;
    const DEADLINE: Duration = Duration::from_secs(60);

    type Found = (InodeId, Result<Reply, Error>);

    /// A finder over a volume with [`FILES`] closed files.
    struct Finder {
        find_by_id: FindById,
        files: Vec<Handle>,
        sender: Sender<Found>,
        found: Receiver<Found>,
        _rig: Rig,
    }

    impl Finder {
        fn new() -> Self {
            let rig = Rig::new();
            let create = |number: u64| {
                let (entry, open) = rig.create(&format!("f{number}"), BOTH);
                rig.close(open);
                entry.handle
            };
            let files = (0..FILES).map(create).collect();
            let find_by_id = FindById::new(Arc::clone(&rig.shard), None);
            let (sender, found) = channel();
            Self { find_by_id, files, sender, found, _rig: rig }
        }

        fn begin(&self, ino: InodeId) {
            let sender = self.sender.clone();
            let done = Box::new(move |found| sender.send((ino, found)).unwrap());
            self.find_by_id.find(ino, Completion::new(done));
        }

        fn next(&self) -> Found {
            self.found.recv_timeout(DEADLINE).unwrap()
        }

        /// Returns an id that no file has.
        fn unused_id(&self) -> InodeId {
            InodeId::from_raw(self.files[0].ino.raw() + FILES + 1000)
        }
    }

    #[test]
    fn each_file_is_found_at_its_name() {
        let finder = Finder::new();
        finder.files.iter().for_each(|handle| finder.begin(handle.ino));
        for _ in 0..FILES {
            match finder.next() {
                (ino, Ok(Reply::Entry(entry))) => {
                    assert_eq!(entry.handle.ino, ino);
                    assert!(finder.files.contains(&entry.handle));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_id_without_a_file_is_stale() {
        let finder = Finder::new();
        finder.begin(finder.unused_id());
        assert_eq!(finder.next().1.unwrap_err().code, Code::Stale);
    }

    #[test]
    fn requests_that_wait_share_a_scan() {
        let finder = Finder::new();
        finder.files.iter().for_each(|handle| finder.begin(handle.ino));
        (0..FILES).for_each(|_| drop(finder.next()));
        assert!(finder.find_by_id.scans() <= 2, "{}", finder.find_by_id.scans());
    }

    #[test]
    fn after_a_stop_requests_fail() {
        let finder = Finder::new();
        finder.find_by_id.stop();
        finder.begin(finder.files[0].ino);
        assert_eq!(finder.next().1.unwrap_err().code, Code::Unavailable);
    }
}
