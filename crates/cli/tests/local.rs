//! Tests with one mount on the machine of its volume, and tests without a mount.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod bench;
mod complete;
mod credentials;
mod exerciser;
mod find;
mod first_minutes;
mod golden;
#[path = "harness/all.rs"]
mod harness;
mod keys;
mod memory;
mod mirrors;
mod model;
#[path = "mounted/main.rs"]
mod mounted;
mod offices;
mod passthrough;
mod planted;
mod ranges;
mod readme;
mod stores;
