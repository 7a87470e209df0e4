//! The release of files that a rename has replaced, after the time in which a late open may find
//! them.

use std::sync::Arc;
use std::time::Instant;

use pelago_wire::Error;

use super::{NextRun, WorkDone, Worker};
use crate::replaced::ReplacedFiles;

/// The worker `replaced`.
pub(crate) struct ReleaseReplaced {
    files: Arc<ReplacedFiles>,
}

impl ReleaseReplaced {
    /// Returns a worker over these files.
    #[must_use]
    pub(crate) fn new(files: Arc<ReplacedFiles>) -> Self {
        Self { files }
    }
}

impl Worker for ReleaseReplaced {
    fn work(&mut self) -> Result<WorkDone, Error> {
        let (released, next) = self.files.release_due(Instant::now());
        let next = match next {
            _ if released > 0 => NextRun::Soon,
            Some(due) => NextRun::After(due.saturating_duration_since(Instant::now())),
            None => NextRun::OnNotify,
        };
        Ok(WorkDone { items: released as u64, next })
    }
}
