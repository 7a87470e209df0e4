//! Threads that are started while a request is served, without its processor and scheduling policy.
//!
//! A thread inherits the processors and the scheduling policy of the thread that starts it. The
//! thread that serves a request may be bound to one processor, and may let all other threads run
//! first there (`SCHED_IDLE`). A thread that it starts must inherit neither.

use std::io;
use std::thread::{Builder, JoinHandle};

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// Starts a thread that may run on all processors of the process, with the usual policy.
///
/// # Errors
/// The system's error if the thread cannot be started.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let start = || {
        Builder::new().name(name.to_owned()).spawn(|| {
            unbind();
            run()
        })
    };
    if policy() != Some(libc::SCHED_IDLE) {
        return start();
    }
    // The new thread would have this policy until it first runs, which other threads could delay.
    set_policy(libc::SCHED_OTHER);
    let started = start();
    set_policy(libc::SCHED_IDLE);
    started
}

/// Returns the policy of this thread.
#[expect(unsafe_code, reason = "no crate has a safe binding for this call")]
fn policy() -> Option<i32> {
    // SAFETY: the call takes and returns numbers.
    let policy = unsafe { libc::sched_getscheduler(0) };
    (policy >= 0).then_some(policy)
}

/// Gives this thread a policy without priorities.
#[expect(unsafe_code, reason = "no crate has a safe binding for this call")]
fn set_policy(policy: i32) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the parameters.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, policy, "a thread keeps its scheduling policy");
    }
}

/// Lets this thread run on all processors of the first thread of the process.
fn unbind() {
    let unbound = sched_getaffinity(Some(getpid()))
        .and_then(|processors| sched_setaffinity(None, &processors));
    if let Err(error) = unbound {
        tracing::debug!(%error, "a thread stays on the processors of the one that started it");
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn a_thread_has_the_usual_policy_and_the_one_that_starts_it_keeps_its_own() {
        let started = Builder::new().spawn(|| {
            set_policy(libc::SCHED_IDLE);
            let inherited = Builder::new().spawn(policy).unwrap().join().unwrap();
            let usual = spawn("usual", policy).unwrap().join().unwrap();
            (inherited, usual, policy())
        });
        let (inherited, usual, own) = started.unwrap().join().unwrap();
        assert_eq!((inherited, own), (Some(libc::SCHED_IDLE), inherited));
        // An ordinary user's thread cannot leave the policy.
        let may_leave = rustix::process::geteuid().is_root();
        assert_eq!(usual == Some(libc::SCHED_OTHER), may_leave);
    }

    #[test]
    fn a_thread_leaves_the_processor_of_the_one_that_starts_it() {
        let all = sched_getaffinity(None).unwrap();
        let bound = Builder::new().spawn(move || {
            let first = (0..CpuSet::MAX_CPU).find(|&processor| all.is_set(processor)).unwrap();
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            let inherited = Builder::new().spawn(|| sched_getaffinity(None).unwrap()).unwrap();
            let unbound = spawn("unbound", || sched_getaffinity(None).unwrap()).unwrap();
            (one == inherited.join().unwrap(), unbound.join().unwrap())
        });
        assert_eq!(bound.unwrap().join().unwrap(), (true, all));
    }
}
