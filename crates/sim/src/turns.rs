//! Threads of one process that take turns: one runs at a time, and a seed decides which comes next.
//!
//! A thread gives its turn up when it waits: for a futex, for epoll, for another thread, or for a
//! time to come. If all wait, the clock jumps to the next time that one waits for. Time is this
//! clock alone, so that a run of minutes takes milliseconds, and the same seed gives the same run.
//!
//! Threads belong to [`Machine`]s. A machine can stand still for a while, or for ever, and its
//! clock can run a little faster or slower than others.
//!
//! All state is used by the thread that has the turn, and by no other one.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::fmt::{self, Write};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pelago_random::Random;

use crate::original::{self, Word};

/// Waits without end.
pub(crate) const FOR_EVER: u64 = u64::MAX;
/// The longest turn, in nanoseconds.
const TURN_NANOS: u64 = 20_000;
/// The time of a reading of the clock, in nanoseconds: a loop that waits for a time ends.
const LOOK_NANOS: u64 = 100;
/// The longest time of a run: one that takes longer does not end.
const MOST_NANOS: u64 = 3_600_000_000_000;
const STORY_BYTES: usize = 4 << 20;
/// One of this number of threads that do not wait stands still.
const SHORT_STALLS: u64 = 100;
const SHORT_STALL_NANOS: u64 = 60_000_000;
/// One of this number of readings of the clock ends a turn.
const LOOKS: u64 = 12;

/// A machine that threads belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine(usize);

/// A thread.
pub(crate) struct Thread {
    number: usize,
    machine: Cell<Machine>,
    wait: Cell<Wait>,
    /// The number of its wait among all waits: wakes are in this order.
    since: Cell<u64>,
    /// True if a wake has ended its wait, and not the time.
    woken: Cell<bool>,
    /// The time before which it does not run.
    stalled_until: Cell<u64>,
    /// 1 once it is given the turn.
    turn: AtomicU32,
    /// 1 once it waits for its first turn.
    has_started: AtomicU32,
    /// Its number in the kernel.
    kernel_id: Cell<Word>,
}

/// The event for which a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Nothing,
    /// A wake of the futex at this address, until this time.
    Futex(usize, u64),
    /// An event of this epoll descriptor, until this time.
    Epoll(c_int, u64),
    Time(u64),
    /// The end of the thread with this number.
    End(usize),
    /// The thread has ended.
    Ended,
}

struct Standing {
    name: String,
    stands_until: u64,
    /// For so long its next thread stands still that is in the middle of something.
    stall: Option<u64>,
    /// The nanoseconds in a million by which its clock is fast.
    gains: i64,
}

struct Turns {
    now: u64,
    waits: u64,
    switches: u64,
    random: Random,
    threads: Vec<&'static Thread>,
    machines: Vec<Standing>,
    /// The story of the run. It is recorded also if it is not printed: its memory moves locks to
    /// other addresses, and without it the run would be another one.
    story: String,
    tells_switches: bool,
    /// The number in the kernel of the thread that has given the turn away for good. The next one
    /// waits until it is gone.
    leaving: Option<Word>,
}

struct Shared(UnsafeCell<Option<Turns>>);

// SAFETY: only the thread that has the turn uses it.
#[expect(unsafe_code, reason = "threads take turns")]
unsafe impl Sync for Shared {}
// SAFETY: all but `turn` is used by the thread that has the turn only.
#[expect(unsafe_code, reason = "threads take turns")]
unsafe impl Sync for Thread {}

static SHARED: Shared = Shared(UnsafeCell::new(None));

thread_local! {
    static CURRENT: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

/// Returns the calling thread, if it takes turns with others.
pub(crate) fn current() -> Option<&'static Thread> {
    let current = CURRENT.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: threads are leaked, so a pointer to one stays good.
    #[expect(unsafe_code, reason = "a thread-local variable holds no references")]
    let current = unsafe { current.as_ref() };
    current.filter(|thread| thread.wait.get() != Wait::Ended)
}

