//! The beats of living processes: each process renames a file of its own in `alive/`.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::error::OwnerError;
use super::moment::AtomicTime;
use super::names::{BeatName, ProcessId};
use super::process_record::ProcessRecord;
use super::{BEAT, DEAD, shard, watch};
use crate::clock;
use crate::folder::Folder;
use crate::sync::Mutex;
use crate::volume::layout::ALIVE;

/// Most renames that one beat tries: each may find that an earlier rename was done.
const TRIES: u32 = 4;
/// The pause after a beat that failed: the store may be away for a moment.
const RETRY: Duration = Duration::from_millis(200);
/// Permissions of the file.
const FILE_MODE: u32 = 0o600;
/// The prefix of the name of a file that is not whole yet.
const NEW: &str = "new.";
/// The prefix of the name of a file that a taker has renamed away.
const TAKEN: &str = "taken.";

/// The beat of this process: a file in `alive/` that shows others that it lives.
#[derive(Debug)]
pub struct Beat {
    alive: Folder,
    process: ProcessId,
    /// The number in the name of the file. Locked across input and output: while the store hangs,
    /// the lock is held, so [`Beat::is_fresh`] must not need it.
    number: Mutex<u64>,
    /// The time at which the last beat that succeeded began.
    began: AtomicTime,
    /// True if another process has renamed the file away, or this one has ended.
    has_ended: AtomicBool,
}

impl Beat {
    /// Draws the id of this process, and writes its file with `record`.
    ///
    /// # Errors
    /// [`OwnerError`]; [`OwnerError::Invalid`] if a text of `record` is empty, too long, or has a
    /// control character.
    pub fn begin(store: &Folder, record: &ProcessRecord) -> Result<Self, OwnerError> {
        let text = record.encode().ok_or(OwnerError::Invalid { what: "what this server says" })?;
        let alive = store.create_folder(ALIVE)?;
        let failed = |error| OwnerError::from_io("writing", alive.path(), error);
        let process = ProcessId::random().map_err(failed)?;
        let began = clock::since_boot();
        let new = format!("{NEW}{process}");
        let mut file = alive.create_new(&new, FILE_MODE)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        alive.rename(&new, &BeatName { process, number: 0 }.to_string())?;
        Ok(Self {
            alive,
            process,
            number: Mutex::new(0),
            began: AtomicTime::new(began),
            has_ended: AtomicBool::new(false),
        })
    }

    /// Returns the id of this process.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// Beats once. Called each [`super::BEAT`], by a thread that does nothing else.
    ///
    /// # Errors
    /// [`OwnerError::Fenced`] if another process has taken this one for dead, for ever then. After
    /// another error the next beat may succeed.
    pub fn renew(&self) -> Result<(), OwnerError> {
        self.renew_by(|old, new| shard::rename(&self.alive, old, new))
    }

    /// Renews the beat after each pause, until the process ends or is fenced. `wait` waits for a
    /// pause, and returns false if the process ends.
    ///
    /// # Errors
    /// [`OwnerError::Fenced`], as [`Beat::renew`]. Other errors are logged, and the beat is tried
    /// again soon.
    pub fn run(&self, mut wait: impl FnMut(Duration) -> bool) -> Result<(), OwnerError> {
        let mut pause = BEAT;
        while wait(pause) {
            pause = match self.renew() {
                Ok(()) => BEAT,
                Err(OwnerError::Fenced) => return Err(OwnerError::Fenced),
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the beat at the store; will retry");
                    RETRY
                }
            };
        }
        Ok(())
    }

    /// Beats once by `rename`, which returns false if there is no file with the old name.
    fn renew_by(
        &self,
        rename: impl Fn(&str, &str) -> Result<bool, OwnerError>,
    ) -> Result<(), OwnerError> {
        let mut number = self.number.lock();
        if self.has_ended.load(Ordering::Acquire) {
            return Err(OwnerError::Fenced);
        }
        for _ in 0..TRIES {
            let began = clock::since_boot();
            let name = |number| BeatName { process: self.process, number }.to_string();
            let next = number.saturating_add(1);
            if rename(&name(*number), &name(next))? {
                *number = next;
                self.began.set(began);
                return Ok(());
            }
            // A beat that failed, or whose answer was lost, may have been done. Only a rename that
            // begins now shows that the process lives now.
            match newest(&self.alive, self.process)? {
                Some(newest) => *number = newest.number,
                None => break,
            }
        }
        self.has_ended.store(true, Ordering::Release);
        Err(OwnerError::Fenced)
    }

    /// Returns whether the last beat that succeeded began so recently that no other process can
    /// have taken this one for dead. Called after a value was read and before it is returned to a
    /// client: it waits neither for a beat that hangs in the store nor for a lock.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.is_fresh_at(clock::since_boot())
    }

    fn is_fresh_at(&self, now: Duration) -> bool {
        let age = now.saturating_sub(self.began.get());
        !self.has_ended.load(Ordering::Acquire) && age < watch::alive_for_itself(DEAD)
    }

    /// Removes the file, at a clean stop, after the baton was released. Waits for a beat that is
    /// under way.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        let number = self.number.lock();
        let name = BeatName { process: self.process, number: *number }.to_string();
        if let Err(error) = self.alive.remove(&name) {
            tracing::debug!(%error, "the file of this process stays: others take it for dead");
        }
    }
}

/// Returns the newest name of the file of a process.
pub(super) fn newest(alive: &Folder, process: ProcessId) -> Result<Option<BeatName>, OwnerError> {
    let names = alive.entries()?;
    let beats = names.iter().filter_map(|name| BeatName::parse(name.to_str()?));
    Ok(beats.filter(|beat| beat.process == process).max())
}

