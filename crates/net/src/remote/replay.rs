//! What was answered and may be lost with the server's machine: it is kept until it is safe, and
//! sent again with what was answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use pelago_wire::codec::{self, Replayed, ReplyStamp};
use pelago_wire::frame::FrameKind;
use pelago_wire::{Code, Error, OpenId, Reply, limits};

use super::calls::{State, UnderWay};
use super::kept::Kept;
use super::role::Role;
use crate::clock::boot_time;
use crate::link::Bytes;

impl State {
    /// Keeps a mutation that was answered, until it is safe.
    pub(super) fn keep(
        &mut self,
        number: u64,
        call: &UnderWay,
        stamp: ReplyStamp,
        result: &Result<Reply, Error>,
    ) {
        let mut made = None;
        let mut time = None;
        match result {
            Ok(Reply::Entry(entry) | Reply::Created { entry, .. }) => {
                made = Some(entry.handle);
                time = Some(entry.attr.ctime);
            }
            Ok(Reply::Attr(attr) | Reply::Removed(attr)) => time = Some(attr.ctime),
            _ => {}
        }
        let written = || call.opens.subjects.each_open().find_map(|open| self.opens.node(open));
        let node = made.or_else(written);
        let body = Arc::clone(&call.body);
        let bulk = Arc::clone(&call.bulk);
        let kept = Kept { body, bulk, opens: call.opens, made, node, time };
        self.kept.insert(number, kept, stamp);
        self.ping_if_half_full();
    }

    /// Asks the server what is safe before there is no room for further mutations.
    fn ping_if_half_full(&mut self) {
        let is_half = self.machine.unacknowledged() > limits::SESSION_MUTATIONS / 2
            || self.kept.bytes() > self.bytes.kept / 2;
        if is_half && self.kept.asked.is_none() {
            self.kept.asked = Some(self.kept.newest);
            self.send_ping();
        }
    }

    /// The server has said what is safe: the newest sequence of its epoch.
    pub(super) fn note_safe(&mut self, sequence: u64) {
        let Some(epoch) = self.epoch() else { return };
        let stamp = ReplyStamp { epoch, sequence };
        self.kept.safe(stamp);
        let over = self.machine.safe(stamp);
        for number in &over {
            self.kept.remove(*number);
        }
        if !over.is_empty() {
            self.ping_if_half_full();
            self.send_backlog();
        }
    }

    /// Notes the answer to a mutation that was repeated although it had been answered.
    pub(super) fn replayed(
        &mut self,
        number: u64,
        is_kept: bool,
        stamp: ReplyStamp,
        result: &Result<Reply, Error>,
    ) {
        let Some(kept) = self.kept.remove(number) else { return };
        if let Err(error) = result {
            let inode = kept.node.map(|node| node.ino);
            tracing::warn!(?inode, %error, "a change that was answered is lost");
        }
        if let Role::Opens { open, .. } = kept.opens.role
            && self.opens.node(open).is_none()
        {
            // Its program has closed it, and the server has opened it again.
            self.release_unwanted(open);
        }
        if is_kept {
            self.kept.insert(number, kept, stamp);
        }
        self.send_backlog();
    }

    /// Returns whether an open file was not there when it was asked for, and a mutation that is
    /// about to be repeated makes it. After a `kill -9` of the server it is there, with its locks.
    pub(super) fn is_made_later(&self, open: OpenId, reopened: Result<(), Code>) -> bool {
        let Some(node) = self.opens.node(open) else { return false };
        let mut made = self.kept.calls.values().filter_map(|kept| kept.made);
        self.reclaiming && reopened == Err(Code::Stale) && made.any(|it| it.ino == node.ino)
    }

    /// Sends the mutations that an earlier run of the server has answered, then asks for the open
    /// files that they make.
    pub(super) fn send_replays(&mut self) {
        let mut made = BTreeMap::new();
        let replays: Vec<_> = self.machine.replays().collect();
        for (number, stamp) in replays {
            let Some(kept) = self.kept.calls.get(&number) else { continue };
            if let Some(node) = kept.made {
                made.entry(node.ino).or_insert(stamp);
            }
            let replayed = Replayed { stamp, node: kept.node, time: kept.time };
            let body = Arc::clone(&kept.body);
            let bulk = Arc::clone(&kept.bulk);
            self.send_replay(number, &replayed, body, bulk);
        }
        for (open, request) in self.opens.late_requests() {
            let stamp = request.describe().subjects.each_inode().find_map(|ino| made.get(&ino));
            let Some(stamp) = stamp.copied() else {
                self.opens.reopened(open, Err(Code::Io));
                continue;
            };
            match self.begin_own(&request, Role::Reopens(open)) {
                Ok((number, body)) => {
                    let replayed = Replayed { stamp, node: None, time: None };
                    self.send_replay(number, &replayed, body, Arc::default());
                }
                Err(code) => {
                    self.opens.reopened(open, Err(code));
                }
            }
        }
    }

    fn send_replay(&mut self, number: u64, replayed: &Replayed, body: Arc<[u8]>, bulk: Arc<[u8]>) {
        let Some(link) = &self.link else { return };
        let mut start = Vec::with_capacity(64);
        codec::encode_replayed(replayed, &mut start);
        let bytes = start.len() + body.len();
        let head = self.header(FrameKind::Replay, number, bytes, bulk.len());
        link.send([head, Bytes::Owned(start), Bytes::Shared(body), Bytes::Shared(bulk)]);
        self.sent = boot_time();
    }
}
