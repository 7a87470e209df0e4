//! Abandoned requests: their callers have an error, and the server may still carry them out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_wire::codec::ReplyStamp;
use pelago_wire::{Code, LeasedDone, OpenId, Request, RequestId, Then, codec};

use super::call::Call;
use super::calls::{Answered, State, UnderWay};
use super::role::Role;
use crate::clock::boot_time;

impl State {
    /// Answers the caller of a request with an error, although the server may still carry the
    /// request out. A mutation stays under way, and the server gets a cancel: it does not begin the
    /// mutation any more. A request for a lock stays, too: the lock may be granted all the same.
    pub(super) fn abandon(&mut self, number: u64, code: Code) -> Vec<Answered> {
        let Some(call) = self.under_way.get_mut(&number) else { return Vec::new() };
        let done = call.done.take();
        let may_stay =
            call.mutation > 0 || matches!(call.opens.role, Role::Locks(_) | Role::LocksAgain(..));
        if !may_stay {
            self.machine.answered(number, ReplyStamp::default());
            if let Some(call) = self.under_way.remove(&number) {
                self.forget_size(&call);
            }
        } else if !call.opens.role.must_be_done() {
            self.send_cancel(number);
        }
        done.map(|done| (done, Err(code.into()))).into_iter().collect()
    }

    /// Abandons the requests that wait for longer than `limit`. One that waits for a lock may wait
    /// for as long as another program holds that, unless the server is silent.
    pub(super) fn fail_older(&mut self, now: Instant, limit: Duration) -> Vec<Answered> {
        let is_old = |since: Instant| now.saturating_duration_since(since) > limit;
        // One that is idle and well says something within its patience.
        let silence = boot_time().saturating_sub(self.last_heard());
        let is_silent = silence > limit.max(self.patience());
        let fails = |call: &UnderWay| {
            call.done.is_some() && is_old(call.since) && (is_silent || !call.waits)
        };
        let old = self.under_way.iter().filter(|(_, call)| fails(call));
        let old: Vec<u64> = old.map(|(number, _)| *number).collect();
        let mut answered = Vec::new();
        for number in old {
            answered.extend(self.abandon(number, Code::TimedOut));
        }
        while self.backlog.front().is_some_and(|call| is_old(call.since)) {
            let Some(call) = self.backlog.pop_front() else { break };
            // These must be carried out, although no program waits for the answer.
            match call.opens.role {
                Role::Ends(open) => self.release_unwanted(open),
                Role::EndsLocks(open, owner) => {
                    self.submit_own(&Request::Flush { open, owner: Some(owner) });
                }
                _ => {}
            }
            answered.push((call.done, Err(Code::TimedOut.into())));
        }
        answered
    }

    /// Keeps a callback until no mutation is under way any more that was abandoned before: then
    /// [`State::take_settled`] returns it.
    pub(super) fn when_settled(&mut self, then: Then) {
        let last = self.last_under_way();
        self.settling.push(last, then);
    }

    /// Has what waits for abandoned mutations wait for those that have new numbers, too.
    pub(super) fn settle_renumbered(&mut self) {
        let last = self.last_under_way();
        self.settling.renumber(last);
    }

    fn last_under_way(&self) -> u64 {
        self.under_way.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Takes the callbacks whose mutations are over.
    pub(super) fn take_settled(&mut self) -> Vec<Then> {
        if self.settling.is_empty() {
            return Vec::new();
        }
        let is_abandoned = |call: &UnderWay| call.done.is_none() && call.mutation > 0;
        let first = self.under_way.iter().find(|(_, call)| is_abandoned(call));
        self.settling.take(first.map(|(number, _)| *number))
    }

    /// Ends an open whose caller got an error.
    pub(super) fn release_unwanted(&mut self, open: OpenId) {
        self.submit_own(&Request::Release { open });
    }

    /// Sends a request in its turn for whose answer no program waits.
    pub(super) fn submit_own(&mut self, request: &Request) {
        self.submit_own_as(request, None);
    }

    /// As [`State::submit_own`], with another role of the answer.
    pub(super) fn submit_own_as(&mut self, request: &Request, role: Option<Role>) {
        let mut body = Vec::new();
        match codec::encode_call(0, 0, 0, request, &mut body) {
            Ok(()) => {
                let done: LeasedDone = Box::new(|_, _| {});
                let mut call = Call::new(RequestId(0), request, body, Arc::default(), done);
                call.opens.role = role.unwrap_or(call.opens.role);
                self.backlog.push_back(call);
            }
            Err(error) => tracing::warn!(%error, "what is not wanted stays until the session ends"),
        }
    }
}
