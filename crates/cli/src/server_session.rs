//! A session with the server of a volume, for the few requests of one command.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use pelago_net::key::PrivateKey;
use pelago_net::{ClientRole, ConnectError, Remote, RemoteOptions, ServerTarget};
use pelago_store::volume;
use pelago_wire::{Bulk, Context, Error, LeasedService as _, Reply, Request};

use crate::credential::Chain;
use crate::failure::{Exit, Failure, Outcome};
use crate::guest::Guest;

/// The longest time that the server may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum ServerSessionError {
    #[error("the server {server} cannot be reached")]
    Unreachable {
        /// The server, for people.
        server: String,
        #[source]
        source: ConnectError,
    },
    #[error("the server does not answer")]
    Silent,
}

/// A session, which ends when this is dropped.
pub(crate) struct ServerSession {
    remote: Remote,
    /// The server, for people.
    pub(crate) server: String,
    /// True if the session is a guest's.
    pub(crate) is_guest: bool,
}

impl ServerSession {
    /// Begins a session of this user with the server of the volume in `dir`, over its socket.
    pub(crate) fn of_volume(dir: &Path) -> Outcome<Self> {
        let folder = volume::open_folder(dir)?;
        let target = ServerTarget::Unix(volume::session_socket_path(&folder.proc_path()));
        Self::begin(target, ClientRole::Client, format!("of {}", dir.display()))
    }

    /// Begins a session of the guest with these credentials, which are for his key.
    pub(crate) fn of_guest(own: &Chain, key: PrivateKey) -> Outcome<Self> {
        let address = own.address()?;
        let server = address.to_string();
        let target = ServerTarget::Tcp { address, key: Arc::new(key) };
        Self::begin(target, Guest::of(own).role(), server)
    }

    fn begin(target: ServerTarget, role: ClientRole, server: String) -> Outcome<Self> {
        let is_guest = matches!(role, ClientRole::Guest(_));
        let options = RemoteOptions { target, read_only: false, role, give_up: Some(PATIENCE) };
        match Remote::connect(options, PATIENCE) {
            Ok(remote) => Ok(Self { remote, server, is_guest }),
            Err(source) => Err(unreachable(server, source, is_guest)),
        }
    }

    /// Sends a request, and returns the answer of the server.
    pub(crate) fn ask(&self, request: Request) -> Outcome<Result<Reply, Error>> {
        self.ask_with(request, Bulk::None)
    }

    /// Sends a request with bytes, and returns the answer of the server.
    pub(crate) fn ask_with(
        &self,
        request: Request,
        bulk: Bulk<'_>,
    ) -> Outcome<Result<Reply, Error>> {
        let (sender, answer) = channel();
        let done = Box::new(move |result, _granted| {
            // The other end waits below, or has given up.
            let _sent = sender.send(result);
        });
        self.remote.ask_leased(&Context::direct(0, 0), request, bulk, done);
        let answer = answer.recv_timeout(PATIENCE);
        answer.map_err(|_| Failure::new(Exit::Unreachable, ServerSessionError::Silent))
    }
}

impl Drop for ServerSession {
    fn drop(&mut self) {
        self.remote.end();
    }
}

fn unreachable(server: String, source: ConnectError, is_guest: bool) -> Failure {
    let is_refused = matches!(source, ConnectError::Refused(_));
    let error = ServerSessionError::Unreachable { server, source };
    match (is_guest, is_refused) {
        (true, true) => Failure::new(Exit::Denied, error)
            .hint("if what you have yourself is void, then so is what you have shared on"),
        (true, false) => Failure::new(Exit::Unreachable, error)
            .hint("retry when the server is up; check the address with the one who has shared it"),
        (false, _) => Failure::new(Exit::Unreachable, error).hint("start the volume: `pelago up`"),
    }
}
