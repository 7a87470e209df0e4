//! The status of a volume, from the state of its server and its mount.

use std::time::Duration;

use pelago_http::HttpTraffic;
use pelago_mount::{Mount, NoRing};
use pelago_net::clients::KeyName;
use pelago_net::key::PublicKey;
use pelago_net::{Peer, SessionStatus};
use pelago_server::{
    HAS_SEARCH_INDEX, Indexing, MemoryUse, PassthroughStatus, Server, SiteStatus, SpaceStatus,
    WorkerStatus,
};
use pelago_store::table::Pressure;

use super::Served;
use super::neighbours::Neighbours;
use crate::control::{SiteLine, SitesReport};
use crate::key_names::KeyNames;
use crate::status_report::{
    DurabilityReport, GuardReport, HttpReport, MemoryReport, PassthroughReport, RecoveredReport,
    SessionReport, SpaceReport, StoreLine, TableReport, UpReport, WorkerReport,
};

/// The longest wait for the clocks of other sites.
const CLOCKS: Duration = Duration::from_secs(1);

/// Returns the state of the volume that this process serves.
pub(super) fn report(parts: &Served) -> UpReport {
    let status = parts.server.status();
    let mount = &parts.mount;
    let wanted = parts.passthrough;
    let inodes = mount.as_ref().map(|mount| MemoryUse {
        name: "INODE_TABLE_BYTES",
        limit: mount.inodes().limit_bytes(),
        used: mount.inodes().bytes(),
    });
    UpReport {
        pelago: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        dir: parts.dir.clone(),
        id: status.volume.to_string(),
        started_clean: status.started_clean,
        recovered: RecoveredReport {
            files: status.recovered.files,
            corrected: status.recovered.corrected,
            emptied: status.recovered.emptied,
            shortened: status.recovered.shortened,
            mended: status.recovered.mended,
            damaged: status.recovered.damaged,
        },
        mounted: mount.as_ref().map(|mount| mount.point().to_owned()),
        listening: parts.doors.address().map(|address| address.to_string()),
        http: parts.http.as_ref().map(|http| format!("http://{}/", http.address())),
        http_traffic: parts.http.as_ref().map(|http| traffic(http.traffic())),
        mirror: super::mirror::line(&parts.server, parts.datagrams.as_ref()),
        store: parts
            .server
            .store_servers()
            .map(|servers| StoreLine { folder: status.dir.clone(), servers }),
        sessions: sessions(parts),
        awaited_sessions: status.awaited_sessions,
        read_only: status.read_only,
        passthrough: PassthroughReport {
            wanted,
            why_not: why_not(status.passthrough, mount.as_deref()),
        },
        no_ring: mount.as_ref().and_then(|mount| no_ring(mount)),
        no_index: no_index(parts.indexing),
        outdated: parts.server.outdated(),
        guard: parts.guard.as_ref().map(|guard| GuardReport::from(guard.pid())),
        since: status.since.seconds,
        durability: DurabilityReport {
            done: status.progress.done,
            safe: status.progress.safe,
            sync_interval_ms: status.progress.sync_interval.as_millis() as u64,
            unsafe_for_ms: status.progress.unsafe_for.as_millis() as u64,
        },
        open_files: status.open_files,
        pending_closes: status.pending_closes,
        locks: status.locks,
        lock_waiters: status.lock_waiters,
        space: status.space.as_ref().map(space),
        memory: status.memory.iter().chain(&inodes).map(memory).collect(),
        workers: status.workers.iter().map(worker).collect(),
        table: TableReport {
            disk_bytes: status.table.disk_bytes,
            journal_bytes: status.table.journal_bytes,
            memory_bytes: status.table.memory_bytes,
            keeps_up: status.pressure == Pressure::None,
        },
    }
}

/// Returns the reason why bytes are copied through this process; `None` if passthrough works.
fn why_not(passthrough: PassthroughStatus, mount: Option<&Mount>) -> Option<String> {
    let Some(mount) = mount else {
        return Some("the volume is not mounted here".to_owned());
    };
    let why_not = match passthrough {
        PassthroughStatus::Available => {
            return mount.passthrough().err().map(|why_not| why_not.to_string());
        }
        PassthroughStatus::Refused => "asked for by --passthrough never",
        PassthroughStatus::NoRight => "passthrough needs root",
        PassthroughStatus::NoLeases => {
            "passthrough needs a plain file system below, which can tell who writes a file"
        }
    };
    Some(why_not.to_owned())
}

