//! The listener for other machines: its address, the server's key, and the client list.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::Arc;

use pelago_net::clients::file::ClientsFileError;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::{DEFAULT_PORT, ServerAddress};
use pelago_net::key::file::{self, KeyFileError};
use pelago_net::own_file::{OwnFile, OwnFileError, Readers};
use pelago_store::folder::Folder;
use pelago_store::volume;
use rustix::system::uname;

use crate::failure::{Exit, Failure, Outcome};

/// All addresses of this machine, at the default port.
pub(crate) const ALL_ADDRESSES: &str = "0.0.0.0:7440";
/// The text of the file `listen` in the folder of an office that does not listen.
pub(crate) const NEVER: &str = "none";
/// The limit for the file `listen` in bytes: a host name has at most 253.
const LISTEN_BYTES: usize = 512;

#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("the key of the server cannot be used")]
    Key(#[from] KeyFileError),
    #[error("the list of clients cannot be used")]
    Clients(#[from] ClientsFileError),
    #[error("a file of the volume cannot be used")]
    File(#[from] OwnFileError),
}

/// A listener, and its address for other machines.
pub(crate) struct Listening<T> {
    pub(crate) server: T,
    pub(crate) address: ServerAddress,
}

/// Listens at `HOST:PORT` with the key of the folder, for the machines in its client list. `start`
/// starts the listener, and returns it and its local address with the chosen port.
pub(crate) fn listen<T>(
    folder: &Folder,
    at: &str,
    start: impl FnOnce(SocketAddr, &PrivateKey, Arc<ClientList>) -> io::Result<(T, SocketAddr)>,
) -> Outcome<Listening<T>> {
    let key = own_key(folder)?;
    let clients = clients_of(folder)?;
    listen_by(&key, at, |address| start(address, &key, clients))
}

/// Resolves `HOST:PORT` and calls `start` with the address, for a server with this key.
fn listen_by<T>(
    key: &PrivateKey,
    at: &str,
    start: impl FnOnce(SocketAddr) -> io::Result<(T, SocketAddr)>,
) -> Outcome<Listening<T>> {
    let named = |source| {
        Failure::new(Exit::Failed, ListenError::Listen { address: at.to_owned(), source })
            .hint("give an address of this machine, HOST:PORT")
    };
    let (server, local) = resolve(at).and_then(start).map_err(named)?;
    let shown = ServerAddress::new(key.public(), &host(at, local), local.port());
    let address =
        shown.map_err(|error| named(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    Ok(Listening { server, address })
}

/// Listens at `HOST:PORT` without accepting connections yet. Returns the socket and the address for
/// other machines, with the key of the folder.
pub(crate) fn bind(folder: &Folder, at: &str) -> Outcome<Listening<TcpListener>> {
    listen_by(&own_key(folder)?, at, |address| {
        let socket = TcpListener::bind(address)?;
        let local = socket.local_addr()?;
        Ok((socket, local))
    })
}

/// Returns the key of the server. It is created if there is none.
pub(crate) fn own_key(folder: &Folder) -> Outcome<PrivateKey> {
    OwnFile::at(folder, folder.path(), volume::KEY)
        .map_err(ListenError::from)
        .and_then(|file| Ok(file::read_or_create(&file)?))
        .map_err(|error| Failure::new(Exit::Failed, error))
}

/// Returns the list of the machines that may connect.
pub(crate) fn clients_of(folder: &Folder) -> Outcome<Arc<ClientList>> {
    OwnFile::at(folder, folder.path(), volume::CLIENTS)
        .map_err(ListenError::from)
        .and_then(|file| Ok(Arc::new(ClientList::open(file)?)))
        .map_err(|error| Failure::new(Exit::Failed, error))
}

/// Returns the address in the file `listen` of the folder, or [`NEVER`].
pub(crate) fn kept_address(folder: &Folder) -> Outcome<Option<String>> {
    let read = listen_file(folder).and_then(|file| file.read(Readers::Everybody, LISTEN_BYTES));
    match read {
        Ok((text, _)) => Ok(Some(text.trim().to_owned())),
        Err(OwnFileError::Missing { .. }) => Ok(None),
        Err(error) => Err(Failure::new(Exit::Failed, ListenError::from(error))
            .hint("remove the file `listen` of the volume, or name an address by --listen")),
    }
}

/// Writes the file `listen` of the folder: the address at which each later start listens, unless it
/// is given another address, or [`NEVER`].
pub(crate) fn keep_address(folder: &Folder, at: &str) -> Outcome<()> {
    let kept = listen_file(folder).and_then(|file| {
        let edit = file.edit()?;
        edit.finish(&format!("{at}\n"))
    });
    kept.map_err(|error| Failure::new(Exit::Failed, ListenError::from(error)))
}

fn listen_file(folder: &Folder) -> Result<OwnFile, OwnFileError> {
    OwnFile::at(folder, folder.path(), volume::LISTEN)
}

/// Resolves `HOST:PORT`, `HOST` or `:PORT`.
fn resolve(listen: &str) -> io::Result<SocketAddr> {
    if let Ok(address) = listen.parse() {
        return Ok(address);
    }
    let (host, port) = match listen.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            (host, port)
        }
        None => (listen, DEFAULT_PORT),
    };
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    (host, port).to_socket_addrs()?.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the host to show: the given host, or this machine's name if it listens at all addresses.
fn host(listen: &str, local: SocketAddr) -> String {
    if local.ip().is_unspecified() {
        return uname().nodename().to_string_lossy().into_owned();
    }
    let named = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    if listen.parse::<SocketAddr>().is_ok() || named.is_empty() {
        return local.ip().to_string();
    }
    named.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_of_an_address_has_a_default() {
        assert_eq!(resolve("127.0.0.1:80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert_eq!(resolve(":80").unwrap(), "0.0.0.0:80".parse().unwrap());
        assert_eq!(resolve("127.0.0.1").unwrap().port(), DEFAULT_PORT);
        assert_eq!(resolve("[::1]:80").unwrap(), "[::1]:80".parse().unwrap());
        assert!(resolve("127.0.0.1:x").is_err());
    }

    #[test]
    fn the_host_is_shown_as_it_was_named() {
        let local = "127.0.0.1:80".parse().unwrap();
        assert_eq!(host("localhost:80", local), "localhost");
        assert_eq!(host("127.0.0.1:80", local), "127.0.0.1");
        assert!(!host(":80", "0.0.0.0:80".parse().unwrap()).is_empty());
    }
}
