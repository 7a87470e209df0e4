//! Sessions over sockets: frames over Unix sockets and over TCP with TLS 1.3, driven by threads
//! over epoll.
//!
//! A machine is known by its Ed25519 key ([`key`]), which TLS proves ([`tls`]). A volume has a list
//! of the machines that may connect to it ([`clients`]).

#![forbid(unsafe_code)]

pub mod clients;
pub mod key;
pub mod own_file;
pub mod tls;
