//! State machines of the protocol, without I/O, clock or thread: sessions, file locks, leases, and
//! the delivery of files. Drivers feed them with messages and times, and carry out their decisions.

#![forbid(unsafe_code)]

pub mod deliver;
pub mod leases;
pub mod locks;
pub mod session;
