//! The frames of a session's connection: requests, cancels, pings and the answers to recalls.

use std::sync::Arc;

use pelago_proto::session::{Repetition, SessionError};
use pelago_trace::{Described, RequestSpan};
use pelago_wire::codec::{self, Call, ReplyStamp};
use pelago_wire::frame::{CANCEL_BYTES, FrameKind, ORIGIN_ENDS_BYTES};
use pelago_wire::{
    Bulk, Code, Context, Description, Done, Granted, InodeId, Origin, Replayed, Request, SessionId,
    limits,
};

use super::pending_reply::{PendingReply, ReplyFacts, ShareGuard, failure};
use super::{Sessions, context};
use crate::assembler::Frame;
use crate::link::{Bytes, Link};
use crate::session::{Session, Violation};

/// The frame of a request, besides its body.
struct Sent {
    number: u64,
    /// The answer of an earlier run, if the client repeats the request because of that.
    replayed: Option<Replayed>,
    /// The client of another site for which its server has sent the request.
    origin: Option<Origin>,
}

impl Sessions {
    /// Handles a frame of a session's connection.
    pub(crate) fn frame(
        self: &Arc<Self>,
        session: &Arc<Session>,
        link: &Arc<Link>,
        frame: Frame,
    ) -> Result<(), Violation> {
        let Frame { header, body, bulk } = frame;
        if session.heard(link, header.progress)? {
            self.end_earlier(session);
        }
        match header.kind {
            FrameKind::Request => {
                let sent = Sent { number: header.number, replayed: None, origin: None };
                self.request(session, link, sent, &body, bulk)
            }
            FrameKind::Replay => {
                let (replayed, body) = codec::decode_replay(&body)?;
                let sent = Sent { number: header.number, replayed: Some(replayed), origin: None };
                self.request(session, link, sent, body, bulk)
            }
            FrameKind::Forward if session.is_site() => {
                let (origin, body) = codec::decode_origin(&body)?;
                let sent = Sent { number: header.number, replayed: None, origin: Some(origin) };
                self.request(session, link, sent, body, bulk)
            }
            FrameKind::ForwardReplay if session.is_site() => {
                let (origin, body) = codec::decode_origin(&body)?;
                let (replayed, body) = codec::decode_replay(body)?;
                let replayed = Some(replayed);
                let sent = Sent { number: header.number, replayed, origin: Some(origin) };
                self.request(session, link, sent, body, bulk)
            }
            FrameKind::Cancel => self.cancel(session, link, header.number, &body, None),
            FrameKind::ForwardCancel if session.is_site() => {
                let (cancel, origin) = body.split_at_checked(CANCEL_BYTES).unwrap_or((&body, &[]));
                let (origin, _rest) = codec::decode_origin(origin)?;
                self.cancel(session, link, header.number, cancel, Some(origin))
            }
            FrameKind::OriginEnds if session.is_site() => {
                let ended = <[u8; ORIGIN_ENDS_BYTES]>::try_from(&body[..]);
                let ended = ended.map_err(|_| Violation::ShortOriginEnd)?;
                self.service.end_origin(session.id, SessionId(u64::from_le_bytes(ended)));
                Ok(())
            }
            FrameKind::Ping => {
                self.pong(session, link, header.number);
                Ok(())
            }
            FrameKind::Recalled => {
                if session.recalled(header.number) {
                    self.service.recalled(session.id, header.number);
                }
                Ok(())
            }
            FrameKind::Reclaimed => {
                self.service.reclaimed(session.id);
                Ok(())
            }
            FrameKind::Flushed => {
                self.service.flushed(session.id);
                Ok(())
            }
            FrameKind::Goodbye => {
                self.goodbye(session);
                Ok(())
            }
            other => Err(Violation::Unexpected(other)),
        }
    }

    /// Answers a ping now, and once more when all is safe that is done.
    fn pong(self: &Arc<Self>, session: &Arc<Session>, link: &Arc<Link>, ping: u64) {
        self.tell(link, [self.header_to(session, FrameKind::Pong, ping, [0, 0])]);
        let (done, safe) = self.service.progress();
        if done > safe {
            let this = Arc::clone(self);
            let session = Arc::clone(session);
            let link = Arc::clone(link);
            let pong = move || {
                this.tell(&link, [this.header_to(&session, FrameKind::Pong, ping, [0, 0])]);
            };
            self.service.when_safe(Box::new(pong));
        }
    }

    /// The client does not wait for a request any more. A mutation that did not arrive will never
    /// be carried out; one that is over gets its answer again, also if an earlier run carried it
    /// out.
    fn cancel(
        &self,
        session: &Arc<Session>,
        link: &Arc<Link>,
        number: u64,
        body: &[u8],
        origin: Option<Origin>,
    ) -> Result<(), Violation> {
        let body = <[u8; CANCEL_BYTES]>::try_from(body).map_err(|_| Violation::ShortCancel)?;
        let mutation = u64::from_le_bytes(body);
        let known = origin.map(|origin| self.service.cancelled_origin(session.id, &origin));
        let before = match known {
            None => self.answer_before(session.id, mutation),
            Some(Ok(Some(origin))) => self.answer_before(origin.session, origin.mutation),
            Some(Ok(None)) => failure(Code::Interrupted),
            Some(Err(error)) => failure(error.code),
        };
        match session.cancel(mutation, &before)? {
            Some(answer) => {
                let head = self.header(FrameKind::Reply, number, answer.len(), 0);
                self.tell(link, [head, Bytes::Shared(answer)]);
            }
            None => {
                self.service.cancel(&context(session.id, number));
            }
        }
        Ok(())
    }

