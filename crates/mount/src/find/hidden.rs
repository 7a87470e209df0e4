//! Hidden names: they can be looked up in every directory of the mount, and are in no listing.

use pelago_client::At;
use pelago_wire::InodeId;

/// The file that a hidden name leads to, unless the server has a file of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Hidden {
    /// The control file: a query is written to it, and the answer read from it.
    Control,
    /// The folder in which each query is a folder.
    Queries,
}

/// A hidden name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HiddenName {
    pub(crate) dir: InodeId,
    pub(crate) what: Hidden,
}

impl HiddenName {
    /// Returns a name as a hidden name, if it is one.
    pub(crate) fn of(at: &At) -> Option<Self> {
        let what = match at.name.as_bytes() {
            b".pelago-find" => Hidden::Control,
            b".find" => Hidden::Queries,
            _ => return None,
        };
        Some(Self { dir: at.dir.ino, what })
    }
}
