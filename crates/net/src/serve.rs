//! The server's side: its sockets, its threads, and each connection from the hello to its end.
//!
//! A connection begins as a stranger: its client says hello, a guest or a site also presents
//! credentials. It joins a session, or is refused. A connection that breaks the protocol ends, and
//! its session ends with it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use parking_lot::Mutex;
use pelago_wire::codec::CLIENT_BODY_BYTES;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused, Welcome};
use pelago_wire::present::Present;
use pelago_wire::{SessionService, limits};
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::assembler::{Frame, FrameLimits, ReadError};
use crate::clients::list::ClientList;
use crate::key::address::ServerAddress;
use crate::key::{PrivateKey, PublicKey};
use crate::link::{Bytes, Link};
use crate::reactor::{Handler, Mailbox, Reactor};
use crate::reverse::ReverseConnections;
use crate::session::{Peer, Session, SessionStatus, Violation};
use crate::sessions::{Sessions, no_access, refused, site_refused, unknown_role};
use crate::strangers::{Source, Strangers, Ticket};
use crate::stream::Stream;
use crate::tls;

pub use idle::IdleServer;
pub use reverse::ReverseService;

use acceptors::{TcpAcceptor, UnixAcceptor};
use caller::Caller;
use joining::Joining;
use reverse::{Dialled, Serving};

mod acceptors;
mod caller;
mod idle;
mod joining;
mod reverse;

/// Threads that carry the connections of a server.
const THREADS: usize = 2;

/// Serves sessions to clients that connect. Dropping it ends their connections.
pub struct SessionServer {
    shared: Arc<Shared>,
    reactors: Vec<Reactor>,
}

struct Shared {
    sessions: Arc<Sessions>,
    mailboxes: Vec<Arc<Mailbox>>,
    /// The connections by which servers of other sites serve this one.
    reverse: OnceLock<Arc<ReverseConnections>>,
    /// Connections without a session. No connection is closed under this lock.
    strangers: Mutex<Strangers<Arc<Link>>>,
    /// The number of connections without a session, with those that were evicted and have not ended
    /// yet.
    unfinished: AtomicUsize,
    /// The number of connections that were accepted, by which they are spread over the threads.
    accepted: AtomicUsize,
}

impl SessionServer {
    /// Starts the threads; clients can connect once a socket is listened on.
    ///
    /// # Errors
    /// The system's, if it gives no epoll or no thread.
    pub fn start(service: Arc<dyn SessionService>) -> io::Result<Self> {
        Self::start_with(service, Duration::from_secs(limits::TERM_SECONDS))
    }

    /// As [`SessionServer::start`], with another term: the time after which a silent client is
    /// gone.
    ///
    /// # Errors
    /// As [`SessionServer::start`].
    pub fn start_with(service: Arc<dyn SessionService>, term: Duration) -> io::Result<Self> {
        let reactors = (0..THREADS).map(|number| Reactor::start(&format!("net-{number}")));
        let reactors = reactors.collect::<io::Result<Vec<_>>>()?;
        let sessions = Arc::new(Sessions::new(Arc::clone(&service), term));
        let connections = Arc::downgrade(&sessions);
        service.set_connections(connections);
        let shared = Shared {
            sessions,
            mailboxes: reactors.iter().map(|reactor| Arc::clone(&reactor.mailbox)).collect(),
            reverse: OnceLock::new(),
            strangers: Mutex::new(Strangers::new()),
            unfinished: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        };
        Ok(Self { shared: Arc::new(shared), reactors })
    }

    /// Listens on a Unix socket, which root and the user of this process may connect to. A socket
    /// that is left over at this path is replaced.
    ///
    /// # Errors
    /// The system's.
    pub fn listen_unix(&self, path: &Path) -> io::Result<()> {
        let socket = private_socket(path, SocketFlags::NONBLOCK)?;
        let socket = mio::net::UnixListener::from_std(socket);
        let acceptor = UnixAcceptor { socket, shared: Arc::clone(&self.shared) };
        self.shared.mailboxes[0].listen(Box::new(acceptor));
        Ok(())
    }

