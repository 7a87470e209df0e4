//! The place of a file in the tree, which its home tells.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use pelago_wire::{
    Bulk, Code, Cookie, DirEntry, Error, Handle, InodeId, Name, Reply, Request, limits,
};

use super::bytes::{Asks, not_written};
use crate::control::ConflictLine;
use crate::failure::Outcome;

/// The most pages of directories that are read for one path.
const PAGES: usize = 128;

/// The most directories of a path.
const DIRS: usize = 256;

/// Returns the handle of the file of a version.
///
/// # Errors
/// If its home does not tell it, or the file is gone.
pub(super) fn handle_of(session: &dyn Asks, kept: &ConflictLine) -> Outcome<Handle> {
    let found = find(session, kept.recorded())?;
    found.map_err(|error| not_written(kept, error))
}

/// Returns the present handle of a file that has had this one.
fn find(session: &dyn Asks, file: Handle) -> Outcome<Result<Handle, Error>> {
    match session.ask(Request::GetAttr { node: file }, Bulk::None)? {
        Ok(_) => return Ok(Ok(file)),
        Err(error) if error.code == Code::Stale => {}
        Err(error) => return Ok(Err(error)),
    }
    Ok(match session.ask(Request::Find { ino: file.ino }, Bulk::None)? {
        Ok(Reply::Entry(entry)) => Ok(entry.handle),
        Ok(_) => Err(Code::Bug.into()),
        Err(error) => Err(error),
    })
}

/// Returns the path of a file below the root of the volume, without a slash before it; `None` if
/// that is not known: the file is gone or has several names, an office on the way cannot be
/// reached, or the directories are too long.
pub(super) fn path_of(session: &dyn Asks, file: Handle) -> Option<PathBuf> {
    let file = find(session, file).ok()?.ok()?;
    if file.dir == file.ino {
        return None;
    }
    let mut search = Search { session, pages: PAGES };
    let mut names = Vec::new();
    let mut dir = file.dir;
    let mut name = search.near(dir, file).or_else(|| search.name_in(dir, file.ino))?;
    for _ in 0..DIRS {
        names.push(OsString::from_vec(name.as_bytes().to_vec()));
        if dir == InodeId::ROOT {
            return Some(names.into_iter().rev().collect());
        }
        let above = search.above(dir)?;
        name = search.name_in(above, dir)?;
        dir = above;
    }
    None
}

/// The search for the names of a path.
struct Search<'a> {
    session: &'a dyn Asks,
    /// The pages that may be read still.
    pages: usize,
}

