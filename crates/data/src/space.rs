//! Admission of new data, which ends before the disk is full, so that names can still be removed
//! and acknowledged bytes can still be committed.
//!
//! While less space than a floor is free, requests with new data fail with `NoSpace`
//! ([`Space::admit`]). Bytes for content files are also counted ([`Space::take`]), so that the
//! floor holds between two measurements of the disk. The blocks that the file system reserves for
//! root do not count as free.
//!
//! Other programs write to the same disk, so the floor cannot always hold. Then the journal has
//! preallocated blocks, and takes more blocks from the reserve (`store::table`). Until the reserve
//! is whole again the floor is higher by its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pelago_store::content::{self, ContentStore};
use pelago_store::report::{content_failed, reserve_failed};
use pelago_store::reserve::Reserve;
use pelago_wire::{Code, Error, VolumeStats, limits};

use crate::notify::WakeWorker;

/// The floor of a small disk is one part in this many.
const FLOOR_PART: u64 = 32;
/// New data of guests is refused while less than one part in this many of the disk is free.
const GUEST_FLOOR_PART: u64 = 20;

/// The space of the disk below a volume.
pub struct Space {
    content: Arc<ContentStore>,
    /// `None` in tests.
    reserve: Option<Arc<Reserve>>,
    /// True if new data is refused.
    short: AtomicBool,
    /// The bytes that content files may still take before the disk is measured again.
    left: AtomicU64,
    /// The bytes of the disk, when it was measured last; 0 before.
    total: AtomicU64,
    /// True if the reserve was whole at some time of this run.
    was_whole: AtomicBool,
    notify: WakeWorker,
}

impl Space {
    /// Returns the space that these content files and this reserve share. `notify` is called when
    /// the disk is full.
    #[must_use]
    pub fn new(
        content: Arc<ContentStore>,
        reserve: Option<Arc<Reserve>>,
        notify: WakeWorker,
    ) -> Self {
        let was_whole =
            AtomicBool::new(reserve.as_ref().is_some_and(|reserve| reserve.is_allocated()));
        let short = AtomicBool::new(false);
        let left = AtomicU64::new(0);
        let total = AtomicU64::new(0);
        Self { content, reserve, short, left, total, was_whole, notify }
    }

    /// Checks that a request with new data may be tried.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn admit(&self) -> Result<(), Error> {
        if self.is_short() { Err(Code::NoSpace.into()) } else { Ok(()) }
    }

    /// Takes space for up to `bytes` new bytes of a content file. Returns the number that was
    /// taken, at least one. Measures the disk when the counted space is used up.
    ///
    /// # Errors
    /// `NoSpace`; if the disk fails.
    pub(crate) fn take(&self, bytes: u64) -> Result<u64, Error> {
        self.admit()?;
        if self.count_down(bytes) == bytes {
            return Ok(bytes);
        }
        self.measure()?;
        self.admit()?;
        match self.count_down(bytes) {
            0 => {
                self.note_full();
                Err(Code::NoSpace.into())
            }
            taken => Ok(taken),
        }
    }

    /// Returns whether `bytes` new bytes fit now. Measures the disk if the counted space is too
    /// small.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let fits = || !self.is_short() && self.left.load(Ordering::Relaxed) >= bytes;
        fits() || (!self.is_short() && self.measure().is_ok() && fits())
    }

    /// Checks that a request of a guest with new data may be tried: guests leave room for the
    /// volume's own users. May measure the disk.
    ///
    /// # Errors
    /// `NoSpace`; if the disk fails.
    pub fn admit_guest(&self) -> Result<(), Error> {
        if self.total.load(Ordering::Relaxed) == 0 {
            self.measure()?;
        }
        match self.has_room(self.total.load(Ordering::Relaxed) / GUEST_FLOOR_PART) {
            true => Ok(()),
            false => Err(Code::NoSpace.into()),
        }
    }

    /// Takes up to `bytes` bytes from the counted space. Returns the number that was taken.
    fn count_down(&self, bytes: u64) -> u64 {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let set = Ordering::Relaxed;
        let fetch = Ordering::Relaxed;
        self.left.fetch_update(set, fetch, less).map_or(0, |left| left.min(bytes))
    }

    /// Records a failure for lack of space: new data is refused until there is room again. Does not
    /// block.
    pub fn note_full(&self) {
        self.short.store(true, Ordering::Relaxed);
        (self.notify)();
    }

    /// Checks that a file with `owned` bytes of blocks can reserve `bytes` bytes. Without this
    /// check a file system takes all that is left, from every program, before it gives up.
    ///
    /// # Errors
    /// `NoSpace`; if the disk fails.
    pub(crate) fn admit_reservation(&self, bytes: u64, owned: u64) -> Result<(), Error> {
        let stats = self.measure()?;
        let free = stats.available.saturating_mul(u64::from(stats.block_bytes));
        match bytes > free.saturating_add(owned) {
            true => Err(Code::NoSpace.into()),
            false => Ok(()),
        }
    }

    /// Measures the disk, and allocates the reserve again if there is room. Blocks on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn refresh(&self) -> Result<(), Error> {
        self.measure()?;
        // The journal has taken it, or there was no room for it when the server started.
        if !self.is_short() && !self.holds_reserve() {
            self.allocate_reserve()?;
        }
        Ok(())
    }

    /// Measures the disk, and decides by the free space whether new data is admitted. Returns the
    /// measurement, with `available` reduced by the floor.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn measure(&self) -> Result<VolumeStats, Error> {
        let mut stats = self.stats().map_err(|error| content_failed(&error))?;
        let block = u64::from(stats.block_bytes).max(1);
        let free = stats.available.saturating_mul(block);
        self.total.store(stats.blocks.saturating_mul(block), Ordering::Relaxed);
        let least = limits::FREE_FLOOR_BYTES.min(stats.blocks.saturating_mul(block) / FLOOR_PART);
        let is_borrowed = self.was_whole.load(Ordering::Relaxed) && !self.holds_reserve();
        let floor = least + if is_borrowed { limits::RESERVE_BYTES } else { 0 };
        let was_short = self.is_short();
        // Twice the least must be free before new data is admitted again, so that the state does
        // not flap.
        let short = free < if was_short { floor + least } else { floor };
        let left = if short { 0 } else { free - floor };
        self.left.store(left, Ordering::Relaxed);
        self.short.store(short, Ordering::Relaxed);
        if short != was_short {
            match short {
                true => tracing::warn!(free, floor, "the disk is nearly full: new data is refused"),
                false => tracing::warn!(free, floor, "there is room again: new data is admitted"),
            }
        }
        stats.available = left / block;
        Ok(stats)
    }

    fn allocate_reserve(&self) -> Result<(), Error> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if reserve.allocate().map_err(|error| reserve_failed(&error))? {
            self.was_whole.store(true, Ordering::Relaxed);
            tracing::info!("there is room again: the reserve was allocated");
        }
        Ok(())
    }

    /// Returns whether the whole reserve is allocated.
    #[must_use]
    pub fn holds_reserve(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.is_allocated())
    }

    /// Returns whether new data is refused.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Returns space and counts of the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stats(&self) -> Result<VolumeStats, content::Error> {
        self.content.statfs()
    }
}
