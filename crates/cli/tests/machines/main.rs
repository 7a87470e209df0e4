//! A server and two other machines that mount its volume, joined by a network of their own, as a
//! stranger sets them up who has read README.md.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod accepted;
mod hands;
#[path = "../harness/all.rs"]
mod harness;
mod network;
mod stalls;
mod world;
