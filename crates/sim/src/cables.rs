//! The network between clients and their server: each client has a cable, which delays packets, and
//! can be cut or stopped for a while.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mio::net::{UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;

use crate::turns;

const WAKER: Token = Token(usize::MAX);
/// Bytes that are read at a time.
const PART: usize = 64 << 10;
/// Most bytes take so long, in microseconds; a few take longer.
const DELAY_MICROS: u64 = 3_000;
const LONG_DELAY_MICROS: u64 = 400_000;

/// The state of the cables that the faults of a run set.
#[derive(Default)]
struct Orders {
    /// Cables to be cut once.
    cut: Vec<usize>,
    /// Until when a cable carries nothing from the client, and to it.
    stopped: Vec<[Duration; 2]>,
    /// The cables at whose other end nothing listens.
    gone: Vec<bool>,
}

/// The ways of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ways {
    Both,
    FromClient,
    ToClient,
}

/// The cables of all clients.
pub(crate) struct Cables {
    orders: Arc<Mutex<Orders>>,
    waker: Arc<Waker>,
}

/// The sockets at the ends of a cable: the one that a client connects to, and the server's.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    pub(crate) client: PathBuf,
    pub(crate) server: PathBuf,
}

/// Returns the path of the server's socket.
pub(crate) fn server_socket(dir: &Path) -> PathBuf {
    dir.join("server.sock")
}

impl Cables {
    /// Lays a cable for each client, on a thread of their own.
    pub(crate) fn lay(clients: Vec<Ends>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let stopped = vec![[Duration::ZERO; 2]; clients.len()];
        let gone = vec![false; clients.len()];
        let orders = Orders { stopped, gone, ..Orders::default() };
        let orders = Arc::new(Mutex::new(orders));
        let cables = clients.into_iter().enumerate();
        let cables = cables.map(|(client, ends)| Cable::lay(&poll, ends, client));
        let cables = cables.collect::<io::Result<Vec<_>>>()?;
        let carrier = Carrier { poll, cables, orders: Arc::clone(&orders) };
        thread::Builder::new().name("cables".to_owned()).spawn(move || carrier.run())?;
        Ok(Self { orders, waker })
    }

    /// Ends the connection of a client; bytes on their way are lost.
    pub(crate) fn cut(&self, client: usize) {
        self.order(|orders| orders.cut.push(client));
    }

    /// Carries nothing for this time, in both ways or in one.
    pub(crate) fn stop(&self, client: usize, ways: Ways, time: Duration) {
        let until = turns::now() + time;
        self.order(|orders| {
            let [from, to] = &mut orders.stopped[client];
            match ways {
                Ways::Both => (*from, *to) = (until, until),
                Ways::FromClient => *from = until,
                Ways::ToClient => *to = until,
            }
        });
    }

    /// Carries everything again.
    pub(crate) fn mend(&self) {
        self.order(|orders| orders.stopped.fill([Duration::ZERO; 2]));
    }

    /// Carries everything again by these cables.
    pub(crate) fn mend_some(&self, cables: &[usize]) {
        self.order(|orders| {
            cables.iter().for_each(|cable| orders.stopped[*cable] = [Duration::ZERO; 2]);
        });
    }

    /// The server is gone, or there again.
    pub(crate) fn set_server_gone(&self, is_gone: bool) {
        self.order(|orders| {
            orders.gone.fill(is_gone);
            orders.cut.extend(0..orders.stopped.len());
        });
    }

    /// The server at the other end of these cables is gone, or there again.
    pub(crate) fn set_gone(&self, cables: &[usize], is_gone: bool) {
        self.order(|orders| {
            cables.iter().for_each(|cable| orders.gone[*cable] = is_gone);
            orders.cut.extend(cables);
        });
    }

    fn order(&self, give: impl FnOnce(&mut Orders)) {
        give(&mut self.orders.lock());
        self.waker.wake().expect("an eventfd takes a wake");
    }
}

/// Returns the path of the socket that a client connects to.
pub(crate) fn client_socket(dir: &Path, client: usize) -> PathBuf {
    dir.join(format!("client-{client}.sock"))
}

/// The state of the thread of the cables.
struct Carrier {
    poll: Poll,
    cables: Vec<Cable>,
    orders: Arc<Mutex<Orders>>,
}

struct Cable {
    listener: UnixListener,
    server: PathBuf,
    /// The connection of the client, and the one to the server.
    ends: Option<[UnixStream; 2]>,
    /// Bytes from each end on their way to the other one.
    ways: [VecDeque<Packet>; 2],
    /// True for each end that is closed: what it has sent before still arrives.
    closed: [bool; 2],
    number: usize,
}

