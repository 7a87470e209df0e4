//! Hints for searches: the last known name of a file, by which a search reads one row instead of
//! scanning a range.
//!
//! A handle has the hash of a name and not the name, so finding its row is a scan, which costs
//! several times as much as reading a row. A hint has the name. It proves nothing: the row at this
//! name says whether the file is there.

use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdMap;
use pelago_wire::{InodeId, Name, limits};

/// The names under which files and directories were last found.
#[derive(Debug, Default)]
pub(crate) struct PlaceHints {
    /// The directory and the name of each inode; a leaf lock.
    known: Mutex<IdMap<InodeId, (InodeId, Name)>>,
}

impl PlaceHints {
    /// Returns the directory and the name under which a file was last found.
    pub(crate) fn get(&self, ino: InodeId) -> Option<(InodeId, Name)> {
        self.known.lock().get(&ino).cloned()
    }

    /// Records the directory and the name of a file. Forgets all other files if there are too many.
    pub(crate) fn put(&self, ino: InodeId, dir: InodeId, name: Name) {
        let mut known = self.known.lock();
        if known.len() >= limits::PLACE_HINTS {
            known.clear();
        }
        known.insert(ino, (dir, name));
    }
}
