//! The two ends of a session: which requests are under way, which answers are remembered, and what
//! is repeated after a connection was lost.
//!
//! Each request has a *number* in its session, which its answer and a cancel name. A request that
//! must not be carried out twice has a *mutation* number too; these are dense, from 1. The server
//! remembers the answer to each mutation until the client says that it has all answers up to that
//! one. So a repeated mutation gets the same answer, and is carried out once (RFC 8881, 2.10.6).

//!
//! A mutation that is answered and not safe is lost with the server's machine. The client keeps it
//! until it is safe, and acknowledges it only then.
//!
//! Both ends can go on after the server's process died. The client keeps which files it has open,
//! and opens them again under their numbers, before it repeats what was not answered.

pub use client::{AnswerTo, ClientSession, Numbers};
pub use reclaim::ClientOpens;
pub use server::{Repetition, ServerSession, SessionError};

mod client;
mod reclaim;
mod server;
