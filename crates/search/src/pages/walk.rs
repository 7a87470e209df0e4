//! The walk through a directory and all below it, which needs no index.
//!
//! A directory comes before the files in it, and the names of a directory come in the order of
//! their hashes. So the path of the last file is the place that a walk has reached. The next page
//! finds its way back by it, even if a part of the path is gone by then. The page of a guest ends
//! if a directory of the volume moves, because the present state of files is read with the tree.
//! The next one has a newer tree.

use std::collections::VecDeque;

use pelago_meta::tree::{Tree, TreeEntry};
use pelago_store::rows::{NameRow, Rnode};
use pelago_wire::{Code, Error, FileKind, Handle, Hit, InodeId, NameHash, SearchAt, limits};

use super::evaluation::Evaluation;
use super::page::Page;
use super::source::{Filled, Question, Source};
use crate::undamaged::undamaged;

/// Most entries of a directory that are read at once.
const ENTRIES_AT_ONCE: usize = 128;

/// The order of the walk.
pub(super) struct ByPath {
    /// The path of the last file of the pages before; `None` for the first page.
    pub(super) behind: Option<Vec<u8>>,
}

impl Source for ByPath {
    fn fill(&self, question: &Question<'_>, page: &mut Page) -> Result<Option<Filled>, Error> {
        let evaluation = question.evaluation;
        let walk = Walk::begin(evaluation, question.dir, self.behind.as_deref())?;
        let next = walk.go_on(evaluation, page)?.map(SearchAt::Path);
        Ok(Some(Filled { next, behind_since: None }))
    }
}

/// A walk under way.
struct Walk {
    /// The directories from the first one to the present one.
    levels: Vec<Level>,
    /// The path of the present directory, with a `/` after each name.
    path: Vec<u8>,
    /// The path of the last file that was compared.
    last: Option<Vec<u8>>,
}

/// A directory in which the walk is.
struct Level {
    dir: InodeId,
    /// The length of the path of the directory above, in bytes.
    above: usize,
    /// The last entry that was read.
    behind: Option<Vec<u8>>,
    /// Entries that were read and not compared yet.
    entries: VecDeque<TreeEntry>,
}

impl Walk {
    /// Begins a walk through a directory, or continues after the file with a path.
    ///
    /// # Errors
    /// If a row cannot be read.
    fn begin(
        evaluation: &Evaluation<'_>,
        dir: InodeId,
        behind: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let last = behind.map(<[u8]>::to_vec);
        let mut walk = Self { levels: Vec::new(), path: Vec::new(), last };
        walk.enter(dir, b"");
        for name in behind.unwrap_or_default().split(|byte| *byte == b'/') {
            let Some(level) = walk.levels.last_mut().filter(|_| behind.is_some()) else { break };
            level.behind = Some(name.to_vec());
            let tree = evaluation.reading.tree;
            let row = undamaged(tree.entry(level.dir, name))?;
            let Some(row) = row else { break };
            let Some((_, rnode)) = node(tree, level.dir, tree.hash(name), &row)? else {
                break;
            };
            if !walk.enters(evaluation, &rnode, name)? {
                break;
            }
            if evaluation.viewer.ends_hold(evaluation.viewer.work()) {
                return Err(Code::Busy.into());
            }
        }
        Ok(walk)
    }

    /// Goes on until the page is over. Returns the path of the last file that was looked at; `None`
    /// if the walk has ended.
    ///
    /// # Errors
    /// `Busy` if a directory has moved before the first file of the page; if a row or a text cannot
    /// be read.
    fn go_on(
        mut self,
        evaluation: &Evaluation<'_>,
        page: &mut Page,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut is_first = true;
        let begun = page.left();
        while let Some(level) = self.levels.last_mut() {
            let is_held_long = !is_first && evaluation.viewer.ends_hold(begun - page.left());
            if page.is_over() || is_held_long {
                return Ok(self.last);
            }
            let Some(entry) = level.next(evaluation)? else {
                self.leave();
                continue;
            };
            let dir = level.dir;
            let name = entry.name.as_bytes();
            let path = [&self.path, name].concat();
            if let Some((handle, rnode)) =
                node(evaluation.reading.tree, dir, entry.hash, &entry.row)?
            {
                let matches = evaluation.matches(dir, name, handle, &rnode, &[]);
                if evaluation.viewer.has_moved() {
                    return if is_first { Err(Code::Busy.into()) } else { Ok(self.last) };
                }
                let matches = matches?;
                // A file that the process may not read counts as work, and not in the reply.
                page.work(evaluation.reading.take_texts());
                if matches.is_some() {
                    page.show_examined();
                }
                let hit = Hit { ino: rnode.ino, kind: rnode.kind, path: path.clone() };
                if matches == Some(true) && !page.add(hit) {
                    return Ok(self.last);
                }
                self.enters(evaluation, &rnode, name)?;
                page.work_also(evaluation.viewer.take_work());
            }
            self.last = Some(path);
            is_first = false;
        }
        Ok(None)
    }

    /// Enters a file if it is a directory that the process may list and search.
    fn enters(
        &mut self,
        evaluation: &Evaluation<'_>,
        rnode: &Rnode,
        name: &[u8],
    ) -> Result<bool, Error> {
        // All names in the directory must fit into paths: one is the place of the next page.
        let has_room = self.path.len() + name.len() + 1 + limits::NAME_BYTES;
        let enters = rnode.kind == FileKind::Directory
            && has_room <= limits::HIT_PATH_BYTES
            && evaluation.may_enter(rnode)?;
        if enters {
            self.enter(rnode.ino, name);
        }
        Ok(enters)
    }

    fn enter(&mut self, dir: InodeId, name: &[u8]) {
        let above = self.path.len();
        if !name.is_empty() {
            self.path.extend_from_slice(name);
            self.path.push(b'/');
        }
        self.levels.push(Level { dir, above, behind: None, entries: VecDeque::new() });
    }

    fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.above);
        }
    }
}

impl Level {
    /// Returns the next entry of the directory.
    fn next(&mut self, evaluation: &Evaluation<'_>) -> Result<Option<TreeEntry>, Error> {
        if self.entries.is_empty() {
            let read = evaluation.reading.tree.entries(
                self.dir,
                self.behind.as_deref(),
                ENTRIES_AT_ONCE,
            )?;
            if let Some(last) = read.last() {
                self.behind = Some(last.name.as_bytes().to_vec());
            }
            self.entries = read.into();
        }
        Ok(self.entries.pop_front())
    }
}

/// Returns the file that a name leads to; `None` if its row is missing or damaged.
pub(super) fn node(
    tree: &Tree,
    dir: InodeId,
    hash: NameHash,
    row: &NameRow,
) -> Result<Option<(Handle, Rnode)>, Error> {
    Ok(match row {
        NameRow::Rnode(rnode) => Some((Handle::at(rnode.ino, dir, hash), rnode.clone())),
        NameRow::Link { ino, .. } => {
            let rnode = undamaged(tree.rnode(*ino))?;
            rnode.map(|rnode| (Handle::own(*ino), rnode))
        }
    })
}
