//! A request on its way to the window.

use std::sync::Arc;
use std::time::Instant;

use pelago_wire::{LeasedDone, Reply, Request, RequestId};

use crate::remote::role::OpenUse;

/// A request and its caller.
pub(super) struct Call {
    /// The caller's number, by which it cancels; 0 if it does not.
    pub(super) caller: RequestId,
    pub(super) is_mutation: bool,
    /// It waits for a lock: others do not wait for its end.
    pub(super) waits: bool,
    /// It goes before what waits for its turn.
    pub(super) is_first: bool,
    /// It is a write that was answered under a lease.
    pub(super) was_kept_back: bool,
    pub(super) body: Vec<u8>,
    pub(super) bulk: Arc<[u8]>,
    /// Bytes that the server holds for it: 0 while it waits for a lock.
    pub(super) payload: usize,
    pub(super) opens: OpenUse,
    pub(super) fits: FitsReply,
    pub(super) done: LeasedDone,
    pub(super) since: Instant,
}

/// Tells whether a reply is one of those that a request can have.
pub(super) type FitsReply = fn(&Reply) -> bool;

impl Call {
    pub(super) fn new(
        caller: RequestId,
        request: &Request,
        body: Vec<u8>,
        bulk: Arc<[u8]>,
        done: LeasedDone,
    ) -> Self {
        let waits = matches!(request, Request::SetLock { wait: true, .. });
        let payload = if waits { 0 } else { request.held_bytes(body.len(), bulk.len()) };
        Self {
            caller,
            is_mutation: request.is_mutation(),
            waits,
            is_first: false,
            was_kept_back: request.kept_back().is_some(),
            body,
            bulk,
            payload,
            opens: OpenUse::of(request),
            fits: request.reply_check(),
            done,
            since: Instant::now(),
        }
    }
}
