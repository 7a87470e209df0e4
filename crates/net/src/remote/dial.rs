//! Sockets that are connected to servers, with the client's end of TLS.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::ServerTarget;
use super::connect_error::ConnectError;
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;
use crate::stream::Stream;
use crate::tls;

/// A connected socket, with the client's end of TLS unless it is a Unix socket.
pub(crate) type Opened = (Stream, Option<Box<rustls::Connection>>);

/// Connects to a server within `patience` for each of its IP addresses.
pub(super) fn open(target: &ServerTarget, patience: Duration) -> Result<Opened, ConnectError> {
    match target {
        ServerTarget::Unix(path) => {
            let stream = UnixStream::connect(path).and_then(|stream| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(mio::net::UnixStream::from_std(stream)))
            });
            Ok((stream.map_err(ConnectError::Unreachable)?, None))
        }
        ServerTarget::Tcp { address, key } => open_tcp(address, key, patience),
        ServerTarget::Reverse { site, connections } => {
            connections.take(*site, patience).ok_or(ConnectError::Silent)
        }
    }
}

/// Connects to the server at an address within `patience` for each of its IP addresses.
pub(crate) fn open_tcp(
    address: &ServerAddress,
    key: &PrivateKey,
    patience: Duration,
) -> Result<Opened, ConnectError> {
    let stream = connect_tcp(address, patience).map_err(ConnectError::Unreachable)?;
    let config = tls::client_config(key, address.key()).map_err(ConnectError::Tls)?;
    let tls = tls::client_connection(config).map_err(ConnectError::Tls)?;
    Ok((Stream::tcp(stream), Some(Box::new(rustls::Connection::Client(tls)))))
}

/// Connects to the first address of the host that answers.
fn connect_tcp(address: &ServerAddress, patience: Duration) -> io::Result<mio::net::TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in (address.host(), address.port()).to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, patience) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                return Ok(mio::net::TcpStream::from_std(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
