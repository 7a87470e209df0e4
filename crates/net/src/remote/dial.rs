//! Sockets that are connected to servers, with the client's end of TLS.

use std::fs::File;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::ServerTarget;
use super::connect_error::ConnectError;
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;
use crate::stream::Stream;
use crate::tls;

/// The length of the longest path that fits into the address of a Unix socket.
const ADDRESS_BYTES: usize = 107;

/// A connected socket, with the client's end of TLS unless it is a Unix socket.
pub(crate) type Opened = (Stream, Option<Box<rustls::Connection>>);

/// Connects to a server within `patience` for each of its IP addresses.
pub(super) fn open(target: &ServerTarget, patience: Duration) -> Result<Opened, ConnectError> {
    match target {
        ServerTarget::Unix(path) => {
            let stream = connect_unix(path).and_then(|stream| {
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

/// Connects to a Unix socket. A path that is too long for a socket address is shortened.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if path.as_os_str().len() > ADDRESS_BYTES => {
            let open = File::open(folder)?;
            let short = Path::new("/proc/self/fd").join(open.as_raw_fd().to_string());
            UnixStream::connect(short.join(name))
        }
        _ => UnixStream::connect(path),
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
