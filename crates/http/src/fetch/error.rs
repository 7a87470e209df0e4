//! Why a download ends without its file.

use std::io;
use std::path::{Path, PathBuf};

use hyper::StatusCode;
use pelago_folder::FolderError;
use pelago_wire::blocks::BlocksError;

use crate::fetch::lie::Lie;
use crate::fetch::url::UrlError;

/// Why a download has ended without its file. What was received is kept unless the error says so:
/// the same call goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be asked.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A directory has the name of the target.
    #[error("{} is a directory and is not replaced", .path.display())]
    Directory {
        /// The path of the target.
        path: PathBuf,
    },
    /// Something else that is no file has the name of the target.
    #[error("{} is {what} and is not replaced", .path.display())]
    Target {
        /// The path of the target.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// Another process downloads to the same target.
    #[error("another download to {} is under way", .path.display())]
    InUse {
        /// The path of the target.
        path: PathBuf,
    },
    /// What has the name of a file of the download is not of this user alone.
    #[error("{} is {what}, and is not used", .path.display())]
    Beside {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The disk of the target is full.
    #[error("there is no room for {}", .path.display())]
    Full {
        /// The file that was written.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system has refused something else.
    #[error("cannot use {}", .path.display())]
    Disk {
        /// The file that was used.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// No thread or socket can be had.
    #[error("cannot begin a download")]
    System(#[source] io::Error),
    /// The server has refused the request.
    #[error("the server answers {status}{text}")]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// What it says besides, behind a colon; or nothing.
        text: String,
    },
    /// The file has another URL.
    #[error("the server says that it is at {location}")]
    Moved {
        /// That URL, which may be relative.
        location: String,
    },
    /// The server cannot send the file now: it is open for writing, or there are too many
    /// downloads.
    #[error("the server cannot send the file now: {why}")]
    Busy {
        /// What the server says.
        why: String,
    },
    /// The server did not answer for as long as it may.
    #[error("the server cannot be reached: {why}")]
    Unreachable {
        /// What happened last.
        why: String,
    },
    /// The file has changed too often while it was downloaded.
    #[error("the file was changed {times} times while it was downloaded")]
    Changed {
        /// How often the download has begun again.
        times: u32,
    },
    /// Each connection has ended before the file was whole, and the server does not go on in the
    /// middle of a file.
    #[error(
        "the server's answer was cut {times} times, and it can send the file only from its begin"
    )]
    Cut {
        /// How often.
        times: u32,
    },
    /// An extent does not match its hash, a second time.
    #[error("extent {extent} (offset {offset}) does not match its hash, a second time")]
    Mismatch {
        /// The number of the extent.
        extent: u64,
        /// Where it begins.
        offset: u64,
    },
    /// Too many extents do not match their hashes.
    #[error("{count} extents do not match their hashes")]
    Mismatches {
        /// How many.
        count: usize,
    },
    /// Each extent matches its hash, and the hashes do not match the root. Nothing is kept.
    #[error("the hashes of the extents do not match the root of the file")]
    Root,
    /// The server cannot read an extent. The others are kept.
    #[error("the server cannot read extent {extent} (offset {offset}), of {count} such: {why}")]
    Unreadable {
        /// The number of the first such extent.
        extent: u64,
        /// Where it begins.
        offset: u64,
        /// How many extents there are that it cannot read.
        count: usize,
        /// Why.
        why: &'static str,
    },
    /// The server sends what the protocol does not allow.
    #[error("the server breaks the protocol")]
    Protocol(#[from] BlocksError),
    /// The server sends what makes no sense.
    #[error("the server breaks the protocol")]
    Lie(#[from] Lie),
}

impl From<FolderError> for FetchError {
    fn from(error: FolderError) -> Self {
        let path = error.path().to_owned();
        let what = error.found();
        match error {
            FolderError::Io { source, .. } => Self::of_disk(&path, source),
            _ => Self::Beside { path, what: what.unwrap_or("no file of this user") },
        }
    }
}

impl FetchError {
    /// Returns the error of a file.
    pub(super) fn of_disk(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path, source }
            }
            _ => Self::Disk { path, source },
        }
    }
}
