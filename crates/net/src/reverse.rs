//! Reverse connections that have come, and wait for a client to send its requests over them.
//!
//! The server of a site that others cannot reach connects to them, and says hello with the role of
//! a reverse connection. The next frame is the hello of the client at this end. Both keys were
//! proved when the connection was made, so TLS goes on as it is.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::stream::Stream;

/// A socket with its end of TLS, over which the other end serves.
pub(crate) type Detached = (Stream, Option<Box<rustls::Connection>>);

/// Called with the number of a site whose server has made a connection, on a thread of the network.
pub type OnReverse = Box<dyn Fn(u16) + Send + Sync>;

/// Connections that a server makes: one for the session of the client at the other end, and one for
/// the bulk of that.
pub(crate) const CONNECTIONS: usize = 2;

/// The reverse connections of the servers of other sites: at most two of each site wait, the newest
/// ones.
pub struct ReverseConnections {
    /// A leaf lock.
    waiting: Mutex<HashMap<u16, VecDeque<Detached>>>,
    come: Condvar,
    on_reverse: OnReverse,
}

impl ReverseConnections {
    /// Returns a place without connections. `on_reverse` has a client take one that comes.
    #[must_use]
    pub fn new(on_reverse: OnReverse) -> Self {
        Self { waiting: Mutex::default(), come: Condvar::new(), on_reverse }
    }

    /// Adds the connection of a site's server.
    pub(crate) fn offer(&self, site: u16, connection: Detached) {
        let older = {
            let mut waiting = self.waiting.lock();
            let of_site = waiting.entry(site).or_default();
            of_site.push_back(connection);
            (of_site.len() > CONNECTIONS).then(|| of_site.pop_front())
        };
        self.come.notify_all();
        drop(older);
        (self.on_reverse)(site);
    }

    /// Takes the newest connection of a site's server, which may have ended meanwhile. Waits for
    /// one for at most `patience`.
    pub(crate) fn take(&self, site: u16, patience: Duration) -> Option<Detached> {
        let deadline = Instant::now() + patience;
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(connection) = waiting.get_mut(&site).and_then(VecDeque::pop_back) {
                return Some(connection);
            }
            if self.come.wait_until(&mut waiting, deadline).timed_out() {
                return waiting.get_mut(&site)?.pop_back();
            }
        }
    }
}

impl fmt::Debug for ReverseConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting.lock();
        let waiting = waiting.iter().filter(|(_, connections)| !connections.is_empty());
        let sites: Vec<u16> = waiting.map(|(site, _)| *site).collect();
        f.debug_struct("ReverseConnections").field("waiting", &sites).finish_non_exhaustive()
    }
}
