//! The roots of a volume: the keys whose credentials its server accepts, as the file `policy` has
//! them.

use std::collections::HashSet;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pelago_keynote::{Assertion, CREDENTIAL_BYTES, Principal};
use pelago_store::folder::Folder;
use pelago_store::volume;
use rustix::fs::OFlags;

use super::scope::{may_read_address, only_seeks_ancestors};

/// The longest time between two checks of the file.
const POLL: Duration = Duration::from_millis(500);

/// The roots of a volume, which follow changes of the file.
///
/// No thread watches the file: a query checks it if the last check was half a second ago. If the
/// file cannot be read, or is no policy, the last good one stays in force, and a warning is logged
/// once. Without a file there is no root.
pub(super) struct Roots {
    folder: Folder,
    /// Gets the keys of each policy that was read.
    on_change: OnChange,
    /// Held during a check of the file.
    state: Mutex<State>,
}

/// Gets the roots of the volume when they were read first, and when they have changed. It is called
/// under the lock.
pub(super) type OnChange = Box<dyn Fn(&HashSet<Principal>) + Send + Sync>;

#[derive(Default)]
struct State {
    keys: HashSet<Principal>,
    /// The text that is in force; `None` without a file.
    policy: Option<Arc<Assertion>>,
    /// True if the policy asks for the address of a guest.
    reads_address: bool,
    /// The number of changes of the policy.
    changes: u64,
    /// The stamp of the file that is in force; `None` if it is missing.
    seen: Option<Stamp>,
    /// The reason why the present file is not in force.
    problem: Option<String>,
    next_look: Option<Instant>,
}

/// The attributes by which a change of the file is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Roots {
    pub(super) fn new(folder: Folder, on_change: OnChange) -> Self {
        Self { folder, on_change, state: Mutex::default() }
    }

    /// Returns the folder of the volume.
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns whether a key is a root, by a file that was checked at most half a second ago.
    pub(super) fn has(&self, key: &Principal) -> bool {
        let mut state = self.checked();
        // A key that is no root may have become one a moment ago: the person who added it tries it
        // now.
        if !state.keys.contains(key) {
            self.look(&mut state);
        }
        state.keys.contains(key)
    }

    /// Returns the policy, by a file that was checked at most half a second ago.
    pub(super) fn policy(&self) -> Option<Arc<Assertion>> {
        self.checked().policy.clone()
    }

    /// Returns whether the policy asks for the address of a guest.
    pub(super) fn reads_address(&self) -> bool {
        self.checked().reads_address
    }

    /// Returns whether the policy only asks which directories are above an object.
    pub(super) fn only_seeks(&self) -> bool {
        self.checked().policy.as_ref().is_none_or(|policy| only_seeks_ancestors(policy))
    }

    /// Returns the number of changes of the policy.
    pub(super) fn changes(&self) -> u64 {
        self.checked().changes
    }

    /// Returns the state by a file that was checked at most half a second ago.
    fn checked(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.next_look.is_none_or(|next| now >= next) {
            self.look(&mut state);
            state.next_look = Some(now + POLL);
        }
        state
    }

    /// Checks the file.
    fn look(&self, state: &mut State) {
        let before = state.changes;
        state.look(&self.folder);
        if state.changes != before {
            (self.on_change)(&state.keys);
        }
    }
}

impl State {
    fn look(&mut self, folder: &Folder) {
        match read(folder, self.seen) {
            Ok(Read::Same) => self.problem = None,
            Ok(Read::New(policy, stamp)) => {
                self.keys = policy.iter().flat_map(|policy| policy.licensees().keys()).collect();
                if self.seen != stamp {
                    self.changes += 1;
                    tracing::info!(roots = self.keys.len(), "read the roots of the volume");
                }
                self.reads_address = policy.as_ref().is_some_and(|policy| may_read_address(policy));
                self.policy = policy;
                self.seen = stamp;
                self.problem = None;
            }
            Err(problem) => {
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(%problem, "the last good roots of the volume stay in force");
                    self.problem = Some(problem);
                }
            }
        }
    }
}

/// The result of a check of the file.
enum Read {
    /// It is the file that is in force.
    Same,
    /// It is another file, or there is none.
    New(Option<Arc<Assertion>>, Option<Stamp>),
}

fn read(folder: &Folder, seen: Option<Stamp>) -> Result<Read, String> {
    let file = match folder.open_file(volume::POLICY, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(Read::New(None, None)),
        Err(error) => return Err(error.to_string()),
    };
    let failed = |error: std::io::Error| format!("{}: {error}", volume::POLICY);
    let metadata = file.metadata().map_err(failed)?;
    let stamp = Stamp {
        inode: metadata.ino(),
        size: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    if seen == Some(stamp) {
        return Ok(Read::Same);
    }
    let mut text = Vec::new();
    file.take(CREDENTIAL_BYTES as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    let policy = Assertion::policy(&text)
        .map_err(|error| format!("{}: {error}: restore the file", volume::POLICY))?;
    Ok(Read::New(Some(Arc::new(policy)), Some(stamp)))
}
