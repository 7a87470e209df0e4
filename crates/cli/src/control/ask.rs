//! The client end of the control socket.

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

use super::{ControlReply, LINE_BYTES, Request, short_path};
use crate::status_report::StatusReport;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No process listens.
    #[error("the volume is not up")]
    NotUp,
    /// The process answers its own user and root only.
    #[error("the volume belongs to another user")]
    Denied,
    /// The deadline passed without an answer.
    #[error("its process does not answer")]
    Silent,
    /// The answer is malformed.
    #[error("its process gave an answer that this version cannot read: is it another pelago?")]
    Garbled,
    /// The process answered with an error.
    #[error("its process refused the request: {says}")]
    Refused {
        /// The error as the process put it.
        says: String,
    },
    /// The connection failed.
    #[error("the connection to its process failed")]
    Io(#[source] io::Error),
}

impl AskError {
    /// Returns whether a process has answered, although not with the requested value.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::Denied | Self::Garbled | Self::Refused { .. })
    }
}

/// A connection on which a request was answered.
#[derive(Debug)]
pub(crate) struct Conversation {
    reader: BufReader<UnixStream>,
    process: Option<OwnedFd>,
}

/// Returns the process that listens in `dir`; `None` if it is in another PID namespace. The process
/// may hang.
///
/// # Errors
/// Returns an error if no process listens.
pub(crate) fn server_pid(dir: &Path) -> io::Result<Option<u32>> {
    let peer = socket_peercred(connect(dir)?);
    let pid = peer.ok().map(|peer| peer.pid.as_raw_pid());
    Ok(pid.and_then(|pid| u32::try_from(pid).ok()))
}

/// Asks the process that serves the volume in `dir` for the volume's state.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_status(dir: &Path, timeout: Duration) -> Result<StatusReport, AskError> {
    match ask(dir, Request::Status, timeout)? {
        (ControlReply::Status(report), _) => Ok(StatusReport::Up(report)),
        (ControlReply::Far(report), _) => Ok(StatusReport::Far(report)),
        (ControlReply::Mirrors(report), _) => Ok(StatusReport::Mirrors(report)),
        (ControlReply::Relay(report), _) => Ok(StatusReport::Relay(report)),
        (ControlReply::Standby(report), _) => Ok(StatusReport::Standby(report)),
        _ => Err(AskError::Garbled),
    }
}

/// Sends a request to the process that serves the volume in `dir`, and waits for the answer until
/// `timeout` has passed. The answer is neither [`ControlReply::Denied`] nor
/// [`ControlReply::Failed`]: those are errors.
///
/// # Errors
/// Each variant of [`AskError`].
pub(crate) fn ask(
    dir: &Path,
    request: Request,
    timeout: Duration,
) -> Result<(ControlReply, Conversation), AskError> {
    let mut stream = connect(dir).map_err(connect_error)?;
    let timeouts = stream.set_read_timeout(Some(timeout));
    timeouts.and_then(|()| stream.set_write_timeout(Some(timeout))).map_err(AskError::Io)?;
    // Before the answer: the process is alive now, so no other process has its id.
    let process = process_of(&stream);
    let mut line = request.to_json().to_string();
    line.push('\n');
    // The server sends a denial before it reads the request, so a failed write may have an answer.
    let sent = stream.write_all(line.as_bytes());
    let mut reader = BufReader::new(stream);
    let mut answer = Vec::new();
    let read = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut answer);
    match read {
        // The process ended before it answered.
        Ok(0) => return Err(sent.err().map_or(AskError::NotUp, read_error)),
        Ok(_) => {}
        Err(error) => return Err(read_error(error)),
    }
    match ControlReply::parse(&answer) {
        None => Err(AskError::Garbled),
        Some(ControlReply::Denied) => Err(AskError::Denied),
        Some(ControlReply::Failed(says)) => Err(AskError::Refused { says }),
        Some(answer) => Ok((answer, Conversation { reader, process })),
    }
}

/// Connects to the socket in `dir`. A symbolic link in its place is not followed.
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
    /// Waits until the other process has ended; returns `false` if `timeout` passes first.
    pub(crate) fn wait_for_end(mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        self.wait_for_close(deadline)
            && self.process.is_none_or(|process| has_ended(&process, deadline))
    }

    /// Waits until the other end of the connection is closed. The process is closing its files
    /// then, but may not have closed all of them yet.
    fn wait_for_close(&mut self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let stream = self.reader.get_ref();
            if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
                return false;
            }
            match self.reader.read(&mut [0]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // A broken connection has no other end.
                Err(_) => return true,
            }
        }
    }
}

/// Waits until a process has ended, with all its files closed.
fn has_ended(process: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(0) => return false,
            // If the descriptor cannot be polled, the closed connection must suffice.
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Returns a pidfd of the process at the other end, which becomes readable when the process ends;
/// `None` if the process is in another PID namespace, or the kernel has no pidfds.
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
