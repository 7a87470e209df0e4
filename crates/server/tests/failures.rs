//! Crashes, lost power and failing disks under a server.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod crash;
#[path = "faults/main.rs"]
mod faults;
#[path = "harness/all.rs"]
mod harness;
#[path = "loss/main.rs"]
mod loss;
#[path = "mirrors/main.rs"]
mod mirrors;
mod power;
mod store;
