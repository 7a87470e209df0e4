//! State machines of the protocol, without I/O, clock or thread: sessions, file locks, leases, the
//! delivery of files, and the datagrams to a mirror. Drivers feed them with messages and times, and
//! carry out their decisions.

#![forbid(unsafe_code)]

pub mod deliver;
pub mod fec;
pub mod leases;
pub mod link;
pub mod locks;
pub mod session;
