//! Mounts of other processes and machines.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

#[path = "coherence/main.rs"]
mod coherence;
#[path = "disaster/main.rs"]
mod disaster;
#[path = "far/main.rs"]
mod far;
mod far_crash;
#[path = "harness/all.rs"]
mod harness;
mod joints;
#[path = "machines/main.rs"]
mod machines;
#[path = "notices/main.rs"]
mod notices;
#[path = "pairs/main.rs"]
mod pairs;
mod restart;
mod slow;
#[path = "soak/main.rs"]
mod soak;
#[path = "two_offices/main.rs"]
mod two_offices;