/// Returns the record of the process of a beat; `None` if the file was renamed meanwhile.
pub(super) fn read_record(
    alive: &Folder,
    beat: BeatName,
) -> Result<Option<ProcessRecord>, OwnerError> {
    let text = shard::read_text(alive, &beat.to_string())?;
    Ok(text.and_then(|text| ProcessRecord::decode(&text)))
}

/// Renames the file of a dead process away, for the taker `taker`. Returns false if it was renamed
/// meanwhile: the process lives.
pub(super) fn take_away(
    alive: &Folder,
    beat: BeatName,
    taker: ProcessId,
) -> Result<bool, OwnerError> {
    let taken = format!("{TAKEN}{taker}.{}", beat.process);
    // As for a beat: the rename may have been done although it found no file.
    let is_taken = shard::rename(alive, &beat.to_string(), &taken)? || alive.contains(&taken)?;
    if is_taken {
        alive.remove(&taken)?;
    }
    Ok(is_taken)
}

/// Removes the files of other processes that have ended, as `record` proves, and the leftovers of
/// takers that died.
pub(super) fn remove_ended(
    store: &Folder,
    process: ProcessId,
    record: &ProcessRecord,
) -> Result<(), OwnerError> {
    let alive = store.open_folder(ALIVE)?;
    for name in alive.entries()? {
        let Some(name) = name.to_str() else { continue };
        let has_ended = match BeatName::parse(name) {
            Some(beat) if beat.process == process => false,
            Some(beat) => read_record(&alive, beat)?.is_some_and(|it| record.proves_end_of(&it)),
            None => name.starts_with(TAKEN),
        };
        if has_ended {
            alive.remove(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::super::LockId;
    use super::*;

    /// Bounds the wait for another thread.
    const DEADLINE: Duration = Duration::from_secs(60);

    fn begin(store: &Folder) -> Beat {
        let [key, address, boot] = ["k", "k@host:1", "boot"].map(str::to_owned);
        let lock = LockId { device: 1, inode: 2 };
        Beat::begin(store, &ProcessRecord { key, address, boot, lock }).unwrap()
    }

    #[test]
    fn a_beat_that_hangs_in_the_store_delays_no_answer() {
        let temp = tempfile::tempdir().unwrap();
        let beat = begin(&Folder::open(temp.path()).unwrap());
        let (hangs, is_hanging) = channel();
        let (goes_on, may_go_on) = channel::<()>();
        let (looked, looks) = channel();
        thread::scope(|scope| {
            let beat = &beat;
            // The store takes its time, and then does what it was asked.
            let rename = move |old: &str, new: &str| {
                hangs.send(()).unwrap();
                may_go_on.recv_timeout(DEADLINE).unwrap();
                shard::rename(&beat.alive, old, new)
            };
            let named = |name: &str| thread::Builder::new().name(name.to_owned());
            let renewing = named("beat").spawn_scoped(scope, move || beat.renew_by(rename));
            let renewing = renewing.unwrap();
            is_hanging.recv_timeout(DEADLINE).unwrap();
            assert!(beat.number.try_lock().is_none(), "the beat that hangs has its lock");
            let reactor = named("reactor");
            let look = move || looked.send(beat.is_fresh()).unwrap();
            reactor.spawn_scoped(scope, look).unwrap();
            let look = looks.recv_timeout(DEADLINE);
            // The beats end before the test fails.
            goes_on.send(()).unwrap();
            assert_eq!(look, Ok(true), "it did not wait");
            renewing.join().unwrap().unwrap();
        });
        assert_eq!(newest(&beat.alive, beat.process).unwrap().unwrap().number, 1);
    }

    #[test]
    fn a_beat_is_fresh_for_a_while_after_it_began_and_a_lost_one_never() {
        let temp = tempfile::tempdir().unwrap();
        let beat = begin(&Folder::open(temp.path()).unwrap());
        let patience = watch::alive_for_itself(DEAD);
        let nanosecond = Duration::from_nanos(1);
        let began = beat.began.get();
        assert!(beat.is_fresh_at(began));
        assert!(beat.is_fresh_at(began + patience - nanosecond));
        assert!(!beat.is_fresh_at(began + patience), "by time alone");
        // A beat counts from its beginning: the store may have done it at once.
        let slow = |old: &str, new: &str| {
            thread::sleep(Duration::from_millis(50)); // The time that the store takes.
            shard::rename(&beat.alive, old, new)
        };
        let before = clock::since_boot();
        beat.renew_by(slow).unwrap();
        let renewed = beat.began.get();
        assert!(before <= renewed && renewed + Duration::from_millis(50) <= clock::since_boot());
        assert!(beat.is_fresh_at(renewed + patience - nanosecond));
        // One that fails changes nothing.
        let refused = |_: &str, _: &str| Err(OwnerError::Stopped);
        assert!(beat.renew_by(refused).is_err());
        assert_eq!(beat.began.get(), renewed);
        let file = beat.alive.entries().unwrap().remove(0);
        beat.alive.remove(&file).unwrap();
        assert!(beat.is_fresh_at(renewed), "nothing has told it");
        assert!(matches!(beat.renew(), Err(OwnerError::Fenced)));
        assert!(!beat.is_fresh_at(renewed));
    }

    #[test]
    fn an_ended_beat_is_not_fresh() {
        let temp = tempfile::tempdir().unwrap();
        let beat = begin(&Folder::open(temp.path()).unwrap());
        beat.renew().unwrap();
        beat.end();
        assert!(!beat.is_fresh());
        assert!(beat.alive.entries().unwrap().is_empty());
        assert!(matches!(beat.renew(), Err(OwnerError::Fenced)));
    }
}
