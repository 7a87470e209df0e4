//! What is agreed with the kernel before anything else.

use std::ops::{BitAnd, BitOr};

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version whose layouts are known.
pub const NEWEST_MINOR: u32 = 45;
/// The oldest minor version that is spoken: its FUSE_INIT knows how many pages a request may have.
pub const OLDEST_MINOR: u32 = 31;
/// The most bytes of one read or write: what the kernel allows without being told otherwise.
pub const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Bytes of the smallest page, by which the kernel counts those of a request.
const PAGE_BYTES: u32 = 4096;
/// Pages of a request where that is not agreed on (without `FUSE_MAX_PAGES`).
const DEFAULT_PAGES: u32 = 32;
/// Stacked file systems below a registered descriptor's: none.
const STACK_DEPTH: u32 = 1;

/// Abilities of the kernel, bit by bit (`FUSE_*` of `fuse_init_in`); bits from 32 on are `flags2`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

/// FUSE_INIT: what the kernel can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init {
    /// Major version of the protocol: 7.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// The most it reads ahead, in bytes.
    pub max_readahead: u32,
    /// What it is able to do: `flags` below, `flags2` above bit 32.
    pub capabilities: u64,
}

/// What a file system would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// These, as far as the kernel has them.
    pub capabilities: Capabilities,
    /// The most bytes of one read or write.
    pub max_write: u32,
    /// The most the kernel reads ahead, in bytes; it may offer less.
    pub max_readahead: u32,
    /// Requests sent ahead without a process waiting for each.
    pub max_background: u16,
    /// Descriptors may be registered, and lie on a file system that is itself not stacked.
    pub passthrough: bool,
}

/// What holds from then on. As an answer it is `fuse_init_out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// The protocol's minor version: the lower of both.
    pub minor: u32,
    /// What both have.
    pub capabilities: Capabilities,
    /// The most bytes of one read or write.
    pub max_write: u32,
    /// The most the kernel reads ahead, in bytes.
    pub max_readahead: u32,
    /// Requests sent ahead without a process waiting for each.
    pub max_background: u16,
    /// Whether descriptors may be registered.
    pub passthrough: bool,
}

/// The answer to a kernel of a major version above 7: it is told of 7, and asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OurMajor;

/// Why nothing can be agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An old kernel.
    #[error("this kernel speaks FUSE {major}.{minor}; 7.31 is needed, which came with Linux 5.4")]
    TooOld {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
}

impl Capabilities {
    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// These and `others`; for constants.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        self.with(others)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;

    fn bitand(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }
}

impl Agreement {
    /// Pages of the largest request, as `max_pages` says it.
    pub(crate) fn pages(&self) -> u16 {
        // At most 256 of them: `agree` caps `max_write`.
        u16::try_from(self.max_write.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX)
    }

    /// Background requests from which the kernel throttles its writers: three quarters.
    pub(crate) const fn congestion(&self) -> u16 {
        self.max_background - self.max_background / 4
    }

    /// As `max_stack_depth` says it.
    pub(crate) const fn stack_depth(&self) -> u32 {
        if self.passthrough { STACK_DEPTH } else { 0 }
    }
}

/// Decides what is agreed; pure.
///
/// # Errors
/// [`Refusal`]. (A kernel of a major version above 7 is answered with [`OurMajor`], and asks again;
/// that is the session's to do.)
pub fn agree(offer: &Init, wishes: &Wishes) -> Result<Agreement, Refusal> {
    let &Init { major, minor, .. } = offer;
    if (major, minor) < (MAJOR, OLDEST_MINOR) {
        return Err(Refusal::TooOld { major, minor });
    }
    let mut offered = Capabilities(offer.capabilities);
    if !offered.has(Capabilities::INIT_EXT) {
        offered = offered & Capabilities(u32::MAX.into());
    }
    let passthrough = wishes.passthrough && offered.has(Capabilities::PASSTHROUGH);
    let mut wanted = wishes.capabilities.without(Capabilities::PASSTHROUGH)
        | Capabilities::BIG_WRITES
        | Capabilities::MAX_PAGES
        | Capabilities::SETXATTR_EXT
        | Capabilities::INIT_EXT;
    if passthrough {
        wanted = wanted | Capabilities::PASSTHROUGH;
    }
    let capabilities = wanted & offered;
    let pages = if capabilities.has(Capabilities::MAX_PAGES) { u32::MAX } else { DEFAULT_PAGES };
    let most = MAX_WRITE_BYTES.min(pages.saturating_mul(PAGE_BYTES));
    Ok(Agreement {
        minor: minor.min(NEWEST_MINOR),
        capabilities,
        max_write: wishes.max_write.clamp(PAGE_BYTES, most),
        max_readahead: wishes.max_readahead.min(offer.max_readahead),
        max_background: wishes.max_background,
        passthrough,
    })
}
