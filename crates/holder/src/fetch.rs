//! Reads that are answered from fetched bytes, and the requests that fetch them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, InodeId, Reply, Request, RequestId, limits,
};

use crate::clock;
use crate::copies::{BlockLease, FileVersion};
use crate::fetched::{Fetch, Landing, Range, ReadPath};
use crate::holder::Holder;
use crate::state::{FetchableRead, NeededBlock, State, WaitingRead};

/// Blocks that a read waits for, at most, before it goes to the server: twice those of the largest
/// read, because a block may be dropped again before the last one is here.
const WAITS: usize = 2 * (limits::IO_BYTES / limits::FETCH_BLOCK_BYTES + 1);

/// The next steps of reads, which are taken without the lock of the state.
#[derive(Default)]
struct Steps {
    fetches: Vec<NeededBlock>,
    answers: Vec<(Done, Result<Reply, Error>)>,
    /// Reads that go to the server as they came.
    sent: Vec<WaitingRead>,
}

impl FetchableRead {
    fn request(&self) -> Request {
        let Range { open, offset, size, .. } = self.range;
        Request::Read { open, offset, size: u32::try_from(size).unwrap_or(u32::MAX) }
    }
}

impl Holder {
    /// Returns a request as a read whose bytes may be fetched, if it is one.
    pub(crate) fn fetchable(&self, context: &Context, request: &Request) -> Option<FetchableRead> {
        let Request::Read { open, offset, size } = *request else { return None };
        if self.service.lease_left().is_zero() || self.service.has_lost_lock(open) {
            return None;
        }
        let state = self.state.lock();
        if !state.is_only_cache || state.opens.failure(open).is_some() {
            return None;
        }
        let ino = state.opens.fetch_inode(open)?;
        state.fetchable_size(ino)?;
        // The server refuses a longer one.
        let size = usize::try_from(size).ok().filter(|size| *size <= limits::IO_BYTES)?;
        let range = Range { ino, open, offset, size };
        Some(FetchableRead { context: *context, range, is_copied: false })
    }

    /// Returns the read, with whether there are copies of all its blocks.
    fn look_for_copies(&self, read: FetchableRead) -> FetchableRead {
        let Some(copies) = self.copies.get() else { return read };
        let version = self.state.lock().version(read.range.ino);
        let is_copied = version.is_some_and(|version| {
            let Range { offset, size, .. } = read.range;
            let end = offset.saturating_add(size as u64).min(version.size);
            let block = limits::FETCH_BLOCK_BYTES as u64;
            offset < end && copies.has(&version, offset / block..end.div_ceil(block))
        });
        FetchableRead { is_copied, ..read }
    }

    /// Returns the bytes of a read, if they are here and nothing is to be fetched.
    pub(crate) fn take_fetched(&self, read: &FetchableRead) -> Option<Vec<u8>> {
        self.state.lock().fetched.take(read.range)
    }

    /// Answers a read now, once its bytes are fetched, or with the reply to a request of its own.
    pub(crate) fn fetch_or_send(self: &Arc<Self>, read: FetchableRead, done: Done) {
        let read = self.look_for_copies(read);
        let now = clock::monotonic();
        let mut steps = Steps::default();
        let waiting = WaitingRead { read, since: now, waits: 0, done };
        self.state.lock().plan_read(waiting, now, &mut steps);
        self.take_steps(steps);
    }

    /// Ends the wait of a read. Returns whether it was one that waits for fetched bytes.
    pub(crate) fn cancel_read(&self, request: RequestId) -> bool {
        let is_it = |waiting: &WaitingRead| waiting.read.context.request == request;
        let waiting = self.state.lock().fetched.cancel(is_it);
        let was_waiting = waiting.is_some();
        if let Some(WaitingRead { done, .. }) = waiting {
            done(Err(Code::Interrupted.into()));
        }
        was_waiting
    }

    fn take_steps(self: &Arc<Self>, steps: Steps) {
        let Steps { fetches, answers, sent } = steps;
        self.take_blocks(fetches);
        for (done, answer) in answers {
            done(answer);
        }
        for WaitingRead { read, done, .. } in sent {
            self.send_with(&read.context, read.request(), done);
        }
    }

    /// Returns the copy of a block, if there is one.
    pub(crate) fn copy_of(&self, fetch: &Fetch) -> Option<Vec<u8>> {
        self.copies.get()?.block(&fetch.version?, fetch.block(), fetch.bytes)
    }

