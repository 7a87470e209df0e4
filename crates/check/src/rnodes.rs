//! The search for the row that has an rnode, and its repair.

use std::ops::ControlFlow;

use pelago_store::rows::{NameRow, Rnode, Row};
use pelago_store::{key, table};
use pelago_wire::{InodeId, NameHash};

use super::window::InodeFacts;
use super::{Check, Repair};

impl Check<'_> {
    /// Returns the repair that applies `change` to an rnode; `None` if its row is not found.
    pub(super) fn rewrite(
        &self,
        ino: InodeId,
        facts: &InodeFacts,
        says: &'static str,
        change: impl FnOnce(&mut Rnode),
    ) -> Result<Option<Repair>, table::Error> {
        let Some((key, mut rnode)) = self.rnode(ino, facts)? else { return Ok(None) };
        change(&mut rnode);
        let value = match facts.place {
            None => rnode.encode(self.stamp),
            Some(_) => NameRow::Rnode(rnode).encode(self.stamp),
        };
        Ok(Some(Repair::put(says, key, value)))
    }

    /// Returns the key of the row that has an rnode, and the rnode.
    pub(super) fn rnode(
        &self,
        ino: InodeId,
        facts: &InodeFacts,
    ) -> Result<Option<(Vec<u8>, Rnode)>, table::Error> {
        if let Some((dir, hash)) = facts.place {
            return self.row_under(dir, hash, ino);
        }
        let key = key::inode(ino);
        let value = self.table.get(&key)?;
        let rnode = value.as_deref().and_then(|value| Rnode::decode(value).ok());
        Ok(rnode.map(|(_, rnode)| (key, rnode)))
    }

    /// Returns the key of the row of a name with this hash that has the rnode, and the rnode.
    pub(super) fn row_under(
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
}
