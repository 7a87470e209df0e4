//! A file in the folder of the volume that is read again when it has changed.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pelago_store::clock;
use pelago_store::folder::Folder;
use pelago_wire::Time;
use rustix::fs::OFlags;

/// The longest time between two checks of a file that is in use: half a second.
const POLL_NANOS: u32 = 500_000_000;

/// A file, with the function that reads its text.
pub(super) struct Source<T> {
    /// Its name in the folder.
    pub(super) name: &'static str,
    /// What it has, for the log: "the roots".
    pub(super) what: &'static str,
    /// The limit for its text, in bytes.
    pub(super) limit: usize,
    /// Reads the text, which may have one byte more than the limit. The error says what to do.
    pub(super) read: fn(&[u8]) -> Result<T, String>,
}

/// Gets a new content of a file, under the lock of the state.
pub(super) type OnChange<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The content of a file, which follows changes of it.
///
/// No thread watches the file: a query checks it, once in each half of a second by the wall clock.
/// If the file cannot be read, or has wrong content, the last good one stays in force, and a
/// warning is logged once. A missing file has the content `T::default()`.
pub(super) struct Watched<T> {
    folder: Folder,
    source: Source<T>,
    on_change: Option<OnChange<T>>,
    /// A leaf lock, held during a check of the file.
    state: Mutex<State<T>>,
    /// The number of changes of the content; written under the lock.
    changes: AtomicU64,
    /// The half of a second in which the file was checked last, as [`half_second`] numbers them.
    checked: AtomicU64,
}

/// The state of a file after a check.
#[derive(Default)]
pub(super) struct State<T> {
    /// The content that is in force.
    pub(super) content: T,
    /// True if `content` is that of a file, or that of a missing one.
    pub(super) is_known: bool,
    /// The stamp of the file that is in force; `None` if it is missing.
    seen: Option<Stamp>,
    /// The reason why the present file is not in force.
    problem: Option<String>,
}

/// The attributes by which a change of the file is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl<T: Default> Watched<T> {
    pub(super) fn new(folder: Folder, source: Source<T>) -> Self {
        let state = Mutex::default();
        let changes = AtomicU64::new(0);
        let checked = AtomicU64::new(u64::MAX);
        Self { folder, source, on_change: None, state, changes, checked }
    }

    /// Adds the function that gets each new content.
    pub(super) fn with_on_change(self, on_change: OnChange<T>) -> Self {
        Self { on_change: Some(on_change), ..self }
    }

    /// Returns the folder of the volume.
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the state by a file that was checked at most half a second ago.
    pub(super) fn checked(&self) -> MutexGuard<'_, State<T>> {
        self.checked_at(half_second(clock::coarse_now()))
    }

    fn checked_at(&self, half_second: u64) -> MutexGuard<'_, State<T>> {
        let mut state = self.state.lock();
        if self.checked.load(Ordering::Relaxed) != half_second {
            self.look(&mut state);
            self.checked.store(half_second, Ordering::Release);
        }
        state
    }

    /// Returns the number of changes of the content, at this present time, by a file that was
    /// checked at most half a second ago.
    #[inline]
    pub(super) fn changes(&self, now: Time) -> u64 {
        let half_second = half_second(now);
        if self.checked.load(Ordering::Acquire) != half_second {
            drop(self.checked_at(half_second));
        }
        self.changes.load(Ordering::Acquire)
    }

    /// Checks the file now.
    pub(super) fn look(&self, state: &mut State<T>) {
        let what = self.source.what;
        match self.read(state.seen) {
            Ok(Some((content, stamp))) => {
                let is_new = state.seen != stamp;
                if is_new {
                    self.changes.fetch_add(1, Ordering::AcqRel);
                    tracing::info!("read {what} of the volume");
                }
                state.content = content;
                state.seen = stamp;
                state.is_known = true;
                state.problem = None;
                if let Some(on_change) = self.on_change.as_ref().filter(|_| is_new) {
                    on_change(&state.content);
                }
            }
            Ok(None) => state.problem = None,
            Err(problem) => {
                if state.problem.as_ref() != Some(&problem) {
                    let in_force = if state.is_known { "the last good ones" } else { "none" };
                    tracing::warn!(%problem, "{what} of the volume cannot be used: {in_force} \
                                              stay in force");
                    state.problem = Some(problem);
                }
            }
        }
    }

    /// Reads the file and its stamp; returns `None` if it is the one that was seen.
    fn read(&self, seen: Option<Stamp>) -> Result<Option<(T, Option<Stamp>)>, String> {
        let Source { name, limit, read, .. } = self.source;
        let file = match self.folder.open_file(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(Some((T::default(), None))),
            Err(error) => return Err(error.to_string()),
        };
        let failed = |error: std::io::Error| format!("{name}: {error}");
        let metadata = file.metadata().map_err(failed)?;
        let stamp = Stamp {
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        if seen == Some(stamp) {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut text).map_err(failed)?;
        let content = read(&text).map_err(|problem| format!("{name}: {problem}"))?;
        Ok(Some((content, Some(stamp))))
    }
}

/// Returns the number of the half of a second. A clock that is set back gives another one too.
const fn half_second(time: Time) -> u64 {
    time.seconds.cast_unsigned().wrapping_mul(2).wrapping_add((time.nanos / POLL_NANOS) as u64)
}
