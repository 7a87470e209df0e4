//! The sockets that mounts by other processes and machines connect to.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use parking_lot::Mutex;
use pelago_net::SessionServer;
use pelago_net::clients::file::ClientsFileError;
use pelago_net::clients::list::ClientList;
use pelago_net::key::address::{DEFAULT_PORT, ServerAddress};
use pelago_net::key::file::{self, KeyFileError};
use pelago_net::own_file::{OwnFile, OwnFileError, Readers};
use pelago_server::Server;
use pelago_store::folder::Folder;
use pelago_store::volume;
use rustix::system::uname;

use crate::failure::{Exit, Failure, Outcome};

/// The sessions of other mounts, and where they come from.
pub(super) struct Doors {
    pub(super) sessions: SessionServer,
    /// Where machines connect; `None` if only processes of this machine can.
    address: Mutex<Option<ServerAddress>>,
    socket: PathBuf,
    folder: Folder,
}

/// All addresses of this machine, at the default port.
const ALL_ADDRESSES: &str = "0.0.0.0:7440";
/// Bytes of the file `listen`: a host name has at most 253.
const LISTEN_BYTES: usize = 512;

#[derive(Debug, thiserror::Error)]
enum DoorError {
    #[error("the socket for other mounts cannot be created")]
    Socket(#[source] io::Error),
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

impl Doors {
    /// Listens on the volume's socket, and on a TCP address if there is one.
    pub(super) fn open(folder: &Folder, server: &Server, listen: Option<&str>) -> Outcome<Self> {
        let socket = volume::session_socket_path(&folder.proc_path());
        let started = SessionServer::start(server.session_service()).and_then(|sessions| {
            sessions.listen_unix(&socket)?;
            Ok(sessions)
        });
        let sessions = started.map_err(|error| {
            Failure::new(Exit::Failed, DoorError::Socket(error))
                .hint("check that the volume's folder can be written to")
        })?;
        let folder = folder.clone();
        let doors = Self { sessions, address: Mutex::default(), socket, folder };
        let kept = match listen {
            Some(listen) => Some(listen.to_owned()),
            None => doors.kept_address()?,
        };
        if let Some(listen) = kept {
            *doors.address.lock() = Some(doors.listen(&doors.folder, &listen)?);
        }
        Ok(doors)
    }

    /// Returns where machines connect; `None` if only processes of this machine can.
    pub(super) fn address(&self) -> Option<ServerAddress> {
        self.address.lock().clone()
    }

    /// Listens for other machines, unless it does already, and at each start from now on. Returns
    /// the address.
    pub(super) fn listen_always(&self, at: Option<&str>) -> Outcome<ServerAddress> {
        let mut address = self.address.lock();
        if let Some(address) = &*address {
            return Ok(address.clone());
        }
        let at = at.unwrap_or(ALL_ADDRESSES);
        let listening = self.listen(&self.folder, at)?;
        *address = Some(listening.clone());
        self.keep_address(at)?;
        Ok(listening)
    }

    /// Writes the volume's file `listen`: where each later start listens, unless it is told another
    /// address.
    pub(super) fn keep_address(&self, at: &str) -> Outcome<()> {
        let kept = self.listen_file().and_then(|file| {
            let edit = file.edit()?;
            edit.finish(&format!("{at}\n"))
        });
        kept.map_err(|error| Failure::new(Exit::Failed, DoorError::from(error)))
    }

    /// Returns the address in the volume's file `listen`.
    fn kept_address(&self) -> Outcome<Option<String>> {
        let read = self.listen_file().and_then(|file| file.read(Readers::Everybody, LISTEN_BYTES));
        match read {
            Ok((text, _)) => Ok(Some(text.trim().to_owned())),
            Err(OwnFileError::Missing { .. }) => Ok(None),
            Err(error) => Err(Failure::new(Exit::Failed, DoorError::from(error))
                .hint("remove the file `listen` of the volume, or name an address by --listen")),
        }
    }

    fn listen_file(&self) -> Result<OwnFile, OwnFileError> {
        OwnFile::at(&self.folder, self.folder.path(), volume::LISTEN)
    }

    fn listen(&self, folder: &Folder, listen: &str) -> Outcome<ServerAddress> {
        let failed = |error| {
            Failure::new(Exit::Failed, error).hint("give an address of this machine, HOST:PORT")
        };
        let own = |name| OwnFile::at(folder, folder.path(), name).map_err(DoorError::from);
        let key = own(volume::KEY)
            .and_then(|file| Ok(file::read_or_create(&file)?))
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        let clients = own(volume::CLIENTS)
            .and_then(|file| Ok(ClientList::open(file)?))
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        let named = |source| failed(DoorError::Listen { address: listen.to_owned(), source });
        let address = resolve(listen).map_err(named)?;
        let local = self.sessions.listen_tcp(address, &key, Arc::new(clients)).map_err(named)?;
        let shown = ServerAddress::new(key.public(), &host(listen, local), local.port());
        shown.map_err(|error| {
            failed(DoorError::Listen {
                address: listen.to_owned(),
                source: io::Error::new(io::ErrorKind::InvalidInput, error),
            })
        })
    }
}

impl Drop for Doors {
    /// Removes the socket, so that nothing is left that no process serves.
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.socket) {
            tracing::debug!(%error, "the socket stays; the next start replaces it");
        }
    }
}

/// Returns the address that `HOST:PORT`, `HOST` or `:PORT` means.
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

/// Returns the host to show: the one that was named, or this machine's name for all addresses.
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
