//! The queue of a processor, and the thread that serves it.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

use super::layout::Received;
use super::nudge::Nudge;
use super::resident::Resident;
use super::scheduling::Scheduling;
use super::shared::Shared;
use super::slot::Slot;
use super::system::bind;
use super::{Connection, Payloads, commands, layout};
use crate::reply_to::ReplyTo;
use crate::request::{Outline, parse_parts};
use crate::server::Server;

/// Slots that a queue offers at first, and that it keeps offered: more than the callers that send
/// requests on one processor before its thread runs, so that a [`Nudge`] is rarely needed.
const OFFERED: usize = 32;
/// Limit of slots of a queue. Requests that find none wait in the kernel. The limit is twice the
/// number of requests of one mount that may wait for locks, so that an unlock finds a slot.
const SLOTS: usize = 8192;
/// Limit of commands that wait to be submitted.
const SUBMISSIONS: u32 = 64;
/// Attempts to submit the first slots, and the time between two.
const TRIES: u32 = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Payloads of up to this number of bytes are copied, so that the slot is free for the reply.
const COPIED_BYTES: usize = 4096;
/// Time without a request after which the pages of payloads are given back.
const IDLE_SECONDS: u64 = 1;
/// `user_data` of the command that watches the descriptor which ends a wait. Commands of slots have
/// the numbers of these.
const WATCH: u64 = u64::MAX;
/// `user_data` of the command that makes the kernel take back all others when this thread is
/// killed.
const TRACKED: u64 = u64::MAX - 1;

/// The queue of a processor.
#[derive(Debug)]
pub(super) struct Queue {
    number: u16,
    ring: Submissions,
    /// Another ring, which stays empty; see [`Queue::track`].
    empty: EmptyRing,
    shared: Arc<Shared>,
    connection: Connection,
    slots: Vec<Arc<Slot>>,
    /// Count of slots that the kernel has, or gets with the next submission.
    offered: usize,
    /// Slots whose replies the last submission sent.
    sent: Vec<usize>,
    nudge: Nudge,
    /// The queue has the most slots that it may have.
    is_full: bool,
    /// The connection has ended: the kernel takes no slots.
    is_cut_off: bool,
    payload_bytes: usize,
    /// For each slot, whether the kernel has it. The kernel writes to slots only in calls by this
    /// thread.
    are_offered: Vec<bool>,
    resident: Resident,
    /// The copy of a short payload.
    copy: Vec<u8>,
}

/// A ring without commands.
struct EmptyRing(IoUring);

/// The rings that are shared with the kernel.
struct Submissions(IoUring<Entry128, cqueue::Entry>);

/// Makes each system call of a queue once: a seccomp filter may forbid only some of them.
///
/// # Errors
/// Those of the system calls.
pub(super) fn try_calls() -> io::Result<()> {
    let mut ring = Submissions::new()?;
    ring.0.submitter().register_enable_rings()?;
    ring.push(&opcode::Nop::new().build().into())?;
    // A signal is no refusal.
    ring.submit(1)
}

