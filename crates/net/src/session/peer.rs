//! The peer of a session: the user, machine, guest or site at the other end of its connections.

use std::time::Duration;

use pelago_wire::handshake::Hello;
use pelago_wire::{GuestGrant, RecordedPeer, SitePeer, limits};

use crate::key::PublicKey;

/// The user, machine, guest or site at the other end of a connection. A session has one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process of this machine, of this user.
    User(u32),
    /// A machine with this key.
    Machine(PublicKey),
    /// A guest with this grant. With another grant it is another peer, which cannot use the open
    /// files of this one.
    Guest(GuestGrant),
    /// The server of another site of the volume.
    Site(SitePeer),
}

impl Peer {
    /// Returns the peer of a session that an earlier run has recorded; `None` if its client has no
    /// connection of its own.
    pub(crate) const fn of_record(peer: RecordedPeer) -> Option<Self> {
        match peer {
            RecordedPeer::User(uid) => Some(Self::User(uid)),
            RecordedPeer::Machine(key) => Some(Self::Machine(PublicKey::new(key))),
            // No row has the grant.
            RecordedPeer::Guest(principal) => {
                let chain = GuestGrant::NO_CHAIN;
                let grant =
                    GuestGrant { principal, first: chain, chain, address: None, ends: None };
                Some(Self::Guest(grant))
            }
            RecordedPeer::Site(peer) => Some(Self::Site(peer)),
            RecordedPeer::Origin { .. } => None,
        }
    }

    /// Returns the grant of a guest.
    pub(crate) const fn grant(&self) -> Option<&GuestGrant> {
        match self {
            Self::Guest(grant) => Some(grant),
            Self::User(_) | Self::Machine(_) | Self::Site(_) => None,
        }
    }

    /// Returns the peer by which memory and trust are counted: a guest is its key, whatever chain
    /// it presents, because it can sign more.
    pub(crate) const fn identity(self) -> Self {
        match self {
            Self::Guest(GuestGrant { principal, .. }) => {
                let first = GuestGrant::NO_CHAIN;
                let chain = GuestGrant::NO_CHAIN;
                Self::Guest(GuestGrant { principal, first, chain, address: None, ends: None })
            }
            Self::User(_) | Self::Machine(_) | Self::Site(_) => self,
        }
    }

    /// Returns the role that its hello must name.
    pub(crate) const fn role(&self) -> u16 {
        match self {
            Self::User(_) | Self::Machine(_) => Hello::CLIENT,
            Self::Guest(_) => Hello::GUEST,
            Self::Site(_) => Hello::SITE,
        }
    }

    /// Returns for how long its leases last, at a server whose leases last for `lease`. A guest's
    /// last shorter, because a stranger that is silent must not delay others for long.
    pub(crate) fn lease(&self, lease: Duration) -> Duration {
        match self {
            Self::User(_) | Self::Machine(_) | Self::Site(_) => lease,
            Self::Guest(_) => lease.min(limits::GUEST_LEASE),
        }
    }
}

impl From<Peer> for RecordedPeer {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::User(uid) => Self::User(uid),
            Peer::Machine(key) => Self::Machine(*key.as_bytes()),
            Peer::Guest(grant) => Self::Guest(grant.principal),
            Peer::Site(peer) => Self::Site(peer),
        }
    }
}
