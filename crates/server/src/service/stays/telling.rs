//! Telling the homes of files whose bytes are here what was written, and asking them later whether
//! the bytes are still needed.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pelago_data::OpenKey;
use pelago_store::rows::StayState;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, InodeId, PlaceFlags, Reply, Request, Time,
};

use super::{Dispatcher, lost_bytes};
use crate::stays::{News, OnTold};

/// The pause before a home is told again what it could not be told.
const PAUSE: Duration = Duration::from_secs(1);

/// The time between two questions whether bytes are still needed.
const ASK_INTERVAL: Duration = Duration::from_secs(60);

/// Questions at a time.
const ASK_AT_ONCE: usize = 64;

impl Dispatcher {
    /// Tells the home of the file of a node what was written here, and calls `then` once it knows.
    pub(in crate::service) fn tell(self: &Arc<Self>, node: InodeId, then: OnTold) {
        let (news, then) = self.parts.sites.stays.begin_telling(node, then);
        if let Some(then) = then {
            return then(Ok(()));
        }
        if let Some(news) = news {
            self.tell_news(news);
        }
    }

    /// Tells the home of a file these news.
    pub(super) fn tell_news(self: &Arc<Self>, news: News) {
        match self.parts.sites.upstream(news.row.file.ino.site()) {
            // The bytes may be on their way still.
            Ok(upstream) if news.may_arrive => {
                let this = Arc::clone(self);
                upstream.when_settled(Box::new(move || this.tell_now(news)));
            }
            Ok(_) | Err(_) => self.tell_now(news),
        }
    }

    fn tell_now(self: &Arc<Self>, news: News) {
        if news.row.state == StayState::Kept {
            let waiting = self.parts.sites.stays.take_waiting(news.node);
            return self.told(news, Err(lost_bytes()), waiting);
        }
        let News { node, row, kills_privileges, .. } = news;
        let waiting = self.parts.sites.stays.take_waiting(node);
        let attr = match self.parts.shard.attr(Handle::own(node)) {
            Ok(attr) => attr,
            // An error of this site says nothing about the file.
            Err(error) => {
                tracing::error!(%error, %node, "what was written here cannot be told");
                return self.told(news, Err(lost_bytes()), waiting);
            }
        };
        let upstream = match self.parts.sites.upstream(row.file.ino.site()) {
            Ok(upstream) => upstream,
            Err(error) => return self.told(news, Err(error), waiting),
        };
        let this = Arc::clone(self);
        let size = attr.size;
        let answered: Done = Box::new(move |result| match result {
            Ok(Reply::Attr(_)) => this.told(news, Ok(size), waiting),
            Ok(_) => this.told(news, Err(Code::Io.into()), waiting),
            Err(error) => this.told(news, Err(error), waiting),
        });
        self.parts.sites.stays.note_told(node);
        let request = Request::SetBytes {
            node: row.file,
            at: node,
            size,
            mtime: attr.mtime,
            since: row.since,
            flags: PlaceFlags {
                asks: false,
                given: row.state == StayState::Given,
                kill_privileges: kills_privileges,
            },
        };
        upstream.ask(&Context::direct(0, 0), request, Bulk::None, answered);
    }

    /// Handles the answer of a home to these news.
    pub(super) fn told(
        self: &Arc<Self>,
        news: News,
        result: Result<u64, Error>,
        waiting: Vec<OnTold>,
    ) {
        let stays = &self.parts.sites.stays;
        let node = news.node;
        stays.answer(node);
        let state = stays.row(node).map(|row| row.state);
        let answer = match (result, state) {
            // It was kept meanwhile.
            (Ok(_), Some(StayState::Kept)) => Err(lost_bytes()),
            (Ok(_), _) => Ok(()),
            (Err(error), Some(StayState::Sent)) if error.code == Code::Exists => {
                return self.settle_sent(news, waiting);
            }
            // The home has taken them, or has emptied the file.
            (Err(error), Some(StayState::Given)) if error.code == Code::Exists => {
                self.end_stay(node);
                Ok(())
            }
            (Err(error), _) if error.code == Code::Exists => {
                self.keep_stay(node);
                Err(lost_bytes())
            }
            (Err(error), _) if error.code == Code::Stale => {
                // The file is gone, and its bytes with it.
                self.end_stay(node);
                Ok(())
            }
            (Err(error), _) => Err(error),
        };
        self.end_news(news, result.ok(), answer, waiting);
    }

    /// Ends these news, of which the home knows now that the file has so many bytes; `None` if it
    /// does not.
    pub(super) fn end_news(
        self: &Arc<Self>,
        news: News,
        told: Option<u64>,
        answer: Result<(), Error>,
        waiting: Vec<OnTold>,
    ) {
        let node = news.node;
        let (row, next) = self.parts.sites.stays.end_telling(news, told);
        if row.is_some() {
            self.put_stay(node);
        }
        if let Some(news) = next {
            self.tell_news(news);
        }
        waiting.into_iter().for_each(|then| then(answer));
    }

    /// Records that the bytes in a node are of no file any more: the file has got others, after
    /// this site had lost its lease. They stay for people.
    pub(super) fn keep_stay(&self, node: InodeId) {
        let Some(row) = self.parts.sites.stays.keep(node) else { return };
        tracing::error!(
            file = %row.file.ino,
            kept = %node,
            "a file has got other bytes at its home; those that were written here are kept"
        );
        self.put_stay(node);
        self.leave_stay(row.file.ino);
    }

