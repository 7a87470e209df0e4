//! The copy of a whole volume to its mirror.
//!
//! The rows are those of one cut. Content files are read while programs change them, so the copy
//! alone is no state of the volume. Changes since the cut are collected, and the next group
//! completes the copy with them.

use std::ops::ControlFlow;

use pelago_store::key;
use pelago_store::report::{content_failed, table_failed};
use pelago_store::table::Snapshot;
use pelago_wire::Code;
use pelago_wire::mirror::RowChange;

use super::content::KnownFile;
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
            state.groups.start_over();
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
            // As it is now; it may have been removed since.
            Some(content) => match KnownFile::of(self.mirror, content)? {
                Some(known) => known.send(self.group),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}
