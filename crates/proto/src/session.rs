//! The two ends of a session: the requests under way, the stored answers, and the repetition after
//! a lost connection.
//!
//! Each request has a *number* in its session, which its answer and a cancel name. A request that
//! must not be carried out twice also has a *mutation* number; these are dense, from 1. The server
//! stores the answer to each mutation until the client says that it has all answers up to that one.
//! So a repeated mutation gets the same answer, and is carried out once (RFC 8881, 2.10.6).
//!
//! A mutation that is answered and not safe is lost with the server's machine. The client keeps it
//! until it is safe, and acknowledges it only then.
//!
//! A session continues after the server's process has died. The client records its open files, and
//! opens them again under their numbers before it repeats requests that were not answered.

pub use client::{AnswerTo, ClientSession, Numbers};
pub use reclaim::ClientOpens;
pub use server::{Repetition, ServerSession, SessionError};

mod client;
mod reclaim;
mod server;
