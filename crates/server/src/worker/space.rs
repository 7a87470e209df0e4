//! Watches the space of the medium.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::Error;

use super::{Next, Piece, Worker};
use crate::space::Space;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The worker `space`.
pub(crate) struct KeepSpace {
    space: Arc<Space>,
}

impl KeepSpace {
    /// A worker that watches this space.
    #[must_use]
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self { space }
    }
}

impl Worker for KeepSpace {
    fn work(&mut self) -> Result<Piece, Error> {
        self.space.look()?;
        Ok(Piece { items: 0, next: Next::After(INTERVAL) })
    }
}
