//! The mirror's end of the connections: a port that primaries connect to, and a thread for each of
//! them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused};
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, MirrorSays, Mirrors, OfferRefused, PrimaryRun, Via,
};
use pelago_wire::relay::RelayMessage;
use pelago_wire::version;
use rustls::ServerConnection;

use super::FAILURE_LINGER;
use super::datagrams::{IncomingReader, Port, Seals};
use super::frames::{self, Frames, FramesError};
use super::listener::{Listener, Serve};
use super::relay::{Opener, RunKey};
use crate::clients::list::ClientList;
use crate::key::{PrivateKey, PublicKey};
use crate::log_limit::LogLimit;
use crate::sessions::refused;
use crate::tls;

/// The time in which a primary may read the reason for which its connection ends.
const LINGER: Duration = Duration::from_secs(2);

/// The time for which the datagrams of a relay are taken after the end of its connection.
const RELAY_LINGER: Duration = Duration::from_secs(2);

/// A server of mirrors, which primaries connect to. Dropping it ends their connections.
pub struct MirrorServer {
    shared: Arc<Shared>,
    listener: Listener,
}

struct Shared {
    key: PrivateKey,
    clients: Arc<ClientList>,
    mirrors: Arc<dyn Mirrors>,
    /// The UDP port; the reason for which there is none.
    datagrams: Result<Port, String>,
    log: Log,
}

/// The limits of log lines that primaries and strangers can cause.
struct Log {
    began: LogLimit,
    refused: LogLimit,
    ended: LogLimit,
    malformed: LogLimit,
    failed: LogLimit,
}

/// The reason for which a connection ends.
enum Ended {
    /// The primary has ended it, or does not answer.
    Lost,
    /// A group was not stored, and the primary has the reason.
    GroupFailed,
    /// The primary broke the protocol, or its group cannot be carried out.
    Broken(String),
    Refused(Refused),
    /// The key of the primary was removed from the list.
    KeyRemoved,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Lost
    }
}

impl From<FramesError> for Ended {
    fn from(error: FramesError) -> Self {
        match error {
            // Of a stream in datagrams.
            FramesError::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Broken(error.to_string())
            }
            FramesError::Io(error) => error.into(),
            FramesError::Malformed(error) => Self::Broken(error.to_string()),
        }
    }
}

impl MirrorServer {
    /// Listens on a TCP address. A primary proves its key by TLS, and the key must be in the list.
    /// Datagrams are taken at the UDP port of the same number; if that is not free, the log says
    /// so, and all groups come by TLS.
    ///
    /// # Errors
    /// The system's, and `InvalidInput` if TLS refuses the key.
    pub fn start(
        address: SocketAddr,
        key: &PrivateKey,
        clients: Arc<ClientList>,
        mirrors: Arc<dyn Mirrors>,
    ) -> io::Result<Self> {
        let config = tls::server_config(key)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = TcpListener::bind(address)?;
        let address = socket.local_addr()?;
        let log = Log {
            began: LogLimit::new(),
            refused: LogLimit::new(),
            ended: LogLimit::new(),
            malformed: LogLimit::new(),
            failed: LogLimit::new(),
        };
        let datagrams = Port::start(address).map_err(|error| {
            tracing::warn!(%error, %address, "mirrors get groups by TLS only: no UDP port");
            format!("the mirror has no UDP port {}: {error}", address.port())
        });
        let key = key.clone();
        let shared = Arc::new(Shared { key, clients, mirrors, datagrams, log });
        let listener = Listener::start(socket, config, "mirror", &shared)?;
        Ok(Self { shared, listener })
    }

    /// Returns the address, with the port that was chosen for port 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Ends all connections and waits for their threads. A thread that carries out a group finishes
    /// it.
    pub fn stop(&self) {
        self.listener.stop(|| {
            // Ends the streams that would take datagrams after the end of their connections.
            if let Ok(datagrams) = &self.shared.datagrams {
                datagrams.stop();
            }
        });
    }
}

impl Drop for MirrorServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for MirrorServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Serve for Shared {
    fn serve(&self, mut frames: Frames<ServerConnection>) {
        if let Err(ended) = self.talk(&mut frames) {
            let linger = self.end(&mut frames, ended);
            frames.close(linger);
        }
    }
}

