//! Directories that are below themselves.

use std::collections::HashSet;
use std::ops::ControlFlow;

use pelago_store::cycle::CycleFinder;
use pelago_store::key::{self, Key};
use pelago_store::table::{self, Change};
use pelago_wire::InodeId;

use super::window::InodeFacts;
use super::{Check, Repair};

/// The most directories that are remembered as being below the root.
const BELOW_ROOT_MAX: usize = 1 << 20;

impl Check<'_> {
    /// Returns whether a directory is outside any loop. One whose path ends before the root has
    /// another damage, which is reported where it is found. `below_root`: directories that are
    /// known to be outside.
    pub(super) fn reaches_root(
        &self,
        dir: InodeId,
        below_root: &mut HashSet<InodeId>,
    ) -> Result<bool, table::Error> {
        let mut path = Vec::new();
        let mut steps = CycleFinder::from(dir);
        let mut here = dir;
        while here != InodeId::ROOT && !below_root.contains(&here) {
            if below_root.len() + path.len() < BELOW_ROOT_MAX {
                path.push(here);
            }
            match self.parent(here)? {
                Some(parent) => here = parent,
                None => return Ok(true),
            }
            if steps.has_looped(here) {
                return Ok(false);
            }
        }
        below_root.extend(path);
        Ok(true)
    }

    /// Returns the directory of the first parent pointer.
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

    /// Returns the repair that takes a directory out of a loop and gives it a new name.
    pub(super) fn cut_loop(
        &self,
        ino: InodeId,
        facts: &InodeFacts,
    ) -> Result<Option<Repair>, table::Error> {
        let Some((_, rnode)) = self.rnode(ino, facts)? else { return Ok(None) };
        let range = key::parent_pointers_of(ino);
        let mut changes = self.link_lost(&rnode)?;
        if changes.is_empty() {
            // Its old name is kept until it can get the new one.
            return Ok(Some(Repair::nothing(self.gives_a_name())));
        }
        self.table.scan(&range.from, &range.to, &mut |row, _| {
            if let Some(Key::ParentPointer { dir, hash, name, .. }) = Key::parse(row) {
                changes.push(Change::Delete(key::name(dir, hash, name)));
                changes.push(Change::Delete(row.to_vec()));
                // This makes the counts of its parent wrong; the next round repairs them.
            }
            ControlFlow::Continue(())
        })?;
        Ok(Some(Repair::rows(self.gives_a_name(), changes)))
    }
}
