//! Threads that start while a request is served.
//!
//! A thread inherits the processors of the one that starts it, and a request may be served by a
//! thread that is bound to one processor. What it starts must not stay there.

use std::io;
use std::thread::{Builder, JoinHandle};

use rustix::process::getpid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// Starts a thread that may run on all processors of the process.
///
/// # Errors
/// The system's error if the thread cannot be started.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(|| {
        unbind();
        run()
    })
}

/// Lets this thread run where the first one of the process may.
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
