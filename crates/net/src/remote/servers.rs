//! The servers of a shared store that a client knows, and the order in which it tries them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::key::address::ServerAddress;

/// The servers of a session's store, as an owner has listed them.
#[derive(Debug, Default)]
pub(super) struct StoreServers {
    /// The last list of an owner; empty before the first one.
    pub(super) listed: Vec<ServerAddress>,
    /// When the list was requested over the present connection, by
    /// [`boot_time`](crate::clock::boot_time).
    pub(super) requested: Option<Duration>,
    /// The news that the connector has not taken yet.
    news: StoreNews,
}

/// News of the owner from a connection that has ended.
#[derive(Debug, Default)]
pub(super) struct StoreNews {
    /// The address of the next owner, as the server has named it.
    pub(super) owner: Option<String>,
    /// The server was silent for too long.
    pub(super) was_silent: bool,
}

impl StoreServers {
    /// Forgets the request over the last connection: it gets no answer.
    pub(super) fn begin_connection(&mut self) {
        self.requested = None;
    }

    /// Records that the server is silent.
    pub(super) fn note_silence(&mut self) {
        self.news.was_silent = true;
    }

    /// Records the next owner that a server has named; an empty text names none.
    pub(super) fn note_owner(&mut self, text: String) {
        self.news.owner = Some(text);
    }

    /// Returns the listed servers, and the news since the last call.
    pub(super) fn take(&mut self) -> (Vec<ServerAddress>, StoreNews) {
        (self.listed.clone(), std::mem::take(&mut self.news))
    }
}

/// The order in which servers are tried.
#[derive(Debug)]
pub(super) struct ServerOrder {
    /// The server that the user has named.
    first: ServerAddress,
    /// The server that gave a session last.
    last: Option<ServerAddress>,
    /// The servers that did not answer when they were tried last, or were silent.
    silent: Vec<ServerAddress>,
}

/// The reason for which a client does not follow a redirect.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RedirectError {
    #[error("it does not know the owner")]
    Unknown,
    #[error("it names {0:?}, which is no address")]
    NoAddress(String),
    #[error("it names {0}, which is no server of the store")]
    OtherKey(ServerAddress),
}

impl ServerOrder {
    pub(super) const fn new(first: ServerAddress) -> Self {
        Self { first, last: None, silent: Vec::new() }
    }

    /// Returns the servers to try, each once: first the owner that was named, then the server of
    /// the last session, then all others. The silent ones come last.
    pub(super) fn begin(
        &mut self,
        listed: &[ServerAddress],
        news: &StoreNews,
    ) -> VecDeque<ServerAddress> {
        if news.was_silent {
            let last = self.last.clone();
            last.iter().for_each(|last| self.note_silent(last));
        }
        let named = news.owner.as_deref().and_then(|text| self.follow(listed, text).ok());
        let all = named.iter().chain(&self.last).chain([&self.first]).chain(listed);
        let mut order: Vec<ServerAddress> = Vec::new();
        for address in all {
            if !order.contains(address) {
                order.push(address.clone());
            }
        }
        order.sort_by_key(|address| self.silent.contains(address));
        order.into()
    }

    /// Returns the address in the first line of a redirect. Once servers are listed, its key must
    /// be that of a listed server, or of the server that the user has named. Before that any
    /// address is followed: the server that sent it has proved a key that the user, or such a
    /// server, has named.
    pub(super) fn follow(
        &self,
        listed: &[ServerAddress],
        text: &str,
    ) -> Result<ServerAddress, RedirectError> {
        let line = text.lines().next().unwrap_or_default().trim();
        if line.is_empty() {
            return Err(RedirectError::Unknown);
        }
        let no_address = |_| RedirectError::NoAddress(line.to_owned());
        let address: ServerAddress = line.parse().map_err(no_address)?;
        let mut known = listed.iter().chain([&self.first]);
        if listed.is_empty() || known.any(|known| known.key() == address.key()) {
            Ok(address)
        } else {
            Err(RedirectError::OtherKey(address))
        }
    }

    /// Records that a server did not answer.
    pub(super) fn note_silent(&mut self, address: &ServerAddress) {
        if !self.silent.contains(address) {
            self.silent.push(address.clone());
        }
    }

    /// Records that a server has given a session.
    pub(super) fn note_connected(&mut self, address: ServerAddress) {
        self.silent.clear();
        self.last = Some(address);
    }

    /// Returns the server that gave a session last.
    pub(super) const fn last(&self) -> Option<&ServerAddress> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PrivateKey;

    fn at(number: u8) -> ServerAddress {
        let key = PrivateKey::from_seed([number; 32]).public();
        ServerAddress::new(key, "host", 7000 + u16::from(number)).unwrap_or_else(|_| unreachable!())
    }

    fn order(turn: &mut ServerOrder, listed: &[ServerAddress], news: &StoreNews) -> Vec<u16> {
        turn.begin(listed, news).iter().map(|address| address.port() - 7000).collect()
    }

    #[test]
    fn servers_are_tried_once_each_and_the_likeliest_first() {
        let listed = [at(1), at(2), at(3), at(4)];
        let mut turn = ServerOrder::new(at(1));
        assert_eq!(order(&mut turn, &[], &StoreNews::default()), [1]);
        assert_eq!(order(&mut turn, &listed, &StoreNews::default()), [1, 2, 3, 4]);
        turn.note_connected(at(3));
        assert_eq!(order(&mut turn, &listed, &StoreNews::default()), [3, 1, 2, 4]);
        let named = StoreNews { owner: Some(at(4).to_string()), was_silent: false };
        assert_eq!(order(&mut turn, &listed, &named), [4, 3, 1, 2]);
        let silent = StoreNews { owner: None, was_silent: true };
        assert_eq!(order(&mut turn, &listed, &silent), [1, 2, 4, 3], "the silent one is last");
        turn.note_silent(&at(1));
        assert_eq!(order(&mut turn, &listed, &StoreNews::default()), [2, 4, 3, 1]);
        turn.note_connected(at(1));
        assert_eq!(order(&mut turn, &listed, &StoreNews::default()), [1, 2, 3, 4]);
    }

    #[test]
    fn only_listed_keys_are_followed_once_there_is_a_list() {
        let turn = ServerOrder::new(at(1));
        let stranger = at(9).to_string();
        assert_eq!(turn.follow(&[], &stranger), Ok(at(9)), "the server has proved its key");
        let listed = [at(2)];
        assert_eq!(turn.follow(&listed, &stranger), Err(RedirectError::OtherKey(at(9))));
        let two_lines = format!("{}\nmore for people", at(2));
        assert_eq!(turn.follow(&listed, &two_lines), Ok(at(2)));
        assert_eq!(turn.follow(&listed, &at(1).to_string()), Ok(at(1)), "the user's own");
        let moved = format!("{}@elsewhere:1", at(2).key());
        assert!(turn.follow(&listed, &moved).is_ok_and(|address| address.host() == "elsewhere"));
        assert_eq!(turn.follow(&listed, ""), Err(RedirectError::Unknown));
        let nonsense = "no address".to_owned();
        assert_eq!(turn.follow(&[], &nonsense), Err(RedirectError::NoAddress(nonsense.clone())));
    }
}
