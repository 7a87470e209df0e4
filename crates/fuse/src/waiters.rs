//! Requests that wait, and callers that are killed meanwhile.
//!
//! Once a request was read, the kernel lets its caller go only with a reply: it sleeps in state D,
//! and no signal wakes it. What answers the requests may be a server that is lost, stopped or cut
//! off, or a disk that hangs. So the signals of callers that wait for long are looked at in
//! `/proc`. A caller that was killed gets `EINTR`, which it never sees: it is gone.
//!
//! FUSE_INTERRUPT does not serve. The kernel sends one for each request at most, for the first
//! signal, which the caller may have a handler for; for a request of a ring it may be lost; and for
//! the closes of a program that exits there is none.
//!
//! One thread looks, and rests while nothing waits. Time passes in rounds, so that a request that
//! is answered soon costs no look at a clock.

use std::fs;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::Errno;
use crate::filesystem::Filesystem;
use crate::operation::Wait;
use crate::reply_to::ReplyTo;
use crate::request::Header;

/// The time of a round. A caller is looked at first after one to two of them.
const ROUND: Duration = Duration::from_millis(250);
/// The most rounds between two looks at a caller.
const LONGEST_PAUSE: u64 = 4;
/// After so long a silence a caller is given up whose death cannot be seen.
const LONG_SILENCE: Duration = Duration::from_secs(10);
/// Requests that are noted before those are dropped that were answered.
const LEAST_NOTED: usize = 64;
/// Limit of the interrupts that are kept of callers whose signals cannot be seen.
const INTERRUPTS: usize = 4096;

/// The requests that wait for a reply.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Those that wait, and some that were answered since.
    waiting: Vec<Waiting>,
    /// So many are noted before answered ones are dropped.
    room: usize,
    round: u64,
    /// The thread waits for the first request.
    rests: bool,
    has_ended: bool,
    /// The newest interrupts, by the number of the request.
    interrupted: Vec<u64>,
}

/// A request that waits, and its caller.
#[derive(Debug)]
struct Waiting {
    to: ReplyTo,
    request: u64,
    thread: u32,
    wait: Wait,
    /// The round in which the caller is looked at, and rounds since the last look.
    next: u64,
    pause: u64,
}

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thread {
    Lives,
    /// Its program exits by itself. The kernel drops all signals to it, and nothing tells whether
    /// there were any.
    Exits,
    Killed,
    /// It is gone, or in another pid namespace, or hidden.
    Unseen,
}

