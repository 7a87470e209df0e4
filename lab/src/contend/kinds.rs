//! The kinds of operations whose latencies are reported.

use crate::kit::latency::Kind;

pub(super) const CREATE: Kind = "create";
pub(super) const WRITE: Kind = "write+close";
pub(super) const RENAME: Kind = "rename";
pub(super) const READ: Kind = "open+read";
pub(super) const UNLINK: Kind = "unlink";
pub(super) const APPEND: Kind = "append";
pub(super) const TAIL: Kind = "read of log";
pub(super) const STAT: Kind = "stat";
pub(super) const CHANGE: Kind = "own change";
/// A write and a sync of the disk below, beside the volume.
pub(super) const DISK: Kind = "disk below";

/// All kinds, in the order of the report.
pub(super) const ALL: [Kind; 10] =
    [CREATE, WRITE, RENAME, READ, UNLINK, APPEND, TAIL, STAT, CHANGE, DISK];
