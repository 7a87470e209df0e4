//! The connections of a session: one for everything, and of a site's server another one for bulk.
//!
//! A recall must not wait for the bytes of a file. So a site's server connects a second time, and
//! large replies and large requests go over that connection. Both connections end together: what
//! was under way over the one that is lost is repeated, like everything else, over the next ones.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::limits;

use crate::link::Link;

/// The present connections of a session.
#[derive(Default)]
pub(super) struct Links {
    main: Option<Arc<Link>>,
    /// Only beside the main one.
    bulk: Option<Arc<Link>>,
}

impl Links {
    /// Returns the main connection.
    pub(super) const fn main(&self) -> Option<&Arc<Link>> {
        self.main.as_ref()
    }

    /// Returns whether this is the main connection.
    pub(super) fn is_main(&self, link: &Arc<Link>) -> bool {
        is_it(self.main.as_ref(), link)
    }

    /// Returns whether this is the connection for bulk.
    pub(super) fn is_bulk(&self, link: &Arc<Link>) -> bool {
        is_it(self.bulk.as_ref(), link)
    }

    /// Returns whether there is a connection for bulk.
    pub(super) const fn has_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    /// Returns whether this is one of the connections.
    pub(super) fn has(&self, link: &Arc<Link>) -> bool {
        self.each().any(|known| Arc::ptr_eq(known, link))
    }

    /// Returns the connection for a reply with so many bytes of a file.
    pub(super) fn of_reply(&self, bulk: usize) -> Option<&Arc<Link>> {
        let of_bulk = self.bulk.as_ref().filter(|_| bulk >= limits::BULK_CONNECTION_BYTES);
        of_bulk.or(self.main.as_ref())
    }

    /// Takes a main connection, and ends those before it.
    pub(super) fn begin(&mut self, main: Arc<Link>) {
        self.end();
        self.main = Some(main);
    }

    /// Takes a connection for bulk. There is none yet.
    pub(super) fn add_bulk(&mut self, bulk: Arc<Link>) {
        self.bulk = Some(bulk);
    }

    /// Ends all connections.
    pub(super) fn end(&mut self) {
        self.each().for_each(|link| link.close());
        *self = Self::default();
    }

    /// Forgets the connections: their ends are not this session's business any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns when bytes arrived last over one of them; `None` without a connection.
    pub(super) fn heard(&self) -> Option<Duration> {
        self.each().map(|link| link.heard()).max()
    }

    /// Returns when a socket took bytes last that had waited for it; `None` if no bytes wait.
    pub(super) fn taken(&self) -> Option<Duration> {
        self.each().filter(|link| link.has_queued()).map(|link| link.taken()).max()
    }

    fn each(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.main.iter().chain(&self.bulk)
    }
}

fn is_it(known: Option<&Arc<Link>>, link: &Arc<Link>) -> bool {
    known.is_some_and(|known| Arc::ptr_eq(known, link))
}
