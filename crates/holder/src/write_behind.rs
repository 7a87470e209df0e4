//! Writes that are answered under a lease, and sent later (write-back).
//!
//! A thread sends dirty bytes when they are due. Bytes that the server refuses are lost: each open
//! that may have written them reports an error once.

use std::sync::Arc;
use std::time::Duration;
use std::{io, mem, thread};

use parking_lot::MutexGuard;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Granted, InodeId, OpenId, Reply, Request, Service, Then,
    Touched, WriteEra, limits,
};

use crate::caller::Caller;
use crate::clock;
use crate::countdown::Countdown;
use crate::dirty::{Buffered, Send, Writer};
use crate::holder::Holder;
use crate::state::{FullWrite, State, WritePath};

/// The pause before the thread looks again at bytes that are due and could not be sent. A reply
/// sends them earlier, if it makes room for them.
const RETRY: Duration = Duration::from_millis(limits::WRITE_BEHIND_MILLIS / 10);

/// Files with lost bytes that are remembered.
const LOST_FILES: usize = 16;

impl Holder {
    /// Buffers writes under leases from now on, and sends them later, on a thread of its own.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn write_behind(self: &Arc<Self>) -> io::Result<()> {
        let timer = Arc::clone(&self.timer);
        let holder = Arc::downgrade(self);
        let run = move || {
            while timer.wait() {
                let Some(holder) = holder.upgrade() else { return };
                let now = clock::monotonic();
                let pause = match holder.next_due() {
                    // A little late is early enough: more bytes go with one request.
                    Some(next) if next > now => next - now,
                    Some(_) => {
                        holder.send_dirty(now);
                        RETRY
                    }
                    None => {
                        timer.disarm();
                        // Bytes may have come since: their call of `arm` did nothing.
                        if holder.next_due().is_some() {
                            timer.arm();
                        }
                        continue;
                    }
                };
                // The holder may end meanwhile.
                drop(holder);
                timer.pause(pause);
            }
        };
        thread::Builder::new().name("write-behind".to_owned()).spawn(run)?;
        self.keep_writes();
        Ok(())
    }

    /// Sets the time that leases of this session last, before the first write: what is held back
    /// must be sent within it when a lease is recalled. Without a call it is that of a machine.
    pub fn set_lease_time(&self, lease: Duration) {
        self.state.lock().dirty.set_lease_time(lease);
    }

    fn next_due(&self) -> Option<Duration> {
        self.state.lock().dirty.next_due()
    }

    /// Buffers writes under leases from now on; the caller sends them, by [`Holder::send_dirty`].
    pub fn keep_writes(&self) {
        self.state.lock().buffers_writes = true;
    }

    /// Sends the dirty bytes that are due at this time of `CLOCK_MONOTONIC`.
    pub fn send_dirty(&self, now: Duration) {
        let Some(this) = self.this.upgrade() else { return };
        let mut state = self.state.lock();
        state.send_due = state.send_due.max(Some(now));
        // A request may be answered in its call, and each answer calls this function: the first
        // call sends for all of them, so that they do not nest.
        if mem::replace(&mut state.is_sending, true) {
            return;
        }
        while let Some(now) = state.send_due.take() {
            let due = state.dirty.take_due(now);
            MutexGuard::unlocked(&mut state, || due.into_iter().for_each(|send| this.send(send)));
        }
        state.is_sending = false;
    }

    /// Holds back no more writes from now on, has the server get those that are held back, and
    /// calls `then` once it has answered all of them.
    pub fn end_write_behind(&self, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let mut state = self.state.lock();
        state.buffers_writes = false;
        let dirty = state.dirty.all();
        drop(state);
        this.flush_all(&dirty, then);
    }

    /// Sets the time after which a request fails, before the first write: what is held back is sent
    /// with requests that are small enough for it, however slow the line is.
    pub fn set_deadline(&self, deadline: Duration) {
        self.state.lock().dirty.set_deadline(deadline);
    }

    /// Returns files of which written bytes were lost, at most 16.
    #[must_use]
    pub fn lost_files(&self) -> Vec<InodeId> {
        self.state.lock().lost_files.clone()
    }

    /// Returns whether the session has the lease on the bytes of the file of an open, whose writes
    /// may be held back, and holds none back.
    #[must_use]
    pub fn has_bytes(&self, open: OpenId) -> bool {
        self.bytes_era(open).is_some()
    }

    /// Returns the era of that lease.
    #[must_use]
    pub fn bytes_era(&self, open: OpenId) -> Option<WriteEra> {
        if self.service.lease_left().is_zero() || self.service.has_lost_lock(open) {
            return None;
        }
        let state = self.state.lock();
        let ino = state.opens.write_back_inode(open).filter(|_| state.buffers_writes)?;
        state.dirty.clean_lease(ino)
    }

    /// Gives up the lease on the bytes of a file: from now on each write waits for the server. Its
    /// size is not what this holder knows if it was written elsewhere under that lease.
    pub fn give_up_bytes(&self, file: InodeId) {
        self.state.lock().end_bytes(file);
        self.send_dirty(clock::monotonic());
    }

    /// Buffers a write, if the session has the lease on the bytes of the file.
    pub(crate) fn buffer_write(
        &self,
        context: &Context,
        request: &Request,
        bulk: &Bulk<'_>,
    ) -> WritePath {
        let has_lost =
            || matches!(request, Request::Write { open, .. } if self.service.has_lost_lock(*open));
        if self.service.lease_left().is_zero() || has_lost() {
            return WritePath::ToServer;
        }
        let mut state = self.state.lock();
        let buffered = state.buffer_write(Caller::of(context), request, bulk.bytes());
        drop(state);
        let (size, is_new) = match buffered {
            Some(Buffered::New { size }) => (size, true),
            Some(Buffered::Joined { size }) => (size, false),
            Some(Buffered::Full) => return WritePath::WaitsForRoom,
            None => return WritePath::ToServer,
        };
        if is_new {
            self.timer.arm();
        }
        self.send_dirty(clock::monotonic());
        WritePath::Answered(Reply::Written { bytes: bulk.bytes().len() as u64, size })
    }

    /// Has a write wait until there is room.
    pub(crate) fn wait_for_room(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let write = FullWrite { context: *context, request, bytes: bulk.into_bytes(), done };
        let mut state = self.state.lock();
        state.full.push(write);
        // The bytes that it waits for may have been sent since: then no reply retries it.
        let retried = if state.dirty.all().is_empty() { state.take_full() } else { Vec::new() };
        drop(state);
        self.write_again(retried);
        self.send_dirty(clock::monotonic());
    }

    /// Calls `then` once the server has all dirty bytes of these files, or has refused them.
    pub(crate) fn flush_all(self: &Arc<Self>, files: &[InodeId], then: Then) {
        if files.is_empty() {
            return then();
        }
        let left = Countdown::new(files.len(), then);
        for ino in files {
            let left = Arc::clone(&left);
            let clean = self.state.lock().dirty.flush(*ino, Box::new(move || left.done()));
            if let Some(then) = clean {
                then();
            }
        }
        self.send_dirty(clock::monotonic());
    }

    /// Sends dirty bytes with one request.
    fn send(self: &Arc<Self>, send: Send) {
        let request = send.request();
        let context = send.by.caller.context();
        let Send { ino, number, bytes, .. } = send;
        let holder = Arc::clone(self);
        let length = bytes.len() as u64;
        let done = move |result: Result<Reply, Error>, granted| {
            let is_short =
                |reply: &Reply| matches!(reply, Reply::Written { bytes, .. } if *bytes < length);
            let failed = match result {
                Ok(reply) => is_short(&reply).then_some(Code::NoSpace),
                Err(error) => Some(error.code),
            };
            if let Some(code) = failed {
                let why = code.says();
                tracing::error!(inode = %ino, bytes = length, why, "written bytes are lost");
            }
            let now = clock::monotonic();
            let mut state = holder.state.lock();
            let (ready, retried) = state.dirty_answered(ino, number, failed, granted, now);
            let unsettled = mem::take(&mut state.unsettled);
            drop(state);
            holder.settle(unsettled);
            ready.into_iter().for_each(|then| then());
            holder.write_again(retried);
            holder.send_dirty(now);
        };
        self.service.ask_first(&context, request, Bulk::Owned(bytes), Box::new(done));
    }

    /// Retries writes that have waited for room.
    fn write_again(&self, writes: Vec<FullWrite>) {
        for FullWrite { context, request, bytes, done } in writes {
            let mut done = Some(done);
            let mut later = || done.take().expect("a service asks for one callback");
            let answered = self.ask(&context, request, Bulk::Owned(bytes), &mut later);
            if let (Some(result), Some(done)) = (answered, done) {
                done(result);
            }
        }
    }
}

