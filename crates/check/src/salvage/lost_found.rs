//! The copy of directories, inline bytes and content files to which no name leads.

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};

use pelago_store::content::{ContentEntry, FileAccess};
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{Rnode, Row as _};
use pelago_wire::{FileKind, Generation, InodeId};

use super::SalvageError;
use super::bytes::Source;
use super::tree::{TreeCopy, failed_rows};

impl TreeCopy<'_> {
    /// Copies directories, inline bytes and content files to which no name leads. If no row is
    /// lost, there are none: other leftovers are of a crash, and hold no data.
    pub(super) fn lost_and_found(&mut self) -> Result<(), SalvageError> {
        if !self.rows.any_lost() && self.report.lost == 0 {
            return Ok(());
        }
        let folder = self.make_lost_and_found()?;
        let folder = folder.as_fd();
        for ino in self.lost_directories()? {
            // An earlier directory of this loop may have had a name of it.
            if !self.rows.is_marked(ino).map_err(failed_rows)? {
                self.found_directory(ino, folder)?;
            }
        }
        self.lost_inline(folder)?;
        self.lost_content(folder)
    }

    /// Returns the directories without a name: those with a row, and those that have names.
    fn lost_directories(&self) -> Result<Vec<InodeId>, SalvageError> {
        let mut found = Vec::new();
        let mut failed = None;
        let mut visit = |ino: InodeId| match self.rows.is_marked(ino) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => {
                found.push(ino);
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let mut last = None;
        let by_row = self.rows.scan(&key::all(RowKind::Inode), &mut |key, value| match (
            Key::parse(key),
            Rnode::decode(value),
        ) {
            (Some(Key::Inode { ino }), Ok((_, rnode)))
                if rnode.kind == FileKind::Directory && rnode.links > 0 =>
            {
                visit(ino)
            }
            _ => ControlFlow::Continue(()),
        });
        by_row.map_err(failed_rows)?;
        let by_name =
            self.rows.scan(&key::all(RowKind::Name), &mut |key, _| match key::parse_name(key) {
                Some((dir, _, _)) if last.replace(dir) != Some(dir) => visit(dir),
                _ => ControlFlow::Continue(()),
            });
        by_name.map_err(failed_rows)?;
        match failed {
            Some(error) => Err(failed_rows(error)),
            None => Ok(found),
        }
    }

    fn lost_inline(&mut self, folder: BorrowedFd<'_>) -> Result<(), SalvageError> {
        let mut inos = Vec::new();
        let scanned = self.rows.scan(&key::all(RowKind::Inline), &mut |key, _| {
            if let Some(Key::Inline { ino }) = Key::parse(key) {
                inos.push(ino);
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(failed_rows)?;
        for ino in inos {
            if self.is_lost(ino)? {
                let source = self.copier.inline(ino).map_err(failed_rows)?;
                self.found_bytes(folder, ino, Generation(0), &source)?;
            }
        }
        Ok(())
    }

    fn lost_content(&mut self, folder: BorrowedFd<'_>) -> Result<(), SalvageError> {
        let Some(content) = self.copier.content() else { return Ok(()) };
        let mut files = Vec::new();
        let listed = content.list(&mut |entry| {
            if let ContentEntry::File { ino, generation } = entry {
                files.push((ino, generation));
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            // Files that have names are copied already.
            self.report.lose(b"", &error.to_string())?;
        }
        for (ino, generation) in files {
            if !self.is_lost(ino)? {
                continue;
            }
            let source = match content.open_file(ino, generation, FileAccess::Read) {
                Ok(Some(file)) => match file.stat() {
                    Ok(found) => Source::Content {
                        file,
                        size: found.size,
                        short: 0,
                        mtime: Some(found.mtime),
                    },
                    Err(error) => Source::Lost(error.to_string()),
                },
                Ok(None) => continue,
                Err(error) => Source::Lost(error.to_string()),
            };
            self.found_bytes(folder, ino, generation, &source)?;
        }
        Ok(())
    }

    /// Returns whether no name led to an inode, and it was not removed.
    fn is_lost(&self, ino: InodeId) -> Result<bool, SalvageError> {
        let is_known = self.rows.is_marked(ino).map_err(failed_rows)?
            || self.rows.is_orphan(ino).map_err(failed_rows)?;
        Ok(!is_known)
    }

    fn found_bytes(
        &mut self,
        folder: BorrowedFd<'_>,
        ino: InodeId,
        generation: Generation,
        source: &Source,
    ) -> Result<(), SalvageError> {
        let name = format!("{:016x}.{:08x}", ino.raw(), generation.0).into_bytes();
        let path = [b"lost+found/", &name[..]].concat();
        if self.bytes(source, folder, &name, &path)? {
            self.done.found += 1;
            self.report.lose(&path, "the name of these bytes is lost")?;
        }
        Ok(())
    }
}
