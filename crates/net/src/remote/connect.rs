//! Making a connection, and making it again.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_wire::codec::{self, DecodeError};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Closing, Hello, RefusalCode, Refused, Welcome};
use pelago_wire::limits;
use pelago_wire::present::Present;
use ring::rand::{SecureRandom, SystemRandom};

use super::calls::Calls;
use super::{ClientRole, RemoteOptions, ServerTarget, SiteRole};
use crate::assembler::{Frame, FrameLimits, ReadError};
use crate::key::address::ServerAddress;
use crate::link::{Bytes, Link};
use crate::reactor::{Handler, Mailbox};
use crate::stream::Stream;
use crate::tls::{self, TlsError};

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The pause after a failed attempt, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket could not be connected.
    #[error("the server cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The server gives no session.
    #[error("{}{}", .0.code.says(), said(&.0.text))]
    Refused(Refused),
    /// The other end closed the connection, or sent something else than the protocol.
    #[error("no pelago server answers there: {0}")]
    NoServer(String),
    /// The connection ended before the server had answered: too many others may have wanted one.
    #[error("the server closed the connection before it answered")]
    Cut,
    /// Another volume is served there now than the one of the session.
    #[error("the server has the volume {}, and the mount is of {}", id(.found), id(.wanted))]
    OtherVolume {
        /// The volume of the session.
        wanted: [u8; 16],
        /// The volume of the server.
        found: [u8; 16],
    },
    /// TLS failed: the server has another key, or does not speak TLS.
    #[error(transparent)]
    Tls(TlsError),
    /// The credentials are too many, or too long.
    #[error("the credentials are too many, or too long")]
    Chain(#[source] pelago_wire::Error),
    /// Nothing came.
    #[error("the server does not answer")]
    Silent,
    /// A thread, or random bytes, could not be had.
    #[error("no thread or no random bytes could be had")]
    NoThread(#[source] io::Error),
}

fn id(volume: &[u8; 16]) -> String {
    volume.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Makes connections for a session.
pub(super) struct Connector {
    options: RemoteOptions,
    nonce: [u8; 16],
    calls: Arc<Calls>,
    mailbox: Arc<Mailbox>,
    /// Wakes the thread that pauses between attempts.
    pause: (Mutex<()>, Condvar),
    /// Why the server gives no session, if it has said so. A leaf lock.
    refusal: Mutex<Option<String>>,
}

/// How an attempt ends: told by the handler to the thread that attempts.
#[derive(Default)]
struct Attempt {
    result: Mutex<Option<Result<(), ConnectError>>>,
    told: Condvar,
}

impl Attempt {
    fn tell(&self, result: Result<(), ConnectError>) {
        self.result.lock().get_or_insert(result);
        self.told.notify_all();
    }
}

impl Connector {
    pub(super) fn new(
        options: RemoteOptions,
        calls: Arc<Calls>,
        mailbox: Arc<Mailbox>,
    ) -> Result<Self, ConnectError> {
        let mut nonce = [0; 16];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| ConnectError::NoThread(io::ErrorKind::Other.into()))?;
        let refusal = Mutex::default();
        Ok(Self { options, nonce, calls, mailbox, pause: Default::default(), refusal })
    }

    /// Connects for the first time.
    pub(super) fn begin(&self, patience: Duration) -> Result<(), ConnectError> {
        let start = Instant::now();
        let deadline = start + patience;
        let mut pause = PAUSES[0];
        loop {
            let error = match self.attempt(ATTEMPT.min(patience)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_passing = match error {
                // Something else than a server of ours may do this for ever.
                ConnectError::Cut => start.elapsed() < ATTEMPT,
                _ => is_passing(&error),
            };
            if !is_passing || Instant::now() + pause >= deadline {
                return Err(error);
            }
            self.sleep(pause);
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Makes the connection again whenever it is lost, until the session ends.
    pub(super) fn keep_connected(&self) {
        let (mut pause, mut connected, mut answers) = (PAUSES[0], Instant::now(), 0);
        while self.calls.wait_for_loss() {
            let answered = self.calls.answers();
            if std::mem::replace(&mut answers, answered) < answered {
                // Whatever ended this one, connections are of use.
                pause = PAUSES[0];
            }
            if connected.elapsed() < PAUSES[1] {
                // Something ends each connection at once: it must not be made in a busy loop.
                self.sleep(pause);
                pause = (pause * 2).min(PAUSES[1]);
            } else {
                pause = PAUSES[0];
            }
            match self.attempt(ATTEMPT) {
                Ok(()) => {
                    tracing::info!("connected again");
                    *self.refusal.lock() = None;
                    connected = Instant::now();
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection yet");
                    if is_definite(&error) {
                        *self.refusal.lock() = Some(error.to_string());
                        self.calls.refused(&error);
                    }
                    self.calls.tick(Instant::now());
                    self.sleep(pause);
                    pause = (pause * 2).min(PAUSES[1]);
                }
            }
        }
    }

    /// Returns why the server gives no session, if it has said so.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Wakes [`Connector::keep_connected`], which looks whether the session has ended.
    pub(super) fn wake(&self) {
        self.pause.1.notify_all();
    }

    fn sleep(&self, pause: Duration) {
        let mut guard = self.pause.0.lock();
        if !self.calls.has_ended() {
            self.pause.1.wait_for(&mut guard, pause);
        }
    }

    fn attempt(&self, patience: Duration) -> Result<(), ConnectError> {
        let (stream, tls) = open(&self.options.target, patience)?;
        let attempt = Arc::new(Attempt::default());
        let (calls, told) = (Arc::clone(&self.calls), Arc::clone(&attempt));
        let handler = Box::new(Connection { calls, attempt: told, welcomed: false });
        let link = self.mailbox.add(stream, tls, |_| handler);
        let hello = Hello {
            read_only: self.options.read_only,
            resume: self.calls.session(),
            ..Hello::new(self.nonce)
        };
        let hello = match &self.options.role {
            ClientRole::Client => hello,
            ClientRole::Guest(_) => Hello { role: Hello::GUEST, ..hello },
            ClientRole::Site(SiteRole { volume, wanted, .. }) => {
                Hello { role: Hello::SITE, volume: Some(*volume), site: *wanted, ..hello }
            }
        };
        send_first(&link, FrameKind::Hello, hello.encode().to_vec());
        let presented = match &self.options.role {
            ClientRole::Client => None,
            ClientRole::Guest(credentials) => Some(credentials.clone()),
            ClientRole::Site(site) => Some(site.invitation.iter().cloned().collect()),
        };
        if let Some(chain) = presented {
            let present = Present { chain };
            send_first(&link, FrameKind::Present, present.encode().map_err(ConnectError::Chain)?);
        }
        let deadline = Instant::now() + patience;
        let mut result = attempt.result.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            if attempt.told.wait_until(&mut result, deadline).timed_out() {
                link.close();
                return Err(ConnectError::Silent);
            }
        }
    }
}

/// Sends a frame of a connection that has no session yet.
fn send_first(link: &Link, kind: FrameKind, body: Vec<u8>) {
    let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let head = Header::new(kind, bytes, 0).encode();
    link.send([Bytes::Header(head), Bytes::Owned(body)]);
}

/// A connected socket, with the client's end of TLS unless it is local.
type Opened = (Stream, Option<Box<rustls::Connection>>);

fn open(target: &ServerTarget, patience: Duration) -> Result<Opened, ConnectError> {
    match target {
        ServerTarget::Unix(path) => {
            let stream = UnixStream::connect(path).and_then(|stream| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(mio::net::UnixStream::from_std(stream)))
            });
            Ok((stream.map_err(ConnectError::Unreachable)?, None))
        }
        ServerTarget::Tcp { address, key } => {
            let stream = connect_tcp(address, patience).map_err(ConnectError::Unreachable)?;
            let config = tls::client_config(key, address.key()).map_err(ConnectError::Tls)?;
            let tls = tls::client_connection(config).map_err(ConnectError::Tls)?;
            Ok((Stream::tcp(stream), Some(Box::new(rustls::Connection::Client(tls)))))
        }
    }
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

/// Returns whether a server is there, and will soon give a session.
const fn is_passing(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Refused(Refused {
            code: RefusalCode::Starting
                | RefusalCode::TooManySessions
                | RefusalCode::TooManyOfPeer
                | RefusalCode::TooManyStrangers,
            ..
        })
    )
}

/// Returns whether the server itself has said that it gives no session to this client, or another
/// server is in its place, so that only a person can change that.
const fn is_definite(error: &ConnectError) -> bool {
    match error {
        ConnectError::OtherVolume { .. }
        | ConnectError::Tls(TlsError::WrongServer { .. } | TlsError::NotEd25519) => true,
        ConnectError::Refused(refused) => matches!(
            refused.code,
            RefusalCode::UnknownKey
                | RefusalCode::NoAccess
                | RefusalCode::NotInvited
                | RefusalCode::NotPrimary
                | RefusalCode::OtherVersion
                | RefusalCode::NotPelago
                | RefusalCode::UnknownRole
                | RefusalCode::NotServed
        ),
        _ => false,
    }
}

/// A connection to the server.
struct Connection {
    calls: Arc<Calls>,
    attempt: Arc<Attempt>,
    welcomed: bool,
}

impl Connection {
    fn first(&mut self, link: &Arc<Link>, frame: &Frame) -> ControlFlow<()> {
        let failed = match frame.header.kind {
            FrameKind::Welcome => match Welcome::decode(&frame.body) {
                Ok(Welcome { volume: found, .. })
                    if self.calls.volume().is_some_and(|wanted| wanted != found) =>
                {
                    // The session that has just begun there is of no use.
                    let goodbye = Header::new(FrameKind::Goodbye, 0, 0).encode();
                    link.send([Bytes::Header(goodbye)]);
                    let wanted = self.calls.volume().unwrap_or(found);
                    ConnectError::OtherVolume { wanted, found }
                }
                Ok(welcome) => {
                    self.welcomed = true;
                    self.calls.connected(link, welcome);
                    self.attempt.tell(Ok(()));
                    return ControlFlow::Continue(());
                }
                Err(error) => malformed(&error),
            },
            FrameKind::Refused => match Refused::decode(&frame.body) {
                Ok(refused) => ConnectError::Refused(refused),
                Err(error) => malformed(&error),
            },
            kind => ConnectError::NoServer(format!("a frame of kind {kind:?} came first")),
        };
        self.attempt.tell(Err(failed));
        ControlFlow::Break(())
    }
}

/// Returns whether an error says that the other end has ended the connection.
fn is_cut(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn malformed(error: &DecodeError) -> ConnectError {
    ConnectError::NoServer(error.to_string())
}

impl Handler for Connection {
    fn limits(&self) -> FrameLimits {
        match self.welcomed {
            true => FrameLimits { body: limits::FRAME_BODY_BYTES, bulk: limits::FRAME_BULK_BYTES },
            false => FrameLimits { body: limits::HANDSHAKE_BYTES, bulk: 0 },
        }
    }

    fn frame(&mut self, link: &Arc<Link>, frame: Frame) -> ControlFlow<()> {
        if !self.welcomed {
            return self.first(link, &frame);
        }
        let Frame { header, body, bulk } = frame;
        match header.kind {
            FrameKind::Reply => match codec::decode_answer(&body, bulk) {
                Ok(answer) => {
                    // Once the session has ended, answers are still on their way.
                    if !self.calls.answered(&header, answer) && !self.calls.has_ended() {
                        let number = header.number;
                        tracing::error!(number, "the server's answer does not fit its request");
                        return ControlFlow::Break(());
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the server sent a malformed answer");
                    return ControlFlow::Break(());
                }
            },
            FrameKind::Pong => self.calls.heard(&header),
            FrameKind::Recall => match codec::decode_recall(&body) {
                Ok(touched) => self.calls.recalled(header.number, touched),
                Err(error) => {
                    tracing::error!(%error, "the server sent a malformed recall");
                    return ControlFlow::Break(());
                }
            },
            FrameKind::Closing => {
                match Closing::decode(&body) {
                    Ok(closing) => {
                        let why = closing.code.says();
                        tracing::warn!(why, text = closing.text, "the server closes");
                    }
                    Err(error) => tracing::warn!(%error, "the server closes"),
                }
                return ControlFlow::Break(());
            }
            kind => {
                tracing::error!(?kind, "the server sent an unexpected frame");
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn tick(&mut self, _link: &Arc<Link>, now: Instant) -> ControlFlow<()> {
        // Requests are given up while there is no session too.
        if self.calls.tick(now) && self.welcomed {
            tracing::warn!("the server was silent for a term: connecting again");
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn closed(&mut self, link: &Arc<Link>, why: Option<&ReadError>) {
        let failed = match why {
            Some(ReadError::Socket(error)) => match TlsError::of_io(error) {
                Some(error) => ConnectError::Tls(error),
                None if is_cut(error) => ConnectError::Cut,
                None => ConnectError::NoServer(error.to_string()),
            },
            Some(ReadError::Closed) => ConnectError::Cut,
            Some(why) => ConnectError::NoServer(why.to_string()),
            None => ConnectError::NoServer("the connection was closed".to_owned()),
        };
        self.attempt.tell(Err(failed));
        self.calls.disconnected(link);
    }
}
