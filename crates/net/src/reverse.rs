//! Reverse connections that have come, and wait for a client to send its requests over them.
//!
//! The server of a site that others cannot reach connects to them, and says hello with the role of
//! a reverse connection. The next frame is the hello of the client at this end. Both keys were
//! proved when the connection was made, so TLS goes on as it is.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::stream::Stream;

/// A socket with its end of TLS, over which the other end serves.
pub(crate) type Detached = (Stream, Option<Box<rustls::Connection>>);

/// Called with the number of a site whose server has made a connection, on a thread of the network.
pub type OnReverse = Box<dyn Fn(u16) + Send + Sync>;

/// The reverse connections of the servers of other sites: at most one of each site waits, the
/// newest.
pub struct ReverseConnections {
    /// A leaf lock.
    waiting: Mutex<HashMap<u16, Detached>>,
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
        let older = self.waiting.lock().insert(site, connection);
        self.come.notify_all();
        drop(older);
        (self.on_reverse)(site);
    }

    /// Takes a connection of a site's server, which may have ended meanwhile. Waits for one for at
    /// most `patience`.
    pub(crate) fn take(&self, site: u16, patience: Duration) -> Option<Detached> {
        let deadline = Instant::now() + patience;
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(connection) = waiting.remove(&site) {
                return Some(connection);
            }
            if self.come.wait_until(&mut waiting, deadline).timed_out() {
                return waiting.remove(&site);
            }
        }
    }
}

impl fmt::Debug for ReverseConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sites: Vec<u16> = self.waiting.lock().keys().copied().collect();
        f.debug_struct("ReverseConnections").field("waiting", &sites).finish_non_exhaustive()
    }
}
