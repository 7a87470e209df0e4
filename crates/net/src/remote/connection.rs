//! A connection of a client: the server's answer to the hello, then the frames of the session.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use pelago_wire::codec::{self, DecodeError};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Closing, ClosingCode, Refused, Welcome};
use pelago_wire::limits;

use super::answers::sends_away;
use super::calls::Calls;
use super::connect_error::ConnectError;
use crate::assembler::{Frame, FrameLimits, ReadError};
use crate::link::{Bytes, Link};
use crate::reactor::Handler;
use crate::tls::TlsError;

/// A connection to the server.
pub(super) struct Connection {
    calls: Arc<Calls>,
    attempt: Arc<Attempt>,
    /// The connection of the session, if this one is for bulk beside it.
    main: Option<Arc<Link>>,
    welcomed: bool,
}

/// An attempt to connect, shared by the handler of its connection and the thread that waits for its
/// result.
#[derive(Default)]
pub(super) struct Attempt {
    /// A leaf lock.
    state: Mutex<AttemptState>,
    finished: Condvar,
}

#[derive(Default)]
struct AttemptState {
    result: Option<Result<(), ConnectError>>,
    /// The session is about to continue over the connection: a result follows at once.
    is_welcomed: bool,
    /// The session does not continue over the connection: another one is tried.
    is_given_up: bool,
}

impl Attempt {
    /// Sets the result. Only the first one counts.
    fn finish(&self, result: Result<(), ConnectError>) {
        self.state.lock().result.get_or_insert(result);
        self.finished.notify_all();
    }

    /// Returns whether the session may continue over the connection: not if it was given up.
    /// Afterwards [`Attempt::give_up`] waits for the result.
    fn welcome(&self) -> bool {
        let mut state = self.state.lock();
        state.is_welcomed = !state.is_given_up;
        state.is_welcomed
    }

    /// Waits for the result until a deadline.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Result<(), ConnectError>> {
        let mut state = self.state.lock();
        loop {
            if let Some(result) = state.result.take() {
                return Some(result);
            }
            if self.finished.wait_until(&mut state, deadline).timed_out() {
                return state.result.take();
            }
        }
    }

    /// Gives the connection up: a later answer of its server has no effect. Returns the result if
    /// the server has answered just now.
    pub(super) fn give_up(&self) -> Option<Result<(), ConnectError>> {
        let mut state = self.state.lock();
        while state.is_welcomed && state.result.is_none() {
            self.finished.wait(&mut state);
        }
        state.is_given_up = true;
        state.result.take()
    }
}

impl Connection {
    pub(super) const fn new(calls: Arc<Calls>, attempt: Arc<Attempt>) -> Self {
        Self { calls, attempt, main: None, welcomed: false }
    }

    /// Returns the connection for bulk beside this one of the session.
    pub(super) const fn of_bulk(calls: Arc<Calls>, attempt: Arc<Attempt>, main: Arc<Link>) -> Self {
        Self { calls, attempt, main: Some(main), welcomed: false }
    }

    /// Handles the server's answer to the hello.
    fn first(&mut self, link: &Arc<Link>, frame: &Frame) -> ControlFlow<()> {
        let failed = match frame.header.kind {
            FrameKind::Welcome => match Welcome::decode(&frame.body) {
                Ok(Welcome { volume: found, .. })
                    if self.calls.volume().is_some_and(|wanted| wanted != found) =>
                {
                    // The session that has begun there is of no use.
                    let goodbye = Header::new(FrameKind::Goodbye, 0, 0).encode();
                    link.send([Bytes::Header(goodbye)]);
                    let wanted = self.calls.volume().unwrap_or(found);
                    ConnectError::OtherVolume { wanted, found }
                }
                Ok(_) if !self.attempt.welcome() => return ControlFlow::Break(()),
                Ok(welcome) => {
                    self.welcomed = true;
                    let is_present = match &self.main {
                        None => {
                            self.calls.connected(link, welcome);
                            true
                        }
                        Some(main) => self.calls.connected_for_bulk(main, link),
                    };
                    let result = if is_present { Ok(()) } else { Err(ConnectError::Cut) };
                    self.attempt.finish(result);
                    return match is_present {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    };
                }
                Err(error) => malformed(&error),
            },
            FrameKind::Refused => match Refused::decode(&frame.body) {
                Ok(refused) => ConnectError::Refused(refused),
                Err(error) => malformed(&error),
            },
            kind => ConnectError::NoServer(format!("a frame of kind {kind:?} came first")),
        };
        self.attempt.finish(Err(failed));
        ControlFlow::Break(())
    }
}

