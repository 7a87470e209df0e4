//! The inodes that are checked at a time. Inodes are taken in windows of ids, each as large as
//! memory allows; a window costs one scan of the names.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{NameRow, ParentPointer, Rnode, Row};
use pelago_store::table;
use pelago_store::volume::Owner;
use pelago_wire::{FileKind, Generation, InodeId, NameHash};

use super::rebuild::put;
use super::{Check, CheckError, Damage, Repair, WINDOW};

/// The inodes of a window, by id.
pub(super) struct Window {
    pub(super) inodes: BTreeMap<InodeId, InodeFacts>,
    /// The lowest id of the window.
    pub(super) low: InodeId,
    /// The highest id of the window.
    pub(super) high: InodeId,
}

/// The facts about an inode: those of its row, and the other rows and files that refer to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct InodeFacts {
    /// The directory and hash of the name whose row has the rnode; `None`: it has a row of its own.
    pub(super) place: Option<(InodeId, NameHash)>,
    pub(super) kind: FileKind,
    pub(super) links: u32,
    /// Bytes.
    pub(super) size: u64,
    /// The generation of its content file, if it has one.
    pub(super) content: Option<Generation>,
    pub(super) inline: bool,
    pub(super) xattrs: XattrPresence,
    pub(super) moved: bool,
    pub(super) found: Found,
}

/// The rows and files that refer to an inode, outside its own row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// Parent pointers.
    pub(super) names: u32,
    pub(super) inline: bool,
    pub(super) xattrs: XattrPresence,
    /// Names of its extended attributes, without access control lists.
    pub(super) xattr_names: NameSet,
    /// The same names, as its row of names lists them.
    pub(super) listed_xattr_names: NameSet,
    pub(super) moved: bool,
    pub(super) orphan: bool,
    pub(super) writing: bool,
    pub(super) content: bool,
}

/// The kinds of extended attributes that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct XattrPresence {
    /// Any at all.
    pub(super) any: bool,
    /// An access control list.
    pub(super) access: bool,
    /// A default access control list.
    pub(super) default: bool,
}

/// A set of names, reduced to a fingerprint that does not depend on their order. Equal sets have
/// equal fingerprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct NameSet {
    count: u32,
    sum: u64,
}

impl NameSet {
    pub(super) fn add(&mut self, name: &[u8]) {
        self.count += 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(name);
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

impl Check<'_> {
    /// Reads the rows of the lowest inodes from `low` on. Reports damaged rows if `first`.
    pub(super) fn read_window(&mut self, low: InodeId, first: bool) -> Result<Window, CheckError> {
        let high = InodeId::from_raw(u64::MAX);
        let mut window = Window { inodes: BTreeMap::new(), low, high };
        let table = self.table;
        let names = key::all(RowKind::Name);
        let inodes = key::all(RowKind::Inode);
        table.scan(&names.from, &names.to, &mut |key, value| {
            if let (Some((dir, hash, _)), Ok((stamp, NameRow::Rnode(rnode)))) =
                (key::parse_name(key), NameRow::decode(value))
                // A directory must have a row of its own: `names` repairs that first.
                && rnode.kind != FileKind::Directory
            {
                self.note_epoch(stamp);
                self.insert(&mut window, Some((dir, hash)), &rnode);
            }
            ControlFlow::Continue(())
        })?;
        let mut damaged = Vec::new();
        table.scan(&inodes.from, &inodes.to, &mut |key, value| {
            match (Key::parse(key), Rnode::decode(value)) {
                (Some(Key::Inode { ino }), Ok((stamp, rnode))) if rnode.ino == ino => {
                    self.note_epoch(stamp);
                    self.insert(&mut window, None, &rnode);
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
            let repair = self.replace_row(ino)?;
            self.report_row(Damage::Row, &key::inode(ino), Some(repair));
        }
        Ok(window)
    }

    /// Adds an inode; drops the one with the highest id if the window is full.
    fn insert(&mut self, window: &mut Window, place: Option<(InodeId, NameHash)>, rnode: &Rnode) {
        if !(window.low..=window.high).contains(&rnode.ino) {
            return;
        }
        let facts = InodeFacts {
            place,
            kind: rnode.kind,
            links: rnode.links,
            size: rnode.size,
            content: rnode.generation.filter(|_| rnode.flags.has_content),
            inline: rnode.flags.inline,
            xattrs: XattrPresence {
                any: rnode.flags.has_xattrs,
                access: rnode.flags.has_acl,
                default: rnode.flags.has_default_acl,
            },
            moved: rnode.flags.moved,
            found: Found::default(),
        };
        if let Some(other) = window.inodes.insert(rnode.ino, facts) {
            // The inode's own row is the newer one: an rnode never returns to the row of a name.
            let repair = match (place, other.place) {
                (None, Some((dir, hash))) => self.replace_by_link(dir, hash, rnode),
                _ => None,
            };
            self.report_inode(Damage::Twice, rnode.ino, repair);
        }
        if window.inodes.len() > WINDOW
            && let Some((last, _)) = window.inodes.pop_last()
        {
            window.high = InodeId::from_raw(last.raw() - 1);
        }
    }

    /// Turns the name whose row has a second copy of an rnode into a link to the inode's own row.
    fn replace_by_link(&self, dir: InodeId, hash: NameHash, rnode: &Rnode) -> Option<Repair> {
        let (key, _) = self.row_under(dir, hash, rnode.ino).ok()??;
        let (_, _, name) = key::parse_name(&key)?;
        let link = NameRow::Link { ino: rnode.ino, kind: rnode.kind }.encode(self.stamp);
        let listed = key::parent_pointer(rnode.ino, dir, hash, name);
        let changes = vec![put(key.clone(), link), put(listed, ParentPointer.encode(self.stamp))];
        Some(Repair::rows("keep the row of the inode, and link the name to it", changes))
    }

    /// Returns the repair of an inode's own row that cannot be read. A directory gets a new row.
    /// Any other row is removed; a later round gives a file to the bytes that are left.
    fn replace_row(&self, ino: InodeId) -> Result<Repair, table::Error> {
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
}
