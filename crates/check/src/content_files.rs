//! Content files: each file that has one finds it, and each belongs to a file.

use std::ops::ControlFlow;

use pelago_store::content::ContentEntry;
use pelago_store::key;
use pelago_store::rows::{Orphan, Row};
use pelago_wire::{Generation, InodeId};

use super::nodes::Window;
use super::{Check, CheckError, Damage, Finding, Repair};

impl Check<'_> {
    /// Looks at the content files of the files of a window.
    pub(super) fn content_files(&mut self, window: &mut Window) -> Result<(), CheckError> {
        let content = self.content;
        let first = window.low == InodeId::from_raw(0);
        let mut wrong = None;
        content.list(&mut |listed| {
            let looked = match listed {
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
            match looked {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    wrong = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        wrong.map_or(Ok(()), Err)
    }

    fn content_file(
        &mut self,
        window: &mut Window,
        ino: InodeId,
        generation: Generation,
    ) -> Result<(), CheckError> {
        self.plan.checked.content_files += 1;
        let known = window.nodes.get_mut(&ino);
        let Some(known) = known.filter(|known| known.content == Some(generation)) else {
            return self.content_stray(ino, generation, window.nodes.contains_key(&ino));
        };
        known.seen.content = true;
        // A file that was being written when its server died is measured when the next one starts.
        if known.seen.writing {
            return Ok(());
        }
        let known = *known;
        let Some(file) = self.content.open_file(ino, generation, false)? else { return Ok(()) };
        let measured = file.stat()?;
        if measured.size < known.size {
            let says = "take the size of its content file; what is missing is lost";
            let repair = self.rewrite(ino, &known, says, |rnode| {
                (rnode.size, rnode.blocks) = (measured.size, measured.blocks);
            })?;
            self.found(Damage::ContentShort, ino, repair);
        }
        Ok(())
    }

    /// A content file that no row of a file names.
    fn content_stray(
        &mut self,
        ino: InodeId,
        generation: Generation,
        has_row: bool,
    ) -> Result<(), CheckError> {
        let orphan = self.table.get(&key::orphan(ino))?;
        let orphan = orphan.as_deref().and_then(|value| Orphan::decode(value).ok());
        if orphan.is_some_and(|(_, orphan)| orphan.generation == Some(generation)) {
            return Ok(());
        }
        let unreadable = !has_row && self.table.get(&key::inode(ino))?.is_some();
        if unreadable {
            // Decided when that row is.
            return Ok(());
        }
        let repair = if self.adopt && !has_row {
            let Some(file) = self.content.open_file(ino, generation, false)? else {
                return Ok(());
            };
            let rows = self.adopt_content(ino, generation, &file.stat()?)?;
            Repair::rows("give it a name in the root directory", rows)
        } else {
            let remove = Some((ino, generation));
            Repair { says: "remove it", changes: Vec::new(), remove }
        };
        self.found(Damage::ContentStray, ino, Some(repair));
        Ok(())
    }
}
