//! The list of clients as a server uses it: read again when its file has changed.

use std::collections::HashSet;
use std::error::Error;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::file::{ClientsFileError, read_with_stamp, stamp};
use super::{AllowedClient, Clients};
use crate::key::PublicKey;
use crate::own_file::{FileStamp, OwnFile};

/// The longest time for which a list is used without a look at its file.
const POLL: Duration = Duration::from_millis(500);

/// The list of the machines that may connect, which follows changes of its file.
///
/// No thread watches the file. A call looks at it if the last look was half a second ago, or if the
/// key is not listed. A look opens the file and compares its inode, size and times. A file that
/// cannot be read, or has a wrong line, changes nothing: the last good list stays in force, and a
/// warning is logged once. A file that was removed is an empty list.
#[derive(Debug)]
pub struct ClientList {
    file: OwnFile,
    /// A leaf lock, held during a look at the file.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    keys: HashSet<PublicKey>,
    /// The stamp of the file that is in force; `None` if it is missing.
    seen: Option<FileStamp>,
    /// The reason for which the present file is not in force.
    problem: Option<String>,
    next_look: Instant,
}

impl ClientList {
    /// Reads the list. A missing file is an empty list.
    ///
    /// # Errors
    /// [`ClientsFileError`].
    pub fn open(file: OwnFile) -> Result<Self, ClientsFileError> {
        let (clients, seen) = read_with_stamp(&file)?;
        let next_look = Instant::now() + POLL;
        let state = State { keys: keys_of(&clients), seen, problem: None, next_look };
        Ok(Self { file, state: Mutex::new(state) })
    }

    /// Returns whether a machine may connect, by a list that is at most half a second old.
    #[must_use]
    pub fn allows(&self, key: &PublicKey) -> bool {
        self.allows_at(key, Instant::now())
    }

    /// Returns the connected machines that may not be connected any longer. A server that calls
    /// this each half second ends their sessions within a second.
    #[must_use]
    pub fn removed(&self, connected: &[PublicKey]) -> Vec<PublicKey> {
        self.removed_at(connected, Instant::now())
    }

    /// Returns the number of machines that may connect.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().keys.len()
    }

    /// Returns the reason for which the present file is not in force, for `status`; `None` if it
    /// is.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.state.lock().problem.clone()
    }

    fn allows_at(&self, key: &PublicKey, now: Instant) -> bool {
        let mut state = self.state.lock();
        state.look(&self.file, now);
        if !state.keys.contains(key) {
            // The key may have been listed a moment ago, by the person who connects now.
            state.next_look = now;
            state.look(&self.file, now);
        }
        state.keys.contains(key)
    }

    fn removed_at(&self, connected: &[PublicKey], now: Instant) -> Vec<PublicKey> {
        let mut state = self.state.lock();
        state.look(&self.file, now);
        connected.iter().filter(|key| !state.keys.contains(key)).copied().collect()
    }
}

impl State {
    fn look(&mut self, file: &OwnFile, now: Instant) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + POLL;
        match stamp(file) {
            Ok(stamp) if stamp == self.seen => {
                self.problem = None;
                return;
            }
            Ok(_) => {}
            Err(error) => return self.keep(&error.into()),
        }
        match read_with_stamp(file) {
            Ok((clients, stamp)) => {
                self.keys = keys_of(&clients);
                self.seen = stamp;
                self.problem = None;
                tracing::info!(clients = self.keys.len(), "read the list of clients again");
            }
            // The next look reads it again: the failure may pass.
            Err(error) => self.keep(&error),
        }
    }

    /// Keeps the last good list, and logs the reason, unless the last look has found the same.
    fn keep(&mut self, error: &ClientsFileError) {
        let mut problem = error.to_string();
        if let Some(cause) = error.source() {
            problem.push_str(": ");
            problem.push_str(&cause.to_string());
        }
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(%problem, "the last good list of clients stays in force");
            self.problem = Some(problem);
        }
    }
}

fn keys_of(clients: &Clients) -> HashSet<PublicKey> {
    clients.iter().map(|AllowedClient { key, .. }| *key).collect()
}

#[cfg(test)]
mod tests;
