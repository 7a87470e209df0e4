//! Functions that replace those of the C library by which threads wait and read clocks.
//!
//! The linker prefers these to the library's. For a thread that takes turns they call
//! [`crate::turns`]; for all others, and before the simulation begins, they do what the library
//! does.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{clockid_t, epoll_event, iovec, pthread_attr_t, pthread_t, size_t, ssize_t, timespec};
use pelago_random::Random;

use crate::original::{Word, original, syscall_for_real};
use crate::turns::{self, FOR_EVER, Thread};

/// The time of all clocks at the beginning, in seconds.
const EPOCH_SECONDS: i64 = 1_700_000_000;
const NANOS: u64 = 1_000_000_000;

fn fail(error: c_int) -> c_int {
    // SAFETY: it is the calling thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Returns a time in nanoseconds.
///
/// # Safety
/// It is null, for a time without end, or good.
unsafe fn nanos(time: *const timespec) -> u64 {
    // SAFETY: as the caller says.
    let Some(time) = (unsafe { time.as_ref() }) else { return FOR_EVER };
    time.tv_sec.unsigned_abs().saturating_mul(NANOS) + time.tv_nsec.unsigned_abs()
}

fn as_timespec(nanos: u64) -> timespec {
    let seconds = EPOCH_SECONDS + i64::try_from(nanos / NANOS).unwrap_or(0);
    timespec { tv_sec: seconds, tv_nsec: c_long::try_from(nanos % NANOS).unwrap_or(0) }
}

/// Returns how many nanoseconds there are until a time of the clocks here.
///
/// # Safety
/// As [`nanos`].
unsafe fn nanos_until(thread: &Thread, time: *const timespec) -> u64 {
    // SAFETY: as the caller says.
    match unsafe { nanos(time) } {
        FOR_EVER => FOR_EVER,
        until => {
            let now = thread.look_at_clock() + EPOCH_SECONDS.unsigned_abs() * NANOS;
            until.saturating_sub(now)
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let Some(thread) = turns::current() else {
        return original!(c"clock_gettime", fn(clockid_t, *mut timespec) -> c_int, (clock, time));
    };
    // `parking_lot` looks at this one under locks that all machines share here: one that is killed
    // then would stop all.
    if clock != libc::CLOCK_MONOTONIC {
        thread.may_yield();
    }
    // SAFETY: the caller's.
    unsafe { *time = as_timespec(thread.look_at_clock()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn syscall(number: Word, a: Word, b: Word, c: Word, d: Word, e: Word, f: Word) -> Word {
    match (number, turns::current()) {
        (libc::SYS_futex, Some(thread)) => futex(thread, a, b, c, d),
        // TLS draws its keys, and the order of what it sends, by this.
        (libc::SYS_getrandom, Some(_)) => {
            let bytes = size_t::try_from(b).unwrap_or(0);
            let flags = c_uint::try_from(c).unwrap_or(0);
            getrandom(a as *mut c_void, bytes, flags) as Word
        }
        _ => syscall_for_real(number, [a, b, c, d, e, f]),
    }
}

fn futex(thread: &Thread, address: Word, operation: Word, value: Word, time: Word) -> Word {
    let at = usize::try_from(address).unwrap_or(0);
    let command = c_int::try_from(operation).unwrap_or(0)
        & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let time = time as *const timespec;
    match command {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let most = usize::try_from(value).unwrap_or(usize::MAX);
            Word::try_from(thread.wake(at, most)).unwrap_or(0)
        }
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // SAFETY: a futex word, which lives as long as a thread waits for it; and its time.
            let (present, most) = unsafe {
                let most = match command {
                    libc::FUTEX_WAIT => nanos(time),
                    _ => nanos_until(thread, time),
                };
                ((*(at as *const AtomicU32)).load(Ordering::Relaxed), most)
            };
            // The upper half of the argument is not defined.
            if Word::from(present) != value & Word::from(u32::MAX) {
                return fail(libc::EAGAIN).into();
            }
            match thread.wait_for_wake(at, most) {
                true => 0,
                false => fail(libc::ETIMEDOUT).into(),
            }
        }
        other => unimplemented!("futex operation {other}"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn epoll_wait(fd: c_int, events: *mut epoll_event, most: c_int, millis: c_int) -> c_int {
    let now = |millis| {
        original!(
            c"epoll_wait",
            fn(c_int, *mut epoll_event, c_int, c_int) -> c_int,
            (fd, events, most, millis)
        )
    };
    let Some(thread) = turns::current() else { return now(millis) };
    let until = match u64::try_from(millis) {
        Ok(millis) => thread.after(millis * 1_000_000),
        Err(_) => FOR_EVER,
    };
    loop {
        let count = now(0);
        if count != 0 || millis == 0 || thread.is_past(until) {
            return count;
        }
        thread.wait_for_events(fd, until);
    }
}

/// A thread that has written to a socket or a pipe may lose its turn.
#[unsafe(no_mangle)]
extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let written =
        original!(c"writev", fn(c_int, *const iovec, c_int) -> ssize_t, (fd, parts, count));
    if let Some(thread) = turns::current() {
        // SAFETY: it is the calling thread's own.
        let error = unsafe { *libc::__errno_location() };
        thread.may_yield();
        fail(error);
    }
    written
}

#[unsafe(no_mangle)]
extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    let Some(thread) = turns::current() else {
        return original!(c"nanosleep", fn(*const timespec, *mut timespec) -> c_int, (time, left));
    };
    // SAFETY: the caller's.
    thread.sleep(unsafe { nanos(time) });
    0
}

#[unsafe(no_mangle)]
extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let Some(thread) = turns::current() else {
        return original!(
            c"clock_nanosleep",
            fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int,
            (clock, flags, time, left)
        );
    };
    // SAFETY: the caller's.
    let most = unsafe {
        match flags & libc::TIMER_ABSTIME {
            0 => nanos(time),
            _ => nanos_until(thread, time),
        }
    };
    thread.sleep(most);
    0
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    match turns::current() {
        Some(thread) => {
            thread.yield_turn();
            0
        }
        None => original!(c"sched_yield", fn() -> c_int, ()),
    }
}

/// Random bytes come from the seed.
#[unsafe(no_mangle)]
extern "C" fn getrandom(into: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t {
    if turns::current().is_none() {
        return original!(
            c"getrandom",
            fn(*mut c_void, size_t, c_uint) -> ssize_t,
            (into, bytes, flags)
        );
    }
    let mut random = Random::new(turns::random(u64::MAX));
    // SAFETY: the caller's.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes) };
    for part in into.chunks_mut(8) {
        part.copy_from_slice(&random.bits().to_le_bytes()[..part.len()]);
    }
    ssize_t::try_from(bytes).unwrap_or(ssize_t::MAX)
}

/// The arguments of a new thread.
struct Start {
    thread: &'static Thread,
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

/// The threads that take turns, by the names that the library gave them.
struct Names(UnsafeCell<Vec<(pthread_t, &'static Thread)>>);

// SAFETY: it is used in turns.
unsafe impl Sync for Names {}

static NAMES: Names = Names(UnsafeCell::new(Vec::new()));

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` has made it for this thread.
    let Start { thread, main, argument } = unsafe { start.cast::<Start>().read() };
    thread.enter();
    // SAFETY: it is not used any more. Memory is given back in turns.
    drop(unsafe { Box::from_raw(start.cast::<mem::ManuallyDrop<Start>>()) });
    let result = main(argument);
    thread.end();
    result
}

type Main = extern "C" fn(*mut c_void) -> *mut c_void;

#[unsafe(no_mangle)]
extern "C" fn pthread_create(
    name: *mut pthread_t,
    attributes: *const pthread_attr_t,
    main: Main,
    argument: *mut c_void,
) -> c_int {
    let create = |main: Main, argument: *mut c_void| {
        original!(
            c"pthread_create",
            fn(*mut pthread_t, *const pthread_attr_t, Main, *mut c_void) -> c_int,
            (name, attributes, main, argument)
        )
    };
    let Some(parent) = turns::current() else { return create(main, argument) };
    let thread = parent.start();
    let start = Box::into_raw(Box::new(Start { thread, main, argument }));
    let failed = create(run, start.cast());
    assert!(failed == 0, "a thread");
    thread.wait_for_real_start();
    // SAFETY: in turns; and the library has set the name.
    unsafe { (*NAMES.0.get()).push((*name, thread)) };
    failed
}

#[unsafe(no_mangle)]
extern "C" fn pthread_join(name: pthread_t, result: *mut *mut c_void) -> c_int {
    if let Some(caller) = turns::current() {
        // SAFETY: in turns.
        let found = unsafe { (*NAMES.0.get()).iter().rfind(|(known, _)| *known == name) };
        if let Some((_, thread)) = found {
            caller.wait_for_end(thread.number());
        }
    }
    original!(c"pthread_join", fn(pthread_t, *mut *mut c_void) -> c_int, (name, result))
}
