//! A request of a caller, before it has a number.

use std::sync::Arc;
use std::time::Instant;

use pelago_wire::{LeasedDone, Origin, Reply, Request, RequestId};

use crate::remote::role::OpenUse;

/// A request and its caller.
pub(super) struct Call {
    /// The caller's number, by which it cancels; 0 if it does not.
    pub(super) caller: RequestId,
    pub(super) is_mutation: bool,
    /// The mutation of another client that this server passes on.
    pub(super) origin: Option<Origin>,
    /// It waits for a lock: other requests do not wait for its end.
    pub(super) waits: bool,
    /// It goes before requests that wait for their turn.
    pub(super) is_first: bool,
    /// It is a write that was answered under a lease.
    pub(super) was_buffered: bool,
    pub(super) body: Vec<u8>,
    pub(super) bulk: Arc<[u8]>,
    /// The bytes that the server holds for it; 0 for a request that waits for a lock.
    pub(super) payload: usize,
    pub(super) opens: OpenUse,
    pub(super) fits: FitsReply,
    pub(super) done: LeasedDone,
    /// When the caller began it.
    pub(super) since: Instant,
}

/// A function that returns whether a reply fits the request.
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
            origin: None,
            waits,
            is_first: false,
            was_buffered: request.kept_back().is_some(),
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
