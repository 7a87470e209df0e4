//! Negotiation with the kernel (FUSE_INIT), the first exchange of a session.

use std::ops::{BitAnd, BitOr};

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version whose layouts this crate knows.
pub const NEWEST_MINOR: u32 = 45;
/// The oldest supported minor version, since which FUSE_INIT carries the pages of a request.
pub const OLDEST_MINOR: u32 = 31;
/// Limit of the bytes of one read or write, which is the kernel's own default limit.
pub const MAX_WRITE_BYTES: u32 = 1 << 20;

/// Bytes of the smallest page; the limit of a request is expressed in such pages.
const PAGE_BYTES: u32 = 4096;
/// The least limit of a payload that a slot of a ring has (`FUSE_MIN_READ_BUFFER`).
const LEAST_PAYLOAD_BYTES: u32 = 8192;
/// Pages of a request without `FUSE_MAX_PAGES`.
const DEFAULT_PAGES: u32 = 32;
/// `max_stack_depth` that refuses descriptors of stacked file systems: on an overlay a lease is
/// granted although the file is mapped, and nothing else shows a mapping.
const STACK_DEPTH: u32 = 1;

/// A set of capabilities (`FUSE_*` of `fuse_init_in`); bits from 32 on are `flags2`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

/// The kernel's offer in FUSE_INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init {
    /// Major version of the protocol, 7 in all known kernels.
    pub major: u32,
    /// Newest minor version of the kernel.
    pub minor: u32,
    /// Limit of readahead in bytes.
    pub max_readahead: u32,
    /// Capabilities: `flags`, and `flags2` from bit 32 on.
    pub capabilities: u64,
}

/// Options that a file system wants from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitOptions {
    /// Wanted capabilities; the kernel may lack some.
    pub capabilities: Capabilities,
    /// Limit of the bytes of one read or write.
    pub max_write: u32,
    /// Limit of readahead in bytes; the kernel may offer less.
    pub max_readahead: u32,
    /// Limit of concurrent requests for which no process waits.
    pub max_background: u16,
    /// True if descriptors of an unstacked file system shall be registered with the kernel.
    pub passthrough: bool,
}

/// The result of the negotiation, sent as `fuse_init_out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol: the lower of both.
    pub minor: u32,
    /// Capabilities that are both wanted and offered.
    pub capabilities: Capabilities,
    /// Limit of the bytes of one read or write.
    pub max_write: u32,
    /// Limit of readahead in bytes.
    pub max_readahead: u32,
    /// Limit of concurrent requests for which no process waits.
    pub max_background: u16,
    /// True if the kernel accepts registered descriptors.
    pub passthrough: bool,
}

/// The reply to a kernel of a major version above 7, which then asks again with 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MajorReply;

/// The reason why the negotiation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The kernel is older than 7.31.
    #[error("this kernel speaks FUSE {major}.{minor}; 7.31 is needed, which came with Linux 5.4")]
    TooOld {
        /// Major version of the kernel.
        major: u32,
        /// Minor version of the kernel.
        minor: u32,
    },
}

impl Capabilities {
    /// Returns whether all of `others` are among these.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns these and `others`; `|` for constants.
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

impl Negotiated {
    /// Returns the pages of the largest request (`max_pages`).
    pub(crate) fn pages(&self) -> u16 {
        // At most 256: `negotiate` limits `max_write`.
        u16::try_from(self.max_write.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX)
    }

    /// Returns the limit of the bytes of a payload in a ring, as the kernel computes it.
    pub(crate) fn payload_bytes(&self) -> usize {
        let pages = u32::from(self.pages()) * PAGE_BYTES;
        pages.max(self.max_write).max(LEAST_PAYLOAD_BYTES) as usize
    }

    /// Returns from how many background requests on the kernel throttles: three quarters.
    pub(crate) const fn congestion(&self) -> u16 {
        self.max_background - self.max_background / 4
    }

    /// Returns `max_stack_depth`.
    pub(crate) const fn stack_depth(&self) -> u32 {
        if self.passthrough { STACK_DEPTH } else { 0 }
    }
}

/// Returns the capabilities and limits that `offer` and `init_options` have in common.
///
/// # Errors
/// [`InitError`] if the kernel is too old. The session handles a major version above 7 before it
/// calls this.
pub fn negotiate(offer: &Init, init_options: &InitOptions) -> Result<Negotiated, InitError> {
    let &Init { major, minor, .. } = offer;
    if (major, minor) < (MAJOR, OLDEST_MINOR) {
        return Err(InitError::TooOld { major, minor });
    }
    let mut offered = Capabilities(offer.capabilities);
    // Before 7.36 (Linux 5.17) FUSE_INIT has no `flags2`.
    if !offered.has(Capabilities::INIT_EXT) {
        offered = offered & Capabilities(u32::MAX.into());
    }
    let passthrough = init_options.passthrough && offered.has(Capabilities::PASSTHROUGH);
    // Linux grants passthrough only with a `max_stack_depth` above zero, and not beside
    // `WRITEBACK_CACHE`, which no file system here may want.
    let mut wanted = init_options.capabilities.without(Capabilities::PASSTHROUGH)
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
    Ok(Negotiated {
        minor: minor.min(NEWEST_MINOR),
        capabilities,
        max_write: init_options.max_write.clamp(PAGE_BYTES, most),
        max_readahead: init_options.max_readahead.min(offer.max_readahead),
        max_background: init_options.max_background,
        passthrough,
    })
}
