//! Tickets: the invitation of a site as one word, which a person sends and pastes.
//!
//! A ticket contains the private half of a key that is used once: with it the site's server signs
//! that its own key is the invited one. So a ticket is a secret until it was used.

use std::fmt;
use std::str::FromStr;

use pelago_keynote::{Credential, Principal, SiteInvitation, WriteError, hex};
use pelago_net::key::address::ServerAddress;
use pelago_net::key::{PrivateKey, PublicKey};

/// The beginning of each ticket, with the version of its form.
const BEGINNING: &str = "pelago-ticket:1";
/// Bytes of the signature at the end of a ticket. They make a cut ticket invalid.
const SUM_BYTES: usize = 8;

/// The invitation of a site.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// The number of the site.
    pub(crate) site: u16,
    /// The time from which the ticket is void, in seconds since 1970.
    pub(crate) until: u64,
    /// The id of the volume.
    pub(crate) volume: [u8; 16],
    /// The name of the site: letters, digits, `-` and `_`.
    pub(crate) name: String,
    /// The key that is used once.
    pub(crate) key: PrivateKey,
    /// The address of the inviting server, with its key.
    pub(crate) founder: ServerAddress,
}

/// The reason why a text is not a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TicketError {
    #[error("this is no ticket: one begins with `{BEGINNING}:`")]
    Beginning,
    #[error("the ticket is cut, or was changed")]
    Changed,
}

impl Ticket {
    /// Returns the credential by which the bearer of the ticket names the key of its server.
    ///
    /// # Errors
    /// [`WriteError`].
    pub(crate) fn sentence_for(&self, server: &PublicKey) -> Result<Vec<u8>, WriteError> {
        let invitation = SiteInvitation { volume: self.volume, site: self.site };
        let sentence = Credential {
            comment: &["the site that was invited has this key".to_owned()],
            licensee: Principal(*server.as_bytes()),
            conditions: &invitation.conditions(),
        };
        sentence.sign(&self.key.signing_key()).map(String::into_bytes)
    }

    fn without_sum(&self) -> String {
        let Self { site, until, volume, name, key, founder } = self;
        let secret = key.to_secret_text();
        let volume = hex::text(volume);
        format!("{BEGINNING}:{site}:{until}:{volume}:{name}:{secret}:{founder}")
    }

    fn sum(&self) -> String {
        let signature = self.key.signing_key().sign(self.without_sum().as_bytes());
        hex::text(&signature.as_ref()[..SUM_BYTES])
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.without_sum(), self.sum())
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let rest = text.strip_prefix(BEGINNING).and_then(|rest| rest.strip_prefix(':'));
        let rest = rest.ok_or(TicketError::Beginning)?;
        let (fields, sum) = rest.rsplit_once(':').ok_or(TicketError::Changed)?;
        let mut fields = fields.splitn(6, ':');
        let mut next = || fields.next().ok_or(TicketError::Changed);
        let ticket = Self {
            site: parsed(next()?)?,
            until: parsed(next()?)?,
            volume: hex::read(next()?).ok_or(TicketError::Changed)?,
            name: next()?.to_owned(),
            key: PrivateKey::from_secret_text(next()?).map_err(|_| TicketError::Changed)?,
            founder: parsed(next()?)?,
        };
        if ticket.sum() == sum { Ok(ticket) } else { Err(TicketError::Changed) }
    }
}

fn parsed<T: FromStr>(text: &str) -> Result<T, TicketError> {
    text.parse().map_err(|_| TicketError::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(host: &str) -> Ticket {
        let server = PrivateKey::from_seed([3; 32]).public();
        Ticket {
            site: 1,
            until: 1_800_000_000,
            volume: [0xab; 16],
            name: "berlin".to_owned(),
            key: PrivateKey::from_seed([7; 32]),
            founder: ServerAddress::new(server, host, 7440).unwrap(),
        }
    }

    #[test]
    fn a_ticket_survives_its_text() {
        for host in ["10.0.0.1", "office.example", "fe80::1"] {
            let text = ticket(host).to_string();
            let read: Ticket = format!(" {text}\n").parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(read.founder.host(), host);
        }
    }

    #[test]
    fn a_ticket_that_was_cut_or_changed_is_none() {
        let text = ticket("10.0.0.1").to_string();
        for cut in 0..text.len() {
            assert!(text[..cut].parse::<Ticket>().is_err(), "{cut}");
        }
        for (from, to) in [(":1:1800000000", ":2:1800000000"), ("berlin", "bonn"), ("7440", "744")]
        {
            let changed = text.replacen(from, to, 1);
            assert_eq!(changed.parse::<Ticket>().unwrap_err(), TicketError::Changed, "{to}");
        }
    }
}
