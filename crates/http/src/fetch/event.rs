//! Events of a download, which its observer receives.

use std::time::Duration;

/// An event of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchEvent {
    /// The body of a response begins.
    Began {
        /// Bytes that an earlier run, or an earlier connection, has received.
        have: u64,
        /// Bytes of the file, if they are known.
        total: Option<u64>,
        /// Each extent is checked against its hash.
        verified: bool,
    },
    /// More bytes of the file were received.
    Gained {
        /// Bytes of the file that are there now.
        have: u64,
    },
    /// An extent does not match its hash, and is fetched again.
    Mismatch {
        /// The number of the extent.
        extent: u64,
        /// The offset of the extent.
        offset: u64,
    },
    /// The server cannot read an extent. Others go on.
    Unreadable {
        /// The number of the extent.
        extent: u64,
        /// The offset of the extent.
        offset: u64,
    },
    /// The received bytes are of no use, and the download begins from nothing.
    Restarted {
        /// The reason.
        why: &'static str,
    },
    /// The server cannot send the file now; the request is repeated.
    Waiting {
        /// The text of the response.
        why: String,
        /// The time until the next request.
        after: Duration,
    },
    /// A request has failed, and is repeated after a pause.
    Retrying {
        /// The failure.
        why: String,
        /// The pause.
        after: Duration,
    },
}
