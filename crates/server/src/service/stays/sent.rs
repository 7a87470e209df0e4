//! Small new files, whose bytes go home with their close.
//!
//! The node here goes once the home has all bytes. If the answer is lost with the line the file is
//! *sent*: its home has these bytes, or none, or those of another writer. It is asked later.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use pelago_data::{MayBlock, OpError, OpenKey};
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, InodeId, OpenFlags, OpenId, Reply, Request,
    SessionId, WriteFlags, limits,
};

use super::writer::StayingFile;
use super::{Dispatcher, lost_bytes, of_part};
use crate::pool::Invocation;
use crate::stays::{News, OnTold};

/// The distance of the numbers of opens of nodes here, which are compared, from the largest number:
/// no client has such a number.
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
        let most = self.parts.sites.stay_least_bytes;
        // Until the gate was closed another program may have made it longer.
        let read = self.parts.opens.read(open, 0, most as u32 + 1, MayBlock::Yes, None);
        let read = read.ok().map(|bytes| bytes.into_bytes()).filter(|bytes| bytes.len() <= most);
        let upstream = self.parts.sites.upstream(staying.home());
        let era = upstream.as_ref().ok().and_then(|it| it.bytes_era(open.session, open.open));
        let (Some(bytes), Ok(upstream), Some(era)) = (read, upstream, era) else {
            stays.open_gate(staying.node);
            return self.tell_news(news);
        };
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
                    if let Some(line) = line.upgrade().filter(|_| length > 0) {
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
        let this = Arc::clone(self);
        let answered: Done = Box::new(move |result| {
            let bytes = match result {
                Ok(Reply::Data(data)) => Ok(data.as_bytes().to_vec()),
                Ok(_) => Err(Code::Io.into()),
                Err(error) => Err(error),
            };
            let comparing = Arc::clone(&this);
            this.in_pool(move |invocation| match (invocation, bytes) {
                (Invocation::Run, Ok(bytes)) => comparing.compare_sent(news, bytes, waiting),
                (Invocation::Run, Err(error)) => {
                    comparing.sent_is_known(news, Err(error), waiting);
                }
                (Invocation::Cancelled, _) => {
                    let stopped = Err(Code::Unavailable.into());
                    comparing.sent_is_known(news, stopped, waiting);
                }
            });
        });
        let size = limits::STAY_LEAST_BYTES as u32 + 1;
        let read = move |open| Request::Read { open, offset: 0, size };
        upstream.ask_through_open(file, read, answered);
    }

    /// Compares the bytes of a node with those that its file has at its home, while nothing changes
    /// them here.
    fn compare_sent(self: &Arc<Self>, news: News, bytes: Vec<u8>, waiting: Vec<OnTold>) {
        let parked = Arc::new(Mutex::new(Some((bytes, waiting))));
        let this = Arc::clone(self);
        let of_quiet = Arc::clone(&parked);
        let compare = move || {
            let Some((bytes, waiting)) = of_quiet.lock().take() else { return };
            let is_as_sent = this.parts.sites.stays.is_as_sent(news.node);
            let is_same = match is_as_sent {
                true => this.has_bytes(news.node, &bytes),
                // Something was written after it was sent.
                false => Ok(false),
            };
            this.sent_is_known(news, is_same, waiting);
        };
        let again = compare.clone();
        let this = Arc::clone(self);
        let quiet = Box::new(move || {
            compare();
            this.parts.sites.stays.open_gate(news.node);
        });
        if !self.parts.sites.stays.close_gate(news.node, quiet) {
            // What has closed it waits for this telling, and lets nothing change meanwhile.
            again();
        }
    }

    /// Returns whether a node has exactly these bytes. May read the disk.
    fn has_bytes(&self, node: InodeId, bytes: &[u8]) -> Result<bool, Error> {
        let open = OpenId(u64::MAX - COMPARING - node.counter());
        let key = OpenKey { session: SessionId::DIRECT, open };
        let opens = &self.parts.opens;
        let opened = opens.open(key, Handle::own(node), OpenFlags::READ, MayBlock::Yes);
        opened.map_err(of_op)?;
        let size = limits::STAY_LEAST_BYTES as u32 + 1;
        let here = opens.read(key, 0, size, MayBlock::Yes, None);
        if let Err(error) = opens.release(key, MayBlock::Yes) {
            tracing::debug!(?error, %node, "a node that was compared stays open");
        }
        Ok(here.map_err(of_op)?.into_bytes() == bytes)
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
            // It is told again; only the answer to that says for good that the file is gone.
            Err(error) => Err(error),
        };
        self.end_news(news, None, answer, waiting);
    }
}

fn of_op(error: OpError) -> Error {
    match error {
        OpError::Failed(error) => error,
        OpError::WouldBlock => Code::Bug.into(),
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
