//! Room for a session that begins: the limits of the number of sessions, and the unused session
//! that ends if one is reached.

use std::collections::HashMap;
use std::sync::Arc;

use pelago_wire::handshake::{RefusalCode, Refused};
use pelago_wire::{SessionId, limits};

use super::refused;
use crate::session::{Peer, Session};

/// A limit of the number of sessions.
struct Share<'a> {
    /// Returns whether a session counts.
    counts: &'a dyn Fn(&Session) -> bool,
    most: usize,
    /// The refusal if none of them can end.
    code: RefusalCode,
}

/// Makes room for a session of this peer, by the end of a session that was never used and has no
/// connection: one of the same peer if that has its share, otherwise any; for a guest only one of a
/// guest. A session that was used stays for its term, because its client may rely on its locks.
/// Returns the removed sessions, which the service must be told to end.
pub(super) fn make_room(
    table: &mut HashMap<SessionId, Arc<Session>>,
    peer: Peer,
) -> Result<Vec<Arc<Session>>, Refused> {
    let credential = peer.grant().map(|grant| grant.first);
    let is_own = |session: &Session| session.peer() == peer;
    let has_same_credential =
        |session: &Session| session.peer().grant().map(|grant| grant.first) == credential;
    let is_guest = |session: &Session| session.peer().grant().is_some();
    let of_peer =
        Share { counts: &is_own, most: limits::PEER_SESSIONS, code: RefusalCode::TooManyOfPeer };
    let of_credential = Share {
        counts: &has_same_credential,
        most: limits::CREDENTIAL_SESSIONS,
        code: RefusalCode::TooManyOfPeer,
    };
    let of_guests = Share {
        counts: &is_guest,
        most: limits::GUEST_SESSIONS,
        code: RefusalCode::TooManySessions,
    };
    let of_all =
        Share { counts: &|_| true, most: limits::SESSIONS, code: RefusalCode::TooManySessions };
    let shares = match credential {
        Some(_) => vec![of_peer, of_credential, of_guests],
        None => vec![of_peer, of_all],
    };
    let is_full = |share: &Share<'_>| {
        table.values().filter(|session| (share.counts)(session)).count() >= share.most
    };
    let Some(share) = shares.into_iter().find(is_full) else {
        return match credential {
            Some(_) if table.len() >= limits::SESSIONS => {
                Err(refused(RefusalCode::TooManySessions))
            }
            _ => Ok(Vec::new()),
        };
    };
    let unused = table.values().filter(|session| (share.counts)(session) && session.is_unused());
    let mut unused: Vec<SessionId> = unused.map(|session| session.id).collect();
    unused.sort_unstable();
    // Its client may use it in this instant.
    let ended = unused.into_iter().find(|id| table.get(id).is_some_and(|s| s.end_unused()));
    match ended.and_then(|id| table.remove(&id)) {
        Some(session) => Ok(vec![session]),
        None => Err(refused(share.code)),
    }
}
