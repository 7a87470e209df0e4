//! Sessions over sockets: frames over Unix sockets and over TCP with TLS 1.3, driven by threads
//! over epoll.

#![forbid(unsafe_code)]

pub use remote::{ConnectError, Remote, RemoteOptions, RemoteStatus, Target};
pub use serve::SessionServer;
pub use session::{Peer, SessionStatus};

mod assembler;
mod clock;
mod link;
mod reactor;
mod remote;
mod serve;
mod session;
mod sessions;
mod stream;
