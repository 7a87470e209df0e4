//! A reactor: a thread over epoll. It reads the frames of its connections, sends the bytes that
//! their sockets did not take at once, accepts new connections, and gives all of them ticks.
//!
//! epoll reports a socket once when its state changes (edge triggered), so that senders on other
//! threads need not register anything.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use parking_lot::Mutex;

use crate::account::Resume;
use crate::assembler::{Assembler, Frame, FrameLimits, ReadError};
use crate::link::Link;
use crate::log_limit::LogLimit;
use crate::stream::Stream;

/// The time between two ticks.
const TICK: Duration = Duration::from_millis(250);
/// Frames of one connection that are handled, or connections of one listener that are accepted,
/// before the other sockets get their turn.
const TURN: usize = 64;
const WAKER: Token = Token(0);

/// The handler of the frames of a connection.
pub(crate) trait Handler: Send {
    /// Returns the limits of the next frame.
    fn limits(&self) -> FrameLimits;

    /// Handles a frame. `Break` ends the connection.
    fn frame(&mut self, link: &Arc<Link>, frame: Frame) -> ControlFlow<()>;

    /// Handles a tick. `Break` ends the connection.
    fn tick(&mut self, link: &Arc<Link>, now: Instant) -> ControlFlow<()>;

    /// Handles the end of the connection; without a reason if the handler has ended it.
    fn closed(&mut self, link: &Arc<Link>, why: Option<&ReadError>);
}

/// A listening socket.
pub(crate) trait Listener: AsRawFd + Send {
    /// Accepts a connection and hands it on.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    fn accept(&mut self) -> io::Result<()>;

    /// Handles a tick. Called only while [`Listener::wants_ticks`].
    fn tick(&mut self);

    /// Returns whether the listener needs ticks now.
    fn wants_ticks(&self) -> bool;
}

/// A thread that polls sockets. It ends when this is dropped.
pub(crate) struct Reactor {
    pub(crate) mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

/// The orders of other threads to a reactor.
pub(crate) struct Mailbox {
    waker: Waker,
    next_token: AtomicUsize,
    /// A leaf lock.
    orders: Mutex<Vec<Order>>,
}

enum Order {
    Add(Arc<Link>, Box<dyn Handler>),
    Listen(Box<dyn Listener>),
    Resume(Token),
    Stop,
}

impl Mailbox {
    fn post(&self, order: Order) {
        self.orders.lock().push(order);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a thread of the network cannot be woken");
        }
    }

    /// Adds a connection whose frames go to the handler.
    pub(crate) fn add(
        self: &Arc<Self>,
        stream: Stream,
        tls: Option<Box<rustls::Connection>>,
        handler: impl FnOnce(&Arc<Link>) -> Box<dyn Handler>,
    ) -> Arc<Link> {
        let token = Token(self.next_token.fetch_add(1, Ordering::Relaxed));
        let link = Arc::new(Link::new(stream, tls, Arc::clone(self) as Arc<dyn Resume>, token));
        let handler = handler(&link);
        self.post(Order::Add(Arc::clone(&link), handler));
        link
    }

    /// Adds a listening socket.
    pub(crate) fn listen(&self, listener: Box<dyn Listener>) {
        self.post(Order::Listen(listener));
    }
}

impl Resume for Mailbox {
    fn resume(&self, token: Token) {
        self.post(Order::Resume(token));
    }
}

impl Reactor {
    /// Starts a reactor on a thread of this name.
    ///
    /// # Errors
    /// The system's, if it gives no epoll or no thread.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let next_token = AtomicUsize::new(WAKER.0 + 1);
        let orders = Mutex::default();
        let mailbox = Arc::new(Mailbox { waker, next_token, orders });
        let own = Arc::clone(&mailbox);
        let polling = move || {
            let polling = Polling {
                poll,
                mailbox: own,
                links: HashMap::new(),
                listeners: HashMap::new(),
                behind: Vec::new(),
                stuck: Vec::new(),
                failures: LogLimit::new(),
            };
            polling.run();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(polling)?;
        Ok(Self { mailbox, thread: Some(thread) })
    }
}

impl Reactor {
    /// Returns whether the caller runs on the thread of this reactor.
    pub(crate) fn is_current_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|own| own.thread().id() == thread::current().id())
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.mailbox.post(Order::Stop);
        // A handler may own its reactor, and drop it on the reactor's own thread.
        let is_own = self.is_current_thread();
        let Some(thread) = self.thread.take() else { return };
        if !is_own && thread.join().is_err() {
            tracing::error!("a thread of the network has panicked");
        }
    }
}

/// The state of a reactor's thread.
struct Polling {
    poll: Poll,
    mailbox: Arc<Mailbox>,
    links: HashMap<Token, Connected>,
    listeners: HashMap<Token, Box<dyn Listener>>,
    /// Sockets that may have more to read after their turn.
    behind: Vec<Token>,
    /// Listeners whose connections wait until a descriptor is free.
    stuck: Vec<Token>,
    /// The limit of log lines about connections that could not be accepted.
    failures: LogLimit,
}

struct Connected {
    link: Arc<Link>,
    handler: Box<dyn Handler>,
    assembler: Assembler,
}

