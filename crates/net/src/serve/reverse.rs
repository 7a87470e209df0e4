//! Reverse connections of this end: it connects to the server of another site, which asks over that
//! connection.

use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, net};

use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::Hello;
use ring::rand::{SecureRandom, SystemRandom};

use crate::key::PrivateKey;
use crate::key::address::ServerAddress;
use crate::link::{Bytes, Link};
use crate::remote::dial;
use crate::reverse::CONNECTIONS;
use crate::stream::Stream;

use super::Shared;

/// The longest time of an attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(5);
/// The first pause between two connections.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two connections.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Keeps connections to the server of another site, over which that asks this one. They end when
/// this is dropped; the session over them waits for the next ones.
pub struct ReverseService {
    /// Dropped to end the threads.
    _ends: [Sender<()>; CONNECTIONS],
}

/// The connections to make.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) shared: Weak<Shared>,
    pub(super) address: ServerAddress,
    pub(super) key: PrivateKey,
    pub(super) volume: [u8; 16],
    /// The number of the site whose server it is.
    pub(super) site: u16,
}

/// The mark of a connection that was made by this end. Its drop says that the connection has ended.
pub(super) struct Dialled {
    pub(super) address: IpAddr,
    _ended: Sender<()>,
}

/// A connection that was made.
struct Made {
    link: Weak<Link>,
    /// It is disconnected when the connection has ended.
    has_ended: Receiver<()>,
}

impl ReverseService {
    /// Starts the threads that make the connections. All are alike: the other end says which one is
    /// for what.
    pub(super) fn start(serving: Serving) -> io::Result<Self> {
        let start = || {
            let (ends, is_over) = mpsc::channel();
            let serving = serving.clone();
            let run = move || serving.run(&is_over);
            thread::Builder::new().name("reverse".to_owned()).spawn(run)?;
            Ok::<_, io::Error>(ends)
        };
        Ok(Self { _ends: [start()?, start()?] })
    }
}

impl fmt::Debug for ReverseService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReverseService").finish_non_exhaustive()
    }
}

impl Serving {
    fn run(&self, is_over: &Receiver<()>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            match self.connect() {
                Ok(made) => made.wait_for_end(is_over),
                Err(error) => {
                    tracing::debug!(%error, server = %self.address, "no reverse connection yet");
                }
            }
            pause = match began.elapsed() > LONGEST_PAUSE {
                true => FIRST_PAUSE,
                false => (pause * 2).min(LONGEST_PAUSE),
            };
            if is_over.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected)
                || self.shared.strong_count() == 0
            {
                return;
            }
        }
    }

    /// Makes a connection, and has the server carry it.
    fn connect(&self) -> io::Result<Made> {
        let opened = dial::open_tcp(&self.address, &self.key, ATTEMPT).map_err(io::Error::other)?;
        let (stream, tls) = opened;
        stream.set_long_line();
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).map_err(|_| io::ErrorKind::Other)?;
        let hello = Hello {
            role: Hello::REVERSE,
            volume: Some(self.volume),
            site: self.site,
            ..Hello::new(nonce)
        };
        let body = hello.encode().to_vec();
        let head = Header::new(FrameKind::Hello, body.len() as u32, 0).encode();
        let (ended, has_ended) = mpsc::channel();
        let dialled = Dialled { address: remote_address(&stream)?, _ended: ended };
        let link = shared.serve_dialled(stream, tls, dialled).ok_or_else(gone)?;
        link.send([Bytes::Header(head), Bytes::Owned(body)]);
        Ok(Made { link: Arc::downgrade(&link), has_ended })
    }
}

impl Made {
    /// Waits until the connection has ended. Ends it with the service.
    fn wait_for_end(&self, is_over: &Receiver<()>) {
        /// The time within which the end of the service is seen.
        const LOOK: Duration = Duration::from_secs(1);
        while self.has_ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if is_over.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
                if let Some(link) = self.link.upgrade() {
                    link.close();
                }
                return;
            }
        }
    }
}

fn remote_address(stream: &Stream) -> io::Result<IpAddr> {
    match stream {
        Stream::Tcp(stream) => stream.peer_addr().map(|address: net::SocketAddr| address.ip()),
        Stream::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}
