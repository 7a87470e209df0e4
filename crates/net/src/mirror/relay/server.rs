//! The port of a relay that primaries connect to, and the routes of their volumes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused};
use pelago_wire::relay::{RelayMessage, RelayOffer, RelayReport, RelaySays, RelaySpools};
use pelago_wire::{limits, version};
use rustls::ServerConnection;

use super::super::datagrams::{DatagramStatus, Datagrams, Waker};
use super::super::frames::Frames;
use super::super::listener::{Listener, Serve};
use super::courier::{Courier, datagrams_of};
use super::primary::{self, IsAllowed};
use super::route::Route;
use crate::clients::list::ClientList;
use crate::key::{PrivateKey, PublicKey};
use crate::log_limit::LogLimit;
use crate::sessions::refused;
use crate::tls;

/// The time in which a primary may read the reason for which its connection ends.
const LINGER: Duration = Duration::from_secs(2);

/// A relay. Dropping it ends its connections; what it keeps stays on disk.
pub struct RelayServer {
    shared: Arc<Shared>,
    listener: Listener,
}

/// The status of the way of one volume through a relay.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayStatus {
    /// The volume.
    pub volume: [u8; 16],
    /// Its mirror, as `KEY@HOST:PORT`.
    pub mirror: String,
    /// True if the primary is connected.
    pub has_primary: bool,
    /// Bytes that the mirror does not have.
    pub bytes: u64,
    /// Whole groups that the mirror does not have.
    pub groups: u64,
    /// The newest group that the mirror has, as far as this run of the relay knows.
    pub safe: u64,
    /// The reason for which the mirror takes nothing now.
    pub apart: Option<String>,
    /// The counts of the datagrams to the mirror, while they are sent.
    pub link: Option<DatagramStatus>,
}

struct Shared {
    key: PrivateKey,
    clients: Arc<ClientList>,
    spools: Arc<dyn RelaySpools>,
    /// Taken before the state of a route.
    routes: Mutex<BTreeMap<[u8; 16], Running>>,
    log: LogLimit,
}

/// A route with its thread.
struct Running {
    route: Arc<Route>,
    datagrams: Datagrams,
    courier: JoinHandle<()>,
}

/// The answer to an offer.
enum Admitted {
    Route(Arc<Route>),
    /// So many groups of another run are still here.
    Undelivered(u64),
    /// The relay cannot take it, for this reason.
    Failed(String),
}

impl RelayServer {
    /// Listens on a TCP address, and goes on with what the spools still have.
    ///
    /// # Errors
    /// The system's, and `InvalidInput` if TLS refuses the key; `Other` if a spool fails.
    pub fn start(
        address: SocketAddr,
        key: PrivateKey,
        clients: Arc<ClientList>,
        spools: Arc<dyn RelaySpools>,
    ) -> io::Result<Self> {
        let config = tls::server_config(&key)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = TcpListener::bind(address)?;
        let routes = Mutex::default();
        let shared = Arc::new(Shared { key, clients, spools, routes, log: LogLimit::new() });
        for (volume, offer) in shared.spools.kept().map_err(io::Error::other)? {
            let running = shared.start_route(volume, &offer).map_err(io::Error::other)?;
            shared.routes.lock().insert(volume, running);
        }
        let listener = Listener::start(socket, config, "relay", &shared)?;
        Ok(Self { shared, listener })
    }

    /// Returns the address, with the port that was chosen for port 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Returns the status of each route, in the order of the volumes.
    #[must_use]
    pub fn list(&self) -> Vec<RelayStatus> {
        self.shared.routes.lock().values().map(Running::status).collect()
    }

    /// Ends all connections, and waits for their threads.
    pub fn stop(&self) {
        self.listener.stop(|| {});
        let routes = std::mem::take(&mut *self.shared.routes.lock());
        routes.values().for_each(|running| running.route.end());
        routes.into_values().for_each(|running| join(running.courier));
    }
}

impl Drop for RelayServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for RelayServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Running {
    fn status(&self) -> RelayStatus {
        let state = self.route.state();
        let (bytes, groups) = state.spool.kept();
        RelayStatus {
            volume: self.route.volume,
            mirror: state.offer.mirror.clone(),
            has_primary: state.has_primary(),
            bytes,
            groups,
            safe: state.safe,
            apart: state.why_apart(),
            link: self.datagrams.status(),
        }
    }
}

impl Serve for Shared {
    fn serve(&self, mut frames: Frames<ServerConnection>) {
        if let Err(why) = self.talk(&mut frames) {
            if let Some(left_out) = self.log.admit() {
                tracing::info!(why, left_out, "a connection of a primary has ended");
            }
            let closing = Closing { code: ClosingCode::Protocol, text: why };
            let sent = frames.send(FrameKind::Closing, &closing.encode());
            // The primary may be gone.
            let _sent = sent.and_then(|()| frames.flush());
            frames.close(LINGER);
        }
    }
}

