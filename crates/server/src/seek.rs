//! Files of which nothing but the number is known.
//!
//! A file with one name lives in the row of that name, and nothing else says where that is. Whoever
//! comes with a number from long ago, a file handle that outlived the mount, may have to wait until
//! all names were looked through. One thread does that for all who wait, and ends when nobody does;
//! whoever comes meanwhile waits for its next round.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, Builder, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;
use pelago_wire::{Code, Done, Error, Handle, InodeId, Reply};

use pelago_meta::shard::Shard;

/// Who waits for which file.
pub(crate) struct Seeks {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    shard: Arc<Shard>,
    /// A leaf.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    /// A thread looks.
    runs: bool,
    stopped: bool,
    /// Rounds that were begun.
    #[cfg(test)]
    rounds: u64,
}

type Waiting = HashMap<u64, Vec<Done>>;

impl Seeks {
    /// Nobody waits yet.
    #[must_use]
    pub(crate) fn new(shard: Arc<Shard>) -> Self {
        let shared = Arc::new(Shared { shard, state: Mutex::default() });
        Self { shared, thread: Mutex::default() }
    }

    /// Calls `done` with what is found, or with `Stale` when all names were looked through.
    pub(crate) fn seek(&self, ino: InodeId, done: Done) {
        let mut thread = self.thread.lock();
        {
            let mut state = self.shared.state.lock();
            if state.stopped {
                drop(state);
                return done(Err(Code::Unavailable.into()));
            }
            state.waiting.entry(ino.raw()).or_default().push(done);
            if std::mem::replace(&mut state.runs, true) {
                return;
            }
        }
        let shared = Arc::clone(&self.shared);
        match Builder::new().name("pelago-seek".to_owned()).spawn(move || shared.run()) {
            // The one before has ended: it said so.
            Ok(started) => *thread = Some(started),
            Err(error) => {
                tracing::error!(%error, "no thread to look for a file");
                let mut state = self.shared.state.lock();
                state.runs = false;
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                tell(waiting, Code::Busy.into());
            }
        }
    }

    /// Whoever waits, or comes later, is told `Unavailable`.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopped = true;
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks for files has panicked");
        }
    }

    #[cfg(test)]
    fn rounds(&self) -> u64 {
        self.shared.state.lock().rounds
    }
}

impl Shared {
    fn run(&self) {
        while let Some(mut sought) = self.begin() {
            if let Err(error) = self.round(&mut sought) {
                tell(sought, error);
            }
        }
    }

    /// Those that wait now; `None` ends the thread.
    fn begin(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        let waiting = std::mem::take(&mut state.waiting);
        if state.stopped || waiting.is_empty() {
            state.runs = false;
            drop(state);
            tell(waiting, Code::Unavailable.into());
            return None;
        }
        #[cfg(test)]
        (state.rounds += 1);
        Some(waiting)
    }

    /// Looks through all names; what was found is not sought any more.
    fn round(&self, sought: &mut Waiting) -> Result<(), Error> {
        let mut next = Some(Vec::new());
        while let Some(from) = next.filter(|_| !sought.is_empty()) {
            if self.state.lock().stopped {
                return Err(Code::Unavailable.into());
            }
            let began = Instant::now();
            let is_sought = |ino: InodeId| sought.contains_key(&ino.raw());
            let (found, more) = self.shard.find_embedded(&from, &is_sought)?;
            for handle in found {
                self.answer(sought, handle);
            }
            next = more;
            // Half of one processor at the most.
            thread::sleep(began.elapsed());
        }
        // What has moved meanwhile has a row that says where it is.
        let left: Vec<u64> = sought.keys().copied().collect();
        for ino in left {
            self.answer(sought, Handle::own(InodeId::from_raw(ino)));
        }
        Ok(())
    }

    fn answer(&self, sought: &mut Waiting, handle: Handle) {
        for done in sought.remove(&handle.ino.raw()).into_iter().flatten() {
            done(self.shard.entry(handle).map(Reply::Entry));
        }
    }
}

fn tell(waiting: Waiting, error: Error) {
    for done in waiting.into_values().flatten() {
        done(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::testing::{BOTH, Rig};

    const FILES: u64 = 40;
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Everybody is answered, by few rounds however many wait.
    #[test]
    fn all_who_wait_share_a_scan() {
        let rig = Rig::new();
        let made: Vec<_> = (0..FILES)
            .map(|number| {
                let (entry, open) = rig.create(&format!("f{number}"), BOTH);
                rig.close(open);
                entry.handle
            })
            .collect();
        let seeks = Seeks::new(Arc::clone(&rig.shard));
        let (tell, told) = channel();
        let never = InodeId::from_raw(made[0].ino.raw() + FILES + 1000);
        for ino in made.iter().map(|handle| handle.ino).chain([never]) {
            let tell = tell.clone();
            seeks.seek(ino, Box::new(move |found| tell.send((ino, found)).unwrap()));
        }
        for _ in 0..=FILES {
            let (ino, found) = told.recv_timeout(DEADLINE).unwrap();
            match found {
                Ok(Reply::Entry(entry)) => {
                    assert_eq!(entry.handle.ino, ino);
                    assert!(made.contains(&entry.handle));
                }
                Err(error) => assert_eq!((error.code, ino), (Code::Stale, never)),
                other => panic!("{other:?}"),
            }
        }
        assert!(seeks.rounds() <= 2, "{}", seeks.rounds());
        seeks.stop();
        let late = tell.clone();
        seeks.seek(never, Box::new(move |found| late.send((never, found)).unwrap()));
        let (_, found) = told.recv_timeout(DEADLINE).unwrap();
        assert_eq!(found.unwrap_err().code, Code::Unavailable);
    }
}
