//! The client's end of leases.

use std::collections::HashMap;
use std::time::Duration;

use super::{GrantNumber, Leased};

/// The client's end of leases: what it may use without asking, and until when.
#[derive(Debug, Default)]
pub struct Holder {
    leases: HashMap<Leased, GrantNumber>,
    /// Grants up to these numbers have ended; they may be on their way. With the newest request
    /// that was sent by then: once all up to that one are answered, none is.
    ended: HashMap<Leased, (GrantNumber, u64)>,
    /// Changes by this client that are not answered: they end its leases when they are carried out,
    /// which it does not know before.
    changes: HashMap<Leased, u32>,
    /// When the time of the session is over, by the clock of the driver.
    until: Duration,
}

impl Holder {
    /// A grant has arrived with the answer to a request. Returns whether what was answered may be
    /// kept: not if the grant has ended, or may have, and not if a later one is known.
    pub fn granted(&mut self, on: Leased, number: GrantNumber) -> bool {
        if self.changes.contains_key(&on) {
            return false;
        }
        if self.ended.get(&on).is_some_and(|(ended, _)| number <= *ended) {
            return false;
        }
        let known = self.leases.entry(on).or_default();
        let is_newest = *known < number;
        *known = number.max(*known);
        is_newest
    }

    /// This client is about to change what the lease is on: it ends. Returns whether there was one.
    pub fn change_begins(&mut self, on: Leased) -> bool {
        *self.changes.entry(on).or_default() += 1;
        self.leases.remove(&on).is_some()
    }

    /// A change by this client was answered: its grants up to this number have ended. `sent` is the
    /// newest request that was sent. Returns whether a lease was used until now.
    pub fn change_ends(&mut self, on: Leased, number: GrantNumber, sent: u64) -> bool {
        if let Some(changes) = self.changes.get_mut(&on) {
            *changes -= 1;
            if *changes == 0 {
                self.changes.remove(&on);
            }
        }
        self.ended(on, number, sent)
    }

    /// Grants up to this number were recalled. `sent` is the newest request that was sent. Returns
    /// whether a lease was used until now.
    pub fn ended(&mut self, on: Leased, number: GrantNumber, sent: u64) -> bool {
        let (known, request) = self.ended.entry(on).or_default();
        (*known, *request) = (number.max(*known), sent.max(*request));
        let has_ended = self.leases.get(&on).is_some_and(|lease| *lease <= number);
        if has_ended {
            self.leases.remove(&on);
        }
        has_ended
    }

    /// All requests up to this one are answered: what they granted has arrived.
    pub fn answered_up_to(&mut self, request: u64) {
        self.ended.retain(|_, (_, sent)| *sent > request);
    }

    /// The server has answered a request: the time of the session ends then. It never goes back.
    pub fn renew(&mut self, until: Duration) {
        self.until = self.until.max(until);
    }

    /// Returns how long a lease lasts from `now` on, unless a recall comes; `None` if there is
    /// none.
    #[must_use]
    pub fn remaining(&self, on: Leased, now: Duration) -> Option<Duration> {
        let left = self.until.checked_sub(now).filter(|left| !left.is_zero())?;
        self.leases.contains_key(&on).then_some(left)
    }

    /// The session or its time is over. Returns what the leases were on that it had.
    pub fn lose_all(&mut self) -> Vec<Leased> {
        self.ended.clear();
        self.changes.clear();
        self.until = Duration::ZERO;
        self.leases.drain().map(|(on, _)| on).collect()
    }
}