impl State {
    /// Buffers a write; `None` if it is not for a file on whose bytes the session has the lease, or
    /// must be safe when it is answered, or has failed before.
    fn buffer_write(
        &mut self,
        caller: Caller,
        request: &Request,
        bytes: &[u8],
    ) -> Option<Buffered> {
        let Request::Write { open, offset, flags } = request else { return None };
        let ino = self.opens.write_back_inode(*open)?;
        let size = self.dirty.leased_size(ino)?;
        let offset = if flags.append { size } else { *offset };
        let end = offset.checked_add(bytes.len() as u64)?;
        if !self.buffers_writes
            || bytes.is_empty()
            || self.dirty.is_too_large(bytes.len())
            || end > limits::FILE_BYTES
            || self.opens.error(*open).is_some()
        {
            return None;
        }
        let by = Writer { open: *open, caller, kill_privileges: flags.kill_privileges };
        self.opens.note_write(*open);
        let buffered = self.dirty.write(ino, by, offset, bytes, clock::monotonic());
        if buffered != Buffered::Full {
            self.write_ahead(ino, offset, bytes);
        }
        if matches!(buffered, Buffered::New { .. }) {
            // The server's attributes of the file are old until it has the bytes.
            let touched = [Touched::Node(ino)];
            self.changes.begin(&touched);
            self.cached.drop_touched(&touched);
        }
        Some(buffered)
    }

    /// Handles the reply to a request with dirty bytes. Returns the callbacks and the writes that
    /// have waited for it.
    fn dirty_answered(
        &mut self,
        ino: InodeId,
        number: u64,
        failed: Option<Code>,
        granted: Granted,
        now: Duration,
    ) -> (Vec<Then>, Vec<FullWrite>) {
        match granted.may_be_done {
            false => self.changes.end(&[Touched::Node(ino)]),
            // The attributes of the file are not cached until the write is over.
            true => self.unsettled.push(Touched::Node(ino)),
        }
        if let Some(code) = failed {
            self.opens.note_error(ino, code);
            // Bytes that were read ahead may have those that are lost, and the server may have
            // ended the lease.
            self.end_bytes(ino);
            if self.lost_files.len() < LOST_FILES && !self.lost_files.contains(&ino) {
                self.lost_files.push(ino);
            }
        }
        (self.dirty.answered(ino, number, now), self.take_full())
    }

    fn take_full(&mut self) -> Vec<FullWrite> {
        mem::take(&mut self.full)
    }
}
