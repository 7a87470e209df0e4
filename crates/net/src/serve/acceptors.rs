//! The listening sockets of a server: a Unix socket, and TCP ports. Their ticks end sessions whose
//! time, key or grant is over.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::process::geteuid;

use super::Shared;
use super::caller::Caller;
use crate::clients::list::ClientList;
use crate::reactor::Listener;
use crate::strangers::Source;
use crate::stream::Stream;
use crate::tls;

/// A Unix socket that clients of this machine connect to.
pub(super) struct UnixAcceptor {
    pub(super) socket: mio::net::UnixListener,
    pub(super) shared: Arc<Shared>,
}

impl AsRawFd for UnixAcceptor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Listener for UnixAcceptor {
    fn accept(&mut self) -> io::Result<()> {
        let (socket, _) = self.socket.accept()?;
        let stream = Stream::Unix(socket);
        match stream.peer_uid() {
            Some(uid) if uid == 0 || uid == geteuid().as_raw() => {
                self.shared.welcome(stream, Source::User(uid), None, Caller::Local(uid));
            }
            uid => {
                if let Some(left_out) = self.shared.sessions.log.foreign.admit() {
                    tracing::warn!(?uid, left_out, "another user's process may not connect");
                }
            }
        }
        Ok(())
    }

    fn tick(&mut self) {
        self.shared.sessions.expire();
        self.shared.sessions.log.write_rest(Instant::now());
    }

    fn wants_ticks(&self) -> bool {
        self.shared.has_clients() || self.shared.sessions.log.has_rest()
    }
}

/// A TCP port that clients of other machines connect to.
pub(super) struct TcpAcceptor {
    pub(super) socket: mio::net::TcpListener,
    pub(super) config: Arc<rustls::ServerConfig>,
    pub(super) clients: Arc<ClientList>,
    pub(super) shared: Arc<Shared>,
}

impl AsRawFd for TcpAcceptor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Listener for TcpAcceptor {
    fn accept(&mut self) -> io::Result<()> {
        let (socket, address) = self.socket.accept()?;
        match tls::server_connection(Arc::clone(&self.config)) {
            Ok(tls) => {
                let tls = Some(Box::new(rustls::Connection::Server(tls)));
                let caller = Caller::Far(address.ip(), Arc::clone(&self.clients));
                let source = Source::of(address.ip());
                self.shared.welcome(Stream::tcp(socket), source, tls, caller);
            }
            Err(error) => {
                if let Some(left_out) = self.shared.sessions.log.failed.admit() {
                    tracing::error!(%error, left_out, "a connection has no TLS");
                }
            }
        }
        Ok(())
    }

    fn tick(&mut self) {
        self.shared.sessions.expire();
        self.shared.sessions.end_removed(&self.clients);
    }

    fn wants_ticks(&self) -> bool {
        self.shared.has_clients()
    }
}
