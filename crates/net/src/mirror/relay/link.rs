//! The primary's end of the connection to its relay.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Hello, RefusalCode, Refused};
use pelago_wire::mirror::{CloseLink, LinkError};
use pelago_wire::relay::{
    OfferedRelay, OnReport, Record, RelayAnswer, RelayLink, RelayMessage, RelayOffer, RelayReport,
    RelaySays,
};
use rustix::event::PollFlags;
use rustls::ClientConnection;

use super::super::datagrams::Waker;
use super::super::dial;
use super::super::frames::Frames;
use super::records::{Opener, RunKey};
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;

/// The other end, in messages for people.
const WHO: &str = "relay";

/// A connection of a primary to its relay.
pub struct RelayConnection {
    shared: Arc<Shared>,
    sealer: Opener,
    reader: Option<JoinHandle<()>>,
}

struct Shared {
    /// Held for each message. The reader takes it only if one has come.
    frames: Mutex<Frames<ClientConnection>>,
    has_ended: AtomicBool,
    waker: Waker,
}

impl RelayConnection {
    /// Connects to a relay, and offers it the groups of a run.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect(
        key: &PrivateKey,
        relay: &ServerAddress,
        volume: [u8; 16],
        offer: &RelayOffer,
    ) -> Result<RelayAnswer, LinkError> {
        let mut frames = dial::connect(WHO, key, relay)?;
        let hello = dial::hello(Hello::RELAY, volume)?;
        let message = RelayMessage::Offer(offer.clone()).encode();
        let message = message.map_err(|error| LinkError::Refused(error.to_string()))?;
        let sent = frames.send(FrameKind::Hello, &hello.encode());
        let sent = sent.and_then(|()| frames.send(FrameKind::Relay, &message));
        sent.and_then(|()| frames.flush()).map_err(|error| dial::lost(WHO, &error))?;
        let report = match frames.receive().map_err(|error| dial::broken(WHO, error))? {
            (FrameKind::Relay, body) => report_of(&body)?,
            (FrameKind::Refused, body) => match Refused::decode(&body) {
                Ok(refused) => return Err(refusal(&refused, key)),
                Err(error) => return Err(LinkError::Lost(error.to_string())),
            },
            (kind, body) => return Err(dial::unexpected(WHO, kind, &body)),
        };
        match report.says {
            RelaySays::Ready => {
                Ok(RelayAnswer::Ready(Box::new(RelayOpened { last: report.number, frames })))
            }
            RelaySays::Undelivered => Ok(RelayAnswer::Undelivered(report.number)),
            RelaySays::Replaced => Err(LinkError::Replaced { reign: report.number }),
            RelaySays::Apart(why) => Err(LinkError::Lost(why)),
            RelaySays::Kept | RelaySays::Sent | RelaySays::Safe(_) | RelaySays::Joined => {
                Err(LinkError::Lost("the relay gives another answer".to_owned()))
            }
        }
    }
}

/// A relay that takes the groups of a run.
struct RelayOpened {
    last: u64,
    frames: Frames<ClientConnection>,
}

impl OfferedRelay for RelayOpened {
    fn last(&self) -> u64 {
        self.last
    }

    fn begin(
        self: Box<Self>,
        key: [u8; 32],
        on_report: OnReport,
    ) -> Result<Box<dyn RelayLink>, LinkError> {
        match self.start(key, on_report) {
            Ok(connection) => Ok(Box::new(connection)),
            Err(error) => Err(dial::lost(WHO, &error)),
        }
    }
}

impl RelayOpened {
    /// Starts the thread that passes the reports on, and at the end the reason for that.
    fn start(self, key: [u8; 32], mut on_report: OnReport) -> io::Result<RelayConnection> {
        let socket = self.frames.another_socket()?;
        let shared = Arc::new(Shared {
            frames: Mutex::new(self.frames),
            has_ended: AtomicBool::new(false),
            waker: Waker::new()?,
        });
        let with = Arc::clone(&shared);
        let run = RunKey::new(key);
        let sealer = Opener::new(run.clone());
        let reader = std::thread::Builder::new()
            .name("relay-reports".to_owned())
            .spawn(move || with.read(&run, &socket, &mut on_report))?;
        Ok(RelayConnection { shared, sealer, reader: Some(reader) })
    }
}

