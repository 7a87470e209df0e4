//! A loss of power of the server's machine, or of its table alone, while its clients live: what was
//! answered and not safe comes back with them, through real sessions over a Unix socket.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod power;
mod relay;
mod reopened;
mod served;

#[path = "../harness/all.rs"]
mod harness;
