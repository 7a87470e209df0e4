//! Strangers: connections that have no session yet. Their number is limited, and a new one evicts
//! an old one.
//!
//! A connection costs its other end nothing, so that the newest one is never refused: a correct
//! client finishes its handshake within milliseconds, and only a bad one stays until it is the
//! oldest. Each source has a share. If there are too many in all, the source with most connections
//! loses its oldest one, so that many connections of one source do not keep out another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use pelago_wire::limits;

/// The source of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A user of this machine.
    User(u32),
    /// An address, or with IPv6 the network of 2⁶⁴ addresses that one machine may have.
    Address(IpAddr),
}

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            address => address,
        })
    }
}

/// The place of a connection among the strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    source: Source,
    /// Numbers rise in the order of the connections.
    number: u64,
}

/// The connections without a session, oldest first for each source.
pub(crate) struct Strangers<T> {
    next: u64,
    count: usize,
    sources: HashMap<Source, BTreeMap<u64, T>>,
}

impl<T> Strangers<T> {
    pub(crate) fn new() -> Self {
        Self { next: 0, count: 0, sources: HashMap::new() }
    }

    /// Adds a connection. Returns its ticket, and the connection that is evicted for it.
    pub(crate) fn enter(&mut self, source: Source, connection: T) -> (Ticket, Option<T>) {
        let own = self.sources.get(&source).map_or(0, BTreeMap::len);
        let evicted = if own >= limits::SOURCE_STRANGERS {
            self.evict(source)
        } else if self.count >= limits::STRANGERS {
            let rank = |connections: &BTreeMap<u64, T>| {
                (connections.len(), Reverse(connections.first_key_value().map(|(first, _)| *first)))
            };
            let most = self.sources.iter().max_by_key(|(_, connections)| rank(connections));
            most.map(|(source, _)| *source).and_then(|source| self.evict(source))
        } else {
            None
        };
        let number = self.next;
        self.next += 1;
        self.count += 1;
        self.sources.entry(source).or_default().insert(number, connection);
        (Ticket { source, number }, evicted)
    }

    /// Removes a connection that has a session now, or has ended. An evicted one was removed
    /// before.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        self.take(ticket.source, |connections| connections.remove(&ticket.number));
    }

    fn evict(&mut self, source: Source) -> Option<T> {
        self.take(source, |connections| connections.pop_first().map(|(_, oldest)| oldest))
    }

    fn take(
        &mut self,
        source: Source,
        take: impl FnOnce(&mut BTreeMap<u64, T>) -> Option<T>,
    ) -> Option<T> {
        let connections = self.sources.get_mut(&source)?;
        let taken = take(connections)?;
        self.count -= 1;
        if connections.is_empty() {
            self.sources.remove(&source);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn address(number: u32) -> Source {
        Source::of(IpAddr::V4(number.into()))
    }

    #[test]
    fn the_oldest_of_a_full_source_makes_room() {
        let mut strangers = Strangers::new();
        let share = limits::SOURCE_STRANGERS as u64;
        let tickets: Vec<Ticket> = (0..share)
            .map(|number| {
                let (ticket, evicted) = strangers.enter(Source::User(0), number);
                assert_eq!(evicted, None);
                ticket
            })
            .collect();
        // The oldest has its session: the next one of it goes.
        strangers.leave(tickets[0]);
        assert_eq!(strangers.enter(Source::User(0), 1000).1, None);
        assert_eq!(strangers.enter(Source::User(0), 1001).1, Some(1));
        // An evicted one leaves too, once its connection has ended.
        strangers.leave(tickets[1]);
        assert_eq!(strangers.enter(Source::User(0), 1002).1, Some(2));
        assert_eq!(strangers.enter(Source::User(1), 0).1, None);
        assert_eq!(strangers.count, limits::SOURCE_STRANGERS + 1);
    }

    #[test]
    fn many_connections_of_one_source_keep_out_no_other() {
        let mut strangers = Strangers::new();
        let (_, good) = strangers.enter(address(1), "good");
        assert_eq!(good, None);
        for _ in 0..10_000 {
            let (_, evicted) = strangers.enter(address(2), "bad");
            assert_ne!(evicted, Some("good"));
        }
        assert_eq!(strangers.sources[&address(2)].len(), limits::SOURCE_STRANGERS);
    }

    #[test]
    fn beyond_the_total_the_source_with_most_loses_one() {
        let mut strangers = Strangers::new();
        let mut waiting = BTreeSet::new();
        for number in 0..1000_u32 {
            // Half of them come from one source, the others each from another one.
            let source = if number % 2 == 0 { address(0) } else { address(number) };
            waiting.insert((source == address(0), number));
            let evicted = strangers.enter(source, (source == address(0), number)).1;
            if let Some(evicted) = evicted {
                assert!(waiting.remove(&evicted));
            }
            assert!(strangers.count <= limits::STRANGERS);
        }
        let crowd = waiting.iter().filter(|(is_crowd, _)| *is_crowd).count();
        assert!(crowd <= 2, "{crowd} of the crowd, and so many others had to go");
    }

    #[test]
    fn the_addresses_of_one_machine_are_one_source() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }

    #[test]
    fn a_ticket_is_used_once() {
        let mut strangers = Strangers::new();
        let (ticket, _) = strangers.enter(Source::User(0), ());
        strangers.leave(ticket);
        strangers.leave(ticket);
        assert!(strangers.count == 0 && strangers.sources.is_empty());
    }
}
