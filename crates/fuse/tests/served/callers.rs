//! Many callers at once, and signals to them.

use std::io;
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Bytes of the stack of a caller, of which there may be thousands.
const STACK_BYTES: usize = 64 << 10;

/// Starts a caller.
pub(crate) fn caller<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    call: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let thread = Builder::new().name("caller".to_owned()).stack_size(STACK_BYTES);
    thread.spawn_scoped(scope, call).unwrap()
}

/// Runs on one processor, with all threads that are started meanwhile.
pub(crate) fn on_one_processor<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let bound = || {
        bind_to_one_processor();
        run()
    };
    thread::scope(|scope| scope.spawn(bound).join().unwrap())
}

/// Binds this thread to the first of the processors on which it may run.
fn bind_to_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)).unwrap();
    let mut only = CpuSet::new();
    only.set(first);
    sched_setaffinity(None, &only).unwrap();
}

/// Allows this process as many open files as it may have.
pub(crate) fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Has a signal interrupt calls, and do nothing else.
#[expect(unsafe_code, reason = "no crate has a safe binding for this call")]
pub(crate) fn handle(signal: libc::c_int) {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: all zeros are a valid value: no flags, and no signal is blocked meanwhile.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, and the call reads the value.
    let handled = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(handled, 0, "{}", io::Error::last_os_error());
}

/// Sends a signal to a thread of this process, if it is there.
#[expect(unsafe_code, reason = "no crate has a safe binding for this call")]
pub(crate) fn interrupt(thread: Pid, signal: libc::c_int) {
    let process = std::process::id();
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
}