    /// Listens on a TCP address. A client proves its key by TLS, and the key must be in the list.
    /// Returns the address, with the port that was chosen for port 0.
    ///
    /// # Errors
    /// The system's, and `InvalidInput` if TLS refuses the key.
    pub fn listen_tcp(
        &self,
        address: SocketAddr,
        key: &PrivateKey,
        clients: Arc<ClientList>,
    ) -> io::Result<SocketAddr> {
        self.accept_from(mio::net::TcpListener::bind(address)?, key, clients)
    }

    /// As [`SessionServer::listen_tcp`], on a socket that listens already. A copy of the socket
    /// ([`TcpListener::try_clone`]) still listens when this server has ended: a connection that
    /// waits to be accepted is not lost between two servers of one process.
    ///
    /// # Errors
    /// As [`SessionServer::listen_tcp`].
    pub fn listen_on(
        &self,
        socket: TcpListener,
        key: &PrivateKey,
        clients: Arc<ClientList>,
    ) -> io::Result<SocketAddr> {
        socket.set_nonblocking(true)?;
        self.accept_from(mio::net::TcpListener::from_std(socket), key, clients)
    }

    fn accept_from(
        &self,
        socket: mio::net::TcpListener,
        key: &PrivateKey,
        clients: Arc<ClientList>,
    ) -> io::Result<SocketAddr> {
        let config = tls::server_config(key)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let local = socket.local_addr()?;
        let acceptor = TcpAcceptor { socket, config, clients, shared: Arc::clone(&self.shared) };
        self.shared.mailboxes[0].listen(Box::new(acceptor));
        Ok(local)
    }

    /// Takes reverse connections of other sites' servers from now on. A second call does nothing.
    pub fn accept_reverse(&self, connections: Arc<ReverseConnections>) {
        let _is_first = self.shared.reverse.set(connections);
    }

    /// Connects to the server of the site `site` at this address, and serves it over that
    /// connection, with this key as the own one. Connects again after a loss.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn serve_at(
        &self,
        address: ServerAddress,
        site: u16,
        key: PrivateKey,
    ) -> io::Result<ReverseService> {
        let shared = Arc::downgrade(&self.shared);
        let volume = self.shared.sessions.service.served().volume;
        ReverseService::start(Serving { shared, address, key, volume, site })
    }

    /// Returns the state of all sessions, in the order of their ids.
    #[must_use]
    pub fn status(&self) -> Vec<SessionStatus> {
        self.shared.sessions.status()
    }

    /// Ends all connections. The sessions wait for the next run of the server: what they have open
    /// stays so until then.
    pub fn stop(&self) {
        self.shared.sessions.stop();
    }
}

/// Makes a socket that this user and root may connect to, and listens on it. A socket that is left
/// over at this path is replaced.
fn private_socket(path: &Path, flags: SocketFlags) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | flags;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The name gets the permissions of the socket. Once there is a name, others may have put a link
    // in its place.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

impl Drop for SessionServer {
    fn drop(&mut self) {
        self.stop();
        self.reactors.clear();
    }
}

impl fmt::Debug for SessionServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionServer").field(&self.status()).finish()
    }
}