impl Shared {
    /// Admits the primary, and takes records until the connection ends.
    fn talk(&self, frames: &mut Frames<ServerConnection>) -> Result<(), String> {
        let io = |error: io::Error| error.to_string();
        frames.shake_hands().map_err(io)?;
        let hello = match frames.receive().map_err(|error| error.to_string())? {
            (FrameKind::Hello, body) => Hello::decode(&body).ok(),
            _ => None,
        };
        let admitted = self.admit(hello.as_ref(), frames);
        let (key, volume) = match admitted {
            Ok(admitted) => admitted,
            Err(refused) => {
                let sent = frames.send(FrameKind::Refused, &refused.encode());
                sent.and_then(|()| frames.flush()).map_err(io)?;
                return Err(refused.code.says().to_owned());
            }
        };
        let offer = match frames.receive().map_err(|error| error.to_string())? {
            (FrameKind::Relay, body) => match RelayMessage::decode(&body) {
                Ok(RelayMessage::Offer(offer)) => offer,
                Ok(_) => return Err("the first message is no offer".to_owned()),
                Err(error) => return Err(error.to_string()),
            },
            (kind, _) => return Err(format!("a frame of kind {kind:?} came")),
        };
        frames.set_usual_wait();
        let report = |number, says| RelayReport { number, says };
        let route = match self.route(volume, &offer) {
            Admitted::Route(route) => route,
            Admitted::Undelivered(groups) => {
                return primary::send(frames, report(groups, RelaySays::Undelivered));
            }
            Admitted::Failed(why) => {
                return primary::send(frames, report(0, RelaySays::Apart(why)));
            }
        };
        let waker = Arc::new(Waker::new().map_err(io)?);
        let begun = route.begin(&offer, &waker)?;
        let turn = begun.turn;
        primary::send(frames, report(begun.last, RelaySays::Ready))?;
        let allowed = IsAllowed { clients: &self.clients, key };
        let served = primary::serve(frames, &route, begun, &waker, &allowed);
        route.leave(turn);
        served
    }

    /// Checks a hello. Returns the key of the primary, and its volume.
    fn admit(
        &self,
        hello: Option<&Hello>,
        frames: &Frames<ServerConnection>,
    ) -> Result<(PublicKey, [u8; 16]), Refused> {
        let hello = hello.ok_or_else(|| refused(RefusalCode::NotPelago))?;
        if version::negotiate(hello.wire_min, hello.wire_max).is_none() {
            return Err(refused(RefusalCode::OtherVersion));
        }
        let text = || "this is a relay, which takes the groups of volumes with a mirror".to_owned();
        let relay_only = || Refused { text: text(), ..refused(RefusalCode::NotServed) };
        if hello.role != Hello::RELAY {
            return Err(relay_only());
        }
        let volume = hello.volume.ok_or_else(relay_only)?;
        let key = frames.peer_key().ok_or_else(|| refused(RefusalCode::NotPelago))?;
        match self.clients.allows(&key) {
            true => Ok((key, volume)),
            false => Err(Refused { text: key.to_string(), ..refused(RefusalCode::UnknownKey) }),
        }
    }

    /// Returns the route of an offer. What an earlier run has left goes to the mirror first.
    fn route(&self, volume: [u8; 16], offer: &RelayOffer) -> Admitted {
        let mut routes = self.routes.lock();
        if let Some(running) = routes.get(&volume) {
            let state = running.route.state();
            let is_same_mirror = state.offer.mirror == offer.mirror;
            let is_same_run = (state.offer.reign, state.offer.run) == (offer.reign, offer.run);
            if is_same_mirror && is_same_run && state.replaced.is_none() {
                return Admitted::Route(Arc::clone(&running.route));
            }
            let (_, groups) = state.spool.kept();
            if is_same_mirror && groups > 0 && state.replaced.is_none() {
                return Admitted::Undelivered(groups);
            }
        }
        if routes.len() >= limits::MIRRORS && !routes.contains_key(&volume) {
            return Admitted::Failed("the relay has too many volumes".to_owned());
        }
        if let Some(before) = routes.remove(&volume) {
            before.route.end();
            join(before.courier);
        }
        match self.start_route(volume, offer) {
            Ok(running) => {
                let route = Arc::clone(&running.route);
                routes.insert(volume, running);
                Admitted::Route(route)
            }
            Err(why) => Admitted::Failed(why),
        }
    }

    fn start_route(&self, volume: [u8; 16], offer: &RelayOffer) -> Result<Running, String> {
        let io = |error: io::Error| error.to_string();
        let spool = self.spools.open(volume, offer)?;
        let route = Arc::new(Route::new(volume, offer.clone(), spool).map_err(io)?);
        let datagrams = datagrams_of(offer.repair);
        let key = self.key.clone();
        let of_courier = Arc::clone(&route);
        let with = datagrams.clone();
        let courier = thread::Builder::new()
            .name("relay-courier".to_owned())
            .spawn(move || Courier::new(&of_courier, &key, &with).run())
            .map_err(io)?;
        Ok(Running { route, datagrams, courier })
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the relay has panicked");
    }
}
