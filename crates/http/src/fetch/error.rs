//! The errors of a download.

use std::io;
use std::path::{Path, PathBuf};

use hyper::StatusCode;
use pelago_folder::FolderError;
use pelago_wire::blocks::BlocksError;

use crate::fetch::url::UrlError;
use crate::fetch::violation::ServerViolation;

/// An error that has ended a download. The received bytes are kept, unless the error says
/// otherwise, and the same call goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A directory has the name of the target.
    #[error("{} is a directory and is not replaced", .path.display())]
    Directory {
        /// The path of the target.
        path: PathBuf,
    },
    /// Something that is neither a file nor a directory has the name of the target.
    #[error("{} is {what} and is not replaced", .path.display())]
    Target {
        /// The path of the target.
        path: PathBuf,
        /// The kind of thing that has this name.
        what: &'static str,
    },
    /// Another process downloads to the same target.
    #[error("another download to {} is under way", .path.display())]
    InUse {
        /// The path of the target.
        path: PathBuf,
    },
    /// A file of the download has a name under which there is something that other users may use.
    #[error("{} is {what}, and is not used", .path.display())]
    Beside {
        /// The file.
        path: PathBuf,
        /// The kind of thing that it is.
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
    /// The disk has failed in another way.
    #[error("cannot use {}", .path.display())]
    Disk {
        /// The file that was used.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system gives this process no runtime for sockets.
    #[error("cannot begin a download")]
    System(#[source] io::Error),
    /// The server has refused the request.
    #[error("the server answers {status}{text}")]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// A colon and the text of the response; empty if it has none.
        text: String,
    },
    /// The file has another URL.
    #[error("the server says that it is at {location}")]
    Moved {
        /// The other URL, which may be relative.
        location: String,
    },
    /// The server cannot send the file now: it is open for writing, or there are too many
    /// downloads.
    #[error("the server cannot send the file now: {why}")]
    Busy {
        /// The text of the response.
        why: String,
    },
    /// No byte was received for the plan's timeout.
    #[error("the server cannot be reached: {why}")]
    Unreachable {
        /// The last failure.
        why: String,
    },
    /// The file has changed too often while it was downloaded.
    #[error("the file was changed {times} times while it was downloaded")]
    Changed {
        /// The number of versions that the download has begun.
        times: u32,
    },
    /// Each connection has ended before the file was whole, and the server does not support ranges.
    #[error(
        "the server's answer was cut {times} times, and it can send the file only from its begin"
    )]
    Cut {
        /// The number of connections.
        times: u32,
    },
    /// An extent does not match its hash, a second time.
    #[error("extent {extent} (offset {offset}) does not match its hash, a second time")]
    Mismatch {
        /// The number of the extent.
        extent: u64,
        /// The offset of the extent.
        offset: u64,
    },
    /// Too many extents do not match their hashes.
    #[error("{count} extents do not match their hashes")]
    Mismatches {
        /// The number of extents.
        count: usize,
    },
    /// Each extent matches its hash, but the hashes do not match the root. Nothing is kept.
    #[error("the hashes of the extents do not match the root of the file")]
    Root,
    /// The server cannot read an extent. The others are kept.
    #[error("the server cannot read extent {extent} (offset {offset}), of {count} such: {why}")]
    Unreadable {
        /// The number of the first such extent.
        extent: u64,
        /// The offset of the extent.
        offset: u64,
        /// The number of extents that it cannot read.
        count: usize,
        /// The reason for the first one.
        why: &'static str,
    },
    /// The server sends a malformed message.
    #[error("the server breaks the protocol")]
    Protocol(#[from] BlocksError),
    /// The server sends a well-formed message that the protocol does not allow at that point.
    #[error("the server breaks the protocol")]
    Violation(#[from] ServerViolation),
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
