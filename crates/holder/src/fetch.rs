//! Reads that are answered from fetched bytes, and the requests that fetch them.

use std::sync::Arc;

use pelago_wire::{Bulk, Code, Context, Done, Error, InodeId, Reply, Request, RequestId, limits};

use crate::clock;
use crate::fetched::{Fetch, Landed, Range, ReadPath};
use crate::holder::Holder;
use crate::state::{FetchableRead, State, WaitingRead};

impl FetchableRead {
    fn request(&self) -> Request {
        let size = u32::try_from(self.range.size).unwrap_or(u32::MAX);
        Request::Read { open: self.open, offset: self.range.offset, size }
    }
}

impl Holder {
    /// Returns a request as a read whose bytes may be fetched, if it is one.
    pub(crate) fn fetchable(&self, context: &Context, request: &Request) -> Option<FetchableRead> {
        let Request::Read { open, offset, size } = *request else { return None };
        if self.service.lease_left().is_zero() {
            return None;
        }
        let state = self.state.lock();
        if !state.is_only_cache {
            return None;
        }
        let ino = state.opens.fetch_inode(open)?;
        state.fetchable_size(ino)?;
        // The server refuses a longer one.
        let size = usize::try_from(size).ok().filter(|size| *size <= limits::IO_BYTES)?;
        let range = Range { ino, offset, size };
        Some(FetchableRead { context: *context, open, range })
    }

    /// Returns the bytes of a read, if they are here and nothing is to be fetched.
    pub(crate) fn take_fetched(&self, read: &FetchableRead) -> Option<Vec<u8>> {
        self.state.lock().fetched.take(read.range)
    }

    /// Answers a read now, once its bytes are fetched, or with the reply to a request of its own.
    pub(crate) fn fetch_or_send(self: &Arc<Self>, waiting: WaitingRead) {
        let read = waiting.read;
        let mut waiting = Some(waiting);
        let mut state = self.state.lock();
        let size = state.fetchable_size(read.range.ino);
        let planned = size.map(|size| state.fetched.read(read.range, size, clock::monotonic()));
        let (answer, fetches) = planned.unwrap_or((ReadPath::ToServer, Vec::new()));
        if let ReadPath::Waits(number) = answer
            && let Some(waiting) = waiting.take()
        {
            state.fetched.wait(number, waiting);
        }
        drop(state);
        for fetch in fetches {
            self.fetch(&read, &fetch);
        }
        match (answer, waiting) {
            (ReadPath::Here(bytes), Some(WaitingRead { done, .. })) => {
                done(Ok(Reply::Data(pelago_wire::Buffer::new(bytes))));
            }
            (_, Some(waiting)) => self.send_read(waiting),
            (_, None) => {}
        }
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

    /// Sends the request for a block, through the open of this read.
    fn fetch(self: &Arc<Self>, read: &FetchableRead, fetch: &Fetch) {
        let number = fetch.number;
        let size = u32::try_from(fetch.bytes).unwrap_or(u32::MAX);
        let request = Request::Read { open: read.open, offset: fetch.offset, size };
        // No program waits for this request itself, so none cancels it.
        let context = Context { request: RequestId(0), ..read.context };
        let holder = Arc::clone(self);
        let landed = move |result| holder.land(number, result);
        self.send_with(&context, request, Box::new(landed));
    }

    /// Handles the reply with a block.
    fn land(self: &Arc<Self>, number: u64, result: Result<Reply, Error>) {
        let bytes = match result {
            Ok(Reply::Data(buffer)) => Some(buffer.into_bytes()),
            Ok(_) | Err(_) => None,
        };
        let Landed { waiting, is_here } =
            self.state.lock().fetched.land(number, bytes, clock::monotonic());
        for waiting in waiting {
            match is_here {
                // It may need another block too.
                true => self.fetch_or_send(waiting),
                false => self.send_read(waiting),
            }
        }
    }

    /// Sends a read as it came.
    fn send_read(self: &Arc<Self>, WaitingRead { read, done }: WaitingRead) {
        self.send_with(&read.context, read.request(), done);
    }

    /// Sends a request without bytes, and calls `done` with its answer.
    fn send_with(self: &Arc<Self>, context: &Context, request: Request, done: Done) {
        let mut done = Some(done);
        let mut later = || -> Done { done.take().unwrap_or_else(|| Box::new(|_| {})) };
        let answer = self.send_in_order(context, request, Bulk::None, &mut later);
        if let (Some(result), Some(done)) = (answer, done) {
            done(result);
        }
    }
}

impl State {
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
