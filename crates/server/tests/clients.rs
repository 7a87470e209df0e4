//! Sessions of other processes: leases, replays, reclaims after a restart, and guests.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod come_back;
#[path = "guests/main.rs"]
mod guests;
#[path = "harness/all.rs"]
mod harness;
mod leases;
#[path = "mirror/main.rs"]
mod mirror;
#[path = "replay/main.rs"]
mod replay;
mod sessions;
#[path = "sites/main.rs"]
mod sites;