impl Search<'_> {
    /// Returns the directory above another one.
    fn above(&self, dir: InodeId) -> Option<InodeId> {
        let parent = Request::Parent { dir: Handle::own(dir) };
        match self.session.ask(parent, Bulk::None).ok()?.ok()? {
            Reply::Entry(entry) => Some(entry.attr.ino),
            _ => None,
        }
    }

    /// Returns the name of a file whose handle has the hash of its name: listings have that order.
    fn near(&mut self, dir: InodeId, file: Handle) -> Option<Name> {
        let before = Cookie(Cookie::of(file.hash).0 - 1);
        let (entries, _) = self.page(dir, before, None, 2)?;
        entries.into_iter().find(|entry| entry.ino == file.ino).map(|entry| entry.name)
    }

    /// Returns the name of a node in a directory.
    fn name_in(&mut self, dir: InodeId, wanted: InodeId) -> Option<Name> {
        let mut after = Cookie::AFTER_DOT_DOT;
        let mut behind = None;
        loop {
            let (entries, is_end) = self.page(dir, after, behind, limits::LIST_ENTRIES as u32)?;
            let last = entries.last().map(|entry| (entry.cookie, entry.name.clone()));
            let found = entries.into_iter().find(|entry| entry.ino == wanted);
            match (found, last) {
                (Some(found), _) => return Some(found.name),
                (None, Some((cookie, name))) if !is_end => {
                    after = cookie;
                    behind = Some(name);
                }
                (None, _) => return None,
            }
        }
    }

    /// Returns a page of a directory, and whether it is the last one.
    fn page(
        &mut self,
        dir: InodeId,
        after: Cookie,
        behind: Option<Name>,
        entries: u32,
    ) -> Option<(Vec<DirEntry>, bool)> {
        self.pages = self.pages.checked_sub(1)?;
        let dir = Handle::own(dir);
        let list = Request::List { dir, after, behind, entries, attributes: false };
        match self.session.ask(list, Bulk::None).ok()?.ok()? {
            Reply::Listed { entries, end } => Some((entries, end)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Attr, Entry, FileKind, NameHash};

    use super::*;

    /// A directory: its number, that of the one above, and its names.
    type Dir = (u64, u64, Vec<(&'static str, u64)>);

    struct Tree(Vec<Dir>);

    fn ino(number: u64) -> InodeId {
        InodeId::from_raw(number)
    }

    fn entry(handle: Handle) -> Reply {
        Reply::Entry(Entry { handle, attr: Attr::empty(handle.ino, FileKind::Directory) })
    }

    impl Asks for Tree {
        fn ask(&self, request: Request, _bulk: Bulk<'_>) -> Outcome<Result<Reply, Error>> {
            let dir = |dir: Handle| self.0.iter().find(|(number, ..)| ino(*number) == dir.ino);
            let reply = match request {
                Request::GetAttr { node } if node.dir == ino(99) => Err(Code::Stale),
                Request::GetAttr { .. } => Ok(Reply::Done),
                Request::Find { ino: of } => {
                    Ok(entry(Handle { ino: of, dir: ino(30), hash: NameHash(0) }))
                }
                Request::Parent { dir: of } => match dir(of) {
                    Some((_, above, _)) => Ok(entry(Handle::own(ino(*above)))),
                    None => Err(Code::HostDown),
                },
                Request::List { dir: of, after, entries, .. } => match dir(of) {
                    Some((_, _, names)) => {
                        let from = after.0.saturating_sub(2) as usize;
                        let page =
                            names.iter().enumerate().skip(from).take(entries.min(2) as usize);
                        let entries = page.map(|(at, (name, number))| DirEntry {
                            name: Name::new(name.as_bytes()).unwrap(),
                            ino: ino(*number),
                            kind: FileKind::Regular,
                            cookie: Cookie(at as u64 + 3),
                            entry: None,
                        });
                        let entries: Vec<DirEntry> = entries.collect();
                        let end = from + entries.len() == names.len();
                        Ok(Reply::Listed { entries, end })
                    }
                    None => Err(Code::HostDown),
                },
                other => panic!("{other:?}"),
            };
            Ok(reply.map_err(Error::from))
        }
    }

    fn tree() -> Tree {
        let root = InodeId::ROOT.raw();
        Tree(vec![
            (root, root, vec![("a", 10), ("b", 11), ("docs", 20), ("top", 40)]),
            (20, root, vec![("x", 12), ("plan", 30)]),
            (30, 20, vec![("1", 13), ("2", 14), ("3", 15), ("4", 16), ("file", 41)]),
            (50, 51, vec![("away", 42)]),
        ])
    }

    fn path(number: u64, dir: u64) -> Option<PathBuf> {
        path_of(&tree(), Handle { ino: ino(number), dir: ino(dir), hash: NameHash(0) })
    }

    #[test]
    fn a_path_is_the_names_from_the_root() {
        assert_eq!(path(40, InodeId::ROOT.raw()), Some(PathBuf::from("top")));
        assert_eq!(path(41, 30), Some(PathBuf::from("docs/plan/file")));
        assert_eq!(path(41, 99), Some(PathBuf::from("docs/plan/file")), "it has moved");
    }

    #[test]
    fn what_is_not_told_is_no_path() {
        assert_eq!(path(43, 30), None, "it is not there");
        assert_eq!(path(41, 41), None, "it has several names");
        assert_eq!(path(42, 50), None, "the directory above is at an office that is away");
    }
}