    /// Sends the request for a block, through the open of its read.
    pub(crate) fn fetch(self: &Arc<Self>, needed: &NeededBlock) {
        let NeededBlock { read, fetch } = needed;
        let number = fetch.number;
        let block = fetch.block();
        let copies = self.copies.get().zip(fetch.version);
        self.state.lock().fetched.note_sent(number, clock::monotonic());
        let size = u32::try_from(fetch.bytes).unwrap_or(u32::MAX);
        let request = Request::Read { open: read.range.open, offset: fetch.offset, size };
        // No program waits for this request itself, so none cancels it.
        let context = Context { request: RequestId(0), ..read.context };
        let holder = Arc::clone(self);
        let asked = fetch.bytes;
        let lease = self.block_lease(read.range.ino, fetch.lease);
        let keep = copies.map(|(copies, version)| (Arc::clone(copies), version));
        let landed = move |result: Result<Reply, Error>| {
            if let (Ok(Reply::Data(buffer)), Some((copies, version))) = (&result, keep)
                && buffer.as_bytes().len() == asked
            {
                copies.keep(&version, block, buffer.as_bytes(), lease);
            }
            holder.land_sent(number, result);
        };
        self.send_with(&context, request, Box::new(landed));
    }

    /// Returns the lease on a file that has this number.
    pub(crate) fn block_lease(&self, ino: InodeId, number: u64) -> BlockLease {
        let holder = Weak::clone(&self.this);
        BlockLease::new(move || {
            let Some(holder) = holder.upgrade() else { return false };
            let has_time = !holder.service.lease_left().is_zero();
            has_time && holder.state.lock().fetched.is_leased(ino, number)
        })
    }

    /// Handles the reply with a block.
    fn land_sent(self: &Arc<Self>, number: u64, result: Result<Reply, Error>) {
        let (landing, late) = match result {
            Ok(Reply::Data(buffer)) => (Landing::Sent(buffer.into_bytes()), None),
            Ok(_) => (Landing::Failed, None),
            Err(error) => (Landing::Failed, Some(error).filter(|error| is_late(error.code))),
        };
        self.land(number, landing, late);
    }

    /// Handles the end of the flight of a block. `late`: the error of a request that got no answer
    /// in time.
    pub(crate) fn land(self: &Arc<Self>, number: u64, landing: Landing, late: Option<Error>) {
        let now = clock::monotonic();
        let mut steps = Steps::default();
        let mut state = self.state.lock();
        let landed = state.fetched.land(number, landing, now);
        for waiting in landed.waiting {
            match late {
                _ if landed.is_here => state.plan_read(waiting, now, &mut steps),
                // It has waited for as long as a request may.
                Some(error) if waiting.since <= landed.since => {
                    steps.answers.push((waiting.done, Err(error)));
                }
                Some(_) | None => steps.sent.push(waiting),
            }
        }
        drop(state);
        self.take_steps(steps);
    }

    /// Sends a request without bytes, and calls `done` with its answer.
    pub(crate) fn send_with(self: &Arc<Self>, context: &Context, request: Request, done: Done) {
        let mut done = Some(done);
        let mut later = || -> Done { done.take().unwrap_or_else(|| Box::new(|_| {})) };
        let answer = self.send_in_order(context, request, Bulk::None, &mut later);
        if let (Some(result), Some(done)) = (answer, done) {
            done(result);
        }
    }
}

/// Returns whether this is the error of a request that got no answer in time.
const fn is_late(code: Code) -> bool {
    matches!(code, Code::TimedOut | Code::HostDown)
}

impl State {
    /// Decides the next steps of a read.
    fn plan_read(&mut self, waiting: WaitingRead, now: Duration, steps: &mut Steps) {
        let read = waiting.read;
        // The open may have ended while the read has waited.
        let is_open = self.opens.fetch_inode(read.range.open).is_some();
        let is_fetched = is_open && waiting.waits < WAITS;
        let size = self.fetchable_size(read.range.ino).filter(|_| is_fetched);
        let Some(size) = size else { return steps.sent.push(waiting) };
        if let Some(version) = self.version(read.range.ino) {
            self.fetched.begin(version);
        }
        let (path, fetches) = self.fetched.read(read.range, size, read.is_copied, now);
        steps.fetches.extend(fetches.into_iter().map(|fetch| NeededBlock { read, fetch }));
        match path {
            ReadPath::Waits(number) => {
                let waits = waiting.waits + 1;
                self.fetched.wait(number, WaitingRead { waits, ..waiting });
            }
            ReadPath::Here(bytes) => {
                steps.answers.push((waiting.done, Ok(Reply::Data(Buffer::new(bytes)))));
            }
            ReadPath::ToServer => steps.sent.push(waiting),
        }
    }

    /// Returns the version of a file of which something may be fetched.
    fn version(&self, ino: InodeId) -> Option<FileVersion> {
        if self.fetched.size(ino).is_some() {
            // The attributes that are cached now may be of a later time.
            return self.fetched.version(ino);
        }
        self.cached.attr(ino).as_ref().map(FileVersion::from)
    }

    /// Returns the size of a file whose bytes no other session may change, and of which none is
    /// dirty here.
    fn fetchable_size(&self, ino: InodeId) -> Option<u64> {
        if self.dirty.size(ino).is_some() || self.changes.is_node_changing(ino) {
            return None;
        }
        // A read drops the attributes, whose time of access it changes, and not the lease.
        let known = self.fetched.size(ino);
        known.or_else(|| Some(self.cached.attr(ino)?.size))
    }
}
