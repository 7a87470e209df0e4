//! The relay: a machine at the edge of a site that passes the groups of primaries on to their
//! mirrors, with repair packets, although a primary may be gone. `docs/protocol.md`, 3.3.2, has the
//! messages.
//!
//! A primary seals each part ([`records`]) and sends it over its connection ([`link`]). The relay
//! keeps the records ([`route`]) and has two threads for each volume: one for the connection of the
//! primary ([`primary`]), and one that passes whole groups on to the mirror ([`courier`]).

pub use link::RelayConnection;
pub use server::{RelayServer, RelayStatus};

pub(super) use records::{Opener, RunKey};

mod courier;
mod link;
mod primary;
mod records;
mod route;
mod server;
