//! Pages of the audit log.

/// A place in the audit log of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditPlace {
    /// The day in UTC, as the number that its digits make: 20261231.
    pub day: u32,
    /// Bytes from the start of that day's file.
    pub offset: u64,
}

impl AuditPlace {
    /// The start of the log.
    pub const START: Self = Self { day: 0, offset: 0 };
}

/// Lines of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPage {
    /// The lines, each with its end, at most [`crate::limits::AUDIT_PAGE_BYTES`].
    pub lines: Vec<u8>,
    /// The place from which the next page goes on; `None` behind the last line. A page without
    /// lines is not the last one if it has a place.
    pub next: Option<AuditPlace>,
}