/// Returns whether an error says that the other end has ended the connection.
fn is_cut(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn malformed(error: &DecodeError) -> ConnectError {
    ConnectError::NoServer(error.to_string())
}

impl Handler for Connection {
    fn limits(&self) -> FrameLimits {
        match self.welcomed {
            true => FrameLimits { body: limits::FRAME_BODY_BYTES, bulk: limits::FRAME_BULK_BYTES },
            false => FrameLimits { body: limits::HANDSHAKE_BYTES, bulk: 0 },
        }
    }

    fn frame(&mut self, link: &Arc<Link>, frame: Frame) -> ControlFlow<()> {
        if !self.welcomed {
            return self.first(link, &frame);
        }
        let Frame { header, body, bulk } = frame;
        match header.kind {
            FrameKind::Reply => match codec::decode_answer(&body, bulk) {
                Ok(answer) if sends_away(&answer.result) => {
                    tracing::warn!("the server does not own the volume any more");
                    return ControlFlow::Break(());
                }
                Ok(answer) => {
                    // Answers still arrive after the session has ended.
                    if !self.calls.answered(link, &header, answer) && !self.calls.has_ended() {
                        let number = header.number;
                        tracing::error!(number, "the server's answer does not fit its request");
                        return ControlFlow::Break(());
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the server sent a malformed answer");
                    return ControlFlow::Break(());
                }
            },
            FrameKind::Pong => self.calls.heard(link, &header),
            FrameKind::Recall => match codec::decode_recall(&body) {
                Ok(recalled) => self.calls.recalled(link, header.number, recalled),
                Err(error) => {
                    tracing::error!(%error, "the server sent a malformed recall");
                    return ControlFlow::Break(());
                }
            },
            FrameKind::Closing => {
                match Closing::decode(&body) {
                    Ok(closing) => {
                        let why = closing.code.says();
                        tracing::warn!(why, text = closing.text, "the server closes");
                        if closing.code == ClosingCode::NotOwner {
                            self.calls.note_owner(closing.text);
                        }
                    }
                    Err(error) => tracing::warn!(%error, "the server closes"),
                }
                return ControlFlow::Break(());
            }
            kind => {
                tracing::error!(?kind, "the server sent an unexpected frame");
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn tick(&mut self, link: &Arc<Link>, now: Instant) -> ControlFlow<()> {
        let is_silent = match &self.main {
            // Requests are given up also while there is no session.
            None => self.calls.tick(now),
            Some(_) => self.welcomed && self.calls.tick_of_bulk(link),
        };
        if is_silent && self.welcomed {
            tracing::warn!("the server was silent for too long: connecting again");
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn closed(&mut self, link: &Arc<Link>, why: Option<&ReadError>) {
        let failed = match why {
            Some(ReadError::Socket(error)) => match TlsError::of_io(error) {
                Some(error) => ConnectError::Tls(error),
                None if is_cut(error) => ConnectError::Cut,
                None => ConnectError::NoServer(error.to_string()),
            },
            Some(ReadError::Closed) => ConnectError::Cut,
            Some(why) => ConnectError::NoServer(why.to_string()),
            None => ConnectError::NoServer("the connection was closed".to_owned()),
        };
        self.attempt.finish(Err(failed));
        self.calls.disconnected(link);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The server answers when another one is tried already.
    #[test]
    fn an_attempt_that_was_given_up_is_not_welcome() {
        let attempt = Attempt::default();
        assert!(attempt.wait(Instant::now()).is_none());
        assert!(attempt.give_up().is_none());
        assert!(!attempt.welcome());
    }

    /// The server answers in the last moment.
    #[test]
    fn an_attempt_that_is_welcome_is_not_given_up() {
        let attempt = Attempt::default();
        assert!(attempt.welcome());
        thread::scope(|scope| {
            let giving_up = scope.spawn(|| attempt.give_up());
            attempt.finish(Ok(()));
            assert!(matches!(giving_up.join(), Ok(Some(Ok(())))));
        });
    }
}
