//! The client's side: a server at the other end of a socket, as a [`Service`].
//!
//! A caller's thread numbers its request and writes the socket itself; the reactor's thread reads
//! the reply and calls back. A lost connection is made again. Requests that were not answered are
//! sent again under their old numbers, so that the server carries out each mutation once. They fail
//! if the session has ended, or if the server gives no session any more.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, thread};

use pelago_wire::{
    Bulk, Context, Done, Error, Granted, LeaseHolder, LeasedDone, LeasedService, OpenId, Reply,
    Request, Service, SessionId, SitePass, Then, codec,
};

use crate::key::PrivateKey;
use crate::key::address::ServerAddress;
use crate::reactor::Reactor;
use crate::reverse::ReverseConnections;

pub use connect_error::ConnectError;
pub use status::{OnDir, RemoteStatus};

use call::Call;
use calls::Calls;
use connect::Connector;

mod answers;
mod attached;
mod bulk;
mod call;
mod calls;
mod connect;
mod connect_error;
mod connection;
pub(crate) mod dial;
mod ended_origins;
mod flush;
mod given_up;
mod guest_chains;
mod lease_clock;
mod locks;
mod parting;
mod recalls;
mod reclaim;
mod replay;
mod replay_log;
mod role;
mod round;
mod round_trip;
mod sending;
mod server_list;
mod servers;
mod settling;
mod status;
mod terms;
mod window;
mod window_bytes;

/// The socket of a server.
#[derive(Debug, Clone)]
pub enum ServerTarget {
    /// A Unix socket on the same machine.
    Unix(PathBuf),
    /// TCP with TLS: the server proves the key of its address, and the client proves its own. If
    /// the volume lies on a shared store, the server names the others.
    Tcp {
        /// The address of the server.
        address: ServerAddress,
        /// The client's key.
        key: Arc<PrivateKey>,
    },
    /// The server of another site, which connects to this one.
    Reverse {
        /// The number of the site.
        site: u16,
        /// The connections that have come.
        connections: Arc<ReverseConnections>,
    },
}

/// The role of a client.
#[derive(Debug, Clone, Default)]
pub enum ClientRole {
    /// A client that the server knows.
    #[default]
    Client,
    /// A guest with these chains of credentials, each from that of a root of the volume to the one
    /// for the client's key. It presents the first one that the server accepts, and attaches the
    /// others. Only over TCP.
    Guest(Arc<[Vec<Vec<u8>>]>),
    /// The server of another site. Only over TCP.
    Site(SiteRole),
}

/// The server of a site as the client of another one.
#[derive(Debug, Clone)]
pub struct SiteRole {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The number of the site whose server is wanted.
    pub wanted: u16,
    /// The sentence of an invitation, for a site that may not have joined yet.
    pub invitation: Option<Vec<u8>>,
    /// The tokens that it shows, by which the other server notices an older folder.
    pub pass: Arc<dyn SitePass>,
}

/// The options of a client.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The server.
    pub target: ServerTarget,
    /// The client will send no mutation.
    pub read_only: bool,
    /// The role of the client.
    pub role: ClientRole,
    /// After this time a request fails with `TimedOut`; `None` waits until the server comes back.
    pub give_up: Option<Duration>,
}

/// A server at the other end of a socket.
pub struct Remote {
    calls: Arc<Calls>,
    connector: Arc<Connector>,
    reactor: Reactor,
}

impl Remote {
    /// Connects, and begins a session.
    ///
    /// # Errors
    /// [`ConnectError`], if there is no session within `patience`.
    pub fn connect(options: RemoteOptions, patience: Duration) -> Result<Self, ConnectError> {
        let remote = Self::unconnected(options)?;
        remote.connector.begin(patience)?;
        remote.keep_connected()?;
        Ok(remote)
    }

    /// Begins without a connection: requests wait for one, for as long as the options say. The
    /// connection is made, and made again after a loss, until this is dropped.
    ///
    /// # Errors
    /// [`ConnectError::NoThread`].
    pub fn begin_unconnected(options: RemoteOptions) -> Result<Self, ConnectError> {
        let remote = Self::unconnected(options)?;
        remote.keep_connected()?;
        let calls = Arc::clone(&remote.calls);
        thread::Builder::new()
            .name("deadlines".to_owned())
            .spawn(move || calls.keep_deadlines())
            .map_err(ConnectError::NoThread)?;
        if remote.connector.has_bulk() {
            let own = Arc::clone(&remote.connector);
            thread::Builder::new()
                .name("bulk".to_owned())
                .spawn(move || own.keep_bulk_connected())
                .map_err(ConnectError::NoThread)?;
        }
        Ok(remote)
    }

