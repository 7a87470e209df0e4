//! The locks of the crates that share state between threads.
//!
//! They are those of `parking_lot`. With the feature `shuttle` they are locks with the same methods
//! that the Shuttle scheduler controls: it runs the threads of a test in orders of its choice, and
//! reports a deadlock (`schedules/`). All code that such a test runs takes its locks from here.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub use scheduled::{Condvar, Mutex, MutexGuard, RwLock};

#[cfg(feature = "shuttle")]
mod scheduled;
