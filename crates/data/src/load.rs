//! Loading: reads of the row of an open inode, and of the bytes of a small file, from the table.

use pelago_store::key;
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::Inline;
use pelago_wire::{Code, Error, FileKind, Generation};

use crate::inode::{Bytes, Uncommitted};
use crate::inode_guard::InodeGuard;

impl InodeGuard<'_> {
    /// Reads the row if it was not read yet; measures the content file if programs may have written
    /// it without a request.
    ///
    /// # Errors
    /// `Stale` if the row was deleted; `Corrupt`; if the table or the disk fails.
    pub(crate) fn load(&mut self) -> Result<(), Error> {
        if self.state.row_lost {
            return Err(Code::Stale.into());
        }
        self.refresh();
        if !matches!(self.state.bytes, Bytes::Unloaded) {
            return Ok(());
        }
        let rnode = self.files.shard.stored_node(self.handle())?.rnode;
        if rnode.kind != FileKind::Regular {
            return Err(Code::Invalid.into());
        }
        self.inode.note_atime(&rnode.attr());
        let state = &mut *self.state;
        state.bytes = match (rnode.bytes_at, rnode.generation) {
            (Some(node), _) => Bytes::Elsewhere(node),
            (None, Some(generation)) if rnode.flags.has_content => Bytes::ContentClosed(generation),
            _ if rnode.flags.inline => Bytes::Inline,
            _ if rnode.size == 0 => Bytes::Memory(Vec::new()),
            _ => {
                tracing::error!(ino = %rnode.ino, "a file has lost its bytes; run `pelago check`");
                return Err(Code::Corrupt.into());
            }
        };
        state.size = rnode.size;
        state.blocks = rnode.blocks;
        state.mtime = rnode.mtime;
        state.ctime = rnode.ctime;
        state.generation = rnode.generation;
        state.has_inline_row = rnode.flags.inline;
        let Some(generation) = state.bytes.generation() else { return Ok(()) };
        if self.files.trusts_rows || self.files.writing.contains(self.ino()) {
            return Ok(());
        }
        // After a power loss the disk may have bytes without their `writing` row, because they were
        // safe before it. Then the content file is right, and the next commit corrects the row.
        self.take_content_size(generation)
    }

    /// Takes size and times from the content file if its size differs from that in the row.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn take_content_size(&mut self, generation: Generation) -> Result<(), Error> {
        let disk = &self.files.disk;
        let ino = self.ino();
        let measured = disk.content.stat(ino, generation);
        let Some(measured) = measured.map_err(|error| disk.failed(&error))? else {
            return Ok(());
        };
        let state = &mut *self.state;
        if measured.size == state.size {
            return Ok(());
        }
        tracing::warn!(
            %ino, row = state.size, content = measured.size,
            "the size in a file's row is wrong; the size of its content file counts"
        );
        state.size = measured.size;
        state.blocks = measured.blocks;
        state.mtime = measured.mtime;
        state.ctime = state.ctime.next().max(measured.ctime);
        if !self.files.read_only {
            state.uncommitted.add(Uncommitted::Attr);
            self.publish();
        }
        Ok(())
    }

    /// Reads the bytes of a small file from the table.
    ///
    /// # Errors
    /// `Corrupt` if they are missing, or their number is not that in the row; if the table fails.
    pub(crate) fn read_inline_row(&self) -> Result<Vec<u8>, Error> {
        let ino = self.ino();
        let size = self.state.size;
        let key = key::inline(ino);
        let value = self.files.table.get(&key).map_err(|error| table_failed("reading", &error))?;
        let Some(value) = value else {
            tracing::error!(%ino, "the bytes of a file are missing; run `pelago check`");
            return Err(Code::Corrupt.into());
        };
        let bytes = Inline::decode_owned(value).map_err(|error| row_damaged(&key, error))?;
        if bytes.len() as u64 != size {
            let found = bytes.len();
            tracing::error!(
                %ino, size, found,
                "a file has not as many bytes as its row says; run `pelago check`"
            );
            return Err(Code::Corrupt.into());
        }
        Ok(bytes)
    }
}
