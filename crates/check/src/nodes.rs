//! The rows of files and directories, and all that is kept by their numbers. Files are taken in
//! windows of numbers, each as large as memory allows; a window costs one scan of the names.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{
    HighWater, Moved, NameRow, Orphan, ParentPointer, Rnode, Row, XattrNames,
};
use pelago_store::table::{self, Change};
use pelago_wire::{FileKind, Generation, InodeId, NameHash, limits};

use super::rebuild::put;
use super::{Check, CheckError, Damage, Repair, WINDOW};
use pelago_store::cycle::CycleFinder;
use pelago_store::volume::Owner;
use pelago_store::volume::{SHARD, SITE};
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// The files of a window, by number.
pub(super) struct Window {
    pub(super) nodes: BTreeMap<InodeId, Known>,
    /// The numbers it is about: all from this one …
    pub(super) low: InodeId,
    /// … to this one.
    pub(super) high: InodeId,
}

/// What is known of one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Where its row stands; `None`: in `inodes`.
    pub(super) place: Option<(InodeId, NameHash)>,
    pub(super) kind: FileKind,
    pub(super) links: u32,
    pub(super) size: u64,
    /// Its content file, where its bytes are in one.
    pub(super) content: Option<Generation>,
    pub(super) inline: bool,
    pub(super) xattrs: Xattrs,
    pub(super) moved: bool,
    pub(super) seen: Seen,
}

/// What was found of it elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// Names, as they are listed with the file.
    pub(super) names: u32,
    pub(super) inline: bool,
    pub(super) xattrs: Xattrs,
    /// Names of extended attributes, but for access control lists.
    pub(super) names_of_xattrs: Names,
    /// Those that are listed.
    pub(super) listed_xattrs: Names,
    pub(super) moved: bool,
    pub(super) orphan: bool,
    pub(super) writing: bool,
    pub(super) content: bool,
}

/// Which extended attributes a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Xattrs {
    /// Any at all.
    pub(super) any: bool,
    /// An access control list.
    pub(super) access: bool,
    /// A default one.
    pub(super) default: bool,
}

/// Names in any order, as numbers that are the same where the names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Names {
    count: u32,
    sum: u64,
}

