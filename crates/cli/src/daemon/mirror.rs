//! The connection to the volume's mirror, and the requests about the mirror.

use std::sync::Arc;
use std::time::Duration;

use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{Datagrams, MirrorConnection, RelayConnection, RepairMode};
use pelago_server::{
    Commit, MirrorPhase, MirrorProgress, Offer, RelayProgress, RelayedMirror, Server, Verified,
};
use pelago_store::folder::Folder;
use pelago_store::volume::VolumeId;
use pelago_wire::mirror::{GroupState, LinkError, MirrorLink};
use pelago_wire::relay::{RelayAnswer, RelayOffer, RelayRepair};
use pelago_wire::{Code, InodeId};

use super::Served;
use super::events::Stop;
use super::neighbours::key_of;
use crate::control::{ControlReply, VerifiedReport};
use crate::status_report::{DatagramLine, MirrorLine, RelayLine, VerifiedLine, link_text};

/// The answer of a volume without a mirror.
const NO_MIRROR: &str = "the volume has no mirror: `pelago site mirror`";
/// The longest time for which one request waits for the mirror; the command repeats the request.
const WAIT: Duration = Duration::from_secs(2);

/// Passes the server the functions that connect to its mirror and its relay: with datagrams, if
/// there are any. The process stops if the mirror was promoted.
pub(super) fn connect(
    folder: &Folder,
    server: &Server,
    datagrams: Option<Datagrams>,
    repair: RelayRepair,
    stop: Stop,
) {
    let of_relay = folder.clone();
    server.set_connect_relay(Arc::new(move |relayed, volume, offer| {
        offer_to_relay(&of_relay, relayed, volume, offer, repair)
    }));
    let folder = folder.clone();
    let connect = Arc::new(move |peer: &str, volume: VolumeId, offer: Offer| {
        offer_to(&folder, peer, volume, offer, datagrams.as_ref())
    });
    let on_replaced = Arc::new(move |_| stop.stop());
    if let Err(error) = server.set_connect_mirror(connect, on_replaced) {
        tracing::error!(%error, "the mirror gets nothing, because there is no thread for it");
    }
}

/// Returns the amount of repair packets that a relay is to send. It sends datagrams even if this
/// server sends none: level *network* is about them.
pub(super) const fn relay_repair(repair: Option<RepairMode>) -> RelayRepair {
    match repair {
        None | Some(RepairMode::Auto) => RelayRepair::Auto,
        Some(RepairMode::Full) => RelayRepair::Full,
        Some(RepairMode::Off) => RelayRepair::Off,
    }
}

/// Connects to a mirror with the key of the volume's server, and offers it the volume.
fn offer_to(
    folder: &Folder,
    peer: &str,
    volume: VolumeId,
    offer: Offer,
    datagrams: Option<&Datagrams>,
) -> Result<(Box<dyn MirrorLink>, GroupState), LinkError> {
    let refused = |why: &dyn std::fmt::Display| LinkError::Refused(why.to_string());
    let address: ServerAddress = peer.parse().map_err(|error| refused(&error))?;
    let key = key_of(folder).map_err(|error| refused(&error))?;
    let Offer { reign, run } = offer;
    let volume = volume.0;
    let (link, has) = match datagrams {
        None => MirrorConnection::connect(&key, &address, volume, reign, run)?,
        Some(datagrams) => {
            MirrorConnection::connect_with_datagrams(&key, &address, volume, reign, run, datagrams)?
        }
    };
    Ok((Box::new(link), has))
}

/// Connects to a relay with the key of the volume's server, and offers it the volume's groups.
fn offer_to_relay(
    folder: &Folder,
    relayed: &RelayedMirror,
    volume: VolumeId,
    offer: Offer,
    repair: RelayRepair,
) -> Result<RelayAnswer, LinkError> {
    let refused = |why: &dyn std::fmt::Display| LinkError::Refused(why.to_string());
    let relay: ServerAddress = relayed.relay.parse().map_err(|error| refused(&error))?;
    let key = key_of(folder).map_err(|error| refused(&error))?;
    let Offer { reign, run } = offer;
    let offer = RelayOffer { reign, run, mirror: relayed.mirror.clone(), repair };
    RelayConnection::connect(&key, &relay, volume.0, &offer)
}

/// Makes a server the mirror of the volume, and another one the relay to it unless that is empty,
/// if both can be reached and take this volume.
pub(super) fn set(parts: &Served, folder: &Folder, relayed: RelayedMirror) -> ControlReply {
    match try_set(parts, folder, relayed) {
        Ok(()) => ControlReply::MirrorSet,
        Err(why) => ControlReply::Failed(why),
    }
}

