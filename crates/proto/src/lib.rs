//! State machines of the protocol, without I/O, clock or thread: what a session has answered, who
//! holds a lock, which block a reader gets next. Drivers feed them with messages and times, and
//! carry out what they decide.

#![forbid(unsafe_code)]

pub mod deliver;
pub mod leases;
pub mod locks;
pub mod session;
