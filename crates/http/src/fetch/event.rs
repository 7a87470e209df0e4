//! What a download tells while it goes on.

use std::time::Duration;

/// Something that has happened in a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchEvent {
    /// Bytes begin to come.
    Began {
        /// Bytes that an earlier run, or an earlier connection, has left.
        have: u64,
        /// Bytes of the file, if they are known.
        total: Option<u64>,
        /// Each extent is checked against its hash.
        verified: bool,
    },
    /// So many bytes of the file are there.
    Gained {
        /// All of them.
        have: u64,
    },
    /// An extent does not match its hash, and is fetched again.
    Mismatch {
        /// The number of the extent.
        extent: u64,
        /// Where it begins.
        offset: u64,
    },
    /// The server cannot read an extent. Others go on.
    Unreadable {
        /// The number of the extent.
        extent: u64,
        /// Where it begins.
        offset: u64,
    },
    /// What was received is of no use, and the download begins from nothing.
    Restarted {
        /// Why.
        why: &'static str,
    },
    /// The server cannot send the file now, and is asked again.
    Waiting {
        /// What it says.
        why: String,
        /// After this time.
        after: Duration,
    },
    /// The server is asked again after this time.
    Retrying {
        /// What happened.
        why: String,
        /// The time.
        after: Duration,
    },
}