#[expect(unsafe_code, reason = "threads take turns")]
fn turns() -> &'static mut Turns {
    // SAFETY: the caller has the turn, and no caller keeps the reference over a switch.
    unsafe { (*SHARED.0.get()).as_mut().expect("the simulation has begun") }
}

/// Begins: the calling thread is the first one, of a machine of this name.
pub(crate) fn begin(seed: u64, name: &str, tells_switches: bool) -> Machine {
    let turns = Turns {
        now: 0,
        waits: 0,
        switches: 0,
        random: Random::new(seed),
        threads: Vec::new(),
        machines: Vec::new(),
        story: String::with_capacity(STORY_BYTES),
        tells_switches,
        leaving: None,
    };
    // SAFETY: there is one thread.
    #[expect(unsafe_code, reason = "threads take turns")]
    unsafe {
        *SHARED.0.get() = Some(turns);
    }
    let machine = machine(name, 0);
    CURRENT.set(new_thread(machine));
    machine
}

/// Returns a new machine, whose clock is fast by `gains` nanoseconds in a million.
pub(crate) fn machine(name: &str, gains: i64) -> Machine {
    let machines = &mut turns().machines;
    machines.push(Standing { name: name.to_owned(), stands_until: 0, stall: None, gains });
    Machine(machines.len() - 1)
}

/// Calls `act`; the threads that it starts belong to this machine.
pub(crate) fn on<T>(machine: Machine, act: impl FnOnce() -> T) -> T {
    let thread = current().expect("a thread that takes turns");
    let own = thread.machine.replace(machine);
    let result = act();
    thread.machine.set(own);
    result
}

/// Has a machine stand still for this time, or for ever.
pub(crate) fn stand_still(machine: Machine, time: Option<Duration>) {
    let turns = turns();
    let until = time.map_or(FOR_EVER, |time| turns.now + nanos(time));
    let place = &mut turns.machines[machine.0];
    place.stands_until = place.stands_until.max(until);
}

/// Has a machine go on that stands still for some time.
pub(crate) fn go_on(machine: Machine) {
    let turns = turns();
    let place = &mut turns.machines[machine.0];
    if place.stands_until != FOR_EVER {
        place.stands_until = place.stands_until.min(turns.now);
    }
}

/// Lets a thread of this machine stand still for this time in the middle of its work: the next one
/// whose turn ends although it waits for nothing.
pub(crate) fn stall(machine: Machine, time: Duration) {
    turns().machines[machine.0].stall = Some(nanos(time));
}

/// Returns a number from the seed below `bound`.
pub(crate) fn random(bound: u64) -> u64 {
    turns().random.below(bound)
}

/// Returns the time since the beginning, by no machine's clock.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(turns().now)
}

/// Adds to the story of the run.
pub(crate) fn tell(what: fmt::Arguments<'_>) {
    turns().tell(what);
}

/// Returns the story of the run.
pub(crate) fn story() -> &'static str {
    &turns().story
}

/// Returns how many times another thread got the turn.
pub(crate) fn switches() -> u64 {
    turns().switches
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOR_EVER)
}

fn new_thread(machine: Machine) -> &'static Thread {
    let threads = &mut turns().threads;
    let thread = Thread {
        number: threads.len(),
        machine: Cell::new(machine),
        wait: Cell::new(Wait::Nothing),
        since: Cell::new(0),
        woken: Cell::new(false),
        stalled_until: Cell::new(0),
        turn: AtomicU32::new(0),
        has_started: AtomicU32::new(0),
        kernel_id: Cell::new(0),
    };
    let thread: &'static Thread = Box::leak(Box::new(thread));
    threads.push(thread);
    thread
}

