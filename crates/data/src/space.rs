//! What happens when the medium is full: new data is refused early enough that names can still go,
//! bytes that were taken can still be committed, and others do not take the last block.
//!
//! While less than a floor is free, requests that bring new data are refused with `NoSpace`
//! ([`Space::admit`]). Bytes for content files are counted besides ([`Space::take`]), so that the
//! floor holds between two looks at the medium. It counts what every user may have: of what the
//! medium keeps for root, data takes nothing.
//!
//! What the floor cannot keep, because others write to the same medium, is the journal's: it has
//! blocks ahead, and takes more of them out of the reserve (`store::table`). Until the reserve is
//! whole again the floor is higher by its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pelago_store::content::{self, ContentStore};
use pelago_store::report::reserve_failed;
use pelago_store::reserve::Reserve;
use pelago_wire::{Code, Error, VolumeStats, limits};

use crate::notify::Notifier;
use pelago_store::report::content_failed;

/// The floor of a small medium is this part of it.
const FLOOR_PART: u64 = 32;

/// The space of the medium below a volume.
pub struct Space {
    content: Arc<ContentStore>,
    /// `None`: a test has none.
    reserve: Option<Arc<Reserve>>,
    /// New data is refused.
    short: AtomicBool,
    /// Bytes that content files may still take before the medium is asked again.
    left: AtomicU64,
    /// The reserve was whole at some time of this life.
    was_whole: AtomicBool,
    notify: Notifier,
}

impl Space {
    /// The space that these content files, and this reserve, share. `notify` is rung when the
    /// medium is full.
    #[must_use]
    pub fn new(
        content: Arc<ContentStore>,
        reserve: Option<Arc<Reserve>>,
        notify: Notifier,
    ) -> Self {
        let was_whole =
            AtomicBool::new(reserve.as_ref().is_some_and(|reserve| reserve.is_allocated()));
        let (short, left) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { content, reserve, short, left, was_whole, notify }
    }

    /// Whether a request that brings new data may be tried.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn admit(&self) -> Result<(), Error> {
        if self.is_short() { Err(Code::NoSpace.into()) } else { Ok(()) }
    }

    /// How many of these new bytes a content file may take, one at the least. Now and then it asks
    /// the medium.
    ///
    /// # Errors
    /// `NoSpace`; those of the medium.
    pub(crate) fn take(&self, bytes: u64) -> Result<u64, Error> {
        self.admit()?;
        if self.count_down(bytes) == bytes {
            return Ok(bytes);
        }
        self.measure()?;
        self.admit()?;
        match self.count_down(bytes) {
            0 => {
                self.noticed_full();
                Err(Code::NoSpace.into())
            }
            taken => Ok(taken),
        }
    }

    /// Counts as many of these bytes as are left, and answers how many.
    fn count_down(&self, bytes: u64) -> u64 {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.left.fetch_update(set, fetch, less).map_or(0, |left| left.min(bytes))
    }

    /// Something failed for want of space: refuses new data until there is room again. Does not
    /// block.
    pub fn noticed_full(&self) {
        self.short.store(true, Ordering::Relaxed);
        (self.notify)();
    }

    /// Looks how much is free, and acts. Blocks on the medium.
    ///
    /// # Errors
    /// Where the medium fails.
    pub fn look(&self) -> Result<(), Error> {
        self.measure()?;
        // Borrowed to the journal, or there was no room for it when the server started.
        if !self.is_short() && !self.holds_reserve() {
            self.take_back()?;
        }
        Ok(())
    }

    /// Measures the medium: what is free decides whether new data is taken. Answers what was
    /// measured; of that, programs may have what is above the floor.
    ///
    /// # Errors
    /// Where the medium fails.
    pub fn measure(&self) -> Result<VolumeStats, Error> {
        let mut stats = self.stats().map_err(|error| content_failed(&error))?;
        let block = u64::from(stats.block_bytes).max(1);
        let free = stats.available.saturating_mul(block);
        let least = limits::FREE_FLOOR_BYTES.min(stats.blocks.saturating_mul(block) / FLOOR_PART);
        let lent = self.was_whole.load(Ordering::Relaxed) && !self.holds_reserve();
        let floor = least + if lent { limits::RESERVE_BYTES } else { 0 };
        let was_short = self.is_short();
        // Twice the least before new data is taken again, so that it does not flutter.
        let short = free < if was_short { floor + least } else { floor };
        let left = if short { 0 } else { free - floor };
        self.left.store(left, Ordering::Relaxed);
        self.short.store(short, Ordering::Relaxed);
        if short != was_short {
            let now = if short { "refused" } else { "taken again" };
            tracing::warn!(free, floor, "new data is {now}");
        }
        stats.available = left / block;
        Ok(stats)
    }

    fn take_back(&self) -> Result<(), Error> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if reserve.allocate().map_err(|error| reserve_failed(&error))? {
            self.was_whole.store(true, Ordering::Relaxed);
            tracing::info!("there is room again: the reserve was taken back");
        }
        Ok(())
    }

    /// Whether the whole reserve is held.
    #[must_use]
    pub fn holds_reserve(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.is_allocated())
    }

    /// Whether new data is refused.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Space and counts of the medium.
    ///
    /// # Errors
    /// Where the medium fails.
    pub fn stats(&self) -> Result<VolumeStats, content::Error> {
        self.content.statfs()
    }
}
