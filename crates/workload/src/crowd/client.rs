//! One client: its connection, and how far it is.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use pelago_wire::blocks::ExtentHash;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with};

use super::content::Content;
use super::failure::DownloadFailure;
use super::outcome::TimedDownload;
use super::pace::Pace;
use super::{CrowdPlan, DownloadForm, response};

/// Most bytes that one client takes before the others have their turn.
const TURN_BYTES: usize = 4 << 20;

/// A client of a crowd.
#[derive(Debug)]
pub(super) struct Client {
    begins: Duration,
    rate: Option<f64>,
    /// The index of its path.
    path: usize,
    is_sample: bool,
    pace: Pace,
    state: State,
    /// Bytes of the file that came.
    got: u64,
}

#[derive(Debug)]
enum State {
    Waiting,
    /// The request is not sent yet.
    Asking(TcpStream),
    /// The head is not complete.
    Heading(TcpStream, Vec<u8>),
    Taking(TcpStream, Content),
    Ended(Duration, Result<Option<ExtentHash>, DownloadFailure>),
}

impl Client {
    pub(super) const fn new(
        begins: Duration,
        rate: Option<f64>,
        path: usize,
        is_sample: bool,
    ) -> Self {
        let pace = Pace::new(rate, begins);
        Self { begins, rate, path, is_sample, pace, state: State::Waiting, got: 0 }
    }

    pub(super) const fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended(..))
    }

    /// Makes the progress that is possible without waiting.
    pub(super) fn step(
        &mut self,
        plan: &CrowdPlan,
        began: Instant,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let now = began.elapsed();
        if self.has_ended() || now < self.begins {
            return Ok(());
        }
        let state = std::mem::replace(&mut self.state, State::Waiting);
        self.state = match self.advance(state, plan, now, buffer) {
            Ok(state) => state,
            Err(DownloadFailure::Connection(error)) if is_ours(&error) => return Err(error),
            Err(failure) => State::Ended(began.elapsed(), Err(failure)),
        };
        Ok(())
    }

    /// Returns the result of the download. A client that has not ended is late.
    pub(super) fn finish(self, began: Instant) -> TimedDownload {
        let (ended, result) = match self.state {
            State::Ended(ended, result) => (ended, result),
            _ => (began.elapsed(), Err(DownloadFailure::Late)),
        };
        let Self { begins, rate, path, got: bytes, .. } = self;
        TimedDownload { begins, rate, path, bytes, took: ended.saturating_sub(begins), result }
    }

    fn advance(
        &mut self,
        state: State,
        plan: &CrowdPlan,
        now: Duration,
        buffer: &mut [u8],
    ) -> Result<State, DownloadFailure> {
        match state {
            State::Waiting => {
                self.pace = Pace::new(self.rate, now);
                Ok(State::Asking(open(plan, self.rate)?))
            }
            State::Asking(mut stream) => {
                let request = response::request(plan, self.path);
                match stream.write_all(request.as_bytes()) {
                    Ok(()) => Ok(State::Heading(stream, Vec::new())),
                    Err(error) if is_early(&error) => Ok(State::Asking(stream)),
                    Err(error) => Err(error.into()),
                }
            }
            State::Heading(mut stream, mut head) => {
                match stream.read(&mut buffer[..1024]) {
                    Ok(0) => return Err(DownloadFailure::Head),
                    Ok(count) => head.extend_from_slice(&buffer[..count]),
                    Err(error) if is_early(&error) => return Ok(State::Heading(stream, head)),
                    Err(error) => return Err(error.into()),
                }
                let Some(found) = response::parse(&head)? else {
                    return Ok(State::Heading(stream, head));
                };
                if found.form != plan.form {
                    return Err(DownloadFailure::Form);
                }
                let mut content = match found.form {
                    DownloadForm::Plain => Content::plain(found.length, self.is_sample),
                    DownloadForm::Blocks => Content::blocks(self.is_sample),
                };
                content.take(&head[found.bytes..])?;
                Ok(State::Taking(stream, content))
            }
            State::Taking(stream, content) => self.take(stream, content, now, buffer),
            State::Ended(..) => Ok(state),
        }
    }

    /// Reads the bytes that the rate allows and that have arrived.
    fn take(
        &mut self,
        mut stream: TcpStream,
        mut content: Content,
        now: Duration,
        buffer: &mut [u8],
    ) -> Result<State, DownloadFailure> {
        let mut left = self.pace.allowance(now).min(TURN_BYTES);
        while left > 0 {
            let part = left.min(buffer.len());
            let part = &mut buffer[..part];
            let count = if content.is_counted_only() {
                // The kernel drops these bytes without a copy.
                recv(stream.as_fd(), &mut *part, RecvFlags::TRUNC)
                    .map(|(_, count)| count)
                    .map_err(io::Error::from)
            } else {
                stream.read(part)
            };
            match count {
                Ok(0) => {
                    self.got = content.got();
                    return Ok(State::Ended(now, Ok(content.finish()?)));
                }
                Ok(count) => {
                    if content.is_counted_only() {
                        content.count(count as u64);
                    } else {
                        content.take(&part[..count])?;
                    }
                    self.pace.take(count);
                    self.got = content.got();
                    left -= count.min(left);
                }
                Err(error) if is_early(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(State::Taking(stream, content))
    }
}

/// Begins a connection that no call waits for.
fn open(plan: &CrowdPlan, rate: Option<f64>) -> io::Result<TcpStream> {
    let family = match plan.server.is_ipv4() {
        true => AddressFamily::INET,
        false => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = Pace::receive_buffer(rate) {
        set_socket_recv_buffer_size(&socket, bytes)?;
    }
    match connect(&socket, &plan.server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a call is to be made again later.
fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, NotConnected, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | NotConnected)
}

/// Returns whether this process has too few descriptors.
fn is_ours(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