impl Shared {
    /// Takes over a connection. If too many connections have no session yet, one of them is
    /// evicted.
    fn welcome(
        self: &Arc<Self>,
        stream: Stream,
        source: Source,
        tls: Option<Box<rustls::Connection>>,
        caller: Caller,
    ) -> Option<Arc<Link>> {
        // Evicted connections end on their threads, which may be busy: their descriptors are open
        // until then.
        if self.unfinished.fetch_add(1, Ordering::AcqRel) >= 2 * limits::STRANGERS {
            self.unfinished.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let turn = self.accepted.fetch_add(1, Ordering::Relaxed) % self.mailboxes.len();
        let link = self.mailboxes[turn].add(stream, tls, |link| {
            let (ticket, evicted) = self.strangers.lock().enter(source, Arc::clone(link));
            if let Some(evicted) = evicted {
                self.evict(&evicted);
            }
            let stage = Stage::Stranger { ticket, since: Instant::now() };
            Box::new(Connection { shared: Arc::clone(self), caller, stage })
        });
        Some(link)
    }

    /// Takes over a connection that was made by this end, over which the other one asks.
    fn serve_dialled(
        self: &Arc<Self>,
        stream: Stream,
        tls: Option<Box<rustls::Connection>>,
        dialled: Dialled,
    ) -> Option<Arc<Link>> {
        let source = Source::of(dialled.address);
        self.welcome(stream, source, tls, Caller::Dialled(dialled))
    }

    /// Returns whether there is a session, or a connection that may begin one: on the thread of
    /// another reactor, which does not wake this one.
    fn has_clients(&self) -> bool {
        // In this order: a connection is counted until its session is there.
        self.unfinished.load(Ordering::Acquire) > 0 || !self.sessions.is_empty()
    }

    /// Evicts a connection. The refusal does not arrive if the handshake of TLS is not finished.
    fn evict(&self, link: &Link) {
        if let Some(left_out) = self.sessions.log.evicted.admit() {
            tracing::info!(left_out, "a connection without a session made room for another one");
        }
        let refused = refused(RefusalCode::TooManyStrangers);
        send(&self.sessions, link, FrameKind::Refused, refused.encode());
        link.close();
    }
}

/// A connection of a client.
struct Connection {
    shared: Arc<Shared>,
    caller: Caller,
    stage: Stage,
}

enum Stage {
    /// Without a session yet.
    Stranger { ticket: Ticket, since: Instant },
    /// A guest or a site, without a session, whose credentials or invitation come next.
    Presenting { ticket: Ticket, since: Instant, hello: Box<Hello>, key: PublicKey },
    /// With a session. The client is welcomed once the session is recorded.
    Joining(Arc<Joining>),
    /// With a session that its client knows.
    Joined(Arc<Session>),
    /// Closed.
    Over,
}

impl Connection {
    fn hello(&mut self, link: &Arc<Link>, frame: &Frame) -> ControlFlow<()> {
        let joined = match (frame.header.kind, Hello::decode(&frame.body)) {
            (FrameKind::Hello, Ok(hello)) if matches!(hello.role, Hello::GUEST | Hello::SITE) => {
                if hello.role == Hello::SITE {
                    link.set_long_line();
                }
                let key = self.caller.presented_key(link);
                match (key, self.shared.sessions.owner_elsewhere()) {
                    (Ok(key), None) => return self.await_presented(hello, key),
                    (Ok(_), Some(refused)) | (Err(refused), _) => Err(refused),
                }
            }
            (FrameKind::Hello, Ok(hello)) if hello.role == Hello::BULK => {
                match self.join_bulk(link, &hello) {
                    Ok(session) => {
                        self.leave_strangers(Stage::Joined(session));
                        return ControlFlow::Continue(());
                    }
                    Err(refused) => Err(refused),
                }
            }
            (FrameKind::Hello, Ok(hello)) if hello.role == Hello::REVERSE => {
                match self.reverse(link, &hello) {
                    Ok(()) => return ControlFlow::Break(()),
                    Err(refused) => Err(refused),
                }
            }
            (FrameKind::Hello, Ok(hello)) => self
                .caller
                .peer(link)
                .and_then(|peer| self.shared.sessions.hello(&hello, peer, link)),
            (FrameKind::Refused, _) => {
                self.note_refused(frame);
                return ControlFlow::Break(());
            }
            _ => Err(refused(RefusalCode::NotPelago)),
        };
        self.begin(link, joined)
    }

    /// Takes the connection of a site's server for bulk, beside that of its session.
    fn join_bulk(&self, link: &Arc<Link>, hello: &Hello) -> Result<Arc<Session>, Refused> {
        let sessions = &self.shared.sessions;
        link.set_long_line();
        let key = self.caller.presented_key(link)?;
        let peer = sessions.service.admit_site(key.as_bytes(), None).map_err(site_refused)?;
        sessions.join_bulk(hello, Peer::Site(peer), link)
    }

