//! The effects of requests on a volume.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod check;
mod errors;
mod full;
#[path = "harness/all.rs"]
mod harness;
mod races;
mod removed;
mod replaced;
mod survives;
mod sync;
mod tags;
mod unnamed;