fn try_set(parts: &Served, folder: &Folder, relayed: RelayedMirror) -> Result<(), String> {
    let server = &parts.server;
    let present = server.mirror().map(|MirrorProgress { peer, relay, .. }| RelayedMirror {
        relay: relay.map(|relay| relay.address).unwrap_or_default(),
        mirror: peer,
    });
    if present.as_ref() == Some(&relayed) {
        return Ok(());
    }
    server.check_mirror(&relayed.mirror).map_err(|error| error.to_string())?;
    let offer = Offer { reign: server.reign(), run: [0; 16] };
    let volume = server.status().volume;
    if present.is_none() {
        // The server sends the volume over another connection.
        let link = offer_to(folder, &relayed.mirror, volume, offer, None);
        drop(link.map_err(|error| error.to_string())?);
    }
    if !relayed.relay.is_empty() {
        let answer = offer_to_relay(folder, &relayed, volume, offer, RelayRepair::Auto);
        // What a relay still has of an earlier run is on its way.
        drop(answer.map_err(|error| error.to_string())?);
    }
    server.set_relayed_mirror(&relayed).map_err(|error| error.to_string())
}

/// Gives up the mirror.
pub(super) fn end(server: &Server) -> ControlReply {
    match server.remove_mirror() {
        Ok(()) => ControlReply::MirrorSet,
        Err(error) => ControlReply::Failed(error.to_string()),
    }
}

/// Waits for a moment until the mirror has all changes that were done before a group commit, or
/// before now.
pub(super) fn wait(server: &Server, commit: Option<u64>) -> ControlReply {
    let commit = commit.map_or_else(|| server.next_commit(), |commit| Ok(Commit(commit)));
    let waited = commit.and_then(|commit| Ok((commit, server.wait_for_mirror(commit, WAIT)?)));
    match waited {
        Ok((commit, done)) => ControlReply::Mirrored { commit: commit.0, done },
        Err(error) if error.code == Code::NotSupported => {
            ControlReply::Failed(NO_MIRROR.to_owned())
        }
        Err(error) => ControlReply::Failed(error.to_string()),
    }
}

/// Begins to compare the mirror with the volume, or with this file or folder of it, or says how far
/// that is.
pub(super) fn verify(
    server: &Server,
    begin: bool,
    apply: bool,
    inode: Option<u64>,
) -> ControlReply {
    if begin && server.mirror().is_none() {
        return ControlReply::Failed(NO_MIRROR.to_owned());
    }
    let follows = |progress: MirrorProgress| progress.phase == MirrorPhase::Follows;
    if begin && !server.mirror().is_some_and(follows) {
        return ControlReply::Failed(
            "the mirror does not follow now, so it cannot be compared: `pelago status`".to_owned(),
        );
    }
    if begin {
        match server.verify_mirror(apply, inode.map(InodeId::from_raw)) {
            Ok(true) => {}
            Ok(false) => {
                return ControlReply::Failed("the mirror is being compared already".to_owned());
            }
            Err(error) => {
                let why =
                    format!("what has its home here can be compared, and this has not: {error}");
                return ControlReply::Failed(why);
            }
        }
    }
    ControlReply::Verified(server.verified().map(VerifiedReport::from))
}

/// Makes all that is done safe on this machine.
pub(super) fn make_safe(server: &Server) -> ControlReply {
    match server.make_safe() {
        Ok(()) => ControlReply::MadeSafe,
        Err(error) => ControlReply::Failed(error.to_string()),
    }
}

/// Returns the state of the mirror for `status`.
pub(super) fn line(server: &Server, datagrams: Option<&Datagrams>) -> Option<MirrorLine> {
    let link = datagrams.and_then(Datagrams::status);
    let verified = server.verified_whole().and_then(|verified| {
        let at = verified.finished?.seconds;
        let Verified { differences, repairs, .. } = verified;
        Some(VerifiedLine { at, differences, repaired: repairs })
    });
    server.mirror().map(|progress| MirrorLine {
        link: link.as_ref().map(link_text),
        datagrams: link.as_ref().map(DatagramLine::from),
        verified,
        relay: progress.relay.map(RelayLine::from),
        state: match &progress.phase {
            MirrorPhase::Connecting { problem: None } => "connecting".to_owned(),
            MirrorPhase::Connecting { problem: Some(why) } => format!("not connected: {why}"),
            MirrorPhase::Copying { sent } => {
                format!("copying all, {} sent", crate::output::bytes(*sent))
            }
            MirrorPhase::Comparing { rows, sent } => {
                let sent = crate::output::bytes(*sent);
                format!("comparing: {rows} rows are compared, {sent} sent")
            }
            MirrorPhase::Follows => "follows".to_owned(),
            MirrorPhase::Replaced { reign } => format!("promoted, with reign {reign}"),
        },
        follows: progress.phase == MirrorPhase::Follows,
        peer: progress.peer,
        reign: progress.reign,
        bytes_at_risk: progress.bytes_at_risk,
        ms_at_risk: u64::try_from(progress.time_at_risk.as_millis()).unwrap_or(u64::MAX),
        as_of: progress.as_of.map(|cut| cut.seconds),
        level: server.level().name().to_owned(),
        is_cut_off: progress.is_cut_off,
        waiting: progress.waiting as u64,
    })
}

impl From<RelayProgress> for RelayLine {
    fn from(progress: RelayProgress) -> Self {
        let RelayProgress { address, is_used, groups, bytes, problem } = progress;
        Self { address, used: is_used, groups: groups as u64, bytes, problem }
    }
}
