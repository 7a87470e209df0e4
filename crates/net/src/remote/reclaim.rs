//! What a client sends over a new connection: the files that it has open, if the server does not
//! know them; then what was answered and may be lost; then what was not answered; then all else.

use std::sync::Arc;
use std::time::Instant;

use pelago_wire::codec::ReplyStamp;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::Welcome;
use pelago_wire::{Code, Reply, RequestId, codec};

use super::calls::{Answered, State, UnderWay, set_mutation};
use super::role::{OpenUse, Role};
use crate::link::Link;

impl State {
    /// Continues over a connection. Returns what callers get whose requests are over.
    pub(super) fn resume(&mut self, link: &Arc<Link>, welcome: Welcome) -> Vec<Answered> {
        let (resumed, epoch) = (welcome.resumed, welcome.epoch);
        let before = self.connect(link, welcome);
        let knows_opens = match &before {
            None => true,
            Some(before) => resumed && before.epoch == epoch && !self.reclaiming,
        };
        self.forget_reopens();
        let answered = match &before {
            Some(_) if !resumed => self.lose_session(),
            Some(before) if before.epoch != epoch => {
                self.machine.replay();
                self.fail_appends()
            }
            _ => Vec::new(),
        };
        if knows_opens {
            self.repeat(resumed);
            return answered;
        }
        tracing::info!(files = self.opens.count(), "opening files again");
        self.reclaiming = true;
        let mut opens = std::mem::take(&mut self.opens);
        opens.begin_reclaim(|ino| self.makes(ino));
        self.opens = opens;
        self.reclaim();
        answered
    }

    /// Opens files again; once all are, goes on with the rest.
    pub(super) fn reclaim(&mut self) {
        while let Some((open, request)) = self.opens.next_request() {
            let mut body = Vec::with_capacity(64);
            if let Err(error) = codec::encode_call((0, 0), 0, &request, &mut body) {
                self.opens.reopened(open, Err(error.code));
                continue;
            }
            let number = self.machine.begin(false).number;
            let call = UnderWay {
                caller: RequestId(0),
                mutation: 0,
                body: body.into(),
                bulk: Arc::default(),
                payload: 0,
                opens: OpenUse::of(&request),
                done: None,
                since: Instant::now(),
            };
            self.under_way.insert(number, call);
            self.send(number);
        }
        if !self.opens.is_reclaiming() {
            self.reclaiming = false;
            self.repeat(true);
        }
    }

    /// Sends what may be lost, then what is not answered, in the order of the numbers, then what
    /// waits for its turn.
    fn repeat(&mut self, resumed: bool) {
        let numbers: Vec<u64> = self.machine.under_way().collect();
        self.send_replays();
        for number in numbers {
            match self.under_way.get(&number) {
                Some(call) if call.done.is_some() => self.send(number),
                _ => self.send_cancel(number),
            }
        }
        if resumed {
            self.send_plain(FrameKind::Reclaimed);
        }
        self.send_backlog();
    }

    /// Drops requests to open again that were sent over an earlier connection: they are made anew.
    fn forget_reopens(&mut self) {
        let is_reopen = |call: &UnderWay| matches!(call.opens.role, Role::Reopens(_));
        let reopens = self.under_way.iter().filter(|(_, call)| is_reopen(call));
        let numbers: Vec<u64> = reopens.map(|(number, _)| *number).collect();
        for number in numbers {
            self.machine.answered(number, ReplyStamp::default());
            self.under_way.remove(&number);
        }
    }

    /// Fails the appends under way: a server that has started anew does not know where their bytes
    /// went, if they went anywhere.
    fn fail_appends(&mut self) -> Vec<Answered> {
        let is_append = |call: &UnderWay| matches!(call.opens.role, Role::Appends);
        let appends = self.under_way.iter().filter(|(_, call)| is_append(call));
        let numbers: Vec<u64> = appends.map(|(number, _)| *number).collect();
        let mut answered = Vec::new();
        for number in numbers {
            self.machine.answered(number, ReplyStamp::default());
            if let Some(call) = self.under_way.remove(&number) {
                self.payload -= call.payload;
                answered.extend(call.done.map(|done| (done, Err(Code::Io.into()))));
            }
        }
        answered
    }

    /// The server does not know the session any more: whether a mutation under way was carried out
    /// is unknown, so that it fails. All else is asked again in the new session.
    fn lose_session(&mut self) -> Vec<Answered> {
        tracing::warn!("the server has ended the session; another one begins");
        let mut old = std::mem::take(&mut self.under_way);
        self.payload = 0;
        let unsafe_changes = std::mem::take(&mut self.kept).count();
        if unsafe_changes > 0 {
            tracing::warn!(unsafe_changes, "changes that were answered may be lost");
        }
        let is_kept = |number: u64| {
            let call = old.get(&number);
            call.is_some_and(|call| call.mutation == 0 || call.opens.is_asked_anew())
        };
        for (number, numbers) in self.machine.renumber(is_kept) {
            if let Some(mut call) = old.remove(&number) {
                self.payload += call.payload;
                let mut body = call.body.to_vec();
                set_mutation(&mut body, numbers.mutation);
                (call.mutation, call.body) = (numbers.mutation, body.into());
                self.under_way.insert(numbers.number, call);
            }
        }
        let mut answered = Vec::new();
        for call in old.into_values() {
            let result = match call.opens.role {
                // It has ended with the session.
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
