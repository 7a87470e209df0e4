//! Small new files, whose bytes go home with their close.
//!
//! The node here goes once the home has all bytes. If the answer is lost with the line the file is
//! *sent*: its home has these bytes, or none, or those of another writer. It is asked later.

use std::sync::Arc;
use std::time::Instant;

use pelago_data::{MayBlock, OpenKey};
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, OpenFlags, OpenId, Reply, Request, SessionId,
    WriteFlags, limits,
};

use super::writer::StayingFile;
use super::{Dispatcher, lost_bytes, of_part};
use crate::pool::Invocation;
use crate::stays::{News, OnTold};

/// The distance of the numbers of opens that compare bytes from those of opens that bring bytes
/// home: no client has either.
const COMPARING: u64 = 1 << 40;

impl Dispatcher {
    /// Returns whether all that was written fits into one request, so that nothing is gained if it
    /// stays here.
    pub(super) fn is_small(&self, staying: StayingFile, open: OpenKey) -> bool {
        let is_new = self.parts.sites.stays.is_unheard_of(staying.node);
        let attr = self.parts.shard.attr(Handle::own(staying.node));
        let upstream = self.parts.sites.upstream(staying.home());
        let of_line = upstream.map_or(0, |upstream| upstream.close_bytes());
        let most = self.parts.sites.stay_least_bytes.min(of_line) as u64;
        let is_small = attr.is_ok_and(|attr| attr.size <= most);
        is_new && is_small && self.may_tell_later(staying, open)
    }

    /// Sends the bytes of a small file to its home, which has all of it then. This is a telling as
    /// any other: what else would tell the home waits for it.
    pub(super) fn send_small(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        then: OnTold,
    ) {
        let stays = &self.parts.sites.stays;
        let (news, then) = stays.begin_telling(staying.node, then);
        if let Some(then) = then {
            return then(Ok(()));
        }
        let Some(news) = news else { return };
        let this = Arc::clone(self);
        let context = of_part(context);
        let quiet = Box::new(move || this.send_all(&context, staying, open, news));
        if !stays.close_gate(staying.node, quiet) {
            // They are being given to the home.
            self.tell_news(news);
        }
    }

    /// Sends all bytes of a node, which nothing changes meanwhile, and removes it.
    fn send_all(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        news: News,
    ) {
        let stays = &self.parts.sites.stays;
        let size = self.parts.sites.stay_least_bytes as u32;
        let read = self.parts.opens.read(open, 0, size, MayBlock::Yes, None);
        let upstream = self.parts.sites.upstream(staying.home());
        let era = upstream.as_ref().ok().and_then(|it| it.bytes_era(open.session, open.open));
        let (Ok(bytes), Ok(upstream), Some(era)) = (read, upstream, era) else {
            stays.open_gate(staying.node);
            return self.tell_news(news);
        };
        let bytes = bytes.into_bytes();
        // Not held back: the node goes when the home has all of them. What this site knows under
        // the lease, that the file is empty, is not true any more.
        upstream.give_up_bytes(staying.file);
        let this = Arc::clone(self);
        let line = Arc::downgrade(&upstream);
        let began = Instant::now();
        let length = bytes.len();
        let sent: Done =
            Box::new(move |result| match result.and_then(|it| whole(&it, length as u64)) {
                Ok(()) => {
                    if let Some(line) = line.upgrade() {
                        line.note_answer(length, began.elapsed());
                    }
                    // Who waits is answered by the removal.
                    this.end_stay(staying.node);
                }
                Err(error) => {
                    let stays = &this.parts.sites.stays;
                    if !may_have_arrived(error) && stays.set_sent(staying.node, false).is_some() {
                        this.put_stay(staying.node);
                    }
                    stays.open_gate(staying.node);
                    if error.code == Code::LeaseLost {
                        // The home says whether the file has other bytes.
                        return this.tell_news(news);
                    }
                    let waiting = stays.take_waiting(staying.node);
                    this.told(news, Err(error), waiting);
                }
            });
        if bytes.is_empty() && !news.kills_privileges {
            return sent(Ok(Reply::Written { bytes: 0, size: 0 }));
        }
        if stays.set_sent(staying.node, true).is_some() {
            self.put_stay(staying.node);
        }
        let kill_privileges = news.kills_privileges;
        // Only under the lease: if it arrives late, another site may have written since.
        let behind = Some(era);
        let flags = WriteFlags { append: false, behind, commit: true, kill_privileges };
        let write = Request::Write { open: open.open, offset: 0, flags };
        upstream.ask(context, write, Bulk::Owned(bytes), sent);
    }