    /// Returns the answer to a mutation that did not arrive in this run: the one that an earlier
    /// run has given, if it was carried out there.
    fn answer_before(&self, session: SessionId, mutation: u64) -> Arc<[u8]> {
        match self.service.stored_reply(session, mutation) {
            Ok(Some(reply)) => {
                let sequence = self.service.sequence_of(session, mutation);
                let stamp = ReplyStamp { epoch: self.service.served().epoch, sequence };
                let mut body = Vec::new();
                codec::encode_answer(stamp, &Ok(reply), Granted::default(), &mut body);
                body.into()
            }
            Ok(None) => failure(Code::Interrupted),
            Err(error) => failure(error.code),
        }
    }

    fn request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        link: &Arc<Link>,
        sent: Sent,
        body: &[u8],
        bulk: Vec<u8>,
    ) -> Result<(), Violation> {
        let Sent { number, replayed, origin } = sent;
        let Call { uid, gid, mutation, request } = codec::decode_call(body)?;
        if (mutation > 0) != request.is_mutation() {
            return Err(Violation::WrongMutation);
        }
        if origin.is_some_and(|origin| mutation == 0 || !is_in_window(&origin)) {
            return Err(Violation::WrongMutation);
        }
        if !bulk.is_empty() && !request.has_bulk() {
            return Err(Violation::Bulk);
        }
        let waits = matches!(request, Request::SetLock { wait: true, .. });
        let admitted = session.admit(number, mutation, hash(body), replayed.is_some(), waits);
        if matches!(admitted, Err(Violation::Session(SessionError::Acknowledged(_))))
            && session.is_bulk(link)
        {
            // Its cancel came before it, over the other connection, and the client has the answer.
            return Ok(());
        }
        match admitted? {
            Repetition::None => {}
            // The answer goes to the connection that the session has by then.
            Repetition::Running => return Ok(()),
            Repetition::Answered(answer) => {
                let head = self.header(FrameKind::Reply, number, answer.len(), 0);
                self.tell(link, [head, Bytes::Shared(answer)]);
                return Ok(());
            }
        }
        let acknowledged = session.acknowledged();
        let changed = self.service.changed_node(session.id, &request);
        let facts = ReplyFacts::of(&request, self.service.lease_moment());
        let facts = facts.filter(|_| replayed.is_none());
        let known = origin.map(|it| self.service.origin(session.id, mutation, acknowledged, &it));
        let known = known.transpose();
        let unknown = known.as_ref().err().copied();
        let origin = known.ok().flatten();
        let context = context(session.id, number);
        let context = Context { mutation, acknowledged, uid, gid, replayed, origin, ..context };
        let span = RequestSpan::begin(|| {
            let Description { operation, subjects, .. } = request.describe();
            let inode = subjects.each_inode().next().map(InodeId::raw);
            Described {
                operation: operation.name(),
                inode,
                session: Some(session.id.0),
                thread: None,
            }
        });
        let held = match waits {
            true => session.share.peer.wait_for_lock().map(ShareGuard::LockWaiter),
            false => {
                // A client may have one request of any size under way. It counts for no more than a
                // client has under way otherwise, so that what goes past it is read.
                let most = session.share.window();
                let bytes = request.held_bytes(body.len(), bulk.len()).min(most);
                Some(ShareGuard::Bytes(session.share.account.hold(bytes)))
            }
        };
        let is_refused = held.is_none();
        let sessions = Arc::clone(self);
        let session = Arc::clone(session);
        let epochs = session.epochs();
        let answer = PendingReply {
            sessions,
            session,
            number,
            mutation,
            origin,
            epochs,
            changed,
            facts,
            held,
            span: span.clone(),
        };
        if is_refused {
            answer.send(Err(Code::NoLocks.into()));
            return Ok(());
        }
        if let Some(error) = unknown {
            answer.send(Err(error));
            return Ok(());
        }
        let mut answer = Some(answer);
        let mut later = || -> Done {
            let answer = answer.take();
            Box::new(move |result| {
                if let Some(answer) = answer {
                    answer.send(result);
                }
            })
        };
        let bulk = if bulk.is_empty() { Bulk::None } else { Bulk::Owned(bulk) };
        let now = span.in_scope(|| self.service.ask(&context, request, bulk, &mut later));
        if let (Some(result), Some(answer)) = (now, answer) {
            answer.send(result);
        }
        Ok(())
    }
}

/// Returns whether the numbers of an origin are those that a session of a client can have.
fn is_in_window(origin: &Origin) -> bool {
    let Origin { mutation, acknowledged, .. } = *origin;
    let above = mutation.checked_sub(acknowledged);
    above.is_some_and(|above| (1..=limits::SESSION_MUTATIONS).contains(&above))
}

/// Returns a hash by which a repeated request is distinguished from another one.
fn hash(body: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(body)
}
