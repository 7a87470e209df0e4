//! The order of frames over a new connection. First a guest attaches its further credentials. Then
//! the client opens its files and sets its locks
//! again, if the server does not know them. Then it replays mutations that were answered and may be
//! lost, repeats requests that were not answered, and sends the requests that wait, those with
//! buffered writes first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_wire::codec::ReplyStamp;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::Welcome;
use pelago_wire::{Code, Reply, Request, RequestId, codec};

use super::calls::{Answered, Calls, State, UnderWay, set_mutation};
use super::role::{OpenUse, Role};
use crate::clock::boot_time;
use crate::link::Link;

impl Calls {
    /// Sends the writes that were buffered in an earlier epoch, and sends Flushed after the last
    /// answer. `round` is that of [`State::flush`].
    pub(super) fn flush(self: &Arc<Self>, round: u64) {
        let calls = Arc::clone(self);
        let flushed = move || {
            let mut state = calls.state.lock();
            // While files are opened again, Reclaimed is still to be sent, and Flushed follows it.
            if state.flush.end(round) && !state.reclaiming {
                state.send_flushed();
            }
        };
        self.leases.flush(Box::new(flushed));
    }
}

impl State {
    /// Continues over a connection. Returns the results of requests that have failed.
    pub(super) fn resume(&mut self, link: &Arc<Link>, welcome: Welcome) -> Vec<Answered> {
        let resumed = welcome.resumed;
        let epoch = welcome.epoch;
        let before = self.connect(link, welcome);
        let knows_opens = match &before {
            None => true,
            Some(before) => resumed && before.epoch == epoch && !self.reclaiming,
        };
        self.forget_own();
        let mut answered = Vec::new();
        match &before {
            Some(_) if !resumed => {
                self.heard_by_server = Duration::ZERO;
                self.locks.lose_all();
                answered = self.fail_lost();
                answered.extend(self.lose_session());
            }
            Some(before) if before.epoch != epoch => self.machine.replay(),
            _ => {}
        }
        self.attach_chains();
        if knows_opens {
            self.repeat(resumed);
            return answered;
        }
        tracing::info!(files = self.opens.count(), "opening files again");
        self.reclaiming = true;
        self.opens.begin_reclaim();
        self.locks.begin_reclaim();
        answered.extend(self.reclaim());
        answered
    }

    /// Opens files again, then sets locks again; continues with [`State::repeat`] once all answers
    /// are here. Returns the results of requests whose locks are lost.
    pub(super) fn reclaim(&mut self) -> Vec<Answered> {
        while let Some((open, request)) = self.opens.next_request() {
            if let Err(code) = self.send_own(&request, Role::Reopens(open)) {
                self.opens.reopened(open, Err(code));
            }
        }
        if self.opens.is_reclaiming() {
            return Vec::new();
        }
        while let Some((ino, lock, request)) = self.locks.next_request() {
            if let Err(code) = self.send_own(&request, Role::ReclaimsLock(ino, lock)) {
                self.locks.reclaimed(ino, &lock, Err(code));
            }
        }
        if self.locks.is_reclaiming() {
            return Vec::new();
        }
        self.reclaiming = false;
        let failed = self.fail_lost();
        self.repeat(true);
        failed
    }

    /// Sends a request of the session itself.
    pub(super) fn send_own(&mut self, request: &Request, role: Role) -> Result<(), Code> {
        let (number, _) = self.begin_own(request, role)?;
        self.send(number);
        Ok(())
    }

    /// Gives a number to a request of the session itself, which is to be sent. Returns the number
    /// and the body.
    pub(super) fn begin_own(
        &mut self,
        request: &Request,
        role: Role,
    ) -> Result<(u64, Arc<[u8]>), Code> {
        let mut body = Vec::with_capacity(64);
        codec::encode_call(0, 0, 0, request, &mut body).map_err(|error| error.code)?;
        let body: Arc<[u8]> = body.into();
        let call = UnderWay {
            caller: RequestId(0),
            mutation: 0,
            origin: None,
            waits: false,
            is_cancelled: false,
            body: Arc::clone(&body),
            bulk: Arc::default(),
            payload: 0,
            opens: OpenUse { role, ..OpenUse::of(request) },
            fits: request.reply_check(),
            done: None,
            since: Instant::now(),
            asked: boot_time(),
        };
        let number = self.machine.begin(false).number;
        self.under_way.insert(number, call);
        Ok((number, body))
    }

