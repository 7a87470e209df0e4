//! The primary's end of the connection to a mirror.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Closing, Hello, RefusalCode, Refused};
use pelago_wire::mirror::{
    CloseLink, GroupPart, GroupState, LinkError, MirrorLink, MirrorSays, PrimaryRun,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{ClientConnection, StreamOwned};

use super::datagrams::{self, DatagramSender, Datagrams, Seals};
use super::frames::{Frames, FramesError, Socket, Wait};
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;
use crate::tls::{self, TlsError};

/// The longest time of connecting, and of the handshake.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A connection of a primary to its mirror.
pub struct MirrorConnection {
    /// Dropped first: the thread of the datagrams ends the connection too.
    datagrams: Option<DatagramSender>,
    frames: Frames<ClientConnection>,
}

impl MirrorConnection {
    /// Connects to a mirror, and offers it the groups of a volume. Returns the connection, and the
    /// mirror's state.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect(
        key: &PrivateKey,
        mirror: &ServerAddress,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
    ) -> Result<(Self, GroupState), LinkError> {
        let mut frames = Self::connect_frames(key, mirror)?;
        let state = offer(&mut frames, key, volume, reign, run)?;
        Ok((Self { datagrams: None, frames }, state))
    }

    /// Connects to a mirror in the same way, and has the groups travel in datagrams, if they are
    /// tried ([`Datagrams::are_tried`]) and the mirror takes them. If none arrives, the connection
    /// ends with a [`LinkError::Lost`] that says so, and the next ones are made without them for
    /// ten minutes. If the mirror gets none for three seconds later on, it ends too.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect_with_datagrams(
        key: &PrivateKey,
        mirror: &ServerAddress,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
        datagrams: &Datagrams,
    ) -> Result<(Self, GroupState), LinkError> {
        let (mut connection, state) = Self::connect(key, mirror, volume, reign, run)?;
        if datagrams.are_tried() {
            let asked = connection.ask_for_datagrams(datagrams);
            // A mirror of an older version takes the question for an error, and so each time.
            asked.inspect_err(|error| datagrams.close(&error.to_string()))?;
        }
        Ok((connection, state))
    }

    /// Returns whether the groups travel in datagrams.
    #[must_use]
    pub const fn has_datagrams(&self) -> bool {
        self.datagrams.is_some()
    }

    /// Connects, and completes the handshake of TLS.
    fn connect_frames(
        key: &PrivateKey,
        mirror: &ServerAddress,
    ) -> Result<Frames<ClientConnection>, LinkError> {
        let refused = |error: TlsError| LinkError::Refused(error.to_string());
        let config = tls::client_config(key, mirror.key()).map_err(refused)?;
        let tls = tls::client_connection(config).map_err(refused)?;
        let deadline = Instant::now() + ATTEMPT;
        let stream = connect_tcp(mirror).map_err(|error| not_reached(mirror, &error))?;
        let socket = Socket::new(stream, Wait::Until(deadline));
        let socket = socket.map_err(|error| lost(&error))?;
        let mut frames = Frames::new(StreamOwned::new(tls, socket));
        frames.shake_hands().map_err(|error| lost(&error))?;
        frames.set_usual_wait();
        Ok(frames)
    }

    /// Asks the mirror to take datagrams, and starts to send them if it does.
    fn ask_for_datagrams(&mut self, datagrams: &Datagrams) -> Result<(), LinkError> {
        let failed = |error: io::Error| lost(&error);
        let tcp = self.frames.another_socket().map_err(failed)?;
        let socket = datagrams::socket_of(&tcp).map_err(failed)?;
        let seals = Seals::of_primary(self.frames.tls()).map_err(failed)?;
        let question = GroupPart::Datagrams.encode();
        let question = question.map_err(|error| LinkError::Lost(error.to_string()))?;
        self.send(&question)?;
        match self.receive()?.says {
            MirrorSays::Datagrams => {
                let sender = DatagramSender::start(seals, socket, tcp, datagrams.clone());
                self.datagrams = Some(sender.map_err(failed)?);
                Ok(())
            }
            MirrorSays::NoDatagrams(why) => {
                datagrams.close(&why);
                Ok(())
            }
            MirrorSays::Ready
            | MirrorSays::Safe
            | MirrorSays::Pong
            | MirrorSays::Failed(_)
            | MirrorSays::Differ(_)
            | MirrorSays::Promoted => {
                Err(LinkError::Lost("the mirror gives another answer".to_owned()))
            }
        }
    }

    fn receive_state(&mut self) -> Result<GroupState, LinkError> {
        let (kind, body) = self.frames.receive().map_err(broken)?;
        if kind != FrameKind::GroupState {
            return Err(unexpected(kind, &body));
        }
        GroupState::decode(&body).map_err(|error| LinkError::Lost(error.to_string()))
    }
}

impl MirrorLink for MirrorConnection {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let Some(datagrams) = &self.datagrams else {
            return self.frames.send(FrameKind::Group, body).map_err(|error| lost(&error));
        };
        let Err(why) = datagrams.send(FrameKind::Group, body) else { return Ok(()) };
        Err(LinkError::Lost(why))
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let Some(datagrams) = &self.datagrams else {
            self.frames.flush().map_err(|error| lost(&error))?;
            return self.receive_state();
        };
        datagrams.flush();
        let state = self.receive_state();
        // The thread of the datagrams ends the connection, and knows why.
        let why = self.datagrams.as_ref().and_then(DatagramSender::failure);
        state.map_err(|error| why.map_or(error, LinkError::Lost))
    }

    fn closer(&self) -> CloseLink {
        self.frames.closer()
    }
}

