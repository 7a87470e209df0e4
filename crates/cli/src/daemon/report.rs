//! What a volume that is up says of itself: one object, for `status` and for programs.

use pelago_mount::Mount;
use pelago_server::{MemoryUse, PassthroughStatus, SpaceStatus, Status};
use pelago_store::table::Pressure;
use serde_json::{Value, json};

use super::way::{self, Passthrough};
use crate::json;

/// The object.
pub(crate) fn describe(status: &Status, mount: &Mount, wanted: Passthrough) -> Value {
    let why_not = why_not(status.passthrough, mount);
    let inodes = MemoryUse {
        name: "INODE_TABLE_BYTES",
        limit: mount.inodes().limit_bytes(),
        used: mount.inodes().bytes(),
    };
    let memory: Vec<Value> = status
        .memory
        .iter()
        .chain([&inodes])
        .map(|each| json!({ "name": each.name, "used": each.used, "limit": each.limit }))
        .collect();
    let workers: Vec<Value> = status
        .workers
        .iter()
        .map(|each| {
            json!({
                "name": each.name,
                "doing": format!("{:?}", each.doing).to_lowercase(),
                "items": each.items,
                "last_error": each.last_error.map(|error| error.to_string()),
            })
        })
        .collect();
    json!({
        "version": json::VERSION,
        "state": "up",
        "pelago": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "volume": {
            "dir": status.dir.to_string_lossy(),
            "id": status.volume.to_string(),
            "started_clean": status.started_clean,
            "recovered": {
                "files": status.recovered.files,
                "corrected": status.recovered.corrected,
                "damaged": status.recovered.damaged,
            },
        },
        "mounted": mount.point().to_string_lossy(),
        "read_only": status.read_only,
        "data_path": if why_not.is_none() { "passthrough" } else { "daemon" },
        "passthrough": way::describe(wanted, why_not.as_deref()),
        "since": status.since.seconds,
        "progress": {
            "done": status.progress.done,
            "safe": status.progress.safe,
            "sync_interval_ms": status.progress.sync_interval.as_millis() as u64,
            "unsafe_for_ms": status.progress.unsafe_for.as_millis() as u64,
        },
        "open_files": status.open_files,
        "lingering_files": status.lingering_files,
        "space": status.space.as_ref().map(space),
        "memory": memory,
        "workers": workers,
        "table": {
            "disk_bytes": status.table.disk_bytes,
            "journal_bytes": status.table.journal_bytes,
            "memory_bytes": status.table.memory_bytes,
            "keeps_up": status.pressure == Pressure::None,
        },
    })
}

/// Why bytes go through this process, if they do.
fn why_not(handed_out: PassthroughStatus, mount: &Mount) -> Option<String> {
    let why_not = match handed_out {
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

fn space(space: &SpaceStatus) -> Value {
    let block = u64::from(space.medium.block_bytes);
    json!({
        "bytes": space.medium.blocks.saturating_mul(block),
        "available_bytes": space.medium.available.saturating_mul(block),
        "holds_reserve": space.holds_reserve,
        "is_short": space.is_short,
    })
}
