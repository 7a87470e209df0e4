//! The connection for bulk of a site's server, beside the one of its session.
//!
//! Large requests and replies go over it, so that no recall waits for them. Both connections end
//! together: a request may be lost with either of them, and is repeated over the next ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::Hello;
use pelago_wire::limits;

use super::calls::{Calls, State};
use super::connect::{ATTEMPT, Connector, send_first};
use super::connect_error::{ConnectError, is_definite};
use super::connection::{Attempt, Connection};
use super::dial::open;
use super::{ClientRole, ServerTarget};
use crate::clock::boot_time;
use crate::link::Link;

/// The first pause before another connection is made.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause: a firewall may let only one connection live, and the end of one is that of
/// both. A connection that has lived for so long is followed by the next one after the first pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Connector {
    /// Returns whether the session has a connection for bulk.
    pub(super) const fn has_bulk(&self) -> bool {
        matches!(self.options.role, ClientRole::Site(_))
    }

    /// Makes the connection for bulk beside each connection of the session, until that ends.
    pub(super) fn keep_bulk_connected(&self) {
        let mut pause = FIRST_PAUSE;
        let mut without = None;
        while let Some(main) = self.calls.wait_for_main(without.as_ref()) {
            without = None;
            match self.attempt_bulk(&main) {
                Ok(()) => {
                    let began = Instant::now();
                    self.calls.wait_for_bulk_loss();
                    if began.elapsed() >= LONGEST_PAUSE {
                        pause = FIRST_PAUSE;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection for bulk yet");
                    // The next connection of the session may be to a newer server.
                    without = is_definite(&error).then_some(main);
                }
            }
            self.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn attempt_bulk(&self, main: &Arc<Link>) -> Result<(), ConnectError> {
        let target = self.last_target();
        let (stream, tls) = open(&target, ATTEMPT)?;
        if !self.calls.is_main(main) {
            if let ServerTarget::Reverse { site, connections } = target {
                // The session waits for one itself.
                connections.offer(site, (stream, tls));
            }
            return Err(ConnectError::Cut);
        }
        stream.set_long_line();
        let begun = Instant::now();
        let attempt = Arc::new(Attempt::default());
        let calls = Arc::clone(&self.calls);
        let handler = Connection::of_bulk(calls, Arc::clone(&attempt), Arc::clone(main));
        let link = self.mailbox.add(stream, tls, |_| Box::new(handler));
        let hello = Hello { role: Hello::BULK, ..self.hello() };
        send_first(&link, FrameKind::Hello, hello.encode().to_vec());
        let result = attempt.wait(begun + ATTEMPT).or_else(|| attempt.give_up());
        let result = result.unwrap_or(Err(ConnectError::Silent));
        let was_heard = || link.with_tls(|tls| !tls.is_handshaking()).unwrap_or(true);
        if matches!(result, Err(ConnectError::Silent)) && was_heard() {
            // The server may have taken the connection, and send replies over it that are lost. If
            // it has seen its end, it has ended the other one itself.
            main.close();
        }
        if result.is_err() {
            link.close();
        }
        result
    }
}

impl Calls {
    /// Returns whether this is the present connection of the session.
    fn is_main(&self, link: &Arc<Link>) -> bool {
        self.state.lock().is_current_link(link)
    }

    /// Waits until the session has a connection, other than `without`, and none for bulk, and has
    /// repeated its requests: those come before all others. Returns the connection; `None` once the
    /// session has ended.
    fn wait_for_main(&self, without: Option<&Arc<Link>>) -> Option<Arc<Link>> {
        let mut state = self.state.lock();
        while !state.ended {
            let is_without = |main: &Arc<Link>| without.is_some_and(|it| Arc::ptr_eq(it, main));
            if let (Some(main), None) = (&state.link, &state.bulk)
                && !state.reclaiming
                && !is_without(main)
            {
                return Some(Arc::clone(main));
            }
            self.changed.wait(&mut state);
        }
        None
    }

    /// Waits until there is no connection for bulk, or the session has ended.
    fn wait_for_bulk_loss(&self) {
        let mut state = self.state.lock();
        while state.bulk.is_some() && !state.ended {
            self.changed.wait(&mut state);
        }
    }

    /// Takes a connection for bulk beside `main`. Returns `false` if that has been lost.
    pub(super) fn connected_for_bulk(&self, main: &Arc<Link>, link: &Arc<Link>) -> bool {
        let mut state = self.state.lock();
        // While the session says goodbye this one stays, too: its end is that of the other one.
        let is_parting = state.parting.as_ref().is_some_and(|parting| Arc::ptr_eq(parting, main));
        let is_its = is_parting || state.is_current_link(main);
        if is_its {
            state.bulk = Some(Arc::clone(link));
            drop(state);
            self.changed.notify_all();
        }
        is_its
    }

    /// Keeps a connection for bulk alive. Returns whether the server was silent on it for too long.
    pub(super) fn tick_of_bulk(&self, link: &Link) -> bool {
        let state = self.state.lock();
        let now = boot_time();
        if now.saturating_sub(link.said()) > state.heartbeat() {
            // The answer to this number lengthens no lease and measures no round trip.
            link.send([state.header(FrameKind::Ping, 0, 0, 0)]);
        }
        now.saturating_sub(link.heard()) > state.patience()
    }
}

impl State {
    /// Returns the connection for a request with so many bytes of a file.
    pub(super) fn link_of(&self, bulk: usize) -> Option<&Arc<Link>> {
        let of_bulk = self.bulk.as_ref().filter(|_| bulk >= limits::BULK_CONNECTION_BYTES);
        of_bulk.or(self.link.as_ref())
    }

    /// Returns whether this is a present connection of the session.
    pub(super) fn is_present(&self, link: &Arc<Link>) -> bool {
        let is_bulk = self.bulk.as_ref().is_some_and(|bulk| Arc::ptr_eq(bulk, link));
        is_bulk || self.is_current_link(link)
    }

    /// Ends the connection for bulk, if there is one.
    pub(super) fn end_bulk(&mut self) {
        if let Some(bulk) = self.bulk.take() {
            bulk.close();
        }
    }

    /// Ends the other connection of a session that has lost one.
    pub(super) fn end_other(&mut self, lost: &Arc<Link>) {
        if self.is_present(lost) {
            self.end_bulk();
            if let Some(main) = self.link.take() {
                main.close();
            }
        }
    }
}
