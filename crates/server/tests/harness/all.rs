//! The harness of the server's tests.
#![allow(dead_code, reason = "each test uses its part")]

use std::thread;
use std::time::{Duration, Instant};

#[path = "program.rs"]
pub(crate) mod program;
#[path = "requests.rs"]
pub(crate) mod requests;
#[path = "rig.rs"]
pub(crate) mod rig;

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + rig::DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
