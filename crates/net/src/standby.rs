//! A server of a shared store that does not own the volume: it refuses each client, and names the
//! owner if it knows it. It has no session and reads nothing of the volume.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Error, Handle, Reply, Request, Served, Service, SessionId,
    SessionRecord, SessionService,
};

use crate::clients::list::ClientList;
use crate::key::PrivateKey;
use crate::serve::SessionServer;

/// A function that returns the address of the owner of the volume, `KEY@HOST:PORT`, if it is known.
pub type FindOwner = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A server that refuses clients, and names the owner to them. Dropping it ends its connections and
/// closes its sockets.
///
/// A client of a machine whose key is not in the list is refused as by a [`SessionServer`]. Only
/// the owner knows the rights of guests and sites: they get the owner's address as soon as they
/// have proved any key.
#[derive(Debug)]
pub struct StandbyServer(SessionServer);

impl StandbyServer {
    /// Starts the threads; clients can connect once a socket is listened on.
    ///
    /// # Errors
    /// The system's, if it gives no epoll or no thread.
    pub fn start(owner: FindOwner) -> io::Result<Self> {
        SessionServer::start(Arc::new(StandbyService(owner))).map(Self)
    }

    /// Listens on a Unix socket, as [`SessionServer::listen_unix`].
    ///
    /// # Errors
    /// The system's.
    pub fn listen_unix(&self, path: &Path) -> io::Result<()> {
        self.0.listen_unix(path)
    }

    /// Listens on a TCP address, as [`SessionServer::listen_tcp`].
    ///
    /// # Errors
    /// As [`SessionServer::listen_tcp`].
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        key: &PrivateKey,
        clients: Arc<ClientList>,
    ) -> io::Result<SocketAddr> {
        self.0.listen_tcp(address, key, clients)
    }

    /// Listens on a socket, as [`SessionServer::listen_on`].
    ///
    /// # Errors
    /// As [`SessionServer::listen_tcp`].
    pub fn listen_on(
        &self,
        socket: TcpListener,
        key: &PrivateKey,
        clients: Arc<ClientList>,
    ) -> io::Result<SocketAddr> {
        self.0.listen_on(socket, key, clients)
    }
}

/// A service without a table. No session begins, so that it gets no request.
struct StandbyService(FindOwner);

impl fmt::Debug for StandbyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandbyService").finish_non_exhaustive()
    }
}

impl Service for StandbyService {
    fn ask(
        &self,
        _: &Context,
        _: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Err(Code::NotOwner.into()))
    }
}

impl SessionService for StandbyService {
    fn served(&self) -> Served {
        Served { volume: [0; 16], epoch: 0, read_only: true, site: 0 }
    }

    fn is_on_store(&self) -> bool {
        true
    }

    fn may_answer(&self) -> bool {
        false
    }

    fn owner_elsewhere(&self) -> Option<String> {
        Some((self.0)().unwrap_or_default())
    }

    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)> {
        Vec::new()
    }

    fn is_starting(&self) -> bool {
        true
    }

    fn begin_session(&self, _: SessionId, _: SessionRecord) -> Result<(), Error> {
        Err(Code::NotOwner.into())
    }

    fn reclaimed(&self, _: SessionId) {}

    fn flushed(&self, _: SessionId) {}

    fn ending(&self, _: SessionId) {}

    fn end_session(&self, _: SessionId) {}

    fn changed_node(&self, _: SessionId, _: &Request) -> Option<Handle> {
        None
    }

    fn attr(&self, _: SessionId, _: Handle) -> Option<Attr> {
        None
    }

    fn progress(&self) -> (u64, u64) {
        (0, 0)
    }

    fn sequence_of(&self, _: SessionId, _: u64) -> u64 {
        0
    }

    fn when_safe(&self, then: Box<dyn FnOnce() + Send>) {
        then();
    }
}
