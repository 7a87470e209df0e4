//! The check that each content file belongs to an inode, and has the size that the inode's row
//! says.

use std::ops::ControlFlow;

use pelago_store::content::{ContentEntry, FileAccess};
use pelago_store::key;
use pelago_store::rows::{Orphan, Row};
use pelago_wire::{Generation, InodeId};

use super::window::Window;
use super::{Check, CheckError, Damage, Finding, Repair};

impl Check<'_> {
    /// Checks the content files of the inodes of a window.
    pub(super) fn content_files(&mut self, window: &mut Window) -> Result<(), CheckError> {
        let content = self.content;
        let first = window.low == InodeId::from_raw(0);
        let mut failed = None;
        content.list(&mut |listed| {
            let checked = match listed {
                ContentEntry::File { ino, generation }
                    if (window.low..=window.high).contains(&ino) =>
                {
                    self.content_file(window, ino, generation)
                }
                ContentEntry::File { .. } => Ok(()),
                ContentEntry::Foreign(path) => {
                    if first {
                        let key = path.into_os_string().into_encoded_bytes();
                        let damage = Damage::ContentForeign;
                        self.plan.add(Finding { damage, ino: None, key, repair: None });
                    }
                    Ok(())
                }
            };
            match checked {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn content_file(
        &mut self,
        window: &mut Window,
        ino: InodeId,
        generation: Generation,
    ) -> Result<(), CheckError> {
        self.plan.checked.content_files += 1;
        let facts = window.inodes.get_mut(&ino);
        let Some(facts) = facts.filter(|facts| facts.content == Some(generation)) else {
            return self.content_stray(ino, generation, window.inodes.contains_key(&ino));
        };
        facts.found.content = true;
        let facts = *facts;
        let Some(file) = self.content.open_file(ino, generation, FileAccess::Read)? else {
            return Ok(());
        };
        let measured = file.stat()?;
        if measured.size < facts.size && facts.found.writing {
            // Recovery at the next start measures a file that was open for writing.
            self.report_inode(Damage::NextShorter, ino, None);
        } else if measured.size < facts.size {
            let says = "take the size of its content file; the missing bytes are lost";
            let repair = self.rewrite(ino, &facts, says, |rnode| {
                rnode.size = measured.size;
                rnode.blocks = measured.blocks;
            })?;
            self.report_inode(Damage::ContentShort, ino, repair);
        }
        Ok(())
    }

    /// Reports a content file that no inode has, unless it is one of an orphan.
    fn content_stray(
        &mut self,
        ino: InodeId,
        generation: Generation,
        has_row: bool,
    ) -> Result<(), CheckError> {
        if self.is_elsewhere(ino) {
            // Only its home site knows if it is needed.
            return Ok(());
        }
        let orphan = self.table.get(&key::orphan(ino))?;
        let orphan = orphan.as_deref().and_then(|value| Orphan::decode(value).ok());
        if orphan.is_some_and(|(_, orphan)| orphan.generation == Some(generation)) {
            return Ok(());
        }
        let unreadable = !has_row && self.table.get(&key::inode(ino))?.is_some();
        if unreadable {
            // The inode's row may have named it, and is repaired first.
            return Ok(());
        }
        let repair = if self.adopt_stray && !has_row {
            let Some(file) = self.content.open_file(ino, generation, FileAccess::Read)? else {
                return Ok(());
            };
            let rows = self.adopt_content(ino, generation, &file.stat()?)?;
            Repair::rows(self.gives_a_name(), rows)
        } else {
            let remove = Some((ino, generation));
            Repair { says: "remove it", changes: Vec::new(), remove }
        };
        self.report_inode(Damage::ContentStray, ino, Some(repair));
        Ok(())
    }
}
