//! The paths of directories below the one that is searched, for a process that may go there.

use std::collections::HashMap;
use std::rc::Rc;

use pelago_wire::{Error, InodeId, limits};

use super::viewer::Viewer;
use crate::undamaged::undamaged;

/// Directories that are remembered.
const PLACES: usize = 1 << 16;
/// Directories above each other that fit into a path.
const DEPTH: usize = limits::HIT_PATH_BYTES / 2;

/// The directories below one that is searched.
pub(super) struct Places {
    scope: InodeId,
    known: HashMap<InodeId, PathBelow>,
}

/// The path from the directory that is searched, with a `/` behind each name; `None` for a
/// directory that is not below it, or that the process may not reach, list and search.
type PathBelow = Option<Rc<[u8]>>;

impl Places {
    /// Returns the places below a directory.
    pub(super) fn below(scope: InodeId) -> Self {
        Self { scope, known: HashMap::from([(scope, Some(Rc::default()))]) }
    }

    /// Returns where a directory is.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn of(&mut self, viewer: &Viewer<'_>, dir: InodeId) -> Result<PathBelow, Error> {
        if let Some(place) = self.known.get(&dir) {
            return Ok(place.clone());
        }
        if self.known.len() >= PLACES {
            *self = Self::below(self.scope);
        }
        let mut above = Vec::new();
        let mut at = dir;
        let mut place = loop {
            if let Some(place) = self.known.get(&at) {
                break place.clone();
            }
            match viewer.tree.place_of(at)? {
                // More would be a loop of damaged rows.
                Some((parent, name)) if above.len() < DEPTH => {
                    above.push((at, name));
                    at = parent;
                }
                _ => break None,
            }
        };
        for (ino, name) in above.into_iter().rev() {
            place = match place {
                Some(path) => step(viewer, &path, ino, name.as_bytes())?,
                None => None,
            };
            self.known.insert(ino, place.clone());
        }
        Ok(place)
    }
}

/// Returns the place of a directory below another one.
fn step(viewer: &Viewer<'_>, path: &[u8], ino: InodeId, name: &[u8]) -> Result<PathBelow, Error> {
    let fits = path.len() + name.len() + 1 + limits::NAME_BYTES <= limits::HIT_PATH_BYTES;
    let rnode = undamaged(viewer.tree.rnode(ino))?.filter(|_| fits);
    Ok(match rnode {
        Some(rnode) if viewer.may_enter(&rnode)? => Some([path, name, b"/"].concat().into()),
        _ => None,
    })
}
