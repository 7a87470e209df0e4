//! Sessions over sockets: frames over Unix sockets and over TCP with TLS 1.3, driven by threads
//! over epoll.
//!
//! A machine is known by its Ed25519 key ([`key`]), which TLS proves ([`tls`]). A volume has a list
//! of the machines that may connect to it ([`clients`]).
//!
//! [`SessionServer`] is the server's side, [`Remote`] the client's. A session outlives its
//! connections, and each mutation of a session is carried out once. [`mirror`] connects a primary
//! and its mirror, without sessions.

#![forbid(unsafe_code)]

pub use remote::{
    ClientRole, ConnectError, OnDir, Remote, RemoteOptions, RemoteStatus, ServerTarget, SiteRole,
};
pub use reverse::{OnReverse, ReverseConnections};
pub use serve::{IdleServer, ReverseService, SessionServer};
pub use session::{Peer, SessionStatus};
pub use standby::{FindOwner, StandbyServer};

mod account;
mod assembler;
pub mod clients;
mod clock;
pub mod key;
mod link;
mod log_limit;
pub mod mirror;
pub mod own_file;
mod peers;
mod reactor;
mod remote;
mod reverse;
mod serve;
mod session;
mod sessions;
mod standby;
mod strangers;
mod stream;
pub mod tls;