struct Packet {
    arrives: Duration,
    bytes: Vec<u8>,
    sent: usize,
}

impl Carrier {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        loop {
            let next = self.carry();
            let wait = next.map(|next| next.saturating_sub(turns::now()));
            // Rounded up: epoll counts milliseconds.
            let wait = wait.map(|wait| wait + Duration::from_millis(1));
            match self.poll.poll(&mut events, wait) {
                Ok(()) => {}
                Err(error) => panic!("epoll: {error}"),
            }
        }
    }

    /// Carries the bytes whose time has come. Returns the time of the next ones.
    fn carry(&mut self) -> Option<Duration> {
        let (cut, stopped, gone) = {
            let mut orders = self.orders.lock();
            let cut = std::mem::take(&mut orders.cut);
            (cut, orders.stopped.clone(), orders.gone.clone())
        };
        let now = turns::now();
        let mut next: Vec<Duration> = Vec::new();
        for cable in &mut self.cables {
            if cut.contains(&cable.number) {
                cable.cut();
            }
            let until = stopped[cable.number];
            next.extend(until.into_iter().filter(|until| *until > now));
            let goes = until.map(|until| until <= now);
            if goes == [true; 2] {
                cable.accept(&self.poll, gone[cable.number]);
            }
            next.extend(cable.carry(goes));
        }
        next.into_iter().min()
    }
}

impl Cable {
    fn lay(poll: &Poll, ends: Ends, number: usize) -> io::Result<Self> {
        let Ends { client, server } = ends;
        let mut listener = UnixListener::bind(client)?;
        poll.registry().register(&mut listener, Token(3 * number), Interest::READABLE)?;
        Ok(Self {
            listener,
            server,
            ends: None,
            ways: Default::default(),
            closed: [false; 2],
            number,
        })
    }

    fn cut(&mut self) {
        self.ends = None;
        self.ways = Default::default();
        self.closed = [false; 2];
    }

    /// Accepts the newest connection of the client; there is one at a time.
    fn accept(&mut self, poll: &Poll, is_server_gone: bool) {
        while let Ok((client, _)) = self.listener.accept() {
            self.cut();
            if is_server_gone {
                continue;
            }
            let Ok(server) = UnixStream::connect(&self.server) else { continue };
            let mut ends = [client, server];
            for (at, end) in ends.iter_mut().enumerate() {
                let token = Token(3 * self.number + 1 + at);
                let both = Interest::READABLE | Interest::WRITABLE;
                poll.registry().register(end, token, both).expect("a socket can be polled");
            }
            self.ends = Some(ends);
        }
    }

    fn carry(&mut self, goes: [bool; 2]) -> Option<Duration> {
        match self.pass(goes) {
            Ok(next) => next,
            Err(_closed) => {
                self.cut();
                None
            }
        }
    }

    fn pass(&mut self, goes: [bool; 2]) -> io::Result<Option<Duration>> {
        let Some(ends) = &mut self.ends else { return Ok(None) };
        let mut part = vec![0; PART];
        let from = self.ways.iter_mut().zip(ends.iter_mut()).zip(&mut self.closed).zip(goes);
        for (((way, from), is_closed), _) in from.filter(|(_, goes)| *goes) {
            while !*is_closed {
                match from.read(&mut part) {
                    Ok(0) => *is_closed = true,
                    Ok(count) => way.push_back(Packet::new(way.back(), part[..count].to_vec())),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        let now = turns::now();
        let [client, server] = ends;
        let mut next = None;
        for ((way, to), goes) in self.ways.iter_mut().zip([server, client]).zip(goes) {
            while let Some(packet) = way.front_mut().filter(|_| goes) {
                if packet.arrives > now {
                    next = Some(next.map_or(packet.arrives, |at: Duration| at.min(packet.arrives)));
                    break;
                }
                match to.write(&packet.bytes[packet.sent..]) {
                    Ok(count) => packet.sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The other end is closed.
                    Err(_) => packet.sent = packet.bytes.len(),
                }
                if packet.sent == packet.bytes.len() {
                    way.pop_front();
                }
            }
        }
        if self.ways.iter().zip(self.closed).any(|(way, is_closed)| is_closed && way.is_empty()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(next)
    }
}

impl Packet {
    /// Returns a packet that arrives after the one before it.
    fn new(before: Option<&Self>, bytes: Vec<u8>) -> Self {
        let most = if turns::random(20) == 0 { LONG_DELAY_MICROS } else { DELAY_MICROS };
        let arrives = turns::now() + Duration::from_micros(turns::random(most));
        let arrives = before.map_or(arrives, |before| before.arrives.max(arrives));
        Self { arrives, bytes, sent: 0 }
    }
}