    /// Finds out whether a file has the bytes that were sent to its home, although the answer was
    /// lost: the home has said that it has some.
    pub(super) fn settle_sent(self: &Arc<Self>, news: News, waiting: Vec<OnTold>) {
        let file = news.row.file;
        let upstream = match self.parts.sites.upstream(file.ino.site()) {
            Ok(upstream) => upstream,
            Err(error) => return self.sent_is_known(news, Err(error), waiting),
        };
        let open = OpenId(u64::MAX - COMPARING - file.ino.counter());
        let context = Context::direct(0, 0);
        let this = Arc::clone(self);
        let there = Arc::downgrade(&upstream);
        let opened: Done = Box::new(move |result| {
            let (Ok(_), Some(upstream)) = (&result, there.upgrade()) else {
                let error = result.err().unwrap_or_else(|| Code::Unavailable.into());
                return this.sent_is_known(news, Err(error), waiting);
            };
            let read: Done = Box::new(move |result| {
                if let Some(upstream) = there.upgrade() {
                    let release = Request::Release { open };
                    upstream.ask(&context, release, Bulk::None, Box::new(|_released| {}));
                }
                let bytes = match result {
                    Ok(Reply::Data(data)) => Ok(data.as_bytes().to_vec()),
                    Ok(_) => Err(Code::Io.into()),
                    Err(error) => Err(error),
                };
                let comparing = Arc::clone(&this);
                this.in_pool(move |invocation| {
                    let is_same = match invocation {
                        Invocation::Run => bytes.map(|bytes| comparing.has_bytes(&news, &bytes)),
                        Invocation::Cancelled => Err(Code::Unavailable.into()),
                    };
                    comparing.sent_is_known(news, is_same, waiting);
                });
            });
            let size = limits::STAY_LEAST_BYTES as u32 + 1;
            upstream.ask(&context, Request::Read { open, offset: 0, size }, Bulk::None, read);
        });
        let flags = OpenFlags { no_atime: true, ..OpenFlags::READ };
        upstream.ask(&context, Request::Open { node: file, flags, open }, Bulk::None, opened);
    }

    /// Returns whether the node of these news has exactly these bytes. May read the disk.
    fn has_bytes(&self, news: &News, bytes: &[u8]) -> bool {
        let node = news.node;
        let open = OpenId(u64::MAX - COMPARING - node.counter());
        let key = OpenKey { session: SessionId::DIRECT, open };
        let opens = &self.parts.opens;
        if opens.open(key, Handle::own(node), OpenFlags::READ, MayBlock::Yes).is_err() {
            return false;
        }
        let size = limits::STAY_LEAST_BYTES as u32 + 1;
        let here = opens.read(key, 0, size, MayBlock::Yes, None);
        if let Err(error) = opens.release(key, MayBlock::Yes) {
            tracing::debug!(?error, %node, "a node that was compared stays open");
        }
        here.is_ok_and(|here| here.into_bytes() == bytes)
    }

    /// Ends these news of a file that was sent, once it is known whether its home has its bytes.
    fn sent_is_known(
        self: &Arc<Self>,
        news: News,
        is_same: Result<bool, Error>,
        waiting: Vec<OnTold>,
    ) {
        let answer = match is_same {
            Ok(true) => {
                self.end_stay(news.node);
                Ok(())
            }
            Ok(false) => {
                self.keep_stay(news.node);
                Err(lost_bytes())
            }
            Err(error) if error.code == Code::Stale => {
                self.end_stay(news.node);
                Ok(())
            }
            // It is told again.
            Err(error) => Err(error),
        };
        self.end_news(news, None, answer, waiting);
    }
}

/// Returns whether the home may have carried out a request that was answered with this error here.
const fn may_have_arrived(error: Error) -> bool {
    matches!(error.code, Code::TimedOut | Code::HostDown | Code::Unavailable | Code::Io)
}

/// Checks that a reply to a write says that all bytes were written.
fn whole(reply: &Reply, length: u64) -> Result<(), Error> {
    match reply {
        Reply::Written { bytes, .. } if *bytes == length => Ok(()),
        Reply::Written { .. } => Err(Code::NoSpace.into()),
        _ => Err(Code::Io.into()),
    }
}