impl Drop for MirrorConnection {
    fn drop(&mut self) {
        self.datagrams = None;
        self.frames.close(Duration::ZERO);
    }
}

impl fmt::Debug for MirrorConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorConnection").finish_non_exhaustive()
    }
}

/// Offers the groups of a volume. Returns the mirror's state.
fn offer(
    frames: &mut Frames<ClientConnection>,
    key: &PrivateKey,
    volume: [u8; 16],
    reign: u64,
    run: PrimaryRun,
) -> Result<GroupState, LinkError> {
    let mut nonce = [0; 16];
    let no_random = |_| LinkError::Lost("the system gives no random bytes".to_owned());
    SystemRandom::new().fill(&mut nonce).map_err(no_random)?;
    let hello = Hello { role: Hello::MIRROR, volume: Some(volume), ..Hello::new(nonce) };
    let offer = GroupPart::Offer { reign, run }.encode();
    let offer = offer.map_err(|error| LinkError::Lost(error.to_string()))?;
    let sent = frames.send(FrameKind::Hello, &hello.encode());
    let sent = sent.and_then(|()| frames.send(FrameKind::Group, &offer));
    sent.and_then(|()| frames.flush()).map_err(|error| lost(&error))?;
    match frames.receive().map_err(broken)? {
        (FrameKind::GroupState, body) => match GroupState::decode(&body) {
            Ok(state) if state.says == MirrorSays::Ready => Ok(state),
            Ok(_) => Err(LinkError::Lost("the mirror gives another answer".to_owned())),
            Err(error) => Err(LinkError::Lost(error.to_string())),
        },
        (FrameKind::Refused, body) => match Refused::decode(&body) {
            Ok(refused) => Err(refusal(&refused, key)),
            Err(error) => Err(LinkError::Lost(error.to_string())),
        },
        (kind, body) => Err(unexpected(kind, &body)),
    }
}

/// Connects to the first address of the host that answers.
fn connect_tcp(address: &ServerAddress) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in (address.host(), address.port()).to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, ATTEMPT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the error for a refusal of the mirror, with advice.
fn refusal(refused: &Refused, key: &PrivateKey) -> LinkError {
    let says = refused.code.says();
    match refused.code {
        RefusalCode::NotPrimary => match refused.text.parse() {
            Ok(reign) => LinkError::Replaced { reign },
            Err(_) => LinkError::Refused(says.to_owned()),
        },
        RefusalCode::UnknownKey => LinkError::Refused(format!(
            "the mirror does not know this server's key: there, run `pelago key allow {} -V DIR`",
            key.public()
        )),
        RefusalCode::NotServed => LinkError::Refused(format!(
            "{says}: {}; serve a folder for mirrors there, with `pelago serve DIR --mirrors`",
            refused.text
        )),
        RefusalCode::UnknownRole | RefusalCode::OtherVersion => LinkError::Refused(format!(
            "{says}: have the same version of pelago there, and `pelago serve DIR --mirrors`"
        )),
        _ if refused.text.is_empty() => LinkError::Lost(says.to_owned()),
        _ => LinkError::Lost(refused.text.clone()),
    }
}

/// Returns the error for a frame that is no answer: often the mirror's reason for closing.
fn unexpected(kind: FrameKind, body: &[u8]) -> LinkError {
    match (kind, Closing::decode(body)) {
        (FrameKind::Closing, Ok(closing)) if closing.text.is_empty() => {
            LinkError::Lost(closing.code.says().to_owned())
        }
        (FrameKind::Closing, Ok(closing)) => {
            LinkError::Lost(format!("{}: {}", closing.code.says(), closing.text))
        }
        _ => LinkError::Lost(format!("the mirror sent a frame of kind {kind:?}")),
    }
}

fn not_reached(mirror: &ServerAddress, error: &io::Error) -> LinkError {
    let host = mirror.host();
    let port = mirror.port();
    LinkError::Lost(format!("the mirror at {host}, port {port}, cannot be reached: {error}"))
}

fn broken(error: FramesError) -> LinkError {
    match error {
        FramesError::Io(error) => lost(&error),
        FramesError::Malformed(error) => LinkError::Lost(error.to_string()),
    }
}

fn lost(error: &io::Error) -> LinkError {
    match TlsError::of_io(error) {
        Some(wrong @ (TlsError::WrongServer { .. } | TlsError::NotEd25519)) => {
            LinkError::Refused(format!("{wrong}: take the address that the mirror prints now"))
        }
        Some(error @ (TlsError::NotPelago(_) | TlsError::Tls(_))) => {
            LinkError::Lost(error.to_string())
        }
        None => LinkError::Lost(match error.kind() {
            io::ErrorKind::TimedOut => "the mirror does not answer".to_owned(),
            io::ErrorKind::UnexpectedEof => "the mirror has ended the connection".to_owned(),
            _ => format!("the connection to the mirror was lost: {error}"),
        }),
    }
}