    /// Takes the connection of a site's server that serves over it. This end sends the next hello.
    fn reverse(&self, link: &Arc<Link>, hello: &Hello) -> Result<(), Refused> {
        let sessions = &self.shared.sessions;
        let key = self.caller.presented_key(link)?;
        link.set_long_line();
        let connections = self.shared.reverse.get();
        let (Caller::Far(..), Some(connections)) = (&self.caller, connections) else {
            return Err(unknown_role(hello.role));
        };
        sessions.expect_served(hello)?;
        let admitted = sessions.service.admit_site(key.as_bytes(), None);
        let peer = admitted.map_err(site_refused)?;
        let detached = link.detach().ok_or_else(|| refused(RefusalCode::NotPelago))?;
        connections.offer(peer.site, detached);
        Ok(())
    }

    /// Logs why the other end does not ask over a connection that this end has made.
    fn note_refused(&self, frame: &Frame) {
        if let (Caller::Dialled(_), FrameKind::Refused) = (&self.caller, frame.header.kind)
            && let Ok(refused) = Refused::decode(&frame.body)
            && let Some(left_out) = self.shared.sessions.log.refused.admit()
        {
            let why = refused.code.says();
            let text = refused.text;
            tracing::warn!(why, text, left_out, "another site does not ask this one");
        }
    }

    /// Waits for the credentials of a guest, or for the invitation of a site.
    fn await_presented(&mut self, hello: Hello, key: PublicKey) -> ControlFlow<()> {
        if let Stage::Stranger { ticket, since } = self.stage {
            self.stage = Stage::Presenting { ticket, since, hello: Box::new(hello), key };
        }
        ControlFlow::Continue(())
    }

    /// Begins the session of a guest that presents its credentials, or of a site.
    fn present(
        &mut self,
        link: &Arc<Link>,
        hello: &Hello,
        key: PublicKey,
        frame: &Frame,
    ) -> ControlFlow<()> {
        let sessions = &self.shared.sessions;
        let joined = match (frame.header.kind, Present::decode(&frame.body)) {
            (FrameKind::Present, Ok(present)) if hello.role == Hello::SITE => {
                let presented = present.of_site_hello();
                let peer =
                    presented.map_err(|_| refused(RefusalCode::NotPelago)).and_then(|presented| {
                        let admitted =
                            sessions.service.admit_site(key.as_bytes(), Some(&presented));
                        admitted.map_err(site_refused)
                    });
                peer.and_then(|peer| sessions.hello(hello, Peer::Site(peer), link))
            }
            (FrameKind::Present, Ok(Present { chain })) if !chain.is_empty() => {
                let admitted = match sessions.service.guests_wait() {
                    Some(text) => Err(Refused { text, ..refused(RefusalCode::NotCurrent) }),
                    None => {
                        let address = self.caller.address();
                        let grant = sessions.service.admit_guest(key.as_bytes(), &chain, address);
                        grant.map_err(no_access)
                    }
                };
                let grant = admitted;
                grant.and_then(|grant| sessions.hello(hello, Peer::Guest(grant), link))
            }
            _ => Err(refused(RefusalCode::NotPelago)),
        };
        self.begin(link, joined)
    }

    /// Joins a session, or sends the refusal.
    fn begin(
        &mut self,
        link: &Arc<Link>,
        joined: Result<(Arc<Session>, Welcome), Refused>,
    ) -> ControlFlow<()> {
        match joined {
            Ok((session, welcome)) => {
                let joining = Joining::new(session, !welcome.resumed);
                self.leave_strangers(Stage::Joining(Arc::clone(&joining)));
                joining.welcome_when_recorded(&self.shared.sessions, link, welcome);
                ControlFlow::Continue(())
            }
            Err(refused) => {
                if let Some(left_out) = self.shared.sessions.log.refused.admit() {
                    let why = refused.code.says();
                    let text = &refused.text;
                    tracing::info!(why, text, left_out, "a client was refused");
                }
                send(&self.shared.sessions, link, FrameKind::Refused, refused.encode());
                ControlFlow::Break(())
            }
        }
    }

