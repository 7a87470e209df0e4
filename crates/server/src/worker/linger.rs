//! Lets go of files that were closed, and that somebody could still write: through a descriptor
//! that is just being closed, or a mapping that outlives it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_wire::Error;

use super::{Next, Piece, Worker};
use crate::open::Opens;

/// When a file that was closed just now is asked for again: its last descriptor is on its way.
const SOON: Duration = Duration::from_millis(1);

/// The worker `linger`.
pub(crate) struct Linger {
    opens: Arc<Opens>,
    /// How often files are asked for that stay as they are.
    interval: Duration,
    /// When the next look is due; `None`: not before the bell rings.
    due: Option<Instant>,
}

impl Linger {
    /// A worker over the closed files of these.
    #[must_use]
    pub(crate) fn new(opens: Arc<Opens>, interval: Duration) -> Self {
        Self { opens, interval, due: Some(Instant::now()) }
    }
}

impl Worker for Linger {
    fn rung(&mut self) {
        let soon = Instant::now() + SOON;
        // Those who ring one after the other put nothing off.
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    fn work(&mut self) -> Result<Piece, Error> {
        let Some(due) = self.due else { return Ok(Piece { items: 0, next: Next::Rung }) };
        let now = Instant::now();
        if now < due {
            return Ok(Piece::nothing(due - now));
        }
        let items = self.opens.let_go_of_closed();
        self.due = (self.opens.lingering() > 0).then(|| Instant::now() + self.interval);
        let next = self.due.map_or(Next::Rung, |_| Next::After(self.interval));
        Ok(Piece { items: items? as u64, next })
    }
}
