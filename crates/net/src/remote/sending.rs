//! The frames that a client sends while it has a session.

use std::collections::BTreeSet;
use std::sync::Arc;

use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::{SessionId, codec};

use super::calls::State;
use crate::clock::boot_time;
use crate::link::Bytes;

impl State {
    pub(super) fn send(&mut self, number: u64) {
        let Some(call) = self.under_way.get(&number) else { return };
        let Some(link) = self.link_of(call.bulk.len()) else { return };
        let [body, bulk] = [&call.body, &call.bulk].map(|bytes| Bytes::Shared(Arc::clone(bytes)));
        match &call.origin {
            None => {
                let sizes = [call.body.len(), call.bulk.len()];
                link.send([
                    self.header(FrameKind::Request, number, sizes[0], sizes[1]),
                    body,
                    bulk,
                ]);
            }
            Some(origin) => {
                let mut start = Vec::with_capacity(codec::ORIGIN_BYTES);
                codec::encode_origin(origin, &mut start);
                let bytes = start.len() + call.body.len();
                let head = self.header(FrameKind::Forward, number, bytes, call.bulk.len());
                link.send([head, Bytes::Owned(start), body, bulk]);
            }
        }
        self.sent = boot_time();
    }

    pub(super) fn send_cancel(&mut self, number: u64) {
        let (Some(link), Some(call)) = (&self.link, self.under_way.get(&number)) else { return };
        let mut body = call.mutation.to_le_bytes().to_vec();
        let kind = match &call.origin {
            None => FrameKind::Cancel,
            Some(origin) => {
                codec::encode_origin(origin, &mut body);
                FrameKind::ForwardCancel
            }
        };
        link.send([self.header(kind, number, body.len(), 0), Bytes::Owned(body)]);
        self.sent = boot_time();
    }

    /// Says which sessions have ended, and owe nothing any more, for which requests were passed on.
    pub(super) fn send_origin_ends(&mut self) {
        if self.ended_origins.is_empty() || self.reclaiming || self.link.is_none() {
            return;
        }
        let under_way = self.under_way.values().filter_map(|call| call.origin);
        let waiting = self.backlog.iter().filter_map(|call| call.origin);
        let answered = self.replay_log.entries.values().filter_map(|entry| entry.origin);
        let owing: BTreeSet<SessionId> =
            under_way.chain(waiting).chain(answered).map(|origin| origin.session).collect();
        for session in self.ended_origins.take_over(&owing) {
            self.send_origin_end(session);
        }
    }

    /// Says that a session has ended for which requests were passed on.
    fn send_origin_end(&mut self, session: SessionId) {
        let Some(link) = &self.link else { return };
        let body = session.0.to_le_bytes().to_vec();
        let head = self.header(FrameKind::OriginEnds, 0, body.len(), 0);
        link.send([head, Bytes::Owned(body)]);
        self.sent = boot_time();
    }

    /// Sends a ping: the pong shows that the server lives, and what is safe.
    pub(super) fn send_ping(&mut self) {
        let Some(link) = &self.link else { return };
        self.sent = boot_time();
        let number = self.pings.next(self.sent);
        link.send([self.header(FrameKind::Ping, number, 0, 0)]);
    }

    /// Answers a recall: the things that it named are not cached any more.
    pub(super) fn send_recalled(&mut self, number: u64) {
        let Some(link) = &self.link else { return };
        link.send([self.header(FrameKind::Recalled, number, 0, 0)]);
        self.sent = boot_time();
    }

    /// Sends a frame without a body.
    pub(super) fn send_plain(&mut self, kind: FrameKind) {
        let Some(link) = &self.link else { return };
        link.send([self.header(kind, 0, 0, 0)]);
        self.sent = boot_time();
    }

    pub(super) fn header(&self, kind: FrameKind, number: u64, body: usize, bulk: usize) -> Bytes {
        // The encoder keeps bodies below their limit, and bulk has the size of one write.
        let [body, bulk] = [body, bulk].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let progress = self.machine.acknowledged();
        Bytes::Header(Header { body, bulk, kind, is_overdue: false, number, progress }.encode())
    }
}
