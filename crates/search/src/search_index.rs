//! The search index of the volume: whether there is one, and what a search may ask it.
//!
//! The index begins with the first search that needs it, or with the server if the options say so.
//! The worker `index` builds it and keeps it up. Until it is complete, and if it fails, searches
//! look at all rows: an index costs or spares time, and changes no answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use pelago_index::{HAS_ENGINE, Names, Texts};
use pelago_store::folder::Folder;
use pelago_store::volume::VolumeId;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Code, Error, Handle, InodeId, limits};

use crate::steps::Steps;

/// When a server has a search index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Indexing {
    /// From the first search on that needs one.
    #[default]
    Auto,
    /// From its start on.
    Always,
    /// Never: every search looks at all rows.
    Never,
}

/// Wakes the worker that builds the index.
type Wake = Arc<dyn Fn() + Send + Sync>;

/// The search index of the volume.
pub struct SearchIndex {
    /// `None` if there is never an index.
    place: Option<IndexPlace>,
    /// Whether a search has asked for it.
    is_wanted: AtomicBool,
    notify: Wake,
    /// See [`SearchIndex::with_on_reading`].
    on_reading: fn(bool),
    steps: Steps,
    /// A search has found that it cannot be read.
    has_failed: AtomicBool,
    /// A leaf lock.
    open: RwLock<Open>,
    /// Files whose texts may have changed since the last commit of the index of texts. A leaf lock.
    texts: Mutex<WaitingTexts>,
}

/// The place of the index, and the volume that it is of.
#[derive(Debug, Clone)]
pub struct IndexPlace {
    /// The folder of the volume, which other users may write.
    pub folder: Folder,
    /// The volume.
    pub volume: VolumeId,
}

/// What is open of the index.
#[derive(Default)]
struct Open {
    halves: Option<Arc<Halves>>,
    names: bool,
    texts: bool,
}

/// Both halves of the index.
pub struct Halves {
    /// Names and attributes.
    pub names: Names,
    /// Words of texts.
    pub texts: Texts,
}

/// Files whose texts wait for the index.
#[derive(Default)]
pub struct WaitingTexts {
    files: IdMap<InodeId, Handle>,
    /// There were more than fit.
    pub has_more: bool,
}

impl SearchIndex {
    /// Returns an index that is not open yet. `notify` wakes the worker that builds it; without a
    /// place there is never an index.
    #[must_use]
    pub fn new(place: Option<IndexPlace>, indexing: Indexing, notify: Wake) -> Self {
        Self {
            place: place.filter(|_| indexing != Indexing::Never && HAS_ENGINE),
            is_wanted: AtomicBool::new(indexing == Indexing::Always),
            notify,
            on_reading: |_| {},
            steps: Steps::default(),
            has_failed: AtomicBool::new(false),
            open: RwLock::default(),
            texts: Mutex::default(),
        }
    }

    /// Has the worker call this before it reads all rows, and afterwards.
    #[must_use]
    pub fn with_on_reading(self, on_reading: fn(bool)) -> Self {
        Self { on_reading, ..self }
    }

    /// Sets the sizes of steps.
    #[must_use]
    pub fn with_steps(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    /// Returns the sizes of steps.
    pub(crate) const fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Says that the worker begins to read all rows, or no longer does.
    pub(crate) fn set_reading(&self, is_reading: bool) {
        (self.on_reading)(is_reading);
    }

    /// Returns the place of the index if one is wanted.
    pub(crate) fn wanted_place(&self) -> Option<&IndexPlace> {
        self.place.as_ref().filter(|_| self.is_wanted.load(Ordering::Acquire))
    }

    /// Notes that a search could not read the index, and returns the error for it: from now on
    /// searches look at all rows, until the worker has built it again.
    pub(crate) fn failed(&self, error: &pelago_index::Error) -> Error {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            tracing::warn!(%error, "the search index cannot be read");
        }
        self.set_open(None, false, false);
        (self.notify)();
        Code::Io.into()
    }

    /// Returns whether a search has failed since the last call.
    pub(crate) fn take_failed(&self) -> bool {
        self.has_failed.swap(false, Ordering::AcqRel)
    }

    /// Returns whether searches may ask the index.
    pub(crate) fn is_usable(&self) -> bool {
        self.open.read().names
    }

    /// Returns the index if its names are complete. Otherwise asks for it.
    pub fn names(&self) -> Option<Arc<Halves>> {
        let open = self.open.read();
        if open.names {
            return open.halves.clone();
        }
        drop(open);
        self.want();
        None
    }

    /// Returns the index if its names and its texts are complete. Otherwise asks for it.
    #[must_use]
    pub fn texts(&self) -> Option<Arc<Halves>> {
        let halves = self.names()?;
        self.open.read().texts.then_some(halves)
    }

    /// Returns whether searches may still ask an index, and its texts. What was recorded beside an
    /// index belongs to it only if this is so afterwards.
    pub(crate) fn is_open(&self, halves: &Arc<Halves>, texts: bool) -> bool {
        let open = self.open.read();
        let is_same = open.halves.as_ref().is_some_and(|now| Arc::ptr_eq(now, halves));
        is_same && open.names && (open.texts || !texts)
    }

    /// Sets what searches may ask.
    pub fn set_open(&self, halves: Option<Arc<Halves>>, names: bool, texts: bool) {
        *self.open.write() = Open { halves, names, texts };
    }

    /// Returns the files whose texts wait.
    pub fn waiting_texts(&self) -> parking_lot::MutexGuard<'_, WaitingTexts> {
        self.texts.lock()
    }

    fn want(&self) {
        if self.place.is_some() && !self.is_wanted.swap(true, Ordering::AcqRel) {
            (self.notify)();
        }
    }
}

impl WaitingTexts {
    /// Adds a file.
    pub(crate) fn add(&mut self, handle: Handle) {
        if self.files.contains_key(&handle.ino) || self.files.len() < limits::FED_FILES {
            self.files.insert(handle.ino, handle);
        } else {
            self.has_more = true;
        }
    }

    /// Returns some of the files, which go on waiting.
    pub(crate) fn some(&self, most: usize) -> Vec<Handle> {
        self.files.values().take(most).copied().collect()
    }

    /// Adds the files to others, of which is known better where they are. Returns whether these are
    /// all that wait.
    pub(crate) fn copy_to(&self, files: &mut IdMap<InodeId, Handle>) -> bool {
        for (ino, file) in &self.files {
            files.entry(*ino).or_insert(*file);
        }
        !self.has_more
    }

    /// Returns whether no file waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.has_more
    }

    /// Removes files whose texts are in a commit. The worker that adds files is the one that
    /// commits, so none has changed again.
    pub(crate) fn remove(&mut self, files: &[Handle]) {
        for file in files {
            self.files.remove(&file.ino);
        }
    }
}

/// The folder of the index in that of the volume.
pub(crate) const FOLDER: &str = "index";
