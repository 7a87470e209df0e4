//! The waker of a thread that waits for a socket, and the wait itself.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes a thread from its wait.
#[derive(Debug)]
pub(in super::super) struct Waker {
    event: OwnedFd,
}

impl Waker {
    pub(in super::super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event })
    }

    /// Ends the wait, or the next one.
    pub(in super::super) fn wake(&self) {
        // It fails only if it was woken 2⁶⁴ times.
        let _woken = rustix::io::write(&self.event, &1_u64.to_le_bytes());
    }

    /// Waits until something happens to one of these sockets, until it is woken, or for a time.
    /// Returns to which something has happened; none after a time or if it was woken.
    pub(in super::super) fn wait(
        &self,
        sockets: &[(BorrowedFd<'_>, PollFlags)],
        time: Option<Duration>,
    ) -> io::Result<Vec<bool>> {
        let mut all = vec![PollFd::new(&self.event, PollFlags::IN)];
        all.extend(sockets.iter().map(|socket| PollFd::new(&socket.0, socket.1)));
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut all, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut drained = [0; 8];
        // Nothing is there if it was not woken.
        let _drained = rustix::io::read(&self.event, &mut drained);
        Ok(all.iter().skip(1).map(|socket| !socket.revents().is_empty()).collect())
    }
}
