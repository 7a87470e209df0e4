//! The primary's end of the connection to a mirror.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Hello, RefusalCode, Refused};
use pelago_wire::mirror::{
    CloseLink, GroupPart, GroupState, LinkError, MirrorLink, MirrorSays, PrimaryRun, TakenCount,
};
use pelago_wire::relay::RelayOffer;
use rustls::ClientConnection;

use super::datagrams::{self, DatagramSender, Datagrams, Seals, Waker};
use super::dial;
use super::frames::Frames;
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;

/// The other end, in messages for people.
const WHO: &str = "mirror";

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
        Self::connect_as(Hello::MIRROR, key, mirror, volume, reign, run)
    }

    fn connect_as(
        role: u16,
        key: &PrivateKey,
        mirror: &ServerAddress,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
    ) -> Result<(Self, GroupState), LinkError> {
        let mut frames = dial::connect(WHO, key, mirror)?;
        let state = offer(&mut frames, role, key, volume, reign, run)?;
        Ok((Self { datagrams: None, frames }, state))
    }

    /// Connects as a relay, for the records of a run. Datagrams are stamped, if they are tried, and
    /// `listener` is woken as [`DatagramSender::start_with_stamps`] does.
    pub(super) fn connect_relay(
        key: &PrivateKey,
        mirror: &ServerAddress,
        volume: [u8; 16],
        offer: &RelayOffer,
        datagrams: Option<&Datagrams>,
        listener: &Arc<Waker>,
    ) -> Result<(Self, GroupState), LinkError> {
        let RelayOffer { reign, run, .. } = *offer;
        let (mut connection, state) =
            Self::connect_as(Hello::RELAY, key, mirror, volume, reign, run)?;
        if let Some(datagrams) = datagrams.filter(|datagrams| datagrams.are_tried()) {
            let asked = connection.ask_for_datagrams(datagrams, Some(Arc::clone(listener)));
            asked.inspect_err(|error| datagrams.close(&error.to_string()))?;
        }
        Ok((connection, state))
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
            let asked = connection.ask_for_datagrams(datagrams, None);
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

    /// Asks the mirror to take datagrams, and starts to send them if it does: with stamps, if there
    /// is a listener.
    fn ask_for_datagrams(
        &mut self,
        datagrams: &Datagrams,
        listener: Option<Arc<Waker>>,
    ) -> Result<(), LinkError> {
        let failed = |error: io::Error| dial::lost(WHO, &error);
        let tcp = self.frames.another_socket().map_err(failed)?;
        let socket = datagrams::socket_of(&tcp).map_err(failed)?;
        let seals = Seals::of_primary(self.frames.tls()).map_err(failed)?;
        let question = GroupPart::Datagrams.encode();
        let question = question.map_err(|error| LinkError::Lost(error.to_string()))?;
        self.send(&question)?;
        match self.receive()?.says {
            MirrorSays::Datagrams => {
                let datagrams = datagrams.clone();
                let sender = match listener {
                    None => DatagramSender::start(seals, socket, tcp, datagrams),
                    Some(listener) => {
                        DatagramSender::start_with_stamps(seals, socket, tcp, datagrams, listener)
                    }
                };
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
            | MirrorSays::Promoted
            | MirrorSays::RelayKey(_)
            | MirrorSays::Proof(_) => {
                Err(LinkError::Lost("the mirror gives another answer".to_owned()))
            }
        }
    }

    /// Sends a record of a relay. Over TLS it may wait for the socket.
    pub(super) fn send_record(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let Some(datagrams) = &self.datagrams else {
            let sent = self.frames.send(FrameKind::Relay, body);
            return sent.map_err(|error| dial::lost(WHO, &error));
        };
        datagrams.send(FrameKind::Relay, body).map_err(LinkError::Lost)
    }

    /// Sends what is buffered; with as many repair packets as a waiter needs, if there is one.
    /// Waits for no answer.
    ///
    /// # Errors
    /// [`LinkError::Lost`].
    pub fn flush_records(&mut self, is_awaited: bool) -> Result<(), LinkError> {
        match &self.datagrams {
            Some(datagrams) if is_awaited => datagrams.flush(),
            Some(datagrams) => datagrams.release(),
            None => self.frames.flush().map_err(|error| dial::lost(WHO, &error))?,
        }
        Ok(())
    }

    /// Returns whether a record can be sent without waiting for the link.
    pub(super) fn has_room(&self) -> bool {
        self.datagrams.as_ref().is_none_or(DatagramSender::has_room)
    }

    /// Returns the bytes that were sent as datagrams so far; `None` if records travel by TLS, which
    /// says nothing about the link.
    pub(super) fn given(&self) -> Option<u64> {
        self.datagrams.as_ref().map(DatagramSender::given)
    }

    /// Returns how many of them have left this machine.
    pub(super) fn departed(&self) -> u64 {
        self.datagrams.as_ref().map_or(0, DatagramSender::sent)
    }

    /// Returns the next message of the mirror, if one has come.
    pub(super) fn poll_state(&mut self) -> Result<Option<GroupState>, LinkError> {
        if let Some(why) = self.datagrams.as_ref().and_then(DatagramSender::failure) {
            return Err(LinkError::Lost(why));
        }
        match self.frames.poll().map_err(|error| dial::broken(WHO, error))? {
            None => Ok(None),
            Some((FrameKind::GroupState, body)) => match GroupState::decode(&body) {
                Ok(state) => Ok(Some(state)),
                Err(error) => Err(LinkError::Lost(error.to_string())),
            },
            Some((kind, body)) => Err(dial::unexpected(WHO, kind, &body)),
        }
    }

    /// Returns another descriptor of the socket, to wait for messages.
    pub(super) fn another_socket(&self) -> io::Result<TcpStream> {
        self.frames.another_socket()
    }

    fn receive_state(&mut self) -> Result<GroupState, LinkError> {
        let (kind, body) = self.frames.receive().map_err(|error| dial::broken(WHO, error))?;
        if kind != FrameKind::GroupState {
            return Err(dial::unexpected(WHO, kind, &body));
        }
        GroupState::decode(&body).map_err(|error| LinkError::Lost(error.to_string()))
    }
}

impl MirrorLink for MirrorConnection {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let Some(datagrams) = &self.datagrams else {
            return self
                .frames
                .send(FrameKind::Group, body)
                .map_err(|error| dial::lost(WHO, &error));
        };
        let Err(why) = datagrams.send(FrameKind::Group, body) else { return Ok(()) };
        Err(LinkError::Lost(why))
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let Some(datagrams) = &self.datagrams else {
            self.frames.flush().map_err(|error| dial::lost(WHO, &error))?;
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

    fn taken(&self) -> TakenCount {
        self.datagrams.as_ref().map_or_else(|| self.frames.taken(), DatagramSender::taken)
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
    role: u16,
    key: &PrivateKey,
    volume: [u8; 16],
    reign: u64,
    run: PrimaryRun,
) -> Result<GroupState, LinkError> {
    let hello = dial::hello(role, volume)?;
    let offer = GroupPart::Offer { reign, run }.encode();
    let offer = offer.map_err(|error| LinkError::Lost(error.to_string()))?;
    let sent = frames.send(FrameKind::Hello, &hello.encode());
    let sent = sent.and_then(|()| frames.send(FrameKind::Group, &offer));
    sent.and_then(|()| frames.flush()).map_err(|error| dial::lost(WHO, &error))?;
    match frames.receive().map_err(|error| dial::broken(WHO, error))? {
        (FrameKind::GroupState, body) => match GroupState::decode(&body) {
            Ok(state) if state.says == MirrorSays::Ready => Ok(state),
            Ok(state) if role == Hello::RELAY && matches!(state.says, MirrorSays::Proof(_)) => {
                Ok(state)
            }
            Ok(_) => Err(LinkError::Lost("the mirror gives another answer".to_owned())),
            Err(error) => Err(LinkError::Lost(error.to_string())),
        },
        (FrameKind::Refused, body) => match Refused::decode(&body) {
            Ok(refused) => Err(refusal(&refused, key)),
            Err(error) => Err(LinkError::Lost(error.to_string())),
        },
        (kind, body) => Err(dial::unexpected(WHO, kind, &body)),
    }
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
            "the mirror does not know the key {0}: there, run `pelago key allow {0} -V DIR`",
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
