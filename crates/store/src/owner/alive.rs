//! The beats of living processes: each renames a file of its own in `alive/`.

use std::io::Write as _;
use std::time::Duration;

use super::error::OwnerError;
use super::names::{BeatName, ProcessId};
use super::says::ServerSays;
use super::{DEAD, shard, watch};
use crate::clock;
use crate::folder::Folder;
use crate::sync::Mutex;
use crate::volume::layout::ALIVE;

/// Renames of one beat, while each finds that an earlier one was done.
const TRIES: u32 = 4;
/// Permissions of the file.
const FILE_MODE: u32 = 0o600;
/// What the name of a file begins with that is not whole yet.
const NEW: &str = "new.";
/// What the name of a file begins with that a taker has taken away.
const TAKEN: &str = "taken.";

/// The beat of this process: a file in `alive/` that shows others that it lives.
#[derive(Debug)]
pub struct Beat {
    alive: Folder,
    process: ProcessId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    number: u64,
    /// The time since the start of the machine at which the last beat that succeeded began.
    began: Duration,
    /// Whether another process has taken the file away.
    is_lost: bool,
}

impl Beat {
    /// Draws a process, and shows that it lives and what it says.
    ///
    /// # Errors
    /// [`OwnerError`]; [`OwnerError::Invalid`] if a text of `says` is empty, too long, or has a
    /// control character.
    pub fn begin(store: &Folder, says: &ServerSays) -> Result<Self, OwnerError> {
        let text = says.encode().ok_or(OwnerError::Invalid { what: "what this server says" })?;
        let alive = store.create_folder(ALIVE)?;
        let failed = |error| OwnerError::from_io("writing", alive.path(), error);
        let process = ProcessId::random().map_err(failed)?;
        let began = clock::since_boot();
        let new = format!("{NEW}{process}");
        let mut file = alive.create_new(&new, FILE_MODE)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        alive.rename(&new, &BeatName { process, number: 0 }.to_string())?;
        let state = Mutex::new(State { number: 0, began, is_lost: false });
        Ok(Self { alive, process, state })
    }

    /// Returns this process.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// Beats once. Called each [`super::BEAT`], by a thread that does nothing else.
    ///
    /// # Errors
    /// [`OwnerError::Lost`] if another process has taken this one for dead, for ever then. After
    /// another error the next beat may succeed.
    pub fn renew(&self) -> Result<(), OwnerError> {
        let mut state = self.state.lock();
        if state.is_lost {
            return Err(OwnerError::Lost);
        }
        for _ in 0..TRIES {
            let began = clock::since_boot();
            let name = |number| BeatName { process: self.process, number }.to_string();
            let next = state.number.saturating_add(1);
            if shard::rename(&self.alive, &name(state.number), &name(next))? {
                state.number = next;
                state.began = began;
                return Ok(());
            }
            // A beat that failed, or whose answer was lost, may have been done. Only a rename from
            // now says that the process lives now.
            match newest(&self.alive, self.process)? {
                Some(newest) => state.number = newest.number,
                None => break,
            }
        }
        state.is_lost = true;
        Err(OwnerError::Lost)
    }

    /// Returns whether the last beat that succeeded began so recently that no other process can
    /// have taken this one for dead. Looked at after a value was read and before it is answered.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let state = self.state.lock();
        let age = clock::since_boot().saturating_sub(state.began);
        !state.is_lost && age < watch::alive_for_itself(DEAD)
    }

    /// Removes the file, at a clean stop, after the baton was released.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.is_lost = true;
        let name = BeatName { process: self.process, number: state.number }.to_string();
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

/// Returns what the process of a beat says; `None` if the file has moved on.
pub(super) fn says(alive: &Folder, beat: BeatName) -> Result<Option<ServerSays>, OwnerError> {
    let text = shard::read_text(alive, &beat.to_string())?;
    Ok(text.and_then(|text| ServerSays::decode(&text)))
}

/// Takes the file of a dead process away, for the taker `taker`. Returns false if it has moved: the
/// process lives.
pub(super) fn take_away(
    alive: &Folder,
    beat: BeatName,
    taker: ProcessId,
) -> Result<bool, OwnerError> {
    let taken = format!("{TAKEN}{taker}.{}", beat.process);
    // As for a beat: the rename may have been done though it found no file.
    let is_taken = shard::rename(alive, &beat.to_string(), &taken)? || alive.contains(&taken)?;
    if is_taken {
        alive.remove(&taken)?;
    }
    Ok(is_taken)
}

/// Removes the files of other processes of which `says` proves that they have ended, and what
/// takers left that died.
pub(super) fn remove_ended(
    store: &Folder,
    process: ProcessId,
    says: &ServerSays,
) -> Result<(), OwnerError> {
    let alive = store.open_folder(ALIVE)?;
    for name in alive.entries()? {
        let Some(name) = name.to_str() else { continue };
        let has_ended = match BeatName::parse(name) {
            Some(beat) if beat.process == process => false,
            Some(beat) => self::says(&alive, beat)?.is_some_and(|it| says.proves_end_of(&it)),
            None => name.starts_with(TAKEN),
        };
        if has_ended {
            alive.remove(name)?;
        }
    }
    Ok(())
}
