//! The request for a download, and its result.

use std::path::PathBuf;
use std::time::Duration;

use pelago_wire::blocks::ExtentHash;

/// The source, the target and the limits of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPlan {
    /// The URL of the file: `http://HOST[:PORT]/PATH`.
    pub url: String,
    /// The path of the target. A file there is replaced once the new one is whole.
    pub target: PathBuf,
    /// The download waits for a file that is open for writing.
    pub wait: bool,
    /// The download fails if no byte of the file is received for this time.
    pub timeout: Duration,
}

/// A file that was downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The path of the file.
    pub path: PathBuf,
    /// The size of the file.
    pub bytes: u64,
    /// Bytes of the file that were received in this run; bytes that came twice count twice.
    pub received: u64,
    /// Bytes that an earlier run had received.
    pub resumed: u64,
    /// The root of the file, if each extent was checked against its hash.
    pub root: Option<ExtentHash>,
    /// The server has sent the same root.
    pub is_confirmed: bool,
    /// Numbers of extents that came twice, because they did not match their hash.
    pub refetched: Vec<u64>,
    /// The number of times that the download began again from nothing.
    pub restarts: u32,
}
