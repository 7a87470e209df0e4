//! The copy of a whole volume to its mirror.
//!
//! The rows are those of one cut. Content files are read while programs change them, so the copy
//! alone is no state of the volume. Changes since the cut are collected, and the next group
//! completes the copy with them.

use std::ops::ControlFlow;

use pelago_data::{ContentKey, ContentPiece, read_piece};
use pelago_store::content::{ContentFile, FileAccess};
use pelago_store::key;
use pelago_store::report::{content_failed, table_failed};
use pelago_store::table::Snapshot;
use pelago_wire::Code;
use pelago_wire::mirror::{GroupPart, RowChange};

use super::group::{GroupSender, SendError};
use super::sender::Sender;
use super::{Mirror, MirrorPhase};
use crate::digests::content_of;

/// A volume that is being copied.
struct Copying<'a, 'b> {
    mirror: &'a Mirror,
    group: &'a mut GroupSender<'b>,
}

impl Mirror {
    /// Begins to collect changes, and cuts. Returns the rows of the cut, which are safe, as is all
    /// content that had changed before.
    pub(super) fn begin_copy(&self) -> Result<Snapshot, SendError> {
        let parts = &self.parts;
        {
            let mut state = self.state.lock();
            // A cut that was taken before the copy begins is older than the copy.
            state.cut = None;
            state.wants_cut = false;
        }
        parts.shard.collect_changes();
        parts.opens.collect_changes();
        // A file that fails is old in the copy, and is changed by a later group.
        if let Err(error) = parts.opens.commit_all() {
            tracing::warn!(%error, "an open file is behind in what the mirror gets");
        }
        let cut = parts.shard.cut(|| {})?;
        parts.opens.sync_writing().map_err(|error| content_failed(&error))?;
        self.wait_until_safe(&cut)?;
        Ok(cut.snapshot)
    }
}

impl Sender<'_> {
    /// Sends a copy: the rows of this snapshot, and the content files that they name.
    pub(super) fn send_copy(
        &self,
        group: &mut GroupSender<'_>,
        snapshot: &Snapshot,
    ) -> Result<(), SendError> {
        let mut copying = Copying { mirror: self.mirror, group };
        let mut result = Ok(());
        let scanned = snapshot.scan(&[], &[], &mut |row_key, value| {
            result = copying.row(row_key, value);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        scanned.map_err(|error| table_failed("copying rows to the mirror", &error))?;
        group.flush_rows()
    }
}

impl Copying<'_, '_> {
    /// Sends a row, and the content file that it names.
    fn row(&mut self, row_key: &[u8], value: &[u8]) -> Result<(), SendError> {
        if !key::is_mirrored(row_key) {
            return Ok(());
        }
        self.group.row(RowChange { key: row_key.to_vec(), value: Some(value.to_vec()) })?;
        let sent = self.group.sent();
        self.mirror.set_phase(MirrorPhase::Copying { sent });
        if self.mirror.state.lock().has_stopped {
            return Err(SendError::Primary(Code::Unavailable.into()));
        }
        match content_of(row_key, value) {
            Some(content) => self.content(content),
            None => Ok(()),
        }
    }

    /// Sends a content file as it is now; does nothing if it was removed since.
    fn content(&mut self, content: ContentKey) -> Result<(), SendError> {
        let store = &self.mirror.parts.content;
        let opened = store.open_file(content.0, content.1, FileAccess::Read);
        let Some(file) = opened.map_err(|error| content_failed(&error))? else { return Ok(()) };
        let stat = file.stat().map_err(|error| content_failed(&error))?;
        self.group.part(&GroupPart::Content {
            ino: content.0,
            generation: content.1,
            size: stat.size,
            mtime: stat.mtime,
        })?;
        let mut at = 0;
        while at < stat.size {
            at = self.piece(&file, at, stat.size)?;
        }
        Ok(())
    }

    /// Sends the piece of a file that begins at `at`, unless it is a hole. Returns the start of the
    /// next piece.
    fn piece(&mut self, file: &ContentFile, at: u64, size: u64) -> Result<u64, SendError> {
        let piece = read_piece(file, at..size).map_err(|error| content_failed(&error))?;
        let next = piece.range().end;
        match piece {
            ContentPiece::Bytes { offset, bytes } => {
                self.group.part(&GroupPart::Bytes { offset, bytes })?;
            }
            // The mirror makes the file new, so it is one hole at first.
            ContentPiece::Hole { .. } => {}
        }
        Ok(next)
    }
}