impl Names {
    pub(super) fn add(&mut self, name: &[u8]) {
        self.count += 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(name);
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

/// Directories that are known to be below the root, at the most.
const GOOD: usize = 1 << 20;

impl Check<'_> {
    /// Checks every file, window by window.
    pub(super) fn nodes(&mut self) -> Result<(), CheckError> {
        if self.table.get(&key::inode(InodeId::ROOT))?.is_none() {
            let row = Rnode::root(Owner::default(), self.now).encode(self.stamp);
            let repair = Repair::put("make a new one", key::inode(InodeId::ROOT), row);
            self.found(Damage::Root, InodeId::ROOT, Some(repair));
        }
        let mut good = HashSet::new();
        let mut low = InodeId::from_raw(0);
        let mut first = true;
        loop {
            let mut window = self.gather(low, first)?;
            self.by_number(&mut window)?;
            self.content_files(&mut window)?;
            for (ino, known) in &window.nodes {
                self.node(*ino, known, &mut good)?;
            }
            let Some(next) = window.high.raw().checked_add(1) else { break };
            low = InodeId::from_raw(next);
            first = false;
        }
        self.number();
        Ok(())
    }

    /// No number that a file has may be given out again.
    fn number(&mut self) {
        if self.highest < self.next_id && self.next_id > InodeId::ROOT.counter() {
            return;
        }
        // Files that are gone may have had higher ones.
        let next = (self.highest + 2 * limits::ID_BLOCK).min(1 << 36);
        let row = HighWater { next }.encode(self.stamp);
        let repair =
            Repair::put("go on well behind the highest number", key::high_water(SHARD), row);
        let highest = InodeId::new(SITE, SHARD, self.highest).unwrap_or(InodeId::ROOT);
        self.found(Damage::Number, highest, Some(repair));
    }

    /// The files with the smallest numbers from `low` on.
    fn gather(&mut self, low: InodeId, first: bool) -> Result<Window, CheckError> {
        let high = InodeId::from_raw(u64::MAX);
        let mut window = Window { nodes: BTreeMap::new(), low, high };
        let (table, names, inodes) =
            (self.table, key::all(RowKind::Name), key::all(RowKind::Inode));
        table.scan(&names.from, &names.to, &mut |key, value| {
            if let (Some((dir, hash, _)), Ok((stamp, NameRow::Rnode(rnode)))) =
                (key::parse_name(key), NameRow::decode(value))
                // One that ought to have a row of its own gets it first.
                && rnode.kind != FileKind::Directory
            {
                self.saw(stamp);
                self.keep(&mut window, Some((dir, hash)), &rnode);
            }
            ControlFlow::Continue(())
        })?;
        let mut damaged = Vec::new();
        table.scan(&inodes.from, &inodes.to, &mut |key, value| {
            match (Key::parse(key), Rnode::decode(value)) {
                (Some(Key::Inode { ino }), Ok((stamp, rnode))) if rnode.ino == ino => {
                    self.saw(stamp);
                    self.keep(&mut window, None, &rnode);
                }
                (Some(Key::Inode { ino }), _) if first => damaged.push(ino),
                _ => {}
            }
            self.plan.checked.rows += u64::from(first);
            if damaged.len() < super::FINDINGS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        for ino in damaged {
            let repair = self.rebuild(ino)?;
            self.found_at(Damage::Row, &key::inode(ino), Some(repair));
        }
        Ok(window)
    }

    fn keep(&mut self, window: &mut Window, place: Option<(InodeId, NameHash)>, rnode: &Rnode) {
        if !(window.low..=window.high).contains(&rnode.ino) {
            return;
        }
        let known = Known {
            place,
            kind: rnode.kind,
            links: rnode.links,
            size: rnode.size,
            content: rnode.generation.filter(|_| rnode.flags.has_content),
            inline: rnode.flags.inline,
            xattrs: Xattrs {
                any: rnode.flags.has_xattrs,
                access: rnode.flags.has_acl,
                default: rnode.flags.has_default_acl,
            },
            moved: rnode.flags.moved,
            seen: Seen::default(),
        };
        if let Some(other) = window.nodes.insert(rnode.ino, known) {
            // The row in `inodes` is the newer one: rows never go back under a name.
            let repair = match (place, other.place) {
                (None, Some((dir, hash))) => self.relink(dir, hash, rnode),
                _ => None,
            };
            self.found(Damage::Twice, rnode.ino, repair);
        }
        if window.nodes.len() > WINDOW
            && let Some((last, _)) = window.nodes.pop_last()
        {
            window.high = InodeId::from_raw(last.raw() - 1);
        }
    }

    /// Makes the name that holds a second row of a file refer to its first.
    fn relink(&self, dir: InodeId, hash: NameHash, rnode: &Rnode) -> Option<Repair> {
        let (key, _) = self.row_under(dir, hash, rnode.ino).ok()??;
        let (_, _, name) = key::parse_name(&key)?;
        let link = NameRow::Link { ino: rnode.ino, kind: rnode.kind }.encode(self.stamp);
        let listed = key::parent_pointer(rnode.ino, dir, hash, name);
        let changes = vec![put(key.clone(), link), put(listed, ParentPointer.encode(self.stamp))];
        Some(Repair::rows("keep the row that is not under a name", changes))
    }

    /// What is done about a row in `inodes` that cannot be read: a directory gets a new one, and
    /// bytes that can be found get a file.
    fn rebuild(&self, ino: InodeId) -> Result<Repair, table::Error> {
        let partition = self.table.get(&key::partition(ino, 0))?;
        let names = key::names_of_dir(ino);
        let mut is_directory = partition.is_some() || ino == InodeId::ROOT;
        self.table.scan(&names.from, &names.to, &mut |_, _| {
            is_directory = true;
            ControlFlow::Break(())
        })?;
        let key = key::inode(ino);
        if !is_directory {
            return Ok(Repair::delete("remove the row; its bytes are kept", &key));
        }
        let row = Rnode { ino, mode: 0o700, ..Rnode::root(Owner::default(), self.now) };
        Ok(Repair::put("make a new row for the directory", key, row.encode(self.stamp)))
    }

    /// What one file says of itself, and what was found of it.
    fn node(
        &mut self,
        ino: InodeId,
        known: &Known,
        good: &mut HashSet<InodeId>,
    ) -> Result<(), table::Error> {
        self.plan.checked.nodes += 1;
        self.plan.checked.directories += u64::from(known.kind == FileKind::Directory);
        self.highest = self.highest.max(ino.counter());
        match known.place {
            None => self.own(ino, known, good)?,
            Some(_) if known.seen.orphan => self.orphan_stray(ino),
            Some(_) => {}
        }
        self.bytes(ino, known)?;
        self.beside(ino, known)
    }

    /// A row in `inodes`: its names.
    fn own(
        &mut self,
        ino: InodeId,
        known: &Known,
        good: &mut HashSet<InodeId>,
    ) -> Result<(), table::Error> {
        if ino == InodeId::ROOT {
            return Ok(());
        }
        let names = known.seen.names;
        if names == 0 && known.links == 0 {
            if !known.seen.orphan {
                let orphan = Orphan { generation: known.content };
                let repair = Repair::put("remove it", key::orphan(ino), orphan.encode(self.stamp));
                self.found(Damage::Unburied, ino, Some(repair));
            }
            return Ok(());
        }
        if known.seen.orphan {
            self.orphan_stray(ino);
        }
        if names == 0 {
            let rows = self.rnode(ino, known)?.map(|(_, rnode)| self.link_in_root(&rnode));
            let says = "give it a name in the root directory";
            let repair = rows.transpose()?.map(|rows| Repair::rows(says, rows));
            self.found(Damage::Lost, ino, repair);
        } else if known.kind != FileKind::Directory && names != known.links {
            let repair = self.rewrite(ino, known, "count again", |rnode| rnode.links = names)?;
            self.found(Damage::Links, ino, repair);
        } else if known.kind == FileKind::Directory && !self.reaches_root(ino, good)? {
            let repair = self.cut_loop(ino, known)?;
            self.found(Damage::Loop, ino, repair);
            good.insert(ino);
        }
        Ok(())
    }

    fn orphan_stray(&mut self, ino: InodeId) {
        let repair = Repair::delete("keep it", &key::orphan(ino));
        self.found(Damage::OrphanStray, ino, Some(repair));
    }

    /// Inline bytes and content files.
    fn bytes(&mut self, ino: InodeId, known: &Known) -> Result<(), table::Error> {
        if known.inline != known.seen.inline {
            let repair = match known.seen.inline {
                true => self.rewrite(ino, known, "say so", |rnode| rnode.flags.inline = true)?,
                false => self.rewrite(ino, known, "make the file empty", |rnode| {
                    rnode.flags.inline = false;
                    (rnode.size, rnode.blocks) = (0, 0);
                })?,
            };
            self.found(Damage::InlineMissing, ino, repair);
        }
        if known.content.is_some() && !known.seen.content {
            // The bytes are gone; that the file goes too, its owner decides.
            self.found(Damage::ContentMissing, ino, None);
        }
        Ok(())
    }

    /// What else is kept of a file.
    fn beside(&mut self, ino: InodeId, known: &Known) -> Result<(), table::Error> {
        if known.xattrs != known.seen.xattrs {
            let Xattrs { any, access, default } = known.seen.xattrs;
            let says = "say what is there";
            let repair = self.rewrite(ino, known, says, |rnode| {
                let flags = &mut rnode.flags;
                (flags.has_xattrs, flags.has_acl, flags.has_default_acl) = (any, access, default);
            })?;
            self.found(Damage::XattrFlag, ino, repair);
        }
        if known.seen.names_of_xattrs != known.seen.listed_xattrs {
            let repair = self.list_xattrs(ino)?;
            self.found(Damage::XattrNames, ino, Some(repair));
        }
        if known.moved != known.seen.moved {
            let repair = match known.place {
                None => self.rewrite(ino, known, "correct it", |r| r.flags.moved = false)?,
                Some((dir, hash)) => {
                    let moved = Moved { dir, hash }.encode(self.stamp);
                    let flag = self.rewrite(ino, known, "correct it", |r| r.flags.moved = true)?;
                    flag.map(|mut repair| {
                        repair.changes.push(put(key::moved(ino), moved));
                        repair
                    })
                }
            };
            self.found(Damage::Moved, ino, repair);
        }
        Ok(())
    }

    /// Lists the names of the extended attributes that are there; those that cannot be listed go.
    fn list_xattrs(&self, ino: InodeId) -> Result<Repair, table::Error> {
        let (mut names, mut changes) = (Vec::new(), Vec::new());
        let range = key::xattrs_of(ino);
        self.table.scan(&range.from, &range.to, &mut |key, _| {
            if let Some(Key::Xattr { name, .. }) = Key::parse(key)
                && name != ACL_ACCESS
                && name != ACL_DEFAULT
            {
                if name.contains(&0) || names.len() + name.len() >= limits::XATTR_LIST_BYTES {
                    changes.push(Change::Delete(key.to_vec()));
                } else {
                    names.extend_from_slice(name);
                    names.push(0);
                }
            }
            ControlFlow::Continue(())
        })?;
        let row = key::xattr_names(ino);
        changes.push(match names.is_empty() {
            true => Change::Delete(row),
            false => put(row, XattrNames { names: &names }.encode(self.stamp)),
        });
        Ok(Repair::rows("list those that are there", changes))
    }

    /// Writes the row of a file as `change` leaves it. `None` where the row is no longer found.
    pub(super) fn rewrite(
        &self,
        ino: InodeId,
        known: &Known,
        says: &'static str,
        change: impl FnOnce(&mut Rnode),
    ) -> Result<Option<Repair>, table::Error> {
        let Some((key, mut rnode)) = self.rnode(ino, known)? else { return Ok(None) };
        change(&mut rnode);
        let value = match known.place {
            None => rnode.encode(self.stamp),
            Some(_) => NameRow::Rnode(rnode).encode(self.stamp),
        };
        Ok(Some(Repair::put(says, key, value)))
    }

    /// The row of a file and its key.
    fn rnode(&self, ino: InodeId, known: &Known) -> Result<Option<(Vec<u8>, Rnode)>, table::Error> {
        if let Some((dir, hash)) = known.place {
            return self.row_under(dir, hash, ino);
        }
        let key = key::inode(ino);
        let value = self.table.get(&key)?;
        let rnode = value.as_deref().and_then(|value| Rnode::decode(value).ok());
        Ok(rnode.map(|(_, rnode)| (key, rnode)))
    }

    fn row_under(
        &self,
        dir: InodeId,
        hash: NameHash,
        ino: InodeId,
    ) -> Result<Option<(Vec<u8>, Rnode)>, table::Error> {
        let range = key::names_with_hash(dir, hash);
        let mut found = None;
        self.table.scan(
            &range.from,
            &range.to,
            &mut |key, value| match NameRow::decode(value) {
                Ok((_, NameRow::Rnode(rnode))) if rnode.ino == ino => {
                    found = Some((key.to_vec(), rnode));
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            },
        )?;
        Ok(found)
    }

    /// Whether a directory is below the root. A name that is missing on the way is said elsewhere.
    fn reaches_root(
        &self,
        dir: InodeId,
        good: &mut HashSet<InodeId>,
    ) -> Result<bool, table::Error> {
        let mut way = Vec::new();
        let mut steps = CycleFinder::from(dir);
        let mut here = dir;
        while here != InodeId::ROOT && !good.contains(&here) {
            if good.len() + way.len() < GOOD {
                way.push(here);
            }
            match self.parent(here)? {
                Some(parent) => here = parent,
                None => return Ok(true),
            }
            if steps.has_looped(here) {
                return Ok(false);
            }
        }
        good.extend(way);
        Ok(true)
    }

    fn parent(&self, dir: InodeId) -> Result<Option<InodeId>, table::Error> {
        let range = key::parent_pointers_of(dir);
        let mut parent = None;
        self.table.scan(&range.from, &range.to, &mut |key, _| {
            if let Some(Key::ParentPointer { dir, .. }) = Key::parse(key) {
                parent = Some(dir);
            }
            ControlFlow::Break(())
        })?;
        Ok(parent)
    }

    /// Takes a directory out of a loop and gives it a name in the root.
    fn cut_loop(&self, ino: InodeId, known: &Known) -> Result<Option<Repair>, table::Error> {
        let Some((_, rnode)) = self.rnode(ino, known)? else { return Ok(None) };
        let range = key::parent_pointers_of(ino);
        let mut changes = Vec::new();
        self.table.scan(&range.from, &range.to, &mut |row, _| {
            if let Some(Key::ParentPointer { dir, hash, name, .. }) = Key::parse(row) {
                changes.push(Change::Delete(key::name(dir, hash, name)));
                changes.push(Change::Delete(row.to_vec()));
                // What the directory above counts is wrong then, and is found in the next round.
            }
            ControlFlow::Continue(())
        })?;
        changes.extend(self.link_in_root(&rnode)?);
        Ok(Some(Repair::rows("give it a name in the root directory", changes)))
    }
}
