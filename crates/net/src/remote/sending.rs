//! The frames that a client sends while it has a session.

use std::sync::Arc;

use pelago_wire::frame::{FrameKind, Header};

use super::calls::State;
use crate::clock::boot_time;
use crate::link::Bytes;

impl State {
    pub(super) fn send(&mut self, number: u64) {
        let (Some(link), Some(call)) = (&self.link, self.under_way.get(&number)) else { return };
        let head = self.header(FrameKind::Request, number, call.body.len(), call.bulk.len());
        let [body, bulk] = [&call.body, &call.bulk].map(|bytes| Bytes::Shared(Arc::clone(bytes)));
        link.send([head, body, bulk]);
        self.sent = boot_time();
    }

    pub(super) fn send_cancel(&mut self, number: u64) {
        let (Some(link), Some(call)) = (&self.link, self.under_way.get(&number)) else { return };
        let body = call.mutation.to_le_bytes().to_vec();
        link.send([self.header(FrameKind::Cancel, number, body.len(), 0), Bytes::Owned(body)]);
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