    /// Enters a stage with a session, or the last one.
    fn leave_strangers(&mut self, next: Stage) {
        if let Stage::Stranger { ticket, .. } | Stage::Presenting { ticket, .. } = self.stage {
            self.shared.strangers.lock().leave(ticket);
            self.shared.unfinished.fetch_sub(1, Ordering::AcqRel);
        }
        self.stage = next;
    }
}

impl Handler for Connection {
    fn limits(&self) -> FrameLimits {
        match &self.stage {
            Stage::Joining(joining) if !joining.is_welcomed() => {
                FrameLimits { body: limits::HANDSHAKE_BYTES, bulk: 0 }
            }
            Stage::Joining(_) | Stage::Joined(_) => {
                FrameLimits { body: CLIENT_BODY_BYTES, bulk: limits::FRAME_BULK_BYTES }
            }
            Stage::Presenting { .. } => FrameLimits { body: limits::CHAIN_BYTES, bulk: 0 },
            Stage::Stranger { .. } | Stage::Over => {
                FrameLimits { body: limits::HANDSHAKE_BYTES, bulk: 0 }
            }
        }
    }

    fn frame(&mut self, link: &Arc<Link>, frame: Frame) -> ControlFlow<()> {
        let session = match &self.stage {
            Stage::Stranger { .. } => return self.hello(link, &frame),
            Stage::Presenting { hello, key, .. } => {
                let hello = hello.clone();
                let key = *key;
                return self.present(link, &hello, key, &frame);
            }
            Stage::Joining(joining) if !joining.is_welcomed() => {
                // The client sends a frame of a session before its welcome.
                joining.ended(&self.shared.sessions, link);
                return self.begin(link, Err(refused(RefusalCode::NotPelago)));
            }
            Stage::Joining(joining) => {
                let session = Arc::clone(&joining.session);
                self.stage = Stage::Joined(Arc::clone(&session));
                session
            }
            Stage::Over => return ControlFlow::Break(()),
            Stage::Joined(session) => Arc::clone(session),
        };
        let sessions = &self.shared.sessions;
        let Err(violation) = sessions.frame(&session, link, frame) else {
            return ControlFlow::Continue(());
        };
        let code = match violation {
            Violation::Replaced => ClosingCode::Resumed,
            Violation::TooMany => ClosingCode::OverLimit,
            _ => ClosingCode::Protocol,
        };
        if let Some(left_out) = sessions.log.violation.admit() {
            tracing::warn!(session = ?session.id, %violation, left_out, "a connection is closed");
        }
        let closing = Closing { code, text: violation.to_string() };
        send(sessions, link, FrameKind::Closing, closing.encode());
        if code != ClosingCode::Resumed {
            sessions.end(&session, "its client broke the protocol");
        }
        ControlFlow::Break(())
    }

    fn tick(&mut self, link: &Arc<Link>, now: Instant) -> ControlFlow<()> {
        const STRANGER_TIMEOUT: Duration = Duration::from_secs(limits::STRANGER_SECONDS);
        match self.stage {
            Stage::Stranger { since, .. } | Stage::Presenting { since, .. }
                if now.duration_since(since) > STRANGER_TIMEOUT =>
            {
                ControlFlow::Break(())
            }
            Stage::Joining(ref joining) if !joining.is_welcomed() => ControlFlow::Continue(()),
            // No other end makes a new connection if this one is dead.
            Stage::Joined(ref session)
                if matches!(self.caller, Caller::Dialled(_))
                    && self.shared.sessions.is_dead(session) =>
            {
                ControlFlow::Break(())
            }
            Stage::Joining(_) | Stage::Joined(_) => {
                self.shared.sessions.encourage(link);
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn closed(&mut self, link: &Arc<Link>, why: Option<&ReadError>) {
        match &self.stage {
            Stage::Joining(joining) => joining.ended(&self.shared.sessions, link),
            Stage::Joined(session) => session.lost(link),
            Stage::Stranger { .. } | Stage::Presenting { .. } | Stage::Over => {}
        }
        if let Some(why @ (ReadError::Malformed(_) | ReadError::TooLong { .. })) = why
            && let Some(left_out) = self.shared.sessions.log.malformed.admit()
        {
            tracing::warn!(%why, left_out, "a connection was closed");
        }
        self.leave_strangers(Stage::Over);
    }
}

/// Sends a message of the handshake, or the last one of a connection.
fn send(sessions: &Sessions, link: &Link, kind: FrameKind, body: Vec<u8>) {
    let head = sessions.header(kind, 0, body.len(), 0);
    link.send([head, Bytes::Owned(body)]);
}