impl Shared {
    /// Passes reports on until the connection ends. The mirror must have proven what it has.
    fn read(&self, run: &RunKey, socket: &TcpStream, on_report: &mut OnReport) {
        let why = loop {
            if self.has_ended.load(Ordering::Acquire) {
                return;
            }
            let polled = self.frames.lock().poll();
            let report = match polled.map_err(|error| dial::broken(WHO, error)) {
                Ok(Some((FrameKind::Relay, body))) => {
                    report_of(&body).and_then(|report| proven(run, report))
                }
                Ok(Some((kind, body))) => Err(dial::unexpected(WHO, kind, &body)),
                Ok(None) => {
                    let waited = self.waker.wait(&[(socket.as_fd(), PollFlags::IN)], None);
                    match waited {
                        Ok(_) => continue,
                        Err(error) => Err(dial::lost(WHO, &error)),
                    }
                }
                Err(error) => Err(error),
            };
            match report {
                Ok(report) => on_report(Ok(report)),
                Err(error) => break error,
            }
        };
        on_report(Err(why));
    }
}

/// Checks what a relay reports of the mirror.
fn proven(run: &RunKey, report: RelayReport) -> Result<RelayReport, LinkError> {
    match &report.says {
        RelaySays::Safe(proof) if !run.is_proven(report.number, proof) => {
            Err(LinkError::Lost(format!(
                "the relay says that the mirror has group {}, and the mirror has not proven it",
                report.number
            )))
        }
        _ => Ok(report),
    }
}

impl RelayLink for RelayConnection {
    fn send(&mut self, mut record: Record) -> Result<(), LinkError> {
        if !self.sealer.seal(&mut record) {
            return Err(LinkError::Lost("a part cannot be sealed".to_owned()));
        }
        let is_last = record.is_last;
        let body = RelayMessage::Record(record).encode();
        let body = body.map_err(|error| LinkError::Lost(error.to_string()))?;
        let mut frames = self.shared.frames.lock();
        let sent = frames.send(FrameKind::Relay, &body);
        let sent = if is_last { sent.and_then(|()| frames.flush()) } else { sent };
        sent.map_err(|error| dial::lost(WHO, &error))
    }

    fn ping(&mut self) -> Result<(), LinkError> {
        let body = RelayMessage::Ping.encode();
        let body = body.map_err(|error| LinkError::Lost(error.to_string()))?;
        let mut frames = self.shared.frames.lock();
        let sent = frames.send(FrameKind::Relay, &body).and_then(|()| frames.flush());
        sent.map_err(|error| dial::lost(WHO, &error))
    }

    fn closer(&self) -> CloseLink {
        self.shared.frames.lock().closer()
    }
}

impl Drop for RelayConnection {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        self.shared.waker.wake();
        let reader = self.reader.take();
        if reader.is_some_and(|reader| reader.join().is_err()) {
            tracing::error!("the thread of a relay's reports has panicked");
        }
        self.shared.frames.lock().close(Duration::ZERO);
    }
}

impl fmt::Debug for RelayConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayConnection").finish_non_exhaustive()
    }
}

fn report_of(body: &[u8]) -> Result<RelayReport, LinkError> {
    match RelayMessage::decode(body) {
        Ok(RelayMessage::Report(report)) => Ok(report),
        Ok(RelayMessage::Offer(_) | RelayMessage::Record(_) | RelayMessage::Ping) => {
            Err(LinkError::Lost("the relay sent a message of a primary".to_owned()))
        }
        Err(error) => Err(LinkError::Lost(error.to_string())),
    }
}

/// Returns the error for a refusal of the relay, with advice.
fn refusal(refused: &Refused, key: &PrivateKey) -> LinkError {
    let says = refused.code.says();
    match refused.code {
        RefusalCode::UnknownKey => LinkError::Refused(format!(
            "the relay does not know the key {0}: there, run `pelago key allow {0} -V DIR`",
            key.public()
        )),
        RefusalCode::NotServed | RefusalCode::UnknownRole | RefusalCode::OtherVersion => {
            LinkError::Refused(format!(
                "{says}: have the same version of pelago there, and `pelago relay DIR`"
            ))
        }
        _ if refused.text.is_empty() => LinkError::Lost(says.to_owned()),
        _ => LinkError::Lost(refused.text.clone()),
    }
}
