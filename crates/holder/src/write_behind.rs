//! Writes that are answered under a lease and sent later.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use pelago_wire::{
    Bulk, Code, Context, Done, Error, InodeId, Reply, Request, Service, Then, limits,
};

use crate::clock;
use crate::countdown::Countdown;
use crate::dirty::{Kept, Send};
use crate::holder::Holder;
use crate::state::FullWrite;
use crate::writes::Written;

/// The pause before the thread looks again at what is due and could not be sent. An answer sends it
/// earlier; this is for what no answer frees.
const RETRY: Duration = Duration::from_millis(limits::WRITE_BEHIND_MILLIS / 10);

impl Holder {
    /// Answers writes under leases from now on, and sends them later, on a thread of its own.
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
                        // Bytes that came in between are not forgotten.
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

    fn next_due(&self) -> Option<Duration> {
        self.state.lock().dirty.next_due()
    }

    /// Answers writes under leases from now on; the caller sends them, with
    /// [`Holder::send_dirty`].
    pub fn keep_writes(&self) {
        self.state.lock().keeps_writes = true;
    }

    /// Sends the dirty bytes that are due at this time of `CLOCK_MONOTONIC`.
    pub fn send_dirty(&self, now: Duration) {
        let due = self.state.lock().dirty.take_due(now);
        let Some(this) = self.this.upgrade() else { return };
        due.into_iter().for_each(|send| this.send(send));
    }

    /// Returns files of which written bytes were lost, at most 16.
    #[must_use]
    pub fn lost_files(&self) -> Vec<InodeId> {
        self.state.lock().lost_files.clone()
    }

    /// Keeps the bytes of a write, if the session has the lease on those of the file.
    pub(crate) fn keep_write(
        &self,
        context: &Context,
        request: &Request,
        bulk: &Bulk<'_>,
    ) -> Written {
        let has_lost =
            || matches!(request, Request::Write { open, .. } if self.service.has_lost_lock(*open));
        if self.service.lease_left().is_zero() || has_lost() {
            return Written::Through;
        }
        let mut state = self.state.lock();
        let kept = state.keep_write((context.uid, context.gid), request, bulk.bytes());
        drop(state);
        let (size, is_new) = match kept {
            Some(Kept::New { size }) => (size, true),
            Some(Kept::Joined { size }) => (size, false),
            Some(Kept::Full) => return Written::Full,
            None => return Written::Through,
        };
        if is_new {
            self.timer.arm();
        }
        self.send_dirty(clock::monotonic());
        Written::Here(Reply::Written { bytes: bulk.bytes().len() as u64, size })
    }

    /// Has a write wait until there is room.
    pub(crate) fn wait_for_room(
        &self,
        context: &Context,
        (request, bulk): (Request, Bulk<'_>),
        done: Done,
    ) {
        let write = FullWrite { context: *context, request, bytes: bulk.into_bytes(), done };
        let mut state = self.state.lock();
        state.full.push(write);
        // All that it waits for may be over by now.
        let retried = if state.dirty.all().is_empty() { state.take_full() } else { Vec::new() };
        drop(state);
        self.write_again(retried);
        self.send_dirty(clock::monotonic());
    }

    /// Calls `then` once the server has all that is dirty of these files, or could not take it.
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

    fn send(self: &Arc<Self>, send: Send) {
        let request = send.request();
        let context = Context::direct(send.by.caller.0, send.by.caller.1);
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
            let (ready, retried) =
                holder.state.lock().dirty_answered((ino, number), (failed, granted), now);
            ready.into_iter().for_each(|then| then());
            holder.write_again(retried);
            holder.send_dirty(now);
        };
        self.service.ask_first(&context, request, Bulk::Owned(bytes), Box::new(done));
    }

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
