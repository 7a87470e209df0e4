//! Replies that a client waits for: their leases, and the connection that they go to.

use std::sync::Arc;

use pelago_trace::RequestSpan;
use pelago_wire::codec::{self, ReplyStamp};
use pelago_wire::frame::FrameKind;
use pelago_wire::{
    Code, Error, Granted, Handle, InodeId, LeaseMoment, LeasedAnswer, Leases, Origin, Reply,
    Request, Tells,
};

use super::Sessions;
use crate::account::HoldGuard;
use crate::link::Bytes;
use crate::peers::LockWaiterGuard;
use crate::session::{Answered, Session};

/// The facts that the reply to a request will report and that may be leased.
pub(super) struct ReplyFacts {
    /// A moment before the request is carried out.
    since: LeaseMoment,
    node: Option<InodeId>,
    names: Option<InodeId>,
    opens_for_writing: bool,
}

impl ReplyFacts {
    /// Returns the facts that the reply to a request will report; `None` if it reports none.
    pub(super) fn of(request: &Request, since: LeaseMoment) -> Option<Self> {
        let tells = request.tells();
        let opens_for_writing =
            request.opens().made().is_some_and(|(_, flags)| flags.write && !flags.sync);
        let node = tells.node();
        let names = tells.names();
        (tells != Tells::Nothing).then_some(Self { since, node, names, opens_for_writing })
    }
}

/// A reply that a client waits for.
pub(super) struct PendingReply {
    pub(super) sessions: Arc<Sessions>,
    pub(super) session: Arc<Session>,
    pub(super) number: u64,
    /// The number of the mutation; 0 if the request is none.
    pub(super) mutation: u64,
    /// The origin of the mutation, with its session here.
    pub(super) origin: Option<Origin>,
    /// [`Session::epochs`] from before the request was carried out.
    pub(super) epochs: u32,
    /// See [`SessionService::changed_node`].
    ///
    /// [`SessionService::changed_node`]: pelago_wire::SessionService::changed_node
    pub(super) changed: Option<Handle>,
    /// The facts of the reply, if they may be leased.
    pub(super) facts: Option<ReplyFacts>,
    /// The bytes of the request, and the room for those of the reply.
    pub(super) held: Option<ShareGuard>,
    /// Ends once the answer is sent.
    pub(super) span: RequestSpan,
}

/// The part of a share that a request takes until it is answered. It is freed when it is dropped.
#[expect(dead_code, reason = "guards")]
pub(super) enum ShareGuard {
    /// Bytes of its session.
    Bytes(HoldGuard),
    /// A place among the requests of its peer that wait for locks.
    LockWaiter(LockWaiterGuard),
}

impl PendingReply {
    /// Sends the reply over the connection that the session has now, and stores the reply to a
    /// mutation. In place of `NotOwner` the connection ends.
    pub(super) fn send(self, mut result: Result<Reply, Error>) {
        let Self {
            sessions,
            session,
            number,
            mutation,
            origin,
            epochs,
            changed,
            facts,
            held,
            span,
        } = self;
        let is_away = matches!(result, Err(Error { code: Code::NotOwner }));
        let sequence = match mutation > 0 && result.is_ok() {
            true => match origin {
                None => sessions.service.sequence_of(session.id, mutation),
                Some(origin) => sessions.service.sequence_of(origin.session, origin.mutation),
            },
            false => 0,
        };
        let stamp = ReplyStamp { epoch: sessions.service.served().epoch, sequence };
        let mut body = Vec::new();
        let changed = changed.filter(|_| result.is_ok());
        let changed = changed.and_then(|node| {
            let since = sessions.service.lease_moment();
            Some((sessions.service.attr(session.id, node)?, since))
        });
        let answer = |ReplyFacts { since, node, names, opens_for_writing }| {
            let result = &mut result;
            let changed = changed.as_ref().map(|it| (&it.0, it.1));
            let answer =
                LeasedAnswer { node, names, mutation, origin, opens_for_writing, result, changed };
            sessions.service.lease(session.id, since, answer)
        };
        // While a recall is not answered, replies do not lengthen leases. A new lease might outlast
        // their end by the server's clock.
        let facts = facts.filter(|_| session.may_lease());
        let leases = facts.map_or_else(Leases::default, answer);
        codec::encode_answer(
            stamp,
            &result,
            Granted { leases, changed: changed.map(|it| it.0), may_be_done: false },
            &mut body,
        );
        let bulk = match result {
            Ok(Reply::Data(buffer)) => Some(buffer),
            _ => None,
        };
        let bulk_bytes = bulk.as_ref().map_or(0, |buffer| buffer.as_bytes().len());
        let sizes = [body.len(), bulk_bytes];
        let head = sessions.header_to(&session, FrameKind::Reply, number, sizes);
        let (body, answer) = if mutation > 0 {
            let answer: Arc<[u8]> = body.into();
            (Bytes::Shared(Arc::clone(&answer)), Some(answer))
        } else {
            (Bytes::Owned(body), None)
        };
        let lost = || failure(Code::Io);
        let Answered { link, lost, is_last } =
            session.answered(number, mutation, epochs, answer, bulk_bytes, lost);
        match (link, lost) {
            // `NotOwner` is no reply for a program.
            (Some(link), _) if is_away => sessions.send_away(&link),
            (Some(link), Some(lost)) => {
                let head = sessions.header(FrameKind::Reply, number, lost.len(), 0);
                sessions.tell(&link, [head, Bytes::Shared(lost)]);
            }
            (Some(link), None) => {
                sessions.tell(&link, [head, body, bulk.map_or(Bytes::NONE, Bytes::Read)]);
            }
            (None, _) => {}
        }
        if is_last {
            sessions.service.end_session(session.id);
        }
        drop(held);
        drop(span);
    }
}

/// Returns the encoded reply to a mutation that has failed.
pub(super) fn failure(code: Code) -> Arc<[u8]> {
    let mut body = Vec::new();
    codec::encode_answer(ReplyStamp::default(), &Err(code.into()), Granted::default(), &mut body);
    body.into()
}
