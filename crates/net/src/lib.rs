//! Sessions over sockets: frames over Unix sockets and over TCP with TLS 1.3, driven by threads
//! over epoll.

#![forbid(unsafe_code)]
