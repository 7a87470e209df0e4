//! Searches by a query, and lists of tags: their arguments and their pages.
//!
//! The server answers a search page by page. Each page is the reply to a request of its own, and
//! has the place at which the next one begins. So no server has state between two pages, and
//! another server can pass both on as they are.

use crate::attr::{FileKind, Time};
use crate::id::InodeId;

/// A search of a directory and everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// The query in its canonical form, as `docs/query.md` specifies it.
    pub query: Vec<u8>,
    /// The most files of a page.
    pub hits: u32,
    /// The place at which the page before has ended; `None` for the first one.
    pub after: Option<SearchPlace>,
    /// The process whose rights decide, with user and group of the context.
    pub asker: Asker,
}

/// The process that searches, besides user and group in the [`crate::Context`]: the server shows it
/// no file that it may not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asker {
    /// The supplementary groups, at most [`crate::limits::ASKER_GROUPS`].
    pub groups: Vec<u32>,
    /// It may read every file and search every directory (`CAP_DAC_READ_SEARCH`).
    pub reads_all: bool,
}

/// A place in the answer to a query, after which the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPlace {
    /// The time of the first page: ages in the query are counted from it on every page.
    pub now: Time,
    /// The end of the answer so far.
    pub at: SearchAt,
}

/// The end of an answer so far, in the order that the server has chosen for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchAt {
    /// In the order of a walk, a directory before what is in it, and the names of a directory in
    /// the order of their hashes: all files up to the one with this path, which is as that of a
    /// [`Hit`]. The walk finds its way also if a part of the path is gone.
    Path(Vec<u8>),
    /// In the order of the inode numbers: all files before this one.
    Node {
        /// The file.
        ino: InodeId,
        /// And as many names of this file: the answer has each name of a file.
        names: u32,
    },
    /// In the order of the ranks: this number of files.
    Rank(u32),
}

/// A file that answers a query, by one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The file.
    pub ino: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// The names from the directory that was searched down to the file, with a `/` between two; at
    /// most [`crate::limits::HIT_PATH_BYTES`].
    pub path: Vec<u8>,
}

/// A page of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPage {
    /// The files. More may follow a page without any.
    pub hits: Vec<Hit>,
    /// Every change up to this time is in the answer.
    pub as_of: Time,
    /// The place at which the next page begins; `None` after the last one.
    pub after: Option<SearchPlace>,
    /// Names and files that were compared with the query for this page.
    pub examined: u64,
}

/// A request for the tags of the files in a directory and below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tags {
    /// The key whose values are wanted; `None` for keys.
    pub key: Option<Vec<u8>>,
    /// The beginning of the keys or values, at most [`crate::limits::TAG_PART_BYTES`].
    pub prefix: Vec<u8>,
    /// The process whose rights decide, with user and group of the context.
    pub asker: Asker,
}

/// Keys of tags, or values of one key, that files have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPage {
    /// The keys or values, each once, in the order of their bytes: at most
    /// [`crate::limits::TAG_PARTS`], each of at most [`crate::limits::TAG_PART_BYTES`].
    pub parts: Vec<Vec<u8>>,
    /// Every change up to this time is among them.
    pub as_of: Time,
    /// There may be more.
    pub more: bool,
}
