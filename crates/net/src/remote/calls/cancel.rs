//! Cancelled requests, and requests whose callers are gone.

use pelago_wire::{Code, RequestId};

use super::{Calls, call_back, fail};

impl Calls {
    /// Cancels a request. If there is a connection, the server answers with what the request did;
    /// otherwise the caller is answered now, and the server gets the cancel later.
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
        if let Some(call) = state.under_way.get_mut(&number) {
            call.is_cancelled = true;
        }
        // While files are opened again it is unknown whether the last run has carried the request
        // out: the answer to its repetition will show.
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

    /// Drops the requests of a caller that is gone. A request that was not sent yet never is; one
    /// that was sent stays under way, and is carried out once.
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