impl Queue {
    /// Makes a queue with its first slots, of which the kernel does not know yet.
    ///
    /// # Errors
    /// Those of the system calls.
    pub(super) fn new(
        number: u16,
        connection: &Connection,
        payloads: Payloads,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(&connection.device)?);
        let ring = Submissions::new()?;
        let copy = Vec::with_capacity(COPIED_BYTES);
        let mut queue = Self {
            number,
            ring,
            empty: EmptyRing(IoUring::new(1)?),
            shared,
            connection: connection.clone(),
            slots: Vec::new(),
            offered: 0,
            sent: Vec::new(),
            nudge: Nudge::default(),
            is_full: false,
            is_cut_off: false,
            payload_bytes: payloads.bytes,
            are_offered: Vec::new(),
            resident: Resident::new(payloads.resident),
            copy,
        };
        for _ in 0..OFFERED {
            queue.add_slot()?;
        }
        Ok(queue)
    }

    pub(super) const fn number(&self) -> u16 {
        self.number
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Serves the queue until it ends. Calls `offered` with whether the kernel took the first
    /// slots.
    pub(super) fn serve(mut self, server: &Server, offered: impl FnOnce(io::Result<()>)) {
        bind(self.number);
        let early = match self.begin() {
            Ok(early) => early,
            Err(error) => return offered(Err(error)),
        };
        offered(Ok(()));
        if let Err(error) = self.run(early, server) {
            tracing::error!(%error, queue = self.number, "a queue of the ring has failed");
        }
    }

    /// Offers the first slots. Returns the requests that have come already.
    ///
    /// # Errors
    /// Those of the system calls; `EINVAL` for a payload that is too short. The kernel then goes
    /// back to the device for good.
    pub(super) fn begin(&mut self) -> io::Result<Vec<cqueue::Entry>> {
        self.ring.0.submitter().register_enable_rings()?;
        self.ring.push(&commands::watch(self.shared.wake_descriptor()).user_data(WATCH))?;
        self.track()?;
        for number in 0..self.slots.len() {
            self.offer(number)?;
        }
        self.ring.submit_all()?;
        // A slot that Linux refuses completes at once; then it goes back to the device for good.
        let early: Vec<_> = self.ring.0.completion().collect();
        match early.iter().find(|completion| completion.result() < 0) {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(early),
        }
    }

    /// Makes the kernel take back all commands of this thread when the thread ends, however it
    /// ends.
    ///
    /// A request that was given to a slot waits for this thread to take it, and the end of the
    /// connection does not free it: with `DEFER_TASKRUN` only this thread can. A killed thread does
    /// so at its end if one of its commands is about a ring (`inflight_tracked` in
    /// `io_uring_cancel_generic`, Linux 6.18). Otherwise the last thread that has the ring open
    /// does it, and that may be one that waits in the kernel for the caller of this very request.
    fn track(&mut self) -> io::Result<()> {
        self.ring.push(&commands::watch(&self.empty.0).user_data(TRACKED))
    }

    fn run(&mut self, early: Vec<cqueue::Entry>, server: &Server) -> io::Result<()> {
        for completion in early {
            self.complete(&completion, server)?;
        }
        let watch = self.connection.watch.clone();
        let mut scheduling = watch.map(|watch| Scheduling::of_this_thread(watch, self.number));
        while !self.shared.has_ended() {
            self.send_replies()?;
            let has_offered = self.offer_more()?;
            self.nudge();
            let waited = self.wait(self.shared.fall_asleep());
            self.shared.stay_awake();
            scheduling.iter_mut().for_each(Scheduling::round);
            waited?;
            let sent = mem::take(&mut self.sent);
            // Not if slots were offered after these replies, or some replies are not submitted yet.
            let is_last = !has_offered && self.ring.0.submission().is_empty();
            let mut are_free = is_last && !sent.is_empty();
            while let Some(completion) = self.ring.next() {
                are_free &= !sent.iter().any(|slot| *slot as u64 == completion.user_data());
                self.complete(&completion, server)?;
            }
            if are_free {
                self.nudge.none_waits();
            }
            if self.resident.is_too_much() {
                self.give_back(sent);
            }
        }
        Ok(())
    }

    /// Offers slots in place of those whose requests wait. Returns whether any was offered.
    fn offer_more(&mut self) -> io::Result<bool> {
        let has_too_few = |queue: &Self| queue.offered < OFFERED && !queue.is_full;
        if self.is_cut_off || !has_too_few(self) {
            return Ok(false);
        }
        let before = self.slots.len();
        while has_too_few(self) {
            match self.add_slot() {
                Ok(number) => self.offer(number)?,
                Err(error) => {
                    // The next round tries again.
                    tracing::debug!(%error, queue = self.number, "no memory for a slot");
                    break;
                }
            }
        }
        if self.slots.len() == before {
            return Ok(false);
        }
        self.nudge.offered();
        // A nudge needs one of the new slots.
        self.ring.submit(0)?;
        Ok(true)
    }

    /// Makes the kernel look for requests that wait, if no reply does so.
    fn nudge(&mut self) {
        if self.sent.is_empty() && self.offered > 0 && !self.is_cut_off {
            self.nudge.send(self.shared.device());
        }
    }

    fn complete(&mut self, completion: &cqueue::Entry, server: &Server) -> io::Result<()> {
        if completion.user_data() == TRACKED {
            return Ok(());
        }
        let Some(slot) = usize::try_from(completion.user_data())
            .ok()
            .and_then(|number| self.slots.get(number).cloned())
        else {
            self.shared.clear_wake();
            if !cqueue::more(completion.flags()) {
                self.ring.push(&commands::watch(self.shared.wake_descriptor()).user_data(WATCH))?;
            }
            return Ok(());
        };
        self.offered = self.offered.saturating_sub(1);
        self.are_offered[slot.number()] = false;
        if completion.result() < 0 {
            // The connection has ended, or the caller of the request has.
            let error = Errno::from_raw_os_error(-completion.result());
            self.is_cut_off |= matches!(error, Errno::NOTCONN | Errno::CONNABORTED);
            tracing::debug!(%error, queue = self.number, "a slot of the ring is lost");
            self.resident.take(slot.number());
            return Ok(());
        }
        self.take(&slot, server);
        Ok(())
    }

    /// Calls the file system with the request in a slot.
    fn take(&mut self, slot: &Arc<Slot>, server: &Server) {
        let headers = slot.headers();
        let (unique, commit) = layout::numbers(&headers);
        slot.begin(unique, commit);
        if Nudge::is(unique) {
            return slot.answer(unique, None, &[]);
        }
        let Outline { regular_file, waiting_thread } = Outline::of(&headers);
        if let Some(file) = regular_file {
            self.nudge.seen(file);
        }
        let Ok(received) = Received::read(&headers) else {
            tracing::error!(unique, "a malformed request in a slot: it fails with EIO");
            return slot.answer(unique, Some(Errno::IO), &[]);
        };
        let to = ReplyTo::Ring(Arc::clone(slot));
        let Received { header, fields, payload_bytes } = received;
        self.resident.used(slot.number(), payload_bytes);
        if payload_bytes <= COPIED_BYTES {
            slot.copy_payload(payload_bytes, &mut self.copy);
            if waiting_thread.is_some() && self.resident.take(slot.number()) {
                // The request may wait long, and the slot has the pages of an earlier reply.
                slot.give_back();
            }
            server.take(&to, parse_parts(header, fields, &self.copy, server.layouts));
        } else {
            let number = slot.number();
            let is_kept = slot.with_payload(unique, payload_bytes, |payload| {
                server.take(&to, parse_parts(header, fields, payload, server.layouts));
            });
            if is_kept {
                // The kernel does not have the slot, but its pages are given back.
                self.resident.take(number);
            }
        }
        if slot.has(unique)
            && let Some(thread) = waiting_thread
        {
            self.connection.retries.watch(Arc::clone(slot), unique, thread);
        }
    }

    /// Queues the commands that send the replies which are ready.
    fn send_replies(&mut self) -> io::Result<()> {
        for answered in self.shared.take_answered() {
            let number = answered.slot;
            let slot = &self.slots[number];
            self.resident.used(number, slot.finish(answered));
            let device = self.shared.device().as_fd();
            let command = commands::commit(device, self.number, slot.commit());
            self.ring.push(&command.user_data(number as u64))?;
            self.offered += 1;
            self.are_offered[number] = true;
            self.sent.push(number);
        }
        Ok(())
    }

    fn add_slot(&mut self) -> io::Result<usize> {
        let number = self.slots.len();
        self.slots.push(Arc::new(Slot::new(number, &self.shared, self.payload_bytes)?));
        self.are_offered.push(false);
        self.resident.add_slot();
        self.is_full = self.slots.len() >= SLOTS;
        Ok(number)
    }

    fn offer(&mut self, number: usize) -> io::Result<()> {
        let memory = self.slots[number].memory();
        let command = commands::register(self.shared.device().as_fd(), self.number, memory);
        self.ring.push(&command.user_data(number as u64))?;
        self.offered += 1;
        self.are_offered[number] = true;
        Ok(())
    }

    /// Submits, and waits for a completion if `is_wanted`. With payloads in memory the wait ends
    /// after a while, so that their pages can be given back.
    fn wait(&mut self, is_wanted: bool) -> io::Result<()> {
        let wanted = usize::from(is_wanted);
        if !is_wanted || !self.resident.is_any() {
            return self.ring.submit(wanted);
        }
        let is_idle = self.ring.submit_for(wanted, IDLE_SECONDS)?;
        if is_idle && self.ring.0.completion().is_empty() {
            self.give_back(0..self.slots.len());
        }
        Ok(())
    }

    /// Gives back the pages of payloads of those slots that the kernel has.
    fn give_back(&mut self, numbers: impl IntoIterator<Item = usize>) {
        let submission = self.ring.0.submission();
        // The kernel has still to read a reply that is not submitted yet, and a completion that did
        // not fit into the ring may have a request.
        if !submission.is_empty() || submission.cq_overflow() {
            return;
        }
        drop(submission);
        for number in numbers {
            if self.are_offered[number] && self.resident.take(number) {
                self.slots[number].give_back();
            }
        }
    }
}

