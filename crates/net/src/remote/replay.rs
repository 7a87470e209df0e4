//! The replay of mutations that were answered and may be lost with the server's machine. Each one
//! is logged until it is safe, and sent again, with its answer, to a later epoch of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use pelago_wire::codec::{self, Replayed, ReplyStamp};
use pelago_wire::frame::FrameKind;
use pelago_wire::{Code, Error, OpenId, Origin, Reply, limits};

use super::calls::{State, UnderWay};
use super::replay_log::ReplayEntry;
use super::role::Role;
use crate::clock::boot_time;
use crate::link::Bytes;

impl State {
    /// Logs a mutation that was answered, until it is safe.
    pub(super) fn log_for_replay(
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
        // By its answer the server knows it, if it is not lost.
        let origin = call.origin.map(|origin| Origin { may_be_repeated: false, ..origin });
        let entry = ReplayEntry { body, bulk, origin, opens: call.opens, made, node, time };
        self.replay_log.insert(number, entry, stamp);
        self.ping_if_half_full();
    }

    /// Asks the server what is safe by a ping, before there is no room for further mutations.
    fn ping_if_half_full(&mut self) {
        let is_half = self.machine.unacknowledged() > limits::SESSION_MUTATIONS / 2
            || self.replay_log.bytes() > self.bytes.replay_log / 2;
        if is_half && self.replay_log.pinged_at.is_none() {
            self.replay_log.pinged_at = Some(self.replay_log.newest);
            self.send_ping();
        }
    }

    /// Records the newest safe sequence of the server's epoch.
    pub(super) fn note_safe(&mut self, sequence: u64) {
        let Some(epoch) = self.epoch() else { return };
        let stamp = ReplyStamp { epoch, sequence };
        self.replay_log.safe(stamp);
        let over = self.machine.safe(stamp);
        for number in &over {
            self.replay_log.remove(*number);
        }
        if !over.is_empty() {
            self.ping_if_half_full();
            self.send_backlog();
            self.send_origin_ends();
        }
    }

    /// Records the answer to a replayed mutation. `is_kept`: it is still not safe.
    pub(super) fn replayed(
        &mut self,
        number: u64,
        is_kept: bool,
        stamp: ReplyStamp,
        result: &Result<Reply, Error>,
    ) {
        let Some(entry) = self.replay_log.remove(number) else { return };
        if let Err(error) = result {
            let inode = entry.node.map(|node| node.ino);
            tracing::warn!(?inode, %error, "a change that was answered is lost");
        }
        if let Role::Opens { open, .. } = entry.opens.role
            && self.opens.node(open).is_none()
        {
            // The program has closed the file, and the replay has opened it again.
            self.release_unwanted(open);
        }
        if is_kept {
            self.replay_log.insert(number, entry, stamp);
        }
        self.send_backlog();
    }

    /// Returns whether the server did not find a file that is opened again, and a mutation that is
    /// about to be replayed creates it. After a `kill -9` of the server the file is there, with its
    /// locks.
    pub(super) fn is_made_later(&self, open: OpenId, reopened: Result<(), Code>) -> bool {
        let Some(node) = self.opens.node(open) else { return false };
        let mut made = self.replay_log.entries.values().filter_map(|entry| entry.made);
        self.reclaiming && reopened == Err(Code::Stale) && made.any(|it| it.ino == node.ino)
    }

    /// Replays the mutations that an earlier run of the server has answered, then opens the files
    /// again that they create.
    pub(super) fn send_replays(&mut self) {
        let mut made = BTreeMap::new();
        let replays: Vec<_> = self.machine.replays().collect();
        for (number, stamp) in replays {
            let Some(entry) = self.replay_log.entries.get(&number) else { continue };
            if let Some(node) = entry.made {
                made.entry(node.ino).or_insert(stamp);
            }
            let replayed = Replayed { stamp, node: entry.node, time: entry.time };
            let body = Arc::clone(&entry.body);
            let bulk = Arc::clone(&entry.bulk);
            let origin = entry.origin;
            self.send_replay(number, &replayed, origin.as_ref(), body, bulk);
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
                    self.send_replay(number, &replayed, None, body, Arc::default());
                }
                Err(code) => {
                    self.opens.reopened(open, Err(code));
                }
            }
        }
    }

    fn send_replay(
        &mut self,
        number: u64,
        replayed: &Replayed,
        origin: Option<&Origin>,
        body: Arc<[u8]>,
        bulk: Arc<[u8]>,
    ) {
        let Some(link) = &self.link else { return };
        let mut start = Vec::with_capacity(96);
        let kind = match origin {
            Some(origin) => {
                codec::encode_origin(origin, &mut start);
                FrameKind::ForwardReplay
            }
            None => FrameKind::Replay,
        };
        codec::encode_replayed(replayed, &mut start);
        let bytes = start.len() + body.len();
        let head = self.header(kind, number, bytes, bulk.len());
        link.send([head, Bytes::Owned(start), Bytes::Shared(body), Bytes::Shared(bulk)]);
        self.sent = boot_time();
    }
}
