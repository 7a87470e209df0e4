//! The side that asks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use pelago_store::folder::{Folder, FolderError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::Value;

use super::{LINE_BYTES, Request, short_path};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody listens.
    #[error("the volume is not up")]
    NotUp,
    /// It listens to its own user and root only.
    #[error("the volume belongs to somebody else")]
    Denied,
    /// Nothing was said in time.
    #[error("its process does not answer")]
    Silent,
    /// What was said makes no sense here.
    #[error("its process speaks another language: is it another version of pelago?")]
    Garbled,
    /// It did not understand.
    #[error("its process refused to answer: {says}")]
    Refused {
        /// Its own words.
        says: String,
    },
    /// The connection failed.
    #[error("the connection to its process failed")]
    Io(#[source] io::Error),
}

/// A connection on which a question was answered.
#[derive(Debug)]
pub(crate) struct Conversation {
    reader: BufReader<UnixStream>,
    process: Option<OwnedFd>,
}

/// Asks the process that serves the volume in `dir`, and waits for the answer until `patience` has
/// passed.
pub(crate) fn ask(
    dir: &Path,
    request: Request,
    patience: Duration,
) -> Result<(Value, Conversation), AskError> {
    let mut stream = connect(dir).map_err(connect_error)?;
    let timeouts = stream.set_read_timeout(Some(patience));
    timeouts.and_then(|()| stream.set_write_timeout(Some(patience))).map_err(AskError::Io)?;
    // While it is surely there, so that no other process has its number.
    let process = process_of(&stream);
    let mut line = request.to_json().to_string();
    line.push('\n');
    // Who may not ask is told so before the question is read, and the connection may be gone.
    let sent = stream.write_all(line.as_bytes());
    let mut reader = BufReader::new(stream);
    let mut answer = Vec::new();
    let read = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut answer);
    match read {
        // It ended while it was asked.
        Ok(0) => return Err(sent.err().map_or(AskError::NotUp, read_error)),
        Ok(_) => {}
        Err(error) => return Err(read_error(error)),
    }
    let answer: Value = serde_json::from_slice(&answer).map_err(|_| AskError::Garbled)?;
    match answer.get("error").and_then(Value::as_str) {
        None => Ok((answer, Conversation { reader, process })),
        Some("denied") => Err(AskError::Denied),
        Some(says) => Err(AskError::Refused { says: says.to_owned() }),
    }
}

/// Connects to the socket in `dir`, and to nothing that a symbolic link in its place leads to.
fn connect(dir: &Path) -> io::Result<UnixStream> {
    let folder = Folder::open(dir).map_err(|error| match error {
        FolderError::Io { source, .. } => source,
        other => io::Error::other(other),
    })?;
    let path = short_path(&folder);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(CWD, &path, flags, Mode::empty())?;
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))
}

impl Conversation {
    /// Waits until the other process has ended; answers `false` where it has not when `patience`
    /// has passed.
    pub(crate) fn wait_for_end(mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.wait_for_silence(until)
            && self.process.is_none_or(|process| has_ended(&process, until))
    }

    /// Waits until the other end of the connection is closed. That is when its process lets go of
    /// what it has open, though not yet of everything.
    fn wait_for_silence(&mut self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let stream = self.reader.get_ref();
            if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                return false;
            }
            match self.reader.read(&mut [0]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // Whatever broke the connection, nobody holds its other end.
                Err(_) => return true,
            }
        }
    }
}

/// Waits until a process has ended: not one of its files is open then.
fn has_ended(process: &OwnedFd, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) => return false,
            // Where it cannot be waited for, what is known has to do.
            Ok(_) | Err(_) => return true,
        }
    }
}

/// What tells when the process at the other end has ended, where this kernel and its names for
/// processes allow it.
fn process_of(stream: &UnixStream) -> Option<OwnedFd> {
    let peer = socket_peercred(stream).ok()?;
    pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}

fn connect_error(error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotUp,
        io::ErrorKind::PermissionDenied => AskError::Denied,
        io::ErrorKind::WouldBlock => AskError::Silent,
        _ => AskError::Io(error),
    }
}

fn read_error(error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silent,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => AskError::NotUp,
        _ => AskError::Io(error),
    }
}
