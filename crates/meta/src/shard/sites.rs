//! Other sites of the volume, and directories that have their name at one site and their rows at
//! another.
//!
//! The name and the parent pointer of a directory are rows at the home site of its parent; its
//! rnode, and the names in it, are rows at its own home site. So a name here may lead to a
//! directory whose rnode is elsewhere, and a directory here may have its parent pointer elsewhere.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pelago_store::key::{self, Key, RowKind, VolumeRow};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{Rnode, Row, SiteListRow, SiteRow, SiteTokensRow};
use pelago_store::volume::Owner;
use pelago_wire::{Attr, Code, Context, Entry, Error, Handle, InodeId, Name, Reply, Time};

use super::acl::Rights;
use super::create::{new_id, new_rnode};
use super::intents::NameThere;
use super::new_inode::NewInode;
use super::txn::{DirEntryKey, Txn};
use super::{Shard, stored};
use crate::acl::Acl;
use crate::reply_cache::OpContext;
use crate::row_cache::{Node, RowLocation};

/// The target of a name, or the parent of a directory, for a server of another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stepped {
    /// The handle of the node, for requests to its home site.
    pub node: Handle,
    /// Its attributes; `None` if its home is at another site.
    pub attr: Option<Attr>,
}

/// The attributes that a new directory inherits from its parent at another site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// The attributes of the parent.
    pub parent: Attr,
    /// The default access control list of the parent, as the value of the extended attribute.
    pub default_acl: Option<Vec<u8>>,
}

impl Shard {
    /// Returns whether this site is the home of a node, so that its rows are here.
    pub fn is_home_of(&self, ino: InodeId) -> bool {
        ino.site() == self.id.site
    }

    /// Records that the volume has several sites: from now on a directory without a parent pointer
    /// may have its name at another site.
    pub fn set_has_sites(&self) {
        self.has_sites.store(true, Ordering::Release);
    }

    /// Returns the error for a directory without a name here.
    pub(super) fn without_a_name(&self) -> Code {
        match self.has_sites.load(Ordering::Acquire) {
            true => Code::Elsewhere,
            false => Code::Stale,
        }
    }