impl Shared {
    /// Admits the primary, and takes groups until the connection ends.
    fn talk(&self, frames: &mut Frames<ServerConnection>) -> Result<(), Ended> {
        frames.shake_hands()?;
        let hello = match frames.receive()? {
            (FrameKind::Hello, body) => Hello::decode(&body).ok(),
            _ => None,
        };
        let hello = hello.ok_or_else(|| Ended::Refused(refused(RefusalCode::NotPelago)))?;
        let key = self.admit(&hello, frames).map_err(Ended::Refused)?;
        let volume = hello.volume.ok_or_else(|| Ended::Refused(mirrors_only()))?;
        let GroupPart::Offer { reign, run } = offered(frames)? else {
            return Err(Ended::Broken("the first part is no offer".to_owned()));
        };
        frames.set_usual_wait();
        let via = if hello.role == Hello::RELAY { Via::Relay } else { Via::Primary };
        let offer = self.mirrors.offer(volume, reign, run, via);
        let mut groups = offer.map_err(|error| Ended::Refused(not_taken(error)))?;
        if let Some(left_out) = self.log.began.admit() {
            tracing::info!(%key, reign, left_out, "the primary of a mirror is connected");
        }
        let sealed = match via {
            Via::Primary => None,
            Via::Relay => Some(Opener::new(self.run_key(volume, reign, run)?)),
        };
        let primary = Offered { key, volume, reign, run, sealed };
        let ready = groups.ready();
        let is_of_run = (ready.reign, ready.run) == (reign, run);
        let ready = if is_of_run { primary.proven(ready)? } else { ready };
        frames.send(FrameKind::GroupState, &ready.encode())?;
        frames.flush()?;
        self.take_groups(frames, primary, &mut *groups)
    }

    /// Returns the key of a run, for a primary whose groups a relay passes on.
    fn run_key(&self, volume: [u8; 16], reign: u64, run: PrimaryRun) -> Result<RunKey, Ended> {
        let key = RunKey::of_mirror(&self.key, volume, reign, run);
        key.ok_or_else(|| Ended::Broken("no key of the run can be made".to_owned()))
    }

    /// Takes datagrams from now on, if there is a port. Returns the stream in them.
    fn take_datagrams(
        &self,
        frames: &mut Frames<ServerConnection>,
        groups: &dyn Groups,
        lingers: Duration,
    ) -> Result<Option<IncomingReader>, Ended> {
        let opened = match &self.datagrams {
            Ok(port) => {
                let seals = Seals::of_mirror(frames.tls())?;
                Ok(port.open(seals, frames.another_socket()?, lingers)?)
            }
            Err(why) => Err(why.clone()),
        };
        let (incoming, says) = match opened {
            Ok(incoming) => (Some(incoming), MirrorSays::Datagrams),
            Err(why) => (None, MirrorSays::NoDatagrams(why)),
        };
        let answer = GroupState { says, ..groups.ready() };
        frames.send(FrameKind::GroupState, &answer.encode())?;
        frames.flush()?;
        Ok(incoming)
    }

    /// Checks a hello. Returns the key of the primary.
    fn admit(
        &self,
        hello: &Hello,
        frames: &Frames<ServerConnection>,
    ) -> Result<PublicKey, Refused> {
        if version::negotiate(hello.wire_min, hello.wire_max).is_none() {
            return Err(refused(RefusalCode::OtherVersion));
        }
        if hello.role != Hello::MIRROR && hello.role != Hello::RELAY {
            return Err(mirrors_only());
        }
        let key = frames.peer_key().ok_or_else(|| refused(RefusalCode::NotPelago))?;
        match self.clients.allows(&key) {
            true => Ok(key),
            false => Err(Refused { text: key.to_string(), ..refused(RefusalCode::UnknownKey) }),
        }
    }

    fn take_groups(
        &self,
        frames: &mut Frames<ServerConnection>,
        mut primary: Offered,
        groups: &mut dyn Groups,
    ) -> Result<(), Ended> {
        let lingers = primary.lingers();
        let mut incoming = None;
        let mut is_first = true;
        loop {
            let (kind, body) = match &mut incoming {
                Some(incoming) => frames::receive(incoming)?,
                None => frames.receive()?,
            };
            if !self.clients.allows(&primary.key) {
                return Err(Ended::KeyRemoved);
            }
            if is_first && is_question(kind, &body, &GroupPart::Datagrams) {
                incoming = self.take_datagrams(frames, groups, lingers)?;
                is_first = false;
                continue;
            }
            is_first = false;
            if primary.sealed.is_none() && is_question(kind, &body, &GroupPart::RelayKey) {
                let run_key = self.run_key(primary.volume, primary.reign, primary.run)?;
                let says = MirrorSays::RelayKey(run_key.bytes());
                let answer = GroupState { says, ..groups.ready() };
                frames.send(FrameKind::GroupState, &answer.encode())?;
                frames.flush()?;
                continue;
            }
            let body = primary.part(kind, body)?;
            let Some(answer) = groups.take(&body).map_err(Ended::Broken)? else { continue };
            let answer = match answer.says {
                MirrorSays::Safe => primary.proven(answer)?,
                _ => answer,
            };
            let sent = frames.send(FrameKind::GroupState, &answer.encode());
            let sent = sent.and_then(|()| frames.flush());
            // A relay that is gone may have sent more, which is still under way.
            if primary.sealed.is_none() || incoming.is_none() {
                sent?;
            }
            if let MirrorSays::Failed(why) = &answer.says {
                if let Some(left_out) = self.log.failed.admit() {
                    tracing::warn!(why, left_out, "a group of a primary was not kept");
                }
                return Err(Ended::GroupFailed);
            }
            groups.carry_out().map_err(Ended::Broken)?;
        }
    }

