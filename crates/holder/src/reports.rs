//! Reports to the server of opens that were made under a lease, without a message.

use std::sync::Arc;

use pelago_wire::{Bulk, Code, OpenId, Then};

use crate::countdown::Countdown;
use crate::holder::Holder;
use crate::open_files::{OnReport, Report};

/// Reports under way at a time.
const AT_ONCE: usize = 16;

impl Holder {
    /// Reports an open to the server, unless it knows it, and calls `then`.
    pub(crate) fn report(self: &Arc<Self>, open: OpenId, then: OnReport) {
        let (report, then) = self.state.lock().opens.report(open, then);
        let (request, caller) = match (report, then) {
            (Report::Known, Some(then)) => return then(Ok(())),
            (Report::Failed(code), Some(then)) => return then(Err(code)),
            (Report::Ask { request, caller }, None) => (request, caller),
            _ => return,
        };
        let holder = Arc::clone(self);
        let done = move |result: Result<_, pelago_wire::Error>, _granted| {
            let result = result.map(|_| ()).map_err(|error| error.code);
            if let Err(code) = result
                && code != Code::HostDown
            {
                tracing::warn!(why = code.says(), "a file that was opened under a lease is lost");
            }
            let waiting = holder.state.lock().opens.reported(open, result);
            waiting.into_iter().for_each(|then| then(result));
        };
        self.service.ask_first(&caller.context(), request, Bulk::None, Box::new(done));
    }

    /// Reports opens to the server, and calls `then` once it knows all of them, or has refused
    /// some.
    pub(crate) fn report_all(self: &Arc<Self>, opens: &[OpenId], then: Then) {
        let (opens, rest) = opens.split_at(opens.len().min(AT_ONCE));
        if opens.is_empty() {
            return then();
        }
        let holder = Arc::clone(self);
        let rest = rest.to_vec();
        let then: Then = Box::new(move || holder.report_all(&rest, then));
        let left = Countdown::new(opens.len(), then);
        for open in opens {
            let left = Arc::clone(&left);
            self.report(*open, Box::new(move |_result: Result<(), Code>| left.done()));
        }
    }
}
