//! The sockets to which mounts of other processes and machines connect.

use std::path::PathBuf;
use std::{fs, io};

use parking_lot::Mutex;
use pelago_net::SessionServer;
use pelago_net::key::address::ServerAddress;
use pelago_server::Server;
use pelago_store::folder::Folder;
use pelago_store::volume;

use super::listening::{self, ALL_ADDRESSES, NEVER};
use crate::failure::{Exit, Failure, Outcome};

/// The sessions of other mounts, and the sockets that accept them.
pub(super) struct Doors {
    pub(super) sessions: SessionServer,
    /// The address for other machines; `None` if only processes of this machine can connect.
    address: Mutex<Option<ServerAddress>>,
    /// The socket for processes of this machine; `None` if there is none.
    socket: Option<PathBuf>,
    folder: Folder,
}

#[derive(Debug, thiserror::Error)]
#[error("the socket for other mounts cannot be created")]
struct SocketError(#[source] io::Error);

impl Doors {
    /// Listens on the volume's socket, and on a TCP address if there is one.
    pub(super) fn open(folder: &Folder, server: &Server, listen: Option<&str>) -> Outcome<Self> {
        let socket = volume::session_socket_path(&folder.proc_path());
        let started = SessionServer::start(server.session_service()).and_then(|sessions| {
            sessions.listen_unix(&socket)?;
            Ok(sessions)
        });
        let sessions = started.map_err(|error| {
            Failure::new(Exit::Failed, SocketError(error))
                .hint("check that the volume's folder can be written to")
        })?;
        let own = folder.clone();
        let doors = Self { sessions, address: Mutex::default(), socket: Some(socket), folder: own };
        let kept = match listen {
            Some(listen) => Some(listen.to_owned()),
            None => listening::kept_address(folder)?,
        };
        if let Some(listen) = kept.filter(|at| at != NEVER) {
            *doors.address.lock() = Some(doors.listen(&listen)?);
        }
        Ok(doors)
    }

    /// Returns sessions that are accepted at an address only, without a socket for this machine.
    /// `folder` is the server's own folder.
    pub(super) fn at(folder: &Folder, sessions: SessionServer, address: ServerAddress) -> Self {
        let address = Mutex::new(Some(address));
        Self { sessions, address, socket: None, folder: folder.clone() }
    }

    /// Returns the address for other machines; `None` if only processes of this machine can
    /// connect.
    pub(super) fn address(&self) -> Option<ServerAddress> {
        self.address.lock().clone()
    }

    /// Listens for other machines, unless the server listens already, and makes each later start
    /// listen too. Returns the address.
    pub(super) fn listen_always(&self, at: Option<&str>) -> Outcome<ServerAddress> {
        let mut address = self.address.lock();
        if let Some(address) = &*address {
            return Ok(address.clone());
        }
        let at = at.unwrap_or(ALL_ADDRESSES);
        let listening = self.listen(at)?;
        *address = Some(listening.clone());
        self.keep_address(at)?;
        Ok(listening)
    }

    /// Returns whether the file `listen` says that this office does not listen.
    pub(super) fn listens_never(&self) -> Outcome<bool> {
        let kept = listening::kept_address(&self.folder)?;
        Ok(self.address.lock().is_none() && kept.as_deref() == Some(NEVER))
    }

    /// Writes the volume's file `listen`: the address at which each later start listens, unless it
    /// is given another address.
    pub(super) fn keep_address(&self, at: &str) -> Outcome<()> {
        listening::keep_address(&self.folder, at)
    }

    fn listen(&self, listen: &str) -> Outcome<ServerAddress> {
        let listening = listening::listen(&self.folder, listen, |address, key, clients| {
            self.sessions.listen_tcp(address, key, clients).map(|local| ((), local))
        })?;
        Ok(listening.address)
    }
}

impl Drop for Doors {
    /// Removes the socket, which no process serves any more.
    fn drop(&mut self) {
        if let Some(socket) = &self.socket
            && let Err(error) = fs::remove_file(socket)
        {
            tracing::debug!(%error, "the socket stays; the next start replaces it");
        }
    }
}