    /// Logs the reason for which a connection ends, and sends it to the primary. Returns the time
    /// in which the primary may read it.
    fn end(&self, frames: &mut Frames<ServerConnection>, ended: Ended) -> Duration {
        let closing = |code, text| Closing { code, text };
        let sent = match ended {
            Ended::Lost => {
                if let Some(left_out) = self.log.ended.admit() {
                    tracing::info!(left_out, "a connection of a primary has ended");
                }
                return Duration::ZERO;
            }
            Ended::GroupFailed => return FAILURE_LINGER,
            Ended::Broken(why) => {
                if let Some(left_out) = self.log.malformed.admit() {
                    tracing::warn!(why, left_out, "a connection of a primary was closed");
                }
                let closing = closing(ClosingCode::Protocol, why);
                frames.send(FrameKind::Closing, &closing.encode())
            }
            Ended::KeyRemoved => {
                if let Some(left_out) = self.log.ended.admit() {
                    tracing::info!(left_out, "the key of a primary was removed from the list");
                }
                let closing = closing(ClosingCode::KeyRevoked, String::new());
                frames.send(FrameKind::Closing, &closing.encode())
            }
            Ended::Refused(refused) => {
                if let Some(left_out) = self.log.refused.admit() {
                    let why = refused.code.says();
                    let text = &refused.text;
                    tracing::info!(why, text, left_out, "a primary was refused");
                }
                frames.send(FrameKind::Refused, &refused.encode())
            }
        };
        if let Err(error) = sent.and_then(|()| frames.flush()) {
            tracing::debug!(%error, "a primary was not told why its connection ends");
        }
        LINGER
    }
}

/// The offer of the other end of a connection.
struct Offered {
    /// Its key: that of the primary, or of its relay.
    key: PublicKey,
    volume: [u8; 16],
    reign: u64,
    run: PrimaryRun,
    /// Opens the records of a relay; `None` if the primary itself is connected.
    sealed: Option<Opener>,
}

impl Offered {
    /// Returns the time for which datagrams are taken after the end of the connection. A primary
    /// sends again what has not arrived; a relay may be lost with the primary.
    const fn lingers(&self) -> Duration {
        match self.sealed {
            None => Duration::ZERO,
            Some(_) => RELAY_LINGER,
        }
    }

    /// Returns a message that the mirror has a group; for a relay, with the proof.
    fn proven(&self, state: GroupState) -> Result<GroupState, Ended> {
        let Some(opener) = &self.sealed else { return Ok(state) };
        let proof = opener.run().proof(state.number);
        let proof = proof.ok_or_else(|| Ended::Broken("no proof can be made".to_owned()))?;
        Ok(GroupState { says: MirrorSays::Proof(proof), ..state })
    }

    /// Returns the body of the part in a frame.
    fn part(&mut self, kind: FrameKind, body: Vec<u8>) -> Result<Vec<u8>, Ended> {
        let wrong = || Ended::Broken(format!("a frame of kind {kind:?} came"));
        match (&mut self.sealed, kind) {
            (None, FrameKind::Group) => Ok(body),
            (Some(opener), FrameKind::Relay) => match RelayMessage::decode(&body) {
                Ok(RelayMessage::Record(record)) => opener.open(&record).ok_or_else(|| {
                    Ended::Broken("a record of a relay has a wrong seal".to_owned())
                }),
                Ok(RelayMessage::Offer(_) | RelayMessage::Ping | RelayMessage::Report(_)) => {
                    Err(Ended::Broken("a message for a relay came".to_owned()))
                }
                Err(error) => Err(Ended::Broken(error.to_string())),
            },
            (None | Some(_), _) => Err(wrong()),
        }
    }
}

/// Returns whether a frame has a part that is a question of the connection.
fn is_question(kind: FrameKind, body: &[u8], question: &GroupPart) -> bool {
    kind == FrameKind::Group && GroupPart::decode(body).as_ref() == Ok(question)
}

fn offered(frames: &mut Frames<ServerConnection>) -> Result<GroupPart, Ended> {
    match frames.receive()? {
        (FrameKind::Group, body) => {
            GroupPart::decode(&body).map_err(|error| Ended::Broken(error.to_string()))
        }
        (kind, _) => Err(Ended::Broken(format!("a frame of kind {kind:?} came"))),
    }
}

fn mirrors_only() -> Refused {
    let text = "this server keeps mirrors only".to_owned();
    Refused { text, ..refused(RefusalCode::NotServed) }
}

fn not_taken(error: OfferRefused) -> Refused {
    match error {
        OfferRefused::NotPrimary(reign) => {
            Refused { text: reign.to_string(), ..refused(RefusalCode::NotPrimary) }
        }
        OfferRefused::Failed(text) => Refused { text, ..refused(RefusalCode::NotRecorded) },
    }
}
