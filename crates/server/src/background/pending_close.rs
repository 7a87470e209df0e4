//! Lets go of files that were closed, and that somebody could still write: through a descriptor
//! that is just being closed, or a mapping that outlives it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_wire::Error;

use super::{Next, Piece, Worker};
use pelago_data::OpenFiles;

/// When a file that was closed just now is asked for again: its last descriptor is on its way.
const SOON: Duration = Duration::from_millis(1);
/// Of so many parts of the time one at the most goes into looking, however many files there are.
const SHARE: u32 = 10;

/// The worker `pending_close`.
pub(crate) struct ClosePending {
    opens: Arc<OpenFiles>,
    /// How often files are asked for that stay as they are.
    interval: Duration,
    /// When the next look is due; `None`: not before the notify rings.
    due: Option<Instant>,
    /// Not before this, whoever rings.
    rests: Instant,
}

impl ClosePending {
    /// A worker over the closed files of these.
    #[must_use]
    pub(crate) fn new(opens: Arc<OpenFiles>, interval: Duration) -> Self {
        let now = Instant::now();
        Self { opens, interval, due: Some(now), rests: now }
    }
}

impl Worker for ClosePending {
    fn notified(&mut self) {
        let soon = (Instant::now() + SOON).max(self.rests);
        // Those who ring one after the other put nothing off.
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    fn work(&mut self) -> Result<Piece, Error> {
        let Some(due) = self.due else { return Ok(Piece { items: 0, next: Next::Notified }) };
        let now = Instant::now();
        if now < due {
            return Ok(Piece::nothing(due - now));
        }
        let items = self.opens.release_closed();
        let (end, took) = (Instant::now(), now.elapsed());
        self.rests = end + took * (SHARE - 1);
        let wait = self.interval.max(self.rests - end);
        self.due = (self.opens.pending_closes() > 0).then(|| end + wait);
        let next = self.due.map_or(Next::Notified, |_| Next::After(wait));
        Ok(Piece { items: items? as u64, next })
    }
}
