//! Downloads: over HTTP, by one client and by crowds.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod circus;
mod crowd;
#[path = "get/main.rs"]
mod get;
#[path = "harness/all.rs"]
mod harness;
mod http;
#[path = "pins/main.rs"]
mod pins;