    /// Has what is written to a file from now on go to its home, without a lease: what this site
    /// knows of its size under the lease is from before it was written here.
    pub(super) fn leave_stay(&self, file: InodeId) {
        if let Ok(upstream) = self.parts.sites.upstream(file.site()) {
            upstream.give_up_bytes(file);
        }
    }

    /// Writes the row of a node.
    pub(super) fn put_stay(&self, node: InodeId) {
        if let Err(error) = self.parts.sites.stays.write_row(node) {
            tracing::warn!(%error, %node, "the state of bytes is not recorded");
        }
    }

    /// Has a node removed, with its bytes.
    pub(super) fn end_stay(&self, node: InodeId) {
        match self.parts.sites.stays.end(node) {
            Ok(true) => (self.parts.notify_orphans)(),
            Ok(false) => {}
            Err(error) if error.code == Code::Stale => {}
            Err(error) => tracing::warn!(%error, %node, "bytes that are not needed stay here"),
        }
    }

    /// Begins to tell homes again what they could not be told, and to ask whether bytes are still
    /// needed; a second call does nothing.
    pub(in crate::service) fn watch_stays(self: &Arc<Self>) {
        if !self.parts.sites.stays.begin_watching() {
            return;
        }
        let dispatcher = Arc::downgrade(self);
        let run = thread::Builder::new().name("stays".to_owned());
        if let Err(error) = run.spawn(move || watch(&dispatcher)) {
            tracing::error!(%error, "what was written here is told to its home at the next start");
        }
    }

    /// Tells other sites which bytes are not needed any more, because the files of this site that
    /// had them are gone.
    fn drop_freed(self: &Arc<Self>) {
        let all = self.parts.shard.take_freed();
        // A loss of power here must not bring a file back whose bytes are gone.
        if !all.is_empty() && self.when_home_is_safe().is_err() {
            return all.into_iter().for_each(|freed| self.parts.shard.put_freed(freed));
        }
        for freed in all {
            match self.parts.shard.is_gone(freed.file) {
                Ok(true) => {}
                // It may come back for a moment, or the table could not be asked.
                Ok(false) | Err(_) => {
                    self.parts.shard.put_freed(freed);
                    continue;
                }
            }
            let Ok(upstream) = self.parts.sites.upstream(freed.node.site()) else { continue };
            let request =
                Request::DropBytes { node: Handle::own(freed.node), file: freed.file.ino };
            upstream.ask(&Context::direct(0, 0), request, Bulk::None, Box::new(|_dropped| {}));
        }
    }

    fn ask_if_needed(self: &Arc<Self>, asked: News) {
        let News { node, row, .. } = asked;
        let Ok(upstream) = self.parts.sites.upstream(row.file.ino.site()) else { return };
        if upstream.is_silent() {
            return;
        }
        let this = Arc::clone(self);
        let answered: Done = Box::new(move |result| {
            let Err(error) = result else { return };
            let is_as_asked = this.parts.sites.stays.row(node) == Some(row);
            match (error.code, row.state) {
                _ if !is_as_asked => {}
                (Code::Stale, _) | (Code::Exists, StayState::Given) => this.end_stay(node),
                // A crash of the home may have lost what it was told. It takes it again if the file
                // has no other bytes.
                (Code::Exists, StayState::Told) => {
                    this.parts.sites.stays.tell_again(node);
                    this.tell(node, Box::new(|_told| {}));
                }
                _ => {}
            }
        });
        let request = Request::SetBytes {
            node: row.file,
            at: node,
            size: row.told_size,
            mtime: Time::default(),
            since: row.since,
            flags: PlaceFlags { asks: true, ..PlaceFlags::default() },
        };
        upstream.ask(&Context::direct(0, 0), request, Bulk::None, answered);
    }
}

/// Tells and asks again and again.
fn watch(dispatcher: &Weak<Dispatcher>) {
    // At a start what was missed is heard of at once.
    let mut asked_at: Option<Instant> = None;
    let mut to_ask = Vec::new();
    loop {
        thread::sleep(PAUSE);
        let Some(dispatcher) = dispatcher.upgrade() else { return };
        if *dispatcher.stopped.read() {
            return;
        }
        let has_bytes = |site, open: OpenKey| {
            let upstream = dispatcher.parts.sites.upstream(site);
            upstream.is_ok_and(|upstream| upstream.has_bytes(open.session, open.open))
        };
        for node in dispatcher.parts.sites.stays.untold(has_bytes) {
            dispatcher.tell(node, Box::new(|_told| {}));
        }
        let stuck = dispatcher.parts.sites.stays.take_stuck(|site| {
            let upstream = dispatcher.parts.sites.upstream(site);
            upstream.is_ok_and(|upstream| upstream.is_silent())
        });
        stuck.into_iter().for_each(|then| then(Err(Code::HostDown.into())));
        dispatcher.drop_freed();
        let is_due = asked_at.is_none_or(|at| at.elapsed() >= ASK_INTERVAL);
        if to_ask.is_empty() && is_due {
            asked_at = Some(Instant::now());
            to_ask = dispatcher.parts.sites.stays.quiet();
        }
        let from = to_ask.len().saturating_sub(ASK_AT_ONCE);
        for asked in to_ask.split_off(from) {
            dispatcher.ask_if_needed(asked);
        }
    }
}