    /// Replays mutations that may be lost, then repeats requests that are not answered, in the
    /// order of their numbers, then sends those that wait for their turn.
    fn repeat(&mut self, resumed: bool) {
        let numbers: Vec<u64> = self.machine.under_way().collect();
        self.send_replays();
        for number in numbers {
            match self.under_way.get(&number) {
                Some(call) if call.done.is_some() || call.opens.role.must_be_done() => {
                    let is_cancelled = call.is_cancelled;
                    self.send(number);
                    if is_cancelled {
                        self.send_cancel(number);
                    }
                }
                // The server may have granted the lock, and ignores the cancel of a request that it
                // has answered.
                Some(call) if matches!(call.opens.role, Role::Locks(_) | Role::LocksAgain(..)) => {
                    self.send(number);
                    self.send_cancel(number);
                }
                _ => self.send_cancel(number),
            }
        }
        if resumed {
            self.send_plain(FrameKind::Reclaimed);
            self.send_flushed();
        }
        self.send_backlog();
        self.send_origin_ends();
    }

    /// Sends Flushed, if all buffered writes are answered.
    fn send_flushed(&mut self) {
        if !self.flush.is_under_way() {
            self.send_plain(FrameKind::Flushed);
        }
    }

    /// Drops requests of the session itself that were sent over an earlier connection, as those to
    /// open a file or set a lock again: new ones are made.
    fn forget_own(&mut self) {
        let is_own = |call: &UnderWay| {
            let role = call.opens.role;
            matches!(
                role,
                Role::Reopens(_) | Role::ReclaimsLock(..) | Role::Attaches(_) | Role::ListsServers
            )
        };
        let own = self.under_way.iter().filter(|(_, call)| is_own(call));
        let numbers: Vec<u64> = own.map(|(number, _)| *number).collect();
        for number in numbers {
            self.machine.answered(number, ReplyStamp::default());
            self.under_way.remove(&number);
        }
    }

    /// Handles the end of the session at the server. It is unknown whether a mutation under way was
    /// carried out, so that it fails, unless the server knows it by its origin. Other requests are
    /// repeated in the new session.
    fn lose_session(&mut self) -> Vec<Answered> {
        tracing::warn!("the server has ended the session; another one begins");
        let mut old = std::mem::take(&mut self.under_way);
        self.payload = 0;
        self.waits = 0;
        let unsafe_changes = std::mem::take(&mut self.replay_log).count();
        if unsafe_changes > 0 {
            tracing::warn!(unsafe_changes, "changes that were answered may be lost");
        }
        let is_kept = |number: u64| {
            let call = old.get(&number);
            call.is_some_and(|call| match call.mutation {
                0 => call.done.is_some(),
                _ => call.opens.is_repeatable() || call.origin.is_some(),
            })
        };
        for (number, numbers) in self.machine.renumber(is_kept) {
            if let Some(mut call) = old.remove(&number) {
                self.note_size(&call);
                let mut body = call.body.to_vec();
                set_mutation(&mut body, numbers.mutation);
                call.mutation = numbers.mutation;
                call.body = body.into();
                if let Some(origin) = &mut call.origin {
                    origin.may_be_repeated = true;
                }
                self.under_way.insert(numbers.number, call);
            }
        }
        self.settle_renumbered();
        let mut answered = Vec::new();
        for call in old.into_values() {
            let result = match call.opens.role {
                // The open has ended with the session.
                Role::Ends(open) => {
                    self.opens.ended(open);
                    Ok(Reply::Done)
                }
                _ => Err(Code::Io.into()),
            };
            answered.extend(call.done.map(|done| (done, result)));
        }
        answered
    }
}
