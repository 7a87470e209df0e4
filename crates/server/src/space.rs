//! What happens when the medium is full: new data is refused early enough that names can still go,
//! bytes that were taken can still be committed, and the reserve is given up where even that fails.
//!
//! While less than a floor is free, requests that bring new data are refused with `NoSpace`
//! ([`Space::admit`]). Where a write fails for want of space all the same, the reserve file is
//! given up ([`Space::noticed_full`]). What it frees is no room for new data: until it is taken
//! back the floor is higher by its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pelago_store::content::{self, Content};
use pelago_store::reserve::Reserve;
use pelago_wire::{Code, Error, VolumeStats, limits};

use crate::worker::{Bell, content_failed};

/// Free bytes below which new data is refused; on a small medium a part of it.
pub(crate) const FLOOR_BYTES: u64 = 16 << 20;
/// That part.
const FLOOR_PART: u64 = 32;

/// The space of the medium below a volume.
pub(crate) struct Space {
    content: Arc<Content>,
    /// `None`: a test has none.
    reserve: Option<Reserve>,
    /// New data is refused.
    short: AtomicBool,
    /// Somebody met a full medium.
    full: AtomicBool,
    /// The reserve was given up and not taken back yet.
    given_up: AtomicBool,
    bell: Arc<Bell>,
}

impl Space {
    /// The space that these content files, and this reserve, share. `bell` is rung when the medium
    /// is full.
    #[must_use]
    pub(crate) fn new(content: Arc<Content>, reserve: Option<Reserve>, bell: Arc<Bell>) -> Self {
        let [short, full, given_up] = [false; 3].map(AtomicBool::new);
        Self { content, reserve, short, full, given_up, bell }
    }

    /// Whether a request that brings new data may be tried.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn admit(&self) -> Result<(), Error> {
        if self.short.load(Ordering::Relaxed) { Err(Code::NoSpace.into()) } else { Ok(()) }
    }

    /// Something failed for want of space: gives up the reserve, and refuses new data until there
    /// is room again. Does not block.
    pub(crate) fn noticed_full(&self) {
        self.full.store(true, Ordering::Relaxed);
        self.short.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Looks how much is free, and acts. Blocks on the medium.
    ///
    /// # Errors
    /// Where the medium fails.
    pub(crate) fn look(&self) -> Result<(), Error> {
        let was_full = self.full.swap(false, Ordering::Relaxed);
        let mut stats = self.stats().map_err(|error| content_failed(&error))?;
        let block = u64::from(stats.block_bytes);
        // With more than that free, it was somebody's limit that was met.
        if was_full && stats.available.saturating_mul(block) < limits::RESERVE_BYTES {
            self.give_up()?;
            stats = self.stats().map_err(|error| content_failed(&error))?;
        }
        let free = stats.available.saturating_mul(block);
        let least = FLOOR_BYTES.min(stats.blocks.saturating_mul(block) / FLOOR_PART);
        let given_up = self.given_up.load(Ordering::Relaxed);
        let floor = least + if given_up { limits::RESERVE_BYTES } else { 0 };
        let was_short = self.short.load(Ordering::Relaxed);
        // Twice the least before new data is taken again, so that it does not flutter.
        let short = free < if was_short { floor + least } else { floor };
        self.short.store(short, Ordering::Relaxed);
        if short != was_short {
            let now = if short { "refused" } else { "taken again" };
            tracing::warn!(free, floor, "new data is {now}");
        }
        // Given up, or there was no room for it when the server started.
        if !short && !self.holds_reserve() {
            self.take_back()?;
        }
        Ok(())
    }

    fn give_up(&self) -> Result<(), Error> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if reserve.give_up().map_err(|error| reserve_failed(&error))? {
            self.given_up.store(true, Ordering::Relaxed);
            tracing::warn!("the medium is full: the reserve was given up");
        }
        Ok(())
    }

    fn take_back(&self) -> Result<(), Error> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if reserve.restore().map_err(|error| reserve_failed(&error))? {
            self.given_up.store(false, Ordering::Relaxed);
            tracing::info!("there is room again: the reserve was taken back");
        }
        Ok(())
    }

    /// Whether the reserve is held.
    #[must_use]
    pub(crate) fn holds_reserve(&self) -> bool {
        self.reserve.as_ref().is_some_and(Reserve::is_held)
    }

    /// Whether new data is refused.
    #[must_use]
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Space and counts of the medium.
    ///
    /// # Errors
    /// Where the medium fails.
    pub(crate) fn stats(&self) -> Result<VolumeStats, content::Error> {
        self.content.statfs()
    }
}

fn reserve_failed(error: &pelago_store::reserve::Error) -> Error {
    let source = &error.source;
    tracing::error!(%error, %source, "the reserve failed");
    Code::Io.into()
}
