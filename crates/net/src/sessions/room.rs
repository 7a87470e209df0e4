//! Room for a session that begins.

use std::collections::HashMap;
use std::sync::Arc;

use pelago_wire::handshake::{RefusalCode, Refused};
use pelago_wire::{SessionId, limits};

use super::refused;
use crate::session::{Peer, Session};

/// Makes room for a session of this peer, at the cost of one that its client has never used and has
/// no connection to: of the same peer if it has its share, else of any. A session that was used
/// stays for its term, because its client may rely on the locks that it has. Returns what was
/// removed; the service is to be told.
pub(super) fn make_room(
    table: &mut HashMap<SessionId, Arc<Session>>,
    peer: Peer,
) -> Result<Vec<Arc<Session>>, Refused> {
    let own = table.values().filter(|session| session.peer == peer).count();
    let is_full = table.len() >= limits::SESSIONS;
    if own < limits::PEER_SESSIONS && !is_full {
        return Ok(Vec::new());
    }
    let has_share = own >= limits::PEER_SESSIONS;
    let mut unused: Vec<SessionId> = table
        .values()
        .filter(|session| !has_share || session.peer == peer)
        .filter(|session| session.is_unused())
        .map(|session| session.id)
        .collect();
    unused.sort_unstable();
    // Its client may use it in this instant.
    let ended = unused.into_iter().find(|id| table.get(id).is_some_and(|s| s.end_unused()));
    match ended.and_then(|id| table.remove(&id)) {
        Some(session) => Ok(vec![session]),
        None if has_share => Err(refused(RefusalCode::TooManyOfPeer)),
        None => Err(refused(RefusalCode::TooManySessions)),
    }
}
