//! Where rows are: by handle, by name, and upwards.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key};
use pelago_store::rows::{Moved, NameRow, Partition, Rnode, Row};
use pelago_wire::{Attr, Code, Entry, Error, FileKind, Handle, InodeId, Name, NameHash, Time};

use super::{Shard, State};
use crate::directory::Directory;
use crate::row_cache::{Named, Node, RowLocation};
use pelago_store::report::{row_damaged, table_failed};

impl Shard {
    /// What a name leads to.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`, `Stale` for the directory.
    pub fn lookup(&self, dir: Handle, name: &Name) -> Result<Entry, Error> {
        let mut found = self.lookup_known(dir, name)?;
        let mut looked = None;
        while looked != Some(found.attr.ino) && self.holds.refresh(found.attr.ino) {
            looked = Some(found.attr.ino);
            found = self.lookup_known(dir, name)?;
        }
        Ok(found)
    }

    /// The same, with the attributes of a file that changes without a request as they were when it
    /// was looked at last.
    fn lookup_known(&self, dir: Handle, name: &Name) -> Result<Entry, Error> {
        let hash = self.hasher.hash(name.as_bytes());
        let mut state = self.lock();
        self.directory(&mut state, dir)?;
        let named = self.named(&mut state, dir.ino, hash, name)?.ok_or(Code::NotFound)?;
        let node = self.node_of(&mut state, dir.ino, hash, &named)?;
        self.entry(&state, &node)
    }

    /// The directory above.
    ///
    /// # Errors
    /// `NotDirectory`, `Stale`.
    pub fn parent(&self, dir: Handle) -> Result<Entry, Error> {
        let mut state = self.lock();
        self.directory(&mut state, dir)?;
        let parent = self.parent_of(&mut state, dir.ino)?;
        let node = self.node(&mut state, Handle::own(parent))?;
        self.entry(&state, &node)
    }

    /// The node of a handle: in the caches, at the hint, where `moved` says, or in `inodes`.
    pub(super) fn node(&self, state: &mut State, handle: Handle) -> Result<Node, Error> {
        if let Some(node) = state.rows.node(handle.ino) {
            return Ok(node.clone());
        }
        let node = self.seek(handle)?.ok_or(Code::Stale)?;
        state.rows.put_node(node.clone());
        Ok(node)
    }