    fn unconnected(options: RemoteOptions) -> Result<Self, ConnectError> {
        let reactor = Reactor::start("net").map_err(ConnectError::NoThread)?;
        let calls = Arc::new(Calls::new(options.give_up));
        if let ClientRole::Guest(chains) = &options.role {
            calls.set_chains(Arc::clone(chains));
        }
        if let ClientRole::Site(_) = &options.role {
            calls.measure();
        }
        let mailbox = Arc::clone(&reactor.mailbox);
        let connector = Arc::new(Connector::new(options, Arc::clone(&calls), mailbox)?);
        Ok(Self { calls, connector, reactor })
    }

    /// Starts the thread that makes the connection whenever there is none.
    fn keep_connected(&self) -> Result<(), ConnectError> {
        let own = Arc::clone(&self.connector);
        thread::Builder::new()
            .name("connect".to_owned())
            .spawn(move || own.keep_connected())
            .map(drop)
            .map_err(ConnectError::NoThread)
    }

    /// Makes connections to another target from now on: the server has moved. The session goes on,
    /// with all that it has open. Not for a server of a shared store.
    pub fn move_to(&self, target: ServerTarget) {
        self.connector.move_to(target);
    }

    /// Returns the reason for which the server has refused the last attempt to connect, if it has.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.connector.refusal()
    }

    /// Returns the server that has given the session its present connection, or the last one; of
    /// those of a shared store it is the owner. `None` over a Unix socket.
    #[must_use]
    pub fn server(&self) -> Option<ServerAddress> {
        self.connector.server()
    }

    /// Returns the state of the session.
    #[must_use]
    pub fn status(&self) -> RemoteStatus {
        self.calls.status()
    }

    /// From now on, calls `on_dir` with the attributes of directories that come with answers. A
    /// second call does nothing.
    pub fn tell_dirs(&self, on_dir: OnDir) {
        let _is_first = self.calls.on_dir.set(on_dir);
    }

    /// Ends the session: the server releases what it has open. Requests fail from now on. Waits up
    /// to a second until the server knows.
    pub fn end(&self) {
        self.calls.end();
        self.connector.wake();
        // The reactor's thread is the one that would see the end of the connection.
        if !self.reactor.is_current_thread() {
            self.calls.wait_for_parting();
        }
    }
}

impl Remote {
    /// Encodes a request and hands it to the calls. `is_first`: it goes before requests that wait
    /// for their turn.
    fn submit(
        &self,
        context: &Context,
        request: &Request,
        bulk: Bulk<'_>,
        done: LeasedDone,
        is_first: bool,
    ) {
        let mut body = Vec::with_capacity(128);
        // The mutation number is put in once it is known.
        if let Err(error) = codec::encode_call(context.uid, context.gid, 0, request, &mut body) {
            return done(Err(error), Granted::default());
        }
        let bulk = match bulk {
            Bulk::None => Arc::default(),
            bulk => Arc::from(bulk.bytes()),
        };
        let mut call = Call::new(context.request, request, body, bulk, done);
        call.is_first = is_first;
        call.origin = context.origin.filter(|_| call.is_mutation);
        self.calls.begin(call);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.status()).finish()
    }
}

impl Service for Remote {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let done = later();
        self.ask_leased(context, request, bulk, Box::new(|result, _granted| done(result)));
        None
    }

    fn cancel(&self, context: &Context) {
        self.calls.cancel(context.request);
    }

    fn forsake(&self, context: &Context) {
        self.calls.forsake(context.request);
    }

    fn silence(&self) -> Option<Duration> {
        Some(self.calls.silence())
    }
}

impl LeasedService for Remote {
    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.submit(context, &request, bulk, done, true);
    }

    fn ask_leased(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        // The count of losses is the server's, and this session does not have it.
        let mut request = request;
        if let Request::FsyncDir { since, .. } = &mut request {
            *since = None;
        }
        self.submit(context, &request, bulk, done, false);
    }

    fn lease_left(&self) -> Duration {
        self.calls.leases.left()
    }

    fn has_lost_lock(&self, open: OpenId) -> bool {
        self.calls.has_lost_lock(open)
    }

    fn end_origin(&self, session: SessionId) {
        self.calls.end_origin(session);
    }

    fn when_settled(&self, then: Then) {
        self.calls.when_settled(then);
    }

    fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        self.calls.leases.set_holder(holder);
    }
}