impl Polling {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut last_tick = Instant::now();
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.timeout(last_tick))
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "epoll failed: the network stops");
                return self.end();
            }
            let mut ready: Vec<Token> = std::mem::take(&mut self.behind);
            for event in &events {
                if event.token() == WAKER {
                    continue;
                }
                if let Some(connected) = self.links.get_mut(&event.token()) {
                    if event.is_writable() {
                        connected.link.flush();
                    }
                    if event.is_readable() {
                        connected.assembler.bytes_come();
                    }
                    if event.is_read_closed() {
                        connected.assembler.end_comes();
                    }
                }
                ready.push(event.token());
            }
            if self.obey(&mut ready).is_break() {
                return self.end();
            }
            for token in ready {
                self.serve(token);
            }
            let now = Instant::now();
            if now.duration_since(last_tick) >= TICK {
                last_tick = now;
                self.tick(now);
            }
        }
    }

    /// Returns the time to wait for events; `None`, without limit, if nothing needs ticks.
    fn timeout(&self, last_tick: Instant) -> Option<Duration> {
        if !self.behind.is_empty() {
            return Some(Duration::ZERO);
        }
        let ticks = !self.links.is_empty()
            || !self.stuck.is_empty()
            || self.listeners.values().any(|listener| listener.wants_ticks());
        ticks.then(|| TICK.saturating_sub(last_tick.elapsed()))
    }

    /// Carries out the orders of other threads.
    fn obey(&mut self, ready: &mut Vec<Token>) -> ControlFlow<()> {
        let orders = std::mem::take(&mut *self.mailbox.orders.lock());
        for order in orders {
            match order {
                Order::Add(link, handler) => {
                    let token = link.token;
                    let connected = Connected { link, handler, assembler: Assembler::new() };
                    let registered = register(self.poll.registry(), &*connected.link, token);
                    self.links.insert(token, connected);
                    if let Err(error) = registered {
                        self.close(token, Some(&error.into()));
                    }
                }
                Order::Listen(listener) => {
                    let token = Token(self.mailbox.next_token.fetch_add(1, Ordering::Relaxed));
                    if let Err(error) = register(self.poll.registry(), &*listener, token) {
                        tracing::error!(%error, "a listening socket cannot be polled");
                    }
                    self.listeners.insert(token, listener);
                    ready.push(token);
                }
                Order::Resume(token) => ready.push(token),
                Order::Stop => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads a connection, or accepts from a listener, for one turn.
    fn serve(&mut self, token: Token) {
        if let Some(listener) = self.listeners.get_mut(&token) {
            match accept_some(&mut **listener) {
                Ok(Turn::Over) => self.behind.push(token),
                Ok(_) => {}
                Err(error) => {
                    if let Some(left_out) = self.failures.admit() {
                        tracing::warn!(%error, left_out, "a connection could not be accepted");
                    }
                    // Most likely no descriptor is free: tried again with the next tick.
                    if !self.stuck.contains(&token) {
                        self.stuck.push(token);
                    }
                }
            }
            return;
        }
        let Some(connected) = self.links.get_mut(&token) else { return };
        match connected.read_frames() {
            Ok(Turn::Drained) => {}
            Ok(Turn::Over) => self.behind.push(token),
            Ok(Turn::Ended) => self.close(token, None),
            Err(error) => self.close(token, Some(&error)),
        }
    }

    fn tick(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for (token, connected) in &mut self.links {
            if connected.handler.tick(&connected.link, now).is_break() {
                ended.push(*token);
            }
        }
        ended.into_iter().for_each(|token| self.close(token, None));
        self.listeners
            .values_mut()
            .filter(|listener| listener.wants_ticks())
            .for_each(|listener| listener.tick());
        for token in std::mem::take(&mut self.stuck) {
            self.serve(token);
        }
    }

    fn close(&mut self, token: Token, why: Option<&ReadError>) {
        let Some(mut connected) = self.links.remove(&token) else { return };
        connected.link.flush();
        connected.link.close();
        let fd = connected.link.as_raw_fd();
        if let Err(error) = self.poll.registry().deregister(&mut SourceFd(&fd)) {
            tracing::debug!(%error, "a socket was not polled");
        }
        connected.handler.closed(&connected.link, why);
    }

    fn end(mut self) {
        let tokens: Vec<Token> = self.links.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.close(token, None));
    }
}

/// The end of the turn of a socket.
enum Turn {
    /// All bytes that have arrived were read, or the connection is paused.
    Drained,
    /// There may be more.
    Over,
    /// The handler ends the connection.
    Ended,
}

impl Connected {
    fn read_frames(&mut self) -> Result<Turn, ReadError> {
        let Self { link, handler, assembler } = self;
        for _ in 0..TURN {
            if link.must_pause() {
                return Ok(Turn::Drained);
            }
            match assembler.next(handler.limits(), |into| link.read(into))? {
                None => return Ok(Turn::Drained),
                Some(frame) => {
                    if handler.frame(link, frame).is_break() {
                        return Ok(Turn::Ended);
                    }
                }
            }
        }
        Ok(Turn::Over)
    }
}

fn register(registry: &Registry, socket: &(impl AsRawFd + ?Sized), token: Token) -> io::Result<()> {
    let interest = Interest::READABLE | Interest::WRITABLE;
    registry.register(&mut SourceFd(&socket.as_raw_fd()), token, interest)
}

/// Accepts until no connection waits, or the turn is over.
fn accept_some(listener: &mut dyn Listener) -> io::Result<Turn> {
    for _ in 0..TURN {
        match listener.accept() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Drained),
            // A connection that ended before it was accepted.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Turn::Over)
}
