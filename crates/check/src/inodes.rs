//! The check of each inode: its row against the rows and files that refer to it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use pelago_store::key::{self, Key};
use pelago_store::rows::{HighWater, Moved, Orphan, Rnode, Row, XattrNames};
use pelago_store::table::{self, Change};
use pelago_store::volume::Owner;
use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};
use pelago_wire::{FileKind, InodeId, limits};

use super::rebuild::put;
use super::window::{InodeFacts, XattrPresence};
use super::{Check, CheckError, Damage, Repair};

impl Check<'_> {
    /// Checks every inode, window by window.
    pub(super) fn inodes(&mut self) -> Result<(), CheckError> {
        let has_root = self.shard.site == InodeId::ROOT.site();
        if has_root && self.table.get(&key::inode(InodeId::ROOT))?.is_none() {
            let row = Rnode::root(Owner::default(), self.now).encode(self.stamp);
            let repair = Repair::put("create one", key::inode(InodeId::ROOT), row);
            self.report_inode(Damage::Root, InodeId::ROOT, Some(repair));
        }
        let mut below_root = HashSet::new();
        let mut low = InodeId::from_raw(0);
        let mut first = true;
        loop {
            let mut window = self.read_window(low, first)?;
            self.rows_by_inode(&mut window)?;
            self.content_files(&mut window)?;
            for (ino, facts) in &window.inodes {
                self.inode(*ino, facts, &mut below_root)?;
            }
            let Some(next) = window.high.raw().checked_add(1) else { break };
            low = InodeId::from_raw(next);
            first = false;
        }
        self.high_water();
        Ok(())
    }

    /// Checks the high-water mark of inode ids: no id of an existing inode may be allocated again.
    fn high_water(&mut self) {
        if self.high_water_is_right() {
            return;
        }
        let next = self.safe_next_id();
        let row = HighWater { next }.encode(self.stamp);
        let key = key::high_water(self.shard.shard);
        let repair = Repair::put("continue well above the highest id", key, row);
        let highest = self.shard.inode(self.highest).unwrap_or(InodeId::ROOT);
        self.report_inode(Damage::Number, highest, Some(repair));
    }

    /// Returns a mark above all ids that there are. Removed files may have had higher ones.
    pub(super) fn safe_next_id(&self) -> u64 {
        (self.highest + 2 * limits::ID_BLOCK).min(1 << 36)
    }

    /// Returns whether no existing inode has an id above the mark, once all were seen.
    pub(super) const fn high_water_is_right(&self) -> bool {
        self.highest < self.next_id && self.next_id > InodeId::ROOT.counter()
    }

    /// Checks one inode.
    fn inode(
        &mut self,
        ino: InodeId,
        facts: &InodeFacts,
        below_root: &mut HashSet<InodeId>,
    ) -> Result<(), table::Error> {
        self.plan.checked.nodes += 1;
        self.plan.checked.directories += u64::from(facts.kind == FileKind::Directory);
        if !self.is_elsewhere(ino) {
            self.highest = self.highest.max(ino.counter());
        }
        match facts.place {
            None => self.names_of_inode(ino, facts, below_root)?,
            Some(_) if facts.found.orphan => self.orphan_stray(ino),
            Some(_) => {}
        }
        self.bytes(ino, facts)?;
        self.xattrs_and_moved(ino, facts)
    }

    /// Checks the names of an inode with a row of its own.
    fn names_of_inode(
        &mut self,
        ino: InodeId,
        facts: &InodeFacts,
        below_root: &mut HashSet<InodeId>,
    ) -> Result<(), table::Error> {
        if ino == InodeId::ROOT {
            return Ok(());
        }
        let names = facts.found.names;
        if names == 0 && facts.links == 0 {
            if !facts.found.orphan {
                let orphan = Orphan { generation: facts.content };
                let repair = Repair::put(
                    "queue it for removal",
                    key::orphan(ino),
                    orphan.encode(self.stamp),
                );
                self.report_inode(Damage::Unburied, ino, Some(repair));
            }
            return Ok(());
        }
        if facts.found.orphan {
            self.orphan_stray(ino);
        }
        if names == 0 && self.has_sites && facts.kind == FileKind::Directory {
            self.plan.checked.named_elsewhere += 1;
            return Ok(());
        }
        if names == 0 && self.table.get(&key::stay(ino))?.is_some() {
            // It has the bytes of a file of another site.
            self.plan.checked.stays += 1;
            return Ok(());
        }
        if names == 0 {
            let rows = self.rnode(ino, facts)?.map(|(_, rnode)| self.link_lost(&rnode));
            let repair = rows.transpose()?.map(|rows| Repair::rows(self.gives_a_name(), rows));
            self.report_inode(Damage::Lost, ino, repair);
        } else if facts.kind != FileKind::Directory && names != facts.links {
            let repair = self.rewrite(ino, facts, "count again", |rnode| rnode.links = names)?;
            self.report_inode(Damage::Links, ino, repair);
        } else if facts.kind == FileKind::Directory && !self.reaches_root(ino, below_root)? {
            let repair = self.cut_loop(ino, facts)?;
            self.report_inode(Damage::Loop, ino, repair);
            below_root.insert(ino);
        }
        Ok(())
    }

    fn orphan_stray(&mut self, ino: InodeId) {
        let repair = Repair::delete("remove the orphan row", &key::orphan(ino));
        self.report_inode(Damage::OrphanStray, ino, Some(repair));
    }

    /// Checks that inline bytes and the content file exist if the row says so.
    fn bytes(&mut self, ino: InodeId, facts: &InodeFacts) -> Result<(), table::Error> {
        if facts.inline != facts.found.inline {
            let repair = match facts.found.inline {
                true => self.rewrite(ino, facts, "note in its row that they exist", |rnode| {
                    rnode.flags.inline = true
                })?,
                false => self.rewrite(ino, facts, "make the file empty", |rnode| {
                    rnode.flags.inline = false;
                    rnode.size = 0;
                    rnode.blocks = 0;
                })?,
            };
            self.report_inode(Damage::InlineMissing, ino, repair);
        }
        if facts.content.is_some() && !facts.found.content {
            match facts.found.writing {
                // Its name was never safe, so none of its bytes were synced.
                true if facts.size > 0 => self.report_inode(Damage::NextEmpty, ino, None),
                true => {}
                // The bytes are lost. Only the owner may decide that the file goes too.
                false => self.report_inode(Damage::ContentMissing, ino, None),
            }
        }
        Ok(())
    }

    /// Checks extended attributes and the row that leads to a moved rnode.
    fn xattrs_and_moved(&mut self, ino: InodeId, facts: &InodeFacts) -> Result<(), table::Error> {
        if facts.xattrs != facts.found.xattrs {
            let XattrPresence { any, access, default } = facts.found.xattrs;
            let says = "note in its row what exists";
            let repair = self.rewrite(ino, facts, says, |rnode| {
                let flags = &mut rnode.flags;
                flags.has_xattrs = any;
                flags.has_acl = access;
                flags.has_default_acl = default;
            })?;
            self.report_inode(Damage::XattrFlag, ino, repair);
        }
        if facts.found.xattr_names != facts.found.listed_xattr_names {
            let repair = self.list_xattrs(ino)?;
            self.report_inode(Damage::XattrNames, ino, Some(repair));
        }
        if facts.moved != facts.found.moved {
            let repair = match facts.place {
                None => self.rewrite(ino, facts, "correct it", |r| r.flags.moved = false)?,
                Some((dir, hash)) => {
                    let moved = Moved { dir, hash }.encode(self.stamp);
                    let flag = self.rewrite(ino, facts, "correct it", |r| r.flags.moved = true)?;
                    flag.map(|mut repair| {
                        repair.changes.push(put(key::moved(ino), moved));
                        repair
                    })
                }
            };
            self.report_inode(Damage::Moved, ino, repair);
        }
        Ok(())
    }

    /// Returns the repair that lists the extended attributes that exist, and removes those that do
    /// not fit into the list.
    fn list_xattrs(&self, ino: InodeId) -> Result<Repair, table::Error> {
        let mut names = Vec::new();
        let mut changes = Vec::new();
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
        Ok(Repair::rows("list those that exist", changes))
    }
}