impl Waiters {
    /// Notes a request that was not answered at once, until it is.
    pub(crate) fn add(&self, to: &ReplyTo, header: &Header, wait: Wait) {
        let mut state = self.state.lock();
        if state.waiting.len() >= state.room {
            state.waiting.retain(Waiting::waits);
            state.room = LEAST_NOTED.max(2 * state.waiting.len());
        }
        let waiting = Waiting {
            to: to.clone(),
            request: header.unique,
            thread: header.pid,
            wait,
            next: state.round + 2,
            pause: 1,
        };
        state.waiting.push(waiting);
        if state.rests {
            state.rests = false;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Notes that the caller of a request got a signal, for the case that it cannot be seen.
    pub(crate) fn interrupted(&self, request: u64) {
        let mut state = self.state.lock();
        if !state.interrupted.contains(&request) {
            if state.interrupted.len() >= INTERRUPTS {
                state.interrupted.remove(0);
            }
            state.interrupted.push(request);
        }
    }

    /// Gives killed callers up until [`Waiters::end`].
    pub(crate) fn run(&self, filesystem: &dyn Filesystem) {
        let mut state = self.state.lock();
        while !state.has_ended {
            if state.waiting.is_empty() {
                state.interrupted.clear();
                state.rests = true;
                self.changed.wait(&mut state);
                state.rests = false;
                continue;
            }
            self.changed.wait_for(&mut state, ROUND);
            drop(state);
            self.round(filesystem);
            state = self.state.lock();
        }
    }

    /// Looks at the callers whose turn it is.
    fn round(&self, filesystem: &dyn Filesystem) {
        let mut state = self.state.lock();
        let mut due = state.take_due();
        if due.is_empty() {
            return;
        }
        let interrupted = state.interrupted.clone();
        drop(state);
        due.retain_mut(|waiting| {
            let is_interrupted = interrupted.contains(&waiting.request);
            waiting.looked_at();
            !waiting.give_up(filesystem, is_interrupted)
        });
        self.state.lock().waiting.append(&mut due);
    }

    /// Ends [`Waiters::run`].
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    /// Begins a round. Returns the requests whose callers are looked at in it.
    fn take_due(&mut self) -> Vec<Waiting> {
        self.round += 1;
        let round = self.round;
        self.waiting.retain(Waiting::waits);
        let is_due = |waiting: &mut Waiting| waiting.next <= round;
        self.waiting.extract_if(.., is_due).collect()
    }
}

impl Waiting {
    fn waits(&self) -> bool {
        self.to.has(self.request)
    }

    fn looked_at(&mut self) {
        self.next += self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Answers the request if its caller is gone. Returns whether it has an answer.
    fn give_up(&self, filesystem: &dyn Filesystem, is_interrupted: bool) -> bool {
        let is_gone = match Thread::look(self.thread, self.wait) {
            Thread::Lives => false,
            Thread::Killed => true,
            Thread::Exits => filesystem.silence() > LONG_SILENCE,
            Thread::Unseen => is_interrupted && filesystem.silence() > LONG_SILENCE,
        };
        if !is_gone {
            return !self.waits();
        }
        if self.to.claim(self.request) {
            tracing::debug!(request = self.request, thread = self.thread, "a caller was killed");
            self.to.send(self.request, Some(Errno::INTR), &[]);
            filesystem.given_up(self.request);
        }
        true
    }
}

/// Bit of SIGKILL in a set of signals. The kernel adds it to each thread of a program that any
/// signal ends.
const KILL: u64 = 1 << 8;
/// The flag of a thread that exits (`PF_EXITING`), and the bits of the signal in its exit code.
const EXITING: u64 = 4;
const SIGNAL: u64 = 0x7f;
/// Fields of `/proc/THREAD/stat` behind the name, from 0: flags and exit code.
const FLAGS: usize = 6;
const EXIT_CODE: usize = 49;

impl Thread {
    /// Looks at the caller of a request.
    fn look(thread: u32, wait: Wait) -> Self {
        if thread == 0 {
            return Self::Unseen;
        }
        let read = |name: &str| fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
        let Some(status) = read("status") else { return Self::Unseen };
        if is_killed(&status) {
            return Self::Killed;
        }
        match wait {
            // A thread that exits does not keep its SIGKILL, and closes its files nevertheless.
            Wait::Close => read("stat").map_or(Self::Lives, |stat| Self::of_exit(&stat)),
            Wait::Other | Wait::WriteBack => Self::Lives,
        }
    }

    /// Returns what the status in one line (`proc(5)`) says of a thread.
    fn of_exit(stat: &str) -> Self {
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let field = |number| {
            let field = fields.split(' ').nth(number).map(str::trim_end);
            field.and_then(|field| field.parse::<u64>().ok()).unwrap_or(0)
        };
        match field(FLAGS) & EXITING != 0 {
            true if field(EXIT_CODE) & SIGNAL != 0 => Self::Killed,
            true => Self::Exits,
            false => Self::Lives,
        }
    }
}

/// Returns whether the status of a thread (`proc(5)`) says that it was killed.
fn is_killed(status: &str) -> bool {
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(line.trim(), 16).unwrap_or(0)
    };
    (signals("SigPnd:") | signals("ShdPnd:")) & KILL != 0
}

#[cfg(test)]
mod tests;
