//! Requests whose callers do not wait any more.

use pelago_wire::{Code, RequestId};

use super::{Calls, call_back, fail};

impl Calls {
    /// The caller of a request does not wait any more. While there is a connection, the server
    /// answers what the request did; else the caller is answered now, and the server is told later.
    pub(in crate::remote) fn cancel(&self, caller: RequestId) {
        if caller.0 == 0 {
            return;
        }
        let mut state = self.state.lock();
        if let Some(at) = state.backlog.iter().position(|call| call.caller == caller) {
            let call = state.backlog.remove(at);
            drop(state);
            if let Some(call) = call {
                fail(call.done, Code::Interrupted);
            }
            return;
        }
        let found = state.under_way.iter().find(|(_, call)| call.caller == caller);
        let Some(number) = found.map(|(number, _)| *number) else { return };
        // While files are opened again it is unknown what the last run did: the repetition tells.
        if state.reclaiming {
            return;
        }
        if state.link.is_some() {
            return state.send_cancel(number);
        }
        let answered = state.abandon(number, Code::Interrupted);
        drop(state);
        call_back(answered);
    }

    /// The caller of a request is gone. What was not sent for it yet never is; what was sent stays
    /// under way, and is done once.
    pub(in crate::remote) fn forsake(&self, caller: RequestId) {
        if caller.0 == 0 {
            return;
        }
        let mut state = self.state.lock();
        let mut dropped = Vec::new();
        while let Some(at) = state.backlog.iter().position(|call| call.caller == caller) {
            dropped.extend(state.backlog.remove(at));
        }
        drop(state);
        dropped.into_iter().for_each(|call| fail(call.done, Code::Interrupted));
    }
}
