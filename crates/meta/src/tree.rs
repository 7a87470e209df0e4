//! A snapshot of the tree of names, for searches.
//!
//! A search reads many rows, and no operation may wait for it: so it reads a snapshot of the table,
//! without the lock and the caches of the shard. Values that are only in memory, the times of
//! directories and of open files, are missing here.

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_store::hash::NameHasher;
use pelago_store::key::{self, Key, KeyRange, RowKind, TagValue};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Inline, NameRow, Partition, Rnode, Row, RowError, Stamp, Tag};
use pelago_store::table::Snapshot;
use pelago_wire::xattr::ACL_ACCESS;
use pelago_wire::{Code, Error, Handle, InodeId, ModeRights, Name, NameHash};

use crate::acl::Acl;
use crate::place_hints::PlaceHints;
use crate::process::{self, Process};
use crate::row_cache::{Node, RowLocation};
use crate::shard::{Shard, stored};

/// A snapshot of the tree of names.
pub struct Tree {
    rows: Snapshot,
    hasher: NameHasher,
    hints: Arc<PlaceHints>,
}

/// A name in a directory, and its row.
#[derive(Debug, Clone)]
pub struct TreeEntry {
    /// The name.
    pub name: Name,
    /// Its hash.
    pub hash: NameHash,
    /// Its row.
    pub row: NameRow,
}

/// The key or the value of a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPart {
    /// Its bytes; `None` for a value that is too long for a row.
    pub bytes: Option<Vec<u8>>,
    /// The rows of the files that have it.
    pub rows: KeyRange,
}

/// A file that a scan of the rows found.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large one")]
pub enum ReadFile {
    /// A file whose rnode is in the row of its name.
    Named(Node),
    /// A file whose rnode has a row of its own, which the scan may not have reached.
    Own(InodeId),
}

impl ReadFile {
    /// Returns the id of the file.
    #[must_use]
    pub fn ino(&self) -> InodeId {
        match self {
            Self::Named(node) => node.rnode.ino,
            Self::Own(ino) => *ino,
        }
    }
}

impl Shard {
    /// Returns a snapshot of the tree.
    ///
    /// # Errors
    /// If the table has stopped.
    pub fn tree(&self) -> Result<Tree, Error> {
        let rows = self.table().snapshot().map_err(|error| table_failed("searching", &error))?;
        Ok(Tree { rows, hasher: self.hasher(), hints: self.place_hints() })
    }
}

/// The stamp of a row that must be read again in any case.
const NEWEST: Stamp = Stamp { epoch: u32::MAX, sequence: u64::MAX };

/// Returns the file that a row of a name, an rnode or a partition belongs to, and the batch that
/// wrote the row; `None` for other rows.
fn changed_file(key: &[u8], value: &[u8]) -> Result<Option<(Stamp, ReadFile)>, RowError> {
    Ok(match Key::parse(key) {
        Some(Key::Name { dir, hash, name }) => {
            let (stamp, row) = NameRow::decode(value)?;
            match (row, Name::new(name)) {
                (NameRow::Rnode(rnode), Ok(name)) => {
                    let location = RowLocation::Name { dir, hash, name };
                    Some((stamp, ReadFile::Named(Node { rnode, location })))
                }
                (NameRow::Link { ino, .. }, _) => Some((stamp, ReadFile::Own(ino))),
                // A name that is invalid is not found by a handle either.
                (NameRow::Rnode(_), Err(_)) => None,
            }
        }
        Some(Key::Inode { ino }) => Some((Rnode::decode(value)?.0, ReadFile::Own(ino))),
        Some(Key::Partition { dir, .. }) => {
            let (stamp, row) = Partition::decode(value)?;
            // A crash has lost the values that were in memory.
            let stamp = if row.dirty { NEWEST } else { stamp };
            Some((stamp, ReadFile::Own(dir)))
        }
        _ => None,
    })
}

impl Tree {
    /// Returns the file of a handle; `None` if it was removed.
    ///
    /// # Errors
    /// If the table fails, or a row is damaged.
    pub fn node(&self, handle: Handle) -> Result<Option<Node>, Error> {
        if handle.is_under_a_name()
            && let Some((dir, name)) = self.hints.get(handle.ino)
            && let Some(NameRow::Rnode(rnode)) = self.entry(dir, name.as_bytes())?
            && rnode.ino == handle.ino
        {
            let hash = self.hash(name.as_bytes());
            return Ok(Some(Node { rnode, location: RowLocation::Name { dir, hash, name } }));
        }
        let node = stored::node(&*self.rows, handle)?;
        if let Some(Node { location: RowLocation::Name { dir, name, .. }, .. }) = &node {
            self.hints.put(handle.ino, *dir, name.clone());
        }
        Ok(node)
    }