impl Submissions {
    /// Makes the rings. Only the thread that enables them may submit (`SINGLE_ISSUER`), which is
    /// the thread of the queue: so replies of other threads go through it ([`Shared`]).
    fn new() -> io::Result<Self> {
        let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
        // Without `SUBMIT_ALL` the kernel stops a submission at a command that fails: one refused
        // reply would stall all replies behind it.
        builder.setup_r_disabled().setup_single_issuer().setup_submit_all();
        builder.setup_defer_taskrun();
        builder.build(SUBMISSIONS).map(Self)
    }

    /// Adds a command, and submits those before it if there is no room.
    #[expect(unsafe_code, reason = "a command names memory and descriptors")]
    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        loop {
            // SAFETY: the memory of slots and all descriptors live as long as the queue, which is
            // dropped after its ring.
            if unsafe { self.0.submission().push(command) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    /// Submits the added commands, as many as possible now, and waits for `wanted` completions.
    fn submit(&self, wanted: usize) -> io::Result<()> {
        self.0.submit_and_wait(wanted).map(drop).or_else(unless_passing)
    }

    /// Submits all added commands, also if the kernel has too little memory for a moment.
    ///
    /// # Errors
    /// Those of the system call, after some tries.
    fn submit_all(&mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            self.submit(0)?;
            if self.0.submission().is_empty() {
                return Ok(());
            }
            thread::sleep(RETRY_PAUSE);
        }
        Err(io::ErrorKind::OutOfMemory.into())
    }

    /// Submits as [`Submissions::submit`] does, and waits at most `seconds`. Returns whether they
    /// are over.
    fn submit_for(&self, wanted: usize, seconds: u64) -> io::Result<bool> {
        let timeout = Timespec::new().sec(seconds);
        let arguments = SubmitArgs::new().timespec(&timeout);
        match self.0.submitter().submit_with_args(wanted, &arguments) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => Ok(true),
            submitted => submitted.map(drop).or_else(unless_passing).map(|()| false),
        }
    }

    fn next(&mut self) -> Option<cqueue::Entry> {
        self.0.completion().next()
    }
}

/// Returns the error, unless it passes: a signal, completions that must be taken first, or too
/// little memory for a moment.
fn unless_passing(error: io::Error) -> io::Result<()> {
    match Errno::from_io_error(&error) {
        Some(Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
        _ => Err(error),
    }
}

impl std::fmt::Debug for EmptyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmptyRing")
    }
}

impl std::fmt::Debug for Submissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Submissions")
    }
}