    /// Returns the other sites, in the order of their numbers.
    ///
    /// # Errors
    /// If the table fails, or a row is damaged.
    pub fn sites(&self) -> Result<Vec<(u16, SiteRow)>, Error> {
        let mut sites = Vec::new();
        let mut damaged = None;
        let range = key::all(RowKind::Site);
        let visited = self.table.scan(&range.from, &range.to, &mut |row_key, value| {
            match (Key::parse(row_key), SiteRow::decode(value)) {
                (Some(Key::Site { site }), Ok((_, row))) => sites.push((site, row)),
                (_, Err(error)) => damaged = Some(row_damaged(row_key, error)),
                (_, Ok(_)) => damaged = Some(Code::Corrupt.into()),
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading the sites", &error))?;
        damaged.map_or(Ok(sites), Err)
    }

    /// Writes the row of a site.
    ///
    /// # Errors
    /// If the table fails.
    pub fn put_site(&self, site: u16, row: &SiteRow) -> Result<(), Error> {
        self.put_sites(&[(site, row.clone())], None)
    }

    /// Writes the rows of these sites, and the signed list of all sites if it has changed, in one
    /// batch.
    ///
    /// # Errors
    /// If the table fails.
    pub fn put_sites(&self, rows: &[(u16, SiteRow)], list: Option<&[u8]>) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        for (site, row) in rows {
            txn.put(key::site(*site), row);
        }
        if let Some(text) = list {
            txn.put(key::volume_row(VolumeRow::SiteList), &SiteListRow { text });
        }
        txn.commit().map(drop)
    }

    /// Returns directories of this site that have their names at other ones, or are being made: at
    /// most `most`. What else this site has lies below them.
    ///
    /// # Errors
    /// If the table fails.
    pub fn dirs_named_elsewhere(&self, most: usize) -> Result<Vec<InodeId>, Error> {
        let mut found = Vec::new();
        let mut failed = None;
        let range = key::all(RowKind::Inode);
        let visited = self.table.scan(&range.from, &range.to, &mut |row_key, _| {
            let Some(Key::Inode { ino }) = Key::parse(row_key) else {
                return ControlFlow::Continue(());
            };
            let is_named = stored::first_name_of(&*self.table, ino).map(|name| name.is_some());
            let is_orphan =
                || stored::get(&*self.table, &key::orphan(ino)).map(|row| row.is_some());
            let has_bytes_of_others =
                || stored::get(&*self.table, &key::stay(ino)).map(|row| row.is_some());
            match is_named.and_then(|it| Ok(it || is_orphan()? || has_bytes_of_others()?)) {
                Ok(true) => {}
                Ok(false) if ino == InodeId::ROOT => {}
                Ok(false) => found.push(ino),
                Err(error) => failed = Some(error),
            }
            match found.len() < most && failed.is_none() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        visited.map_err(|error| table_failed("seeking directories", &error))?;
        failed.map_or(Ok(found), Err)
    }

    /// Returns the signed list of all sites, as it was made or received last.
    ///
    /// # Errors
    /// If the table fails, or the row is damaged.
    pub fn site_list(&self) -> Result<Option<Vec<u8>>, Error> {
        let row_key = key::volume_row(VolumeRow::SiteList);
        let value = self.table.get(&row_key);
        let value = value.map_err(|error| table_failed("reading the list of sites", &error))?;
        let Some(value) = value else { return Ok(None) };
        match SiteListRow::decode(&value) {
            Ok((_, row)) => Ok(Some(row.text.to_vec())),
            Err(error) => Err(row_damaged(&row_key, error)),
        }
    }

    /// Returns the tokens that this site and another one have given each other; none if they have
    /// given none.
    ///
    /// # Errors
    /// If the table fails, or the row is damaged.
    pub fn site_tokens(&self, site: u16) -> Result<SiteTokensRow, Error> {
        let row_key = key::volume_row(VolumeRow::SiteTokens(site));
        let value = self.table.get(&row_key);
        let value = value.map_err(|error| table_failed("reading the tokens of a site", &error))?;
        let Some(value) = value else { return Ok(SiteTokensRow::default()) };
        let decoded = SiteTokensRow::decode(&value);
        decoded.map(|(_, row)| row).map_err(|error| row_damaged(&row_key, error))
    }

    /// Makes safe what a killed process has written of tokens and left in the page cache: this run
    /// shows it to other sites, which forget what came before.
    ///
    /// # Errors
    /// If the table fails.
    pub fn make_site_tokens_safe(&self) -> Result<(), Error> {
        let safe = self.table.persist();
        safe.map_err(|error| table_failed("making the tokens of sites safe", &error))
    }

    /// Writes the tokens that this site and another one have given each other.
    ///
    /// # Errors
    /// If the table fails.
    pub fn put_site_tokens(&self, site: u16, row: &SiteTokensRow) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.put(key::volume_row(VolumeRow::SiteTokens(site)), row);
        txn.commit().map(drop)
    }

    /// Returns the mark of inode numbers: this site has given none at or above it.
    pub fn id_mark(&self) -> u64 {
        self.lock().state.ids.mark()
    }

    /// Returns the target of a name in a directory, also if its home is another site.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory`, `Stale` for the directory.
    pub fn step(&self, dir: Handle, name: &Name) -> Result<Stepped, Error> {
        match self.lookup(dir, name) {
            Err(error) if error.code == Code::Elsewhere => self.step_out(dir, name),
            found => found.map(Stepped::from),
        }
    }

    fn step_out(&self, dir: Handle, name: &Name) -> Result<Stepped, Error> {
        let key = self.entry_key(dir.ino, name);
        let mut locked = self.lock();
        locked.load_directory(Handle::own(dir.ino))?;
        let named = locked.named(&key)?.ok_or(Code::NotFound)?;
        match self.is_home_of(named.ino) {
            // The name leads to another node by now.
            true => locked
                .node_named(&key, &named)
                .and_then(|node| locked.entry_of(&node))
                .map(Stepped::from),
            false => Ok(Stepped { node: Handle::own(named.ino), attr: None }),
        }
    }

    /// Returns the parent of a directory of any site, if the name of the directory is here.
    ///
    /// # Errors
    /// `Elsewhere` if the directory has no name here; `Stale`, `NotDirectory`.
    pub fn step_up(&self, dir: Handle) -> Result<Stepped, Error> {
        if self.is_home_of(dir.ino) {
            return self.parent(dir).map(Stepped::from);
        }
        let name = stored::first_name_of(&*self.table, dir.ino)?;
        let (parent, _, _) = name.ok_or(Code::Elsewhere)?;
        self.entry(Handle::own(parent)).map(Stepped::from)
    }

    /// Creates a directory that will get its name at another site, and records that. Until then it
    /// has no name.
    ///
    /// # Errors
    /// `Invalid` if the inherited list cannot be decoded; `NoSpace`; if the table fails.
    pub fn make_nameless_dir(
        &self,
        context: &Context,
        new: NewInode,
        inherited: &Inherited,
        at: &NameThere,
        now: Time,
    ) -> Result<Entry, Error> {
        let list = match &inherited.default_acl {
            Some(bytes) => Acl::decode(bytes)?,
            None => None,
        };
        let mut txn = self.begin(OpContext::by(context, now));
        let rights = Rights::from_list(list, &new);
        let ino = new_id(&mut txn, context)?;
        let owner = Owner { uid: 0, gid: inherited.parent.gid };
        let parent = Rnode { mode: inherited.parent.mode, ..Rnode::root(owner, now) };
        let rnode = new_rnode(ino, new, context, &parent, &rights, now);
        let node = Node { rnode, location: RowLocation::Own };
        rights.put(&mut txn, ino);
        let attr = Attr { links: 2, ..node.rnode.attr() };
        let handle = node.handle();
        txn.put_node(node);
        txn.put_making(ino, at);
        let entry = Entry { handle, attr };
        // It counts only if there is no record of the making any more.
        txn.store_reply(&Reply::Entry(entry));
        txn.commit()?;
        Ok(entry)
    }

    /// Adds the name of a directory that the server of another site created. Does nothing if the
    /// directory has a name here: it was added before, and may have moved since.
    ///
    /// # Errors
    /// `Exists`; `Invalid` if the directory is not of another site; `Stale`, `NotDirectory` for the
    /// directory of the name.
    pub fn add_dir(
        &self,
        context: &Context,
        dir: Handle,
        name: &Name,
        made: InodeId,
        now: Time,
    ) -> Result<(), Error> {
        if self.is_home_of(made) || made.is_of_mount() {
            return Err(Code::Invalid.into());
        }
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin(OpContext::by(context, now));
        if stored::first_name_of(&*self.table, made)?.is_some() {
            return Ok(());
        }
        txn.load_directory(Handle::own(dir.ino))?;
        if txn.named(&key)?.is_some() {
            return Err(Code::Exists.into());
        }
        txn.flag_dirty(dir.ino);
        txn.put_name(&key, &Node::elsewhere(made, now));
        txn.store_reply(&Reply::Done);
        txn.commit().map(drop)
    }

    /// Removes the name of a directory of another site, which that site is removing.
    ///
    /// # Errors
    /// `NotFound` if the name does not lead to the directory; `Stale`, `NotDirectory` for the
    /// directory of the name.
    pub fn drop_dir(
        &self,
        context: &Context,
        dir: Handle,
        name: &Name,
        removed: InodeId,
        now: Time,
    ) -> Result<(), Error> {
        let key = self.entry_key(dir.ino, name);
        let mut txn = self.begin_removal(OpContext::by(context, now));
        txn.load_directory(Handle::own(dir.ino))?;
        let leads_there = txn.named(&key)?.is_some_and(|named| named.ino == removed);
        if self.is_home_of(removed) || !leads_there {
            return Err(Code::NotFound.into());
        }
        txn.flag_dirty(dir.ino);
        txn.remove_name(&key, &Node::elsewhere(removed, now), false);
        txn.store_reply(&Reply::Done);
        txn.batch.allow_reserve();
        txn.commit().map(drop)
    }
}

impl From<Entry> for Stepped {
    fn from(Entry { handle, attr }: Entry) -> Self {
        Self { node: handle, attr: Some(attr) }
    }
}

impl Node {
    /// Returns the node of a directory of another site, whose name only is here.
    fn elsewhere(ino: InodeId, now: Time) -> Self {
        let rnode = Rnode { ino, ..Rnode::root(Owner::default(), now) };
        Self { rnode, location: RowLocation::Elsewhere }
    }
}

impl Txn<'_> {
    /// Returns the node of a name that is about to move. The node of a directory of another site
    /// has only its id, which is all that the move needs.
    ///
    /// # Errors
    /// As [`Locked::find_entry`](super::locked::Locked::find_entry), but not `Elsewhere`.
    pub(super) fn find_moving(&mut self, key: &DirEntryKey) -> Result<Node, Error> {
        match self.find_entry(key) {
            Err(error) if error.code == Code::Elsewhere => {
                let named = self.named(key)?.ok_or(Code::NotFound)?;
                Ok(Node::elsewhere(named.ino, self.now))
            }
            found => found,
        }
    }
}