impl Thread {
    /// Returns a new thread of the same machine, which runs in its turn.
    pub(crate) fn start(&self) -> &'static Self {
        new_thread(self.machine.get())
    }

    /// Waits for the first turn of the calling thread, which is this one.
    pub(crate) fn enter(&'static self) {
        CURRENT.set(self);
        self.kernel_id.set(original::thread_id());
        self.has_started.store(1, Ordering::Release);
        original::wake_for_real(&self.has_started);
        self.wait_for_turn();
    }

    /// Waits until the thread is ready for its first turn: its work before that, allocations
    /// included, is not done in turns.
    pub(crate) fn wait_for_real_start(&self) {
        while self.has_started.load(Ordering::Acquire) == 0 {
            original::wait_for_real(&self.has_started);
        }
    }

    /// Ends. The thread does not take turns any more. It still frees memory: the one that has the
    /// turn next waits for that, or what it allocates would be at one address in one run and at
    /// another in the next.
    pub(crate) fn end(&self) {
        self.wait.set(Wait::Ended);
        for thread in &turns().threads {
            if thread.wait.get() == Wait::End(self.number) {
                thread.wait.set(Wait::Nothing);
            }
        }
        turns().leaving = Some(self.kernel_id.get());
        turns().next().give_turn();
    }

    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// Waits until the thread with this number has ended.
    pub(crate) fn wait_for_end(&self, number: usize) {
        if turns().threads[number].wait.get() != Wait::Ended {
            self.wait_for(Wait::End(number));
        }
    }

    /// Waits for a wake of the futex, for at most this number of nanoseconds. Returns whether it
    /// came.
    pub(crate) fn wait_for_wake(&self, address: usize, most: u64) -> bool {
        self.wait_for(Wait::Futex(address, turns().after(most)));
        self.woken.get()
    }

    /// Wakes at most `most` threads that wait for the futex. Returns their number.
    pub(crate) fn wake(&self, address: usize, most: usize) -> usize {
        let turns = turns();
        let waits = |thread: &&&'static Self| match thread.wait.get() {
            Wait::Futex(at, _) => at == address,
            _ => false,
        };
        let mut waiting: Vec<&'static Self> = turns.threads.iter().filter(waits).copied().collect();
        waiting.sort_by_key(|thread| thread.since.get());
        waiting.truncate(most);
        for thread in &waiting {
            thread.wait.set(Wait::Nothing);
            thread.woken.set(true);
        }
        if !waiting.is_empty() && turns.random.below(2) == 0 {
            self.yield_turn();
        }
        waiting.len()
    }

    /// Waits until the epoll descriptor may have events, until this time.
    pub(crate) fn wait_for_events(&self, epoll: c_int, until: u64) {
        self.wait_for(Wait::Epoll(epoll, until));
    }

    /// Returns the time after this number of nanoseconds, for [`Thread::wait_for_events`].
    pub(crate) fn after(&self, nanos: u64) -> u64 {
        turns().after(nanos)
    }

    pub(crate) fn is_past(&self, time: u64) -> bool {
        turns().now >= time
    }

    pub(crate) fn sleep(&self, nanos: u64) {
        self.wait_for(Wait::Time(turns().after(nanos)));
    }

    /// Lets others run.
    pub(crate) fn yield_turn(&self) {
        self.wait_for(Wait::Nothing);
    }

    /// Ends the turn now and then, at a look at a clock.
    pub(crate) fn may_yield(&self) {
        if turns().random.below(LOOKS) == 0 {
            self.yield_turn();
        }
    }

    /// Returns the time by the clock of the thread's machine, in nanoseconds since the beginning.
    pub(crate) fn look_at_clock(&self) -> u64 {
        turns().now += LOOK_NANOS;
        let turns = turns();
        let machine = self.machine.get();
        let gains = turns.machines[machine.0].gains;
        let gained = i128::from(turns.now) * i128::from(gains) / 1_000_000;
        u64::try_from(i128::from(turns.now) + gained).unwrap_or(turns.now)
    }

    fn wait_for(&self, wait: Wait) {
        let turns = turns();
        turns.waits += 1;
        self.since.set(turns.waits);
        self.woken.set(false);
        self.wait.set(wait);
        turns.now += turns.random.below(TURN_NANOS);
        if wait == Wait::Nothing {
            let stall = turns.machines[self.machine.get().0].stall.take();
            let short = turns.random.below(SHORT_STALL_NANOS);
            let is_short = turns.random.below(SHORT_STALLS) == 0;
            let stall = stall.or_else(|| is_short.then_some(short));
            self.stalled_until.set(turns.now + stall.unwrap_or(0));
        }
        let next = turns.next();
        if !ptr::eq(next, self) {
            let from = self.number;
            let to = next.number;
            if turns.tells_switches {
                turns.tell(format_args!("{from} waits for {wait:?}, {to} runs"));
            }
            turns.switches += 1;
            next.give_turn();
            self.wait_for_turn();
        }
    }

    fn give_turn(&self) {
        self.turn.store(1, Ordering::Release);
        original::wake_for_real(&self.turn);
    }

    fn wait_for_turn(&self) {
        while self.turn.swap(0, Ordering::Acquire) == 0 {
            original::wait_for_real(&self.turn);
        }
        if let Some(leaving) = turns().leaving.take() {
            original::wait_for_exit(leaving);
        }
    }
}