    fn seek(&self, handle: Handle) -> Result<Option<Node>, Error> {
        if handle.is_under_a_name()
            && let Some(node) = self.seek_under(handle.dir, handle.hash, handle.ino)?
        {
            return Ok(Some(node));
        }
        if let Some(rnode) = self.stored_rnode(handle.ino)? {
            return Ok(Some(Node { rnode, place: RowLocation::Own }));
        }
        let key = key::moved(handle.ino);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, moved) = Moved::decode(&value).map_err(|error| row_damaged(&key, error))?;
        self.seek_under(moved.dir, moved.hash, handle.ino)
    }

    /// The node `ino` among the names with `hash` in `dir`.
    fn seek_under(
        &self,
        dir: InodeId,
        hash: NameHash,
        ino: InodeId,
    ) -> Result<Option<Node>, Error> {
        let range = key::names_with_hash(dir, hash);
        let mut found = Ok(None);
        let visited =
            self.table.scan(
                &range.from,
                &range.to,
                &mut |key, value| match NameRow::decode(value) {
                    Ok((_, NameRow::Rnode(rnode))) if rnode.ino == ino => {
                        found = node_under(key, rnode);
                        ControlFlow::Break(())
                    }
                    Ok(_) => ControlFlow::Continue(()),
                    Err(error) => {
                        found = Err(row_damaged(key, error));
                        ControlFlow::Break(())
                    }
                },
            );
        visited.map_err(|error| table_failed("seeking a row", &error))?;
        found
    }

    pub(super) fn stored_rnode(&self, ino: InodeId) -> Result<Option<Rnode>, Error> {
        let key = key::inode(ino);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, rnode) = Rnode::decode(&value).map_err(|error| row_damaged(&key, error))?;
        Ok(Some(rnode))
    }

    /// What a name in a directory that was checked leads to.
    pub(super) fn named(
        &self,
        state: &mut State,
        dir: InodeId,
        hash: NameHash,
        name: &Name,
    ) -> Result<Option<Named>, Error> {
        if state.directories.get(dir).is_some_and(|directory| directory.lacks(hash)) {
            return Ok(None);
        }
        if let Some(named) = state.rows.named(dir, hash, name) {
            return Ok(Some(named.clone()));
        }
        let key = key::name(dir, hash, name.as_bytes());
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, row) = NameRow::decode(&value).map_err(|error| row_damaged(&key, error))?;
        let here = matches!(row, NameRow::Rnode(_));
        let named = Named { name: name.clone(), ino: row.ino(), kind: row.kind(), here };
        if let NameRow::Rnode(rnode) = row {
            let place = RowLocation::Name { dir, hash, name: name.clone() };
            state.rows.put_node(Node { rnode, place });
        }
        state.rows.put_named(dir, hash, named.clone());
        Ok(Some(named))
    }

    /// The node that a name leads to.
    pub(super) fn node_of(
        &self,
        state: &mut State,
        dir: InodeId,
        hash: NameHash,
        named: &Named,
    ) -> Result<Node, Error> {
        let handle = match named.here {
            true => Handle::at(named.ino, dir, hash),
            false => Handle::own(named.ino),
        };
        self.node(state, handle).map_err(|error| match error.code {
            // The name is there, its row is not: no caller's fault.
            Code::Stale => Code::Corrupt.into(),
            _ => error,
        })
    }

    /// Makes sure that a handle is a directory's, and that its count is known.
    pub(super) fn directory(&self, state: &mut State, dir: Handle) -> Result<(), Error> {
        if state.directories.get(dir.ino).is_some() {
            return Ok(());
        }
        let node = self.node(state, Handle::own(dir.ino))?;
        if node.rnode.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        let row = self.stored_partition(dir.ino)?;
        let directory = Directory::stored(row.as_ref(), node.rnode.mtime, self.started);
        state.directories.insert(dir.ino, directory);
        Ok(())
    }

    fn stored_partition(&self, dir: InodeId) -> Result<Option<Partition>, Error> {
        let key = key::partition(dir, 0);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        let (_, row) = Partition::decode(&value).map_err(|error| row_damaged(&key, error))?;
        Ok(Some(row))
    }

    /// The directory above a directory whose count is known. The root is above itself.
    pub(super) fn parent_of(&self, state: &mut State, dir: InodeId) -> Result<InodeId, Error> {
        if dir == InodeId::ROOT {
            return Ok(dir);
        }
        if let Some(parent) = state.directories.get(dir).and_then(|known| known.parent) {
            return Ok(parent);
        }
        let (parent, _, _) = self.first_name_of(dir)?.ok_or(Code::Stale)?;
        if let Some(known) = state.directories.get_mut(dir) {
            known.parent = Some(parent);
        }
        Ok(parent)
    }

    /// One of the names of a node in `inodes`.
    pub(super) fn first_name_of(
        &self,
        ino: InodeId,
    ) -> Result<Option<(InodeId, NameHash, Name)>, Error> {
        let range = key::parent_pointers_of(ino);
        let mut found = None;
        let visited = self.table.scan(&range.from, &range.to, &mut |key, _| {
            if let Some(Key::ParentPointer { dir, hash, name, .. }) = Key::parse(key) {
                found = Name::new(name).ok().map(|name| (dir, hash, name));
            }
            ControlFlow::Break(())
        });
        visited.map_err(|error| table_failed("seeking a name", &error))?;
        Ok(found)
    }

    /// What is answered for a node: its handle, and its attributes as they are now.
    pub(super) fn entry(&self, state: &State, node: &Node) -> Result<Entry, Error> {
        Ok(Entry { handle: node.handle(), attr: self.attr_of(state, &node.rnode)? })
    }

    /// The attributes of a node as they are now; of one that changes without a request, as they
    /// were when it was looked at last.
    pub(super) fn attr_of(&self, state: &State, rnode: &Rnode) -> Result<Attr, Error> {
        let attr = rnode.attr();
        if rnode.kind != FileKind::Directory {
            return Ok(self.holds.merge(rnode.ino, attr));
        }
        let unknown;
        let directory = match state.directories.get(rnode.ino) {
            Some(directory) => directory,
            None => {
                let row = self.stored_partition(rnode.ino)?;
                unknown = Directory::stored(row.as_ref(), rnode.mtime, self.started);
                &unknown
            }
        };
        Ok(directory_attr(attr, directory))
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.table.get(key).map_err(|error| table_failed("reading", &error))
    }
}

/// A directory that was removed shows no links; any other shows its own name, its `.`, and the `..`
/// of each directory in it.
fn directory_attr(attr: Attr, directory: &Directory) -> Attr {
    let links = u32::try_from(directory.directories).unwrap_or(u32::MAX).saturating_add(2);
    Attr {
        size: directory.names,
        links: if attr.links == 0 { 0 } else { links },
        mtime: directory.mtime,
        ctime: attr.ctime.max(directory.ctime),
        ..attr
    }
}

fn node_under(key: &[u8], rnode: Rnode) -> Result<Option<Node>, Error> {
    let (dir, hash, bytes) = key::parse_name(key).ok_or(Code::Corrupt)?;
    let name = Name::new(bytes).map_err(|_| Code::Corrupt)?;
    Ok(Some(Node { rnode, place: RowLocation::Name { dir, hash, name } }))
}

/// A time that is surely later than `before`, and now where the clock has moved on.
pub(super) fn later_than(before: Time, now: Time) -> Time {
    now.max(before.next())
}
