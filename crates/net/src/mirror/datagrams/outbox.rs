//! The bytes of the stream between the thread that writes groups and the one that sends datagrams.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pelago_wire::limits;
use pelago_wire::mirror::TakenCount;

use super::waker::Waker;

/// Bytes that wait for the link: at most [`limits::STREAM_UNSENT_BYTES`], and one part more.
#[derive(Debug)]
pub(super) struct Outbox {
    /// A leaf lock.
    state: Mutex<State>,
    has_room: Condvar,
    pub(super) waker: Waker,
    /// The data packets that are complete at the mirror.
    pub(super) taken: TakenCount,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    /// The bytes at the front for which a caller waits.
    awaited: usize,
    /// A caller waits for the bytes that were taken before.
    has_waiter: bool,
    /// The other thread sleeps until there are bytes.
    is_asleep: bool,
    /// The reason for which no more is sent.
    ended: Option<End>,
    /// Bytes that were added so far.
    pushed: u64,
    /// The bytes before this place have left this machine, with the repair packets that a waiter
    /// needs.
    sent: u64,
    /// Woken by progress, if the caller does not wait for it otherwise.
    listener: Option<Arc<Waker>>,
}

/// The reason for which no more is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The connection has ended, or was closed here.
    Connection,
    /// The datagrams fail, for this reason, and so the connection ends.
    Datagrams(String),
}

impl End {
    fn text(&self) -> String {
        match self {
            Self::Connection => "the mirror has ended the connection".to_owned(),
            Self::Datagrams(why) => why.clone(),
        }
    }
}

/// Bytes for one data packet.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// More can be sent.
    pub(super) has_more: bool,
}

impl State {
    /// Returns how many bytes the next packet has. A last one that is not full waits for others, if
    /// no caller waits for it.
    fn next(&self) -> usize {
        match (self.awaited, self.bytes.len()) {
            (0, length) if length < limits::DATAGRAM_STREAM_BYTES => 0,
            (0, _) => limits::DATAGRAM_STREAM_BYTES,
            (awaited, _) => awaited.min(limits::DATAGRAM_STREAM_BYTES),
        }
    }

    fn tell(&self) {
        if let Some(listener) = &self.listener {
            listener.wake();
        }
    }

    fn has_work(&self) -> bool {
        self.next() > 0 || self.has_waiter && self.awaited == 0 || self.ended.is_some()
    }
}

