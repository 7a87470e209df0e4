//! The rights of a guest that searches.

use pelago_meta::shard::Shard;
use pelago_wire::{Error, Handle};

/// The rights of a guest that searches, beside those of the user as whom it acts.
///
/// A guest is shown files of directories that it may list, and must learn nothing of others. An
/// index is of the whole volume: which plan it proposes, and so the order of the answer, depends on
/// files that are not granted. So the search of a guest walks the directory, and asks no index.
pub struct GuestView<'a> {
    /// Returns whether the guest may list the directory that is searched, at its present place.
    pub may_search: &'a dyn Fn(Handle) -> Result<bool, Error>,
    /// Returns whether the guest may list a directory below that, or read a file.
    pub may_read: &'a dyn Fn(Handle) -> Result<bool, Error>,
    /// The work of one such decision, in names that are compared with a query; 0 if all below the
    /// directory is granted with it.
    pub decision_names: u32,
    /// Calls a function once, and lets no directory move meanwhile. A search of which no attempt
    /// comes to its first file goes on in it for 128 names.
    pub hold: &'a dyn Fn(&mut dyn FnMut()),
}

impl GuestView<'_> {
    /// Calls a function, and lets no directory move meanwhile if `is_held`.
    pub(super) fn call<T>(&self, is_held: bool, mut of: impl FnMut() -> T) -> T {
        let mut result = None;
        if is_held {
            (self.hold)(&mut || result = Some(of()));
        }
        result.unwrap_or_else(of)
    }
}

/// The work for which a search may let no directory move, in names.
pub(super) const HELD_NAMES: u32 = 128;

/// A guest that searches a tree of one moment. While no directory moves, each is where the tree has
/// it, so that the present rights and the present state of files are those of their places there.
#[derive(Clone, Copy)]
pub(super) struct GuestInTree<'a> {
    pub(super) view: &'a GuestView<'a>,
    shard: &'a Shard,
    /// The moves of directories before the tree was taken.
    moves: u64,
    /// True if none moves.
    is_held: bool,
}

impl<'a> GuestInTree<'a> {
    /// Returns the guest for a tree that is taken after this.
    pub(super) fn before_tree(view: &'a GuestView<'a>, shard: &'a Shard, is_held: bool) -> Self {
        Self { view, shard, moves: shard.directory_moves(), is_held }
    }

    /// Returns the work for which no directory may move; `None` if directories may move.
    pub(super) fn held_names(&self) -> Option<u32> {
        self.is_held.then_some(HELD_NAMES)
    }

    /// Returns whether a directory has moved since.
    pub(super) fn has_moved(&self) -> bool {
        self.shard.directory_moves() != self.moves
    }
}