/// Returns the reason why requests come by the device; `None` if they come over io_uring.
pub(crate) fn no_ring(mount: &Mount) -> Option<String> {
    match mount.ring() {
        Ok(()) => None,
        Err(NoRing::NotWanted) => Some("asked for by --io-uring never".to_owned()),
        Err(no_ring) => Some(no_ring.to_string()),
    }
}

/// Returns the reason why there is never a search index; `None` if there may be one.
fn no_index(indexing: Indexing) -> Option<String> {
    let why = match indexing {
        _ if !HAS_SEARCH_INDEX => "this pelago was built without the feature `search`",
        Indexing::Never => "asked for by --no-find",
        Indexing::Auto | Indexing::Always => return None,
    };
    Some(why.to_owned())
}

/// Returns the mounts of others. A list of names that cannot be read names none of them.
fn sessions(parts: &Served) -> Vec<SessionReport> {
    let sessions = parts.doors.sessions.status();
    let names = if sessions.is_empty() { None } else { KeyNames::of(&parts.dir).ok() };
    sessions.iter().map(|each| session(each, names.as_ref())).collect()
}

fn session(each: &SessionStatus, names: Option<&KeyNames>) -> SessionReport {
    let key = match each.peer {
        Peer::Machine(key) => Some(key),
        Peer::Guest(grant) => Some(PublicKey::new(grant.principal)),
        Peer::User(_) | Peer::Site(_) => None,
    };
    SessionReport {
        name: key.and_then(|key| names?.name(&key)).map(KeyName::to_string),
        id: format!("{:x}", each.id.0),
        peer: match each.peer {
            Peer::User(uid) => format!("user {uid}"),
            Peer::Machine(key) => key.to_string(),
            Peer::Site(peer) => format!("site {}", peer.site),
            Peer::Guest(grant) => format!("guest {}", PublicKey::new(grant.principal)),
        },
        connected: each.connected,
        silent_ms: u64::try_from(each.silent.as_millis()).unwrap_or(u64::MAX),
        running: each.running as u64,
    }
}

const fn traffic(traffic: HttpTraffic) -> HttpReport {
    HttpReport {
        disk_bytes: traffic.disk_bytes,
        served_bytes: traffic.served_bytes,
        extents_read: traffic.extents_read,
        extents_in_memory: traffic.extents_in_memory,
        askers: traffic.askers,
        clients: traffic.clients,
        files: traffic.files,
    }
}

fn memory(each: &MemoryUse) -> MemoryReport {
    MemoryReport { name: each.name.to_owned(), used: each.used, limit: each.limit }
}

fn worker(each: &WorkerStatus) -> WorkerReport {
    WorkerReport {
        name: each.name.to_owned(),
        doing: format!("{:?}", each.doing).to_lowercase(),
        items: each.items,
        last_error: each.last_error.map(|error| error.to_string()),
    }
}

fn space(space: &SpaceStatus) -> SpaceReport {
    let block = u64::from(space.disk.block_bytes);
    SpaceReport {
        bytes: space.disk.blocks.saturating_mul(block),
        available_bytes: space.disk.available.saturating_mul(block),
        holds_reserve: space.holds_reserve,
        is_short: space.is_short,
    }
}

/// Returns the other sites of the volume, after each that can be reached was asked for its clock.
pub(super) fn sites(server: &Server, neighbours: &Neighbours) -> SitesReport {
    server.ask_clocks(CLOCKS);
    let line = |site: SiteStatus| {
        let remote = neighbours.status_of(site.site);
        let clock = site.clock;
        SiteLine {
            site: site.site,
            name: site.name,
            has_joined: site.has_joined,
            key: site.key.map(|key| PublicKey::new(key).to_string()).unwrap_or_default(),
            address: site.address,
            connected: remote.is_some_and(|remote| remote.connected),
            round_trip: remote.and_then(|remote| remote.round_trip),
            wire: remote.and_then(|remote| remote.wire),
            clock_ms: clock.as_ref().map(|clock| clock.ahead_ms),
            pelago: clock.map(|clock| clock.program),
            requests: site.requests,
            stale_answers: site.stale_answers,
            unfinished: site.unfinished as u64,
            token: site.token,
            older_ms: site.older_seen.map(|ago| ago.as_millis() as u64),
            silent_ms: site.silence.map(|silence| silence.as_millis() as u64),
        }
    };
    let copies = server.copies();
    let stays = server.stays();
    SitesReport {
        own: server.site(),
        outdated: server.outdated(),
        others: server.sites().into_iter().map(line).collect(),
        copied_files: copies.files as u64,
        copied_bytes: copies.bytes,
        cache_bytes: copies.budget,
        staying_files: stays.files as u64,
        untold_files: stays.untold as u64,
        kept_versions: stays.kept as u64,
    }
}