impl Outbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            has_room: Condvar::new(),
            waker: Waker::new()?,
            taken: TakenCount::default(),
        })
    }

    /// Adds bytes, and waits for room before that. Fails with the reason for which no more is sent.
    pub(super) fn push(&self, bytes: &[&[u8]]) -> Result<(), String> {
        let mut state = self.state.lock();
        self.has_room.wait_while(&mut state, |state| {
            state.bytes.len() >= limits::STREAM_UNSENT_BYTES && state.ended.is_none()
        });
        if let Some(end) = &state.ended {
            return Err(end.text());
        }
        bytes.iter().for_each(|bytes| state.bytes.extend(*bytes));
        state.pushed += bytes.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        self.wake(&mut state);
        Ok(())
    }

    /// Has everything sent: a caller waits for it.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        state.awaited = state.bytes.len();
        state.has_waiter = true;
        self.wake(&mut state);
    }

    /// Has everything sent, though no caller waits for it.
    pub(super) fn release(&self) {
        let mut state = self.state.lock();
        state.awaited = state.bytes.len();
        self.wake(&mut state);
    }

    /// Ends the stream, for a reason. The first one counts.
    pub(super) fn end(&self, end: End) {
        let mut state = self.state.lock();
        state.ended.get_or_insert(end);
        state.tell();
        drop(state);
        self.has_room.notify_all();
        self.waker.wake();
    }

    /// Has a thread woken when there is room again, when more has left this machine, and at the
    /// end.
    pub(super) fn set_listener(&self, listener: Arc<Waker>) {
        self.state.lock().listener = Some(listener);
    }

    /// Returns whether [`Outbox::push`] does not wait.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.bytes.len() < limits::STREAM_UNSENT_BYTES || state.ended.is_some()
    }

    /// Returns the bytes that were added so far.
    pub(super) fn pushed(&self) -> u64 {
        self.state.lock().pushed
    }

    /// Returns how many of them have left this machine, with the repair packets that a waiter
    /// needs.
    pub(super) fn sent(&self) -> u64 {
        self.state.lock().sent
    }

    /// Records that these bytes have left this machine.
    pub(super) fn set_sent(&self, sent: u64) {
        let mut state = self.state.lock();
        state.sent = state.sent.max(sent);
        state.tell();
    }

    /// Returns whether the stream has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    /// Returns the reason for which the datagrams have ended the connection, if they have.
    pub(super) fn failure(&self) -> Option<String> {
        match &self.state.lock().ended {
            Some(End::Datagrams(why)) => Some(why.clone()),
            Some(End::Connection) | None => None,
        }
    }

    /// Takes the bytes of the next packet.
    pub(super) fn take(&self) -> Option<Piece> {
        let mut state = self.state.lock();
        let length = Some(state.next()).filter(|length| *length > 0)?;
        let was_full = state.bytes.len() >= limits::STREAM_UNSENT_BYTES;
        let bytes = state.bytes.drain(..length).collect();
        state.awaited = state.awaited.saturating_sub(length);
        if was_full && state.bytes.len() < limits::STREAM_UNSENT_BYTES {
            self.has_room.notify_all();
            state.tell();
        }
        Some(Piece { bytes, has_more: state.next() > 0 })
    }

    /// Returns whether a caller waits for the last bytes that were taken, once.
    pub(super) fn take_waiter(&self) -> bool {
        let mut state = self.state.lock();
        let is_due = state.has_waiter && state.awaited == 0;
        state.has_waiter &= !is_due;
        is_due
    }

    /// Has the other thread woken by new bytes. Returns whether it may sleep.
    pub(super) fn sleep(&self) -> bool {
        let mut state = self.state.lock();
        state.is_asleep = !state.has_work();
        state.is_asleep
    }

    fn wake(&self, state: &mut State) {
        if state.is_asleep && state.has_work() {
            state.is_asleep = false;
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = limits::DATAGRAM_STREAM_BYTES;

    fn taken(outbox: &Outbox) -> Option<(usize, bool, bool)> {
        let piece = outbox.take()?;
        Some((piece.bytes.len(), piece.has_more, outbox.take_waiter()))
    }

    #[test]
    fn a_packet_is_full_or_somebody_waits_for_it() {
        let outbox = Outbox::new().unwrap();
        outbox.push(&[&[1; 10], &[2; FULL]]).unwrap();
        assert_eq!(taken(&outbox), Some((FULL, false, false)));
        assert_eq!(taken(&outbox), None);
        outbox.flush();
        outbox.push(&[&[3; FULL]]).unwrap();
        assert_eq!(taken(&outbox), Some((10, true, true)), "cut at the end of a waiter's bytes");
        assert_eq!(taken(&outbox), Some((FULL, false, false)));
        outbox.flush();
        assert_eq!(taken(&outbox), None);
        assert!(outbox.take_waiter(), "for bytes that were taken before");
        assert!(!outbox.take_waiter());
    }

    #[test]
    fn it_sleeps_only_without_work() {
        let outbox = Outbox::new().unwrap();
        assert!(outbox.sleep());
        outbox.push(&[&[1]]).unwrap();
        assert!(outbox.sleep());
        outbox.flush();
        assert!(!outbox.sleep());
        assert_eq!(taken(&outbox), Some((1, false, true)));
        assert!(outbox.sleep());
        outbox.end(End::Datagrams("blocked".to_owned()));
        outbox.end(End::Connection);
        assert!(!outbox.sleep());
        assert_eq!(outbox.push(&[&[1]]), Err("blocked".to_owned()));
        assert_eq!(outbox.failure(), Some("blocked".to_owned()));
    }
}