    /// Returns the rnode of a directory, or of a file that has or had several names.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn rnode(&self, ino: InodeId) -> Result<Option<Rnode>, Error> {
        stored::rnode(&*self.rows, ino)
    }

    /// Returns the parent of a directory, and its name there; `None` for the root.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn place_of(&self, dir: InodeId) -> Result<Option<(InodeId, Name)>, Error> {
        if let Some((parent, name)) = self.hints.get(dir) {
            let hash = self.hash(name.as_bytes());
            let bytes = name.as_bytes();
            let pointer = key::parent_pointer(dir, parent, hash, bytes);
            if stored::get(&*self.rows, &pointer)?.is_some() {
                return Ok(Some((parent, name)));
            }
        }
        let Some((parent, _, name)) = stored::first_name_of(&*self.rows, dir)? else {
            return Ok(None);
        };
        self.hints.put(dir, parent, name.clone());
        Ok(Some((parent, name)))
    }

    /// Calls `each` with the names of a file, and the directory of each, until it breaks.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn names(
        &self,
        node: &Node,
        mut each: impl FnMut(InodeId, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        if let RowLocation::Name { dir, name, .. } = &node.location {
            let _end = each(*dir, name.as_bytes());
            return Ok(());
        }
        let range = key::parent_pointers_of(node.rnode.ino);
        let visited = self.rows.scan(&range.from, &range.to, &mut |key, _| match Key::parse(key) {
            Some(Key::ParentPointer { dir, name, .. }) => each(dir, name),
            _ => ControlFlow::Continue(()),
        });
        visited.map_err(|error| table_failed("reading names", &error))
    }

    /// Returns the hash of a name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        self.hasher.hash(name)
    }

    /// Returns the row of a name in a directory.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn entry(&self, dir: InodeId, name: &[u8]) -> Result<Option<NameRow>, Error> {
        let key = key::name(dir, self.hash(name), name);
        let Some(value) = stored::get(&*self.rows, &key)? else { return Ok(None) };
        let (_, row) = NameRow::decode(&value).map_err(|error| row_damaged(&key, error))?;
        Ok(Some(row))
    }

    /// Returns up to `most` entries of a directory, in the order of their hashes, after the name
    /// `behind`, or from the first one on.
    ///
    /// # Errors
    /// If the table fails. A damaged row is left out, and the log names it.
    pub fn entries(
        &self,
        dir: InodeId,
        behind: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<TreeEntry>, Error> {
        let mut range = key::names_of_dir(dir);
        if let Some(name) = behind {
            range.from = key::name(dir, self.hash(name), name);
            range.from.push(0);
        }
        let mut entries = Vec::new();
        let visited = self.rows.scan(&range.from, &range.to, &mut |key, value| {
            let parsed = key::parse_name(key)
                .and_then(|(_, hash, name)| Name::new(name).ok().map(|name| (hash, name)));
            match (parsed, NameRow::decode(value)) {
                (Some((hash, name)), Ok((_, row))) => entries.push(TreeEntry { name, hash, row }),
                (None, Ok(_)) => {}
                (_, Err(error)) => drop(row_damaged(key, error)),
            }
            if entries.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        visited.map_err(|error| table_failed("reading names", &error))?;
        Ok(entries)
    }

    /// Returns the files whose names or attributes changed after a batch, or all files, among the
    /// next `most` rows; and the key at which the next call continues, `None` at the end. A file
    /// with several names may be returned more than once. Removed files are not found. With a
    /// batch, each directory whose times are not in its row is returned too: a crash may have
    /// changed them.
    ///
    /// # Errors
    /// As [`Tree::entries`].
    pub fn changed_files(
        &self,
        after: Option<Stamp>,
        from: Option<&[u8]>,
        most: usize,
    ) -> Result<(Vec<ReadFile>, Option<Vec<u8>>), Error> {
        // The rows of names and of inodes follow each other; those of partitions come later. A scan
        // for all files needs only the names; a scan for changed files needs all three kinds,
        // because the name of a file need not change with it.
        let first = key::all(RowKind::Name);
        let last = key::all(RowKind::Partition);
        let from = from.unwrap_or(&first.from);
        let is_last = after.is_none() || from >= &last.from[..];
        let to = match after {
            None => first.to,
            Some(_) if is_last => last.to,
            Some(_) => key::all(RowKind::Inode).to,
        };
        let mut files = Vec::new();
        let mut rows = 0;
        let mut next = None;
        let visited = self.rows.scan(from, &to, &mut |key, value| {
            if rows == most {
                next = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            rows += 1;
            match changed_file(key, value) {
                Ok(Some((stamp, file))) if after.is_none_or(|after| stamp > after) => {
                    files.push(file);
                }
                Ok(_) => {}
                Err(error) => drop(row_damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading names", &error))?;
        Ok((files, next.or_else(|| (!is_last).then_some(last.from))))
    }

    /// Returns up to `most` files that have a tag with this value, in the order of their inode ids
    /// from `from` on. If the value is too long for a key, files with another value of the same
    /// first bytes and the same hash may be among them. The handles have the locations at the time
    /// when the tag was set.
    ///
    /// # Errors
    /// If the table fails. A damaged row is left out, and the log names it.
    pub fn tagged(
        &self,
        key: &str,
        value: &[u8],
        from: InodeId,
        most: usize,
    ) -> Result<Vec<Handle>, Error> {
        let first = key::tag(key, value, from);
        self.files_of_tags(&KeyRange { from: first, ..key::tagged(key, value) }, most)
    }

    /// Returns up to `most` files that have a tag with any value, in the order of the values.
    ///
    /// # Errors
    /// As [`Tree::tagged`].
    pub fn tagged_any(&self, key: &str, most: usize) -> Result<Vec<Handle>, Error> {
        self.files_of_tags(&key::tagged_any(key), most)
    }

    fn files_of_tags(&self, range: &KeyRange, most: usize) -> Result<Vec<Handle>, Error> {
        let mut files = Vec::new();
        self.visit_tagged(range, |file| {
            files.push(file);
            if files.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(files)
    }

    /// Calls `each` with the files of a range of rows of tags until it breaks. The handles have the
    /// locations at the time when the tags were set.
    ///
    /// # Errors
    /// As [`Tree::tagged`].
    pub fn visit_tagged(
        &self,
        range: &KeyRange,
        mut each: impl FnMut(Handle) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let visited = self.rows.scan(&range.from, &range.to, &mut |key, value| {
            match (Key::parse(key), Tag::decode(value)) {
                (Some(Key::Tag { ino, .. }), Ok((_, Tag { dir, hash }))) => {
                    return each(Handle { ino, dir, hash });
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => drop(row_damaged(key, error)),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading tags", &error))
    }

    /// Returns the first key in a range of tags.
    ///
    /// # Errors
    /// If the table fails.
    pub fn first_tag_key(&self, range: &KeyRange) -> Result<Option<TagPart>, Error> {
        self.first_tag(range, |_, tag, _| TagPart {
            bytes: Some(tag.as_bytes().to_vec()),
            rows: key::tagged_any(tag),
        })
    }

    /// Returns the first value in a range of tags with one key.
    ///
    /// # Errors
    /// If the table fails.
    pub fn first_tag_value(&self, range: &KeyRange) -> Result<Option<TagPart>, Error> {
        self.first_tag(range, |row, _, value| TagPart {
            bytes: value.is_whole().then(|| value.bytes().into_owned()),
            rows: key::tagged_as(row),
        })
    }

    fn first_tag(
        &self,
        range: &KeyRange,
        part: impl Fn(&[u8], &str, TagValue<'_>) -> TagPart,
    ) -> Result<Option<TagPart>, Error> {
        let mut found = None;
        let visited = self.rows.scan(&range.from, &range.to, &mut |row, _| match Key::parse(row) {
            Some(Key::Tag { tag, value, .. }) => {
                found = Some(part(row, tag, value));
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        visited.map_err(|error| table_failed("reading tags", &error))?;
        Ok(found)
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn xattr(&self, rnode: &Rnode, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match rnode.flags.has_xattrs {
            true => stored::xattr(&*self.rows, rnode.ino, name),
            false => Ok(None),
        }
    }

    /// Returns the names of all extended attributes except access control lists, each followed by a
    /// NUL.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn xattr_names(&self, rnode: &Rnode) -> Result<Vec<u8>, Error> {
        match rnode.flags.has_xattrs {
            true => stored::xattr_names(&*self.rows, rnode.ino),
            false => Ok(Vec::new()),
        }
    }

    /// Returns the bytes of a small file.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn inline(&self, ino: InodeId) -> Result<Option<Vec<u8>>, Error> {
        let key = key::inline(ino);
        let Some(value) = stored::get(&*self.rows, &key)? else { return Ok(None) };
        let (_, row) = Inline::decode(&value).map_err(|error| row_damaged(&key, error))?;
        Ok(Some(row.bytes.to_vec()))
    }

    /// Returns whether a process has a right to a file or directory.
    ///
    /// # Errors
    /// As [`Tree::node`].
    pub fn permits(
        &self,
        process: &Process<'_>,
        wanted: ModeRights,
        rnode: &Rnode,
    ) -> Result<bool, Error> {
        process::may(process, wanted, rnode, || {
            let value = stored::xattr(&*self.rows, rnode.ino, ACL_ACCESS)?;
            value.map_or(Ok(None), |value| Acl::decode(&value).map_err(|_| Code::Corrupt.into()))
        })
    }
}
