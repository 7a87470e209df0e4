//! The origin of a connection, and the peer that it proves to be.

use std::net::IpAddr;
use std::sync::Arc;

use pelago_wire::handshake::{RefusalCode, Refused};

use crate::clients::list::ClientList;
use crate::key::PublicKey;
use crate::link::Link;
use crate::session::Peer;
use crate::sessions::refused;
use crate::tls;

use super::reverse::Dialled;

/// The origin of a connection.
pub(super) enum Caller {
    /// A process of this machine, of this user.
    Local(u32),
    /// Another machine, at this address, whose key must be in the list.
    Far(IpAddr, Arc<ClientList>),
    /// The server of another site, to which this one has connected.
    Dialled(Dialled),
}

impl Caller {
    /// Returns the peer of a client's connection: its user, or the machine's key, which must be in
    /// the list.
    pub(super) fn peer(&self, link: &Link) -> Result<Peer, Refused> {
        match self {
            Self::Local(uid) => Ok(Peer::User(*uid)),
            Self::Far(_, clients) => match proved_key(link)? {
                key if clients.allows(&key) => Ok(Peer::Machine(key)),
                key => Err(Refused { text: key.to_string(), ..refused(RefusalCode::UnknownKey) }),
            },
            Self::Dialled(_) => {
                let text = "over this connection only the server of a site may ask".to_owned();
                Err(Refused { text, ..refused(RefusalCode::UnknownRole) })
            }
        }
    }

    /// Returns the key of a guest or of a site. Both must come over TLS: a process of this machine
    /// is known by its user.
    pub(super) fn presented_key(&self, link: &Link) -> Result<PublicKey, Refused> {
        match self {
            Self::Local(_) => {
                let text = "a guest or a site comes over TLS".to_owned();
                Err(Refused { text, ..refused(RefusalCode::UnknownRole) })
            }
            Self::Far(..) | Self::Dialled(_) => proved_key(link),
        }
    }

    /// Returns the address of another machine.
    pub(super) const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Local(_) => None,
            Self::Far(address, _) | Self::Dialled(Dialled { address, .. }) => Some(*address),
        }
    }
}

/// Returns the key that the other end has proved by TLS.
fn proved_key(link: &Link) -> Result<PublicKey, Refused> {
    let key = link.with_tls(|tls| tls::peer_key(tls)).flatten();
    key.ok_or_else(|| refused(RefusalCode::NotPelago))
}