impl Turns {
    fn tell(&mut self, what: fmt::Arguments<'_>) {
        let now = Duration::from_nanos(self.now);
        let _fits = writeln!(self.story, "{now:>12.6?} {what}");
    }

    fn after(&self, nanos: u64) -> u64 {
        self.now.saturating_add(nanos)
    }

    /// Chooses the thread that gets the turn, which waits for nothing then.
    fn next(&mut self) -> &'static Thread {
        loop {
            let ready = self.ready();
            if !ready.is_empty() {
                let at = self.random.below(ready.len() as u64);
                let next = ready[usize::try_from(at).unwrap_or(0)];
                next.wait.set(Wait::Nothing);
                return next;
            }
            match self.next_time() {
                Some(time) if self.now < MOST_NANOS => self.now = time.max(self.now + 1),
                _ => self.give_up(),
            }
        }
    }

    /// Returns the threads that can run now.
    fn ready(&self) -> Vec<&'static Thread> {
        let mut ready = Vec::new();
        let mut polled = Vec::new();
        for thread in self.threads.iter().copied().filter(|thread| self.may_run(thread)) {
            match thread.wait.get() {
                Wait::Nothing => ready.push(thread),
                Wait::Futex(_, until) | Wait::Epoll(_, until) | Wait::Time(until)
                    if until <= self.now =>
                {
                    ready.push(thread);
                }
                Wait::Epoll(epoll, _) => polled.push((thread, epoll)),
                _ => {}
            }
        }
        let epolls: Vec<c_int> = polled.iter().map(|(_, epoll)| *epoll).collect();
        let events = original::have_events(&epolls);
        let with_events = polled.into_iter().zip(events).filter(|(_, has)| *has);
        ready.extend(with_events.map(|((thread, _), _)| thread));
        ready
    }

    fn may_run(&self, thread: &Thread) -> bool {
        let stands_until = self.machines[thread.machine.get().0].stands_until;
        stands_until.max(thread.stalled_until.get()) <= self.now
    }

    /// Returns the next time at which a thread may be able to run that is not now.
    fn next_time(&self) -> Option<u64> {
        let time = |thread: &&'static Thread| {
            let place = &self.machines[thread.machine.get().0];
            let held_until = place.stands_until.max(thread.stalled_until.get());
            let until = match thread.wait.get() {
                Wait::Nothing => 0,
                Wait::Futex(_, until) | Wait::Time(until) => until,
                // It may have events after its hold ends.
                Wait::Epoll(_, _) if held_until > self.now => 0,
                Wait::Epoll(_, until) => until,
                Wait::End(_) | Wait::Ended => FOR_EVER,
            };
            until.max(held_until)
        };
        self.threads.iter().map(time).filter(|time| *time != FOR_EVER).min()
    }

    /// All threads wait for each other, or for something that does not come.
    fn give_up(&self) -> ! {
        println!("{}WRONG: the run does not end:", self.story);
        for thread in &self.threads {
            let place = &self.machines[thread.machine.get().0];
            if thread.wait.get() != Wait::Ended && place.stands_until != FOR_EVER {
                println!("  thread {} of {}: {:?}", thread.number, place.name, thread.wait.get());
            }
        }
        std::process::abort();
    }
}
