//! What is to be downloaded, and what was.

use std::path::PathBuf;
use std::time::Duration;

use pelago_wire::blocks::ExtentHash;

/// What to download, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPlan {
    /// Where the file is: `http://HOST[:PORT]/PATH`.
    pub url: String,
    /// Where it goes. A file there is replaced once the new one is whole.
    pub target: PathBuf,
    /// Waits for a file that is open for writing.
    pub wait: bool,
    /// Gives up if no byte of the file has come for so long.
    pub timeout: Duration,
}

/// A file that was downloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Bytes of the file that came in this run, those that came twice included.
    pub received: u64,
    /// Bytes that an earlier run had left.
    pub resumed: u64,
    /// The root of the file, if each extent was checked against its hash.
    pub root: Option<ExtentHash>,
    /// The server had named the same root.
    pub is_confirmed: bool,
    /// Numbers of extents that came twice, because they did not match their hash.
    pub refetched: Vec<u64>,
    /// How often the download began again from nothing.
    pub restarts: u32,
}
