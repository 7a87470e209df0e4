//! The search index of the volume: its place, and the halves that searches may ask.
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
    /// True once a search needed the index, or if there is one from the start on.
    is_wanted: AtomicBool,
    notify: Wake,
    /// See [`SearchIndex::with_on_reading`].
    on_reading: fn(bool),
    steps: Steps,
    /// True if a search could not read the index.
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

/// The index as searches see it.
#[derive(Default)]
struct Open {
    /// `None` if the index is closed.
    halves: Option<Arc<Halves>>,
    /// True if the index of names is complete.
    names: bool,
    /// True if the index of texts is complete.
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
    /// True if more files waited than fit: all texts are read again.
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

    /// Sets a function that the worker calls with `true` before it reads all rows, and with `false`
    /// afterwards.
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

    /// Reports that the worker begins to read all rows, or no longer does.
    pub(crate) fn set_reading(&self, is_reading: bool) {
        (self.on_reading)(is_reading);
    }

    /// Returns the place of the index if one is wanted.
    pub(crate) fn wanted_place(&self) -> Option<&IndexPlace> {
        self.place.as_ref().filter(|_| self.is_wanted.load(Ordering::Acquire))
    }

    /// Closes the index after a search could not read it, and returns the error of that search.
    /// From now on searches look at all rows, until the worker has built the index again.
    pub(crate) fn failed(&self, error: &pelago_index::Error) -> Error {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            tracing::warn!(%error, "the search index cannot be read");
        }
        self.set_open(None, false, false);
        (self.notify)();
        Code::Io.into()
    }

    /// Returns whether a search could not read the index since the last call.
    pub(crate) fn take_failed(&self) -> bool {
        self.has_failed.swap(false, Ordering::AcqRel)
    }

    /// Returns whether searches may ask the index.
    pub(crate) fn is_usable(&self) -> bool {
        self.open.read().names
    }

    /// Returns the index if its names are complete. Otherwise wakes the worker to build it.
    pub fn names(&self) -> Option<Arc<Halves>> {
        let open = self.open.read();
        if open.names {
            return open.halves.clone();
        }
        drop(open);
        self.want();
        None
    }

    /// Returns the index if its names and its texts are complete. Wakes the worker to build it if
    /// not even the names are.
    #[must_use]
    pub fn texts(&self) -> Option<Arc<Halves>> {
        let halves = self.names()?;
        self.open.read().texts.then_some(halves)
    }

    /// Returns whether searches may still ask this index and, if `texts`, its texts. The files that
    /// were gathered beside an index belong to it only if this is true after they were gathered.
    pub(crate) fn is_open(&self, halves: &Arc<Halves>, texts: bool) -> bool {
        let open = self.open.read();
        let is_same = open.halves.as_ref().is_some_and(|now| Arc::ptr_eq(now, halves));
        is_same && open.names && (open.texts || !texts)
    }

    /// Sets the index that searches may ask, and which of its halves are complete.
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

    /// Returns up to `most` of the files, which go on waiting.
    pub(crate) fn some(&self, most: usize) -> Vec<Handle> {
        self.files.values().take(most).copied().collect()
    }

    /// Adds the files to `files`, whose handles are newer. Returns whether these are all files that
    /// wait.
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

    /// Removes files whose texts are in a commit. The worker that commits is the only one that adds
    /// files, so none of them has changed again.
    pub(crate) fn remove(&mut self, files: &[Handle]) {
        for file in files {
            self.files.remove(&file.ino);
        }
    }
}

/// The folder of the index in that of the volume.
pub(crate) const FOLDER: &str = "index";
