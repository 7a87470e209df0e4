//! Nonblocking sockets: Unix and TCP behind one type.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

/// The congestion control of long lines.
const LONG_LINE: &str = "bbr";

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Between processes of one machine.
    Unix(mio::net::UnixStream),
    /// Between machines; TLS is above it.
    Tcp(mio::net::TcpStream),
}

impl Stream {
    /// Takes over a socket that was accepted or connected.
    pub(crate) fn tcp(stream: mio::net::TcpStream) -> Self {
        // A request is one small packet, and its caller waits.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a socket keeps small packets back");
        }
        Self::Tcp(stream)
    }

    /// Has the kernel control congestion for a long line, if it has BBR: other algorithms take each
    /// lost packet for congestion. At a loss of 1 %, 100 ms and 100 Mbit/s BBR has 78 Mbit/s, and
    /// CUBIC one.
    pub(crate) fn set_long_line(&self) {
        if let Self::Tcp(stream) = self
            && let Err(error) = sockopt::set_tcp_congestion(stream, LONG_LINE)
        {
            tracing::debug!(%error, "a connection between sites keeps the default of this kernel");
        }
    }

    /// Writes the slices by one system call, as far as the socket takes them.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => (&*stream).write_vectored(slices),
            Self::Tcp(stream) => (&*stream).write_vectored(slices),
        }
    }

    /// Reads bytes that have arrived. Returns 0 at the end of the stream.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => (&*stream).read(into),
            Self::Tcp(stream) => (&*stream).read(into),
        }
    }

    /// Ends the connection both ways; the thread that polls it sees the end.
    pub(crate) fn shut_down(&self) {
        let ended = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the connection had ended already");
        }
    }

    /// Returns another descriptor of the connection, for another thread that polls it.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => {
                let copy = net::UnixStream::from(rustix::io::fcntl_dupfd_cloexec(stream, 0)?);
                Self::Unix(mio::net::UnixStream::from_std(copy))
            }
            Self::Tcp(stream) => {
                let copy = TcpStream::from(rustix::io::fcntl_dupfd_cloexec(stream, 0)?);
                Self::Tcp(mio::net::TcpStream::from_std(copy))
            }
        })
    }

    /// Returns the user of the process at the other end of a Unix socket.
    pub(crate) fn peer_uid(&self) -> Option<u32> {
        match self {
            Self::Unix(stream) => {
                let peer = sockopt::socket_peercred(stream);
                peer.ok().map(|peer| peer.uid.as_raw())
            }
            Self::Tcp(_) => None,
        }
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, how: Interest) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.register(registry, token, how),
            Self::Tcp(stream) => stream.register(registry, token, how),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, how: Interest) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.reregister(registry, token, how),
            Self::Tcp(stream) => stream.reregister(registry, token, how),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.deregister(registry),
            Self::Tcp(stream) => stream.deregister(registry),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_long_line_has_bbr_if_the_kernel_has_it() {
        let known = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let known = fs::read_to_string(known).unwrap_or_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Linux has this one always.
        sockopt::set_tcp_congestion(&plain, "reno").unwrap();
        plain.set_nonblocking(true).unwrap();
        let stream = Stream::tcp(mio::net::TcpStream::from_std(plain));
        stream.set_long_line();
        let expected = if known.contains(LONG_LINE) { LONG_LINE } else { "reno" };
        let Stream::Tcp(stream) = &stream else { panic!("it is of TCP") };
        assert_eq!(sockopt::tcp_congestion(stream).unwrap(), expected);
    }
}
