//! Makes the bytes of content files safe that were written and closed, and removes their marks.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::Error;

use super::{Next, Piece, Worker};
use pelago_data::OpenFiles;

/// How long bytes that nobody syncs may be unsafe after they were closed: one sync serves all.
const INTERVAL: Duration = Duration::from_secs(5);

/// The worker `writeback`.
pub(crate) struct Writeback {
    opens: Arc<OpenFiles>,
}

impl Writeback {
    /// A worker over the marks of these.
    #[must_use]
    pub(crate) fn new(opens: Arc<OpenFiles>) -> Self {
        Self { opens }
    }
}

impl Worker for Writeback {
    fn work(&mut self) -> Result<Piece, Error> {
        let items = self.opens.write_back()? as u64;
        Ok(Piece { items, next: Next::After(INTERVAL) })
    }
}
