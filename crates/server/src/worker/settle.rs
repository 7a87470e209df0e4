//! Makes the bytes of content files safe that were written and closed, and removes their marks.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::Error;

use super::{Next, Piece, Worker};
use crate::open::Opens;

/// How long bytes that nobody syncs may be unsafe after they were closed: one sync serves all.
const INTERVAL: Duration = Duration::from_secs(5);

/// The worker `settle`.
pub(crate) struct Settle {
    opens: Arc<Opens>,
}

impl Settle {
    /// A worker over the marks of these.
    #[must_use]
    pub(crate) fn new(opens: Arc<Opens>) -> Self {
        Self { opens }
    }
}

impl Worker for Settle {
    fn work(&mut self) -> Result<Piece, Error> {
        let items = self.opens.settle()? as u64;
        Ok(Piece { items, next: Next::After(INTERVAL) })
    }
}
