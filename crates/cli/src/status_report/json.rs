//! Encoding and decoding of a status in JSON. Mirrors, standby and the store are in files beside
//! this one.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    DownReport, DurabilityReport, FarReport, GuardReport, HttpReport, MemoryReport,
    PassthroughReport, RecoveredReport, SessionReport, SpaceReport, StatusReport, TableReport,
    UpReport, WorkerReport,
};
use crate::data_path::Passthrough;
use crate::json::VERSION;

/// A value that can be read from JSON.
pub(crate) trait FromJson: Sized {
    /// Decodes the value; `None` if a required field is missing or has another type. Unknown fields
    /// are ignored, because a newer pelago may send more.
    fn from_json(value: &Value) -> Option<Self>;
}

/// Decodes one field. A missing field counts as null, which only an `Option` accepts.
fn field<T: FromJson>(object: &Value, key: &str) -> Option<T> {
    T::from_json(&object[key])
}

impl StatusReport {
    /// Returns the object of `status --json`.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Up(report) => report.to_json(),
            Self::Far(report) => report.to_json(),
            Self::Mirrors(report) => report.to_json(),
            Self::Relay(report) => report.to_json(),
            Self::Standby(report) => report.to_json(),
            Self::StoreServerDown { dir, store } => json!({
                "version": VERSION, "state": "down", "dir": text(dir), "store": text(store)
            }),
            Self::MirrorsDown(dir) | Self::RelayDown(dir) => {
                json!({ "version": VERSION, "state": "down", "dir": text(dir) })
            }
            Self::Down(report) => report.to_json(),
        }
    }
}

impl UpReport {
    /// Returns the object of `up --json` and of `status --json`.
    pub(crate) fn to_json(&self) -> Value {
        let memory: Vec<Value> = self.memory.iter().map(MemoryReport::to_json).collect();
        let workers: Vec<Value> = self.workers.iter().map(WorkerReport::to_json).collect();
        let sessions: Vec<Value> = self.sessions.iter().map(SessionReport::to_json).collect();
        json!({
            "version": VERSION,
            "state": "up",
            "pelago": self.pelago,
            "pid": self.pid,
            "volume": {
                "dir": text(&self.dir),
                "id": self.id,
                "started_clean": self.started_clean,
                "recovered": self.recovered.to_json(),
            },
            "mounted": self.mounted.as_deref().map(text),
            "listening": self.listening,
            "http": self.http,
            "http_traffic": self.http_traffic.map(HttpReport::to_json),
            "mirror": self.mirror.as_ref().map(|mirror| mirror.to_json()),
            "store": self.store.as_ref().map(|store| store.to_json()),
            "sessions": sessions,
            "awaited_sessions": self.awaited_sessions,
            "read_only": self.read_only,
            "data_path": self.passthrough.data_path(),
            "passthrough": self.passthrough.to_json(),
            "requests_by": requests_by(self.no_ring.as_deref()),
            "no_io_uring": self.no_ring,
            "no_search_index": self.no_index,
            "outdated": self.outdated,
            "guard": self.guard.as_ref().and_then(GuardReport::pid),
            "no_guard": self.guard.as_ref().and_then(GuardReport::why_not),
            "since": self.since,
            "durability": self.durability.to_json(),
            // The old name; to be removed in the release after 0.1.0.
            "progress": self.durability.to_json(),
            "open_files": self.open_files,
            "pending_closes": self.pending_closes,
            // The old name; to be removed in the release after 0.1.0.
            "lingering_files": self.pending_closes,
            "locks": self.locks,
            "lock_waiters": self.lock_waiters,
            "space": self.space.map(SpaceReport::to_json),
            "memory": memory,
            "workers": workers,
            "table": self.table.to_json(),
        })
    }
}

impl FarReport {
    /// Returns the object of `mount --json` and of `status --json`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "version": VERSION,
            "state": "mounted",
            "pelago": self.pelago,
            "pid": self.pid,
            "server": self.server,
            "mounted": text(&self.mounted),
            "read_only": self.read_only,
            "requests_by": requests_by(self.no_ring.as_deref()),
            "no_io_uring": self.no_ring,
            "guard": self.guard.pid(),
            "no_guard": self.guard.why_not(),
            "session": self.session,
            "connected": self.connected,
            "silent_ms": self.silent_ms,
            "waiting": self.waiting,
            "connections": self.connections,
            "requests": self.requests,
            "locks_lost": self.locks_lost,
            "lost_writes": self.lost_writes,
        })
    }
}

impl FromJson for FarReport {
    fn from_json(value: &Value) -> Option<Self> {
        if value["state"] != "mounted" {
            return None;
        }
        Some(Self {
            pelago: field(value, "pelago")?,
            pid: field(value, "pid")?,
            server: field(value, "server")?,
            mounted: field(value, "mounted")?,
            read_only: field(value, "read_only")?,
            no_ring: field(value, "no_io_uring")?,
            guard: GuardReport::read(value)?.unwrap_or_else(GuardReport::unknown),
            session: field(value, "session")?,
            connected: field(value, "connected")?,
            silent_ms: field(value, "silent_ms")?,
            waiting: field(value, "waiting")?,
            connections: field(value, "connections")?,
            requests: field(value, "requests")?,
            locks_lost: field(value, "locks_lost")?,
            lost_writes: field(value, "lost_writes")?,
        })
    }
}

impl GuardReport {
    const fn pid(&self) -> Option<u32> {
        match self {
            Self::Process(pid) => Some(*pid),
            Self::Missing(_) => None,
        }
    }

    /// Returns the reason why there is no guard.
    pub(super) fn why_not(&self) -> Option<&str> {
        match self {
            Self::Process(_) => None,
            Self::Missing(why) => Some(why),
        }
    }

    /// Decodes the guard of a mount from the object of its status; `Some(None)` if the object says
    /// nothing about a guard.
    fn read(status: &Value) -> Option<Option<Self>> {
        let process: Option<u32> = field(status, "guard")?;
        let why_not: Option<String> = field(status, "no_guard")?;
        Some(process.map(Self::Process).or_else(|| why_not.map(Self::Missing)))
    }

    /// Returns the report for a mount of an older pelago, which has no guards.
    fn unknown() -> Self {
        Self::Missing("the mount's pelago is an older one".to_owned())
    }
}

impl FromJson for UpReport {
    fn from_json(value: &Value) -> Option<Self> {
        if value["state"] != "up" {
            return None;
        }
        let volume = &value["volume"];
        Some(Self {
            pelago: field(value, "pelago")?,
            pid: field(value, "pid")?,
            dir: field(volume, "dir")?,
            id: field(volume, "id")?,
            started_clean: field(volume, "started_clean")?,
            recovered: field(volume, "recovered")?,
            mounted: field(value, "mounted")?,
            listening: field(value, "listening")?,
            http: field(value, "http")?,
            http_traffic: field(value, "http_traffic")?,
            mirror: field(value, "mirror")?,
            store: field(value, "store")?,
            sessions: field(value, "sessions")?,
            awaited_sessions: field(value, "awaited_sessions")?,
            read_only: field(value, "read_only")?,
            passthrough: field(value, "passthrough")?,
            no_ring: field(value, "no_io_uring")?,
            no_index: field(value, "no_search_index")?,
            outdated: field(value, "outdated")?,
            guard: GuardReport::read(value)?,
            since: field(value, "since")?,
            // A server of an older pelago has the old name only.
            durability: field(value, "durability").or_else(|| field(value, "progress"))?,
            open_files: field(value, "open_files")?,
            // A server of an older pelago has the old name only.
            pending_closes: field(value, "pending_closes")
                .or_else(|| field(value, "lingering_files"))?,
            locks: field(value, "locks")?,
            lock_waiters: field(value, "lock_waiters")?,
            space: field(value, "space")?,
            memory: field(value, "memory")?,
            workers: field(value, "workers")?,
            table: field(value, "table")?,
        })
    }
}

impl DownReport {
    fn to_json(&self) -> Value {
        json!({
            "version": VERSION,
            "state": match (self.is_dying, self.pid) {
                (true, _) => "dying",
                (false, Some(_)) => "between",
                (false, None) => "down",
            },
            "volume": { "dir": text(&self.dir), "stopped_cleanly": self.stopped_cleanly },
            "primary": !self.is_not_primary,
            "pid": self.pid,
            "dead_mount": self.dead_mount.as_deref().map(text),
        })
    }
}

impl HttpReport {
    fn to_json(self) -> Value {
        json!({
            "disk_bytes": self.disk_bytes,
            // The old name; to be removed in the release after 0.1.0.
            "medium_bytes": self.disk_bytes,
            "served_bytes": self.served_bytes,
            "extents_read": self.extents_read,
            "extents_in_memory": self.extents_in_memory,
            "askers": self.askers,
            "clients": self.clients,
            "files": self.files,
        })
    }
}

impl FromJson for HttpReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            // A server of an older pelago has the old name only.
            disk_bytes: field(value, "disk_bytes").or_else(|| field(value, "medium_bytes"))?,
            served_bytes: field(value, "served_bytes")?,
            extents_read: field(value, "extents_read")?,
            extents_in_memory: field(value, "extents_in_memory")?,
            askers: field(value, "askers")?,
            clients: field(value, "clients")?,
            files: field(value, "files")?,
        })
    }
}

impl RecoveredReport {
    fn to_json(self) -> Value {
        json!({
            "files": self.files,
            "corrected": self.corrected,
            "emptied": self.emptied,
            "shortened": self.shortened,
            "damaged": self.damaged,
            "mended": self.mended,
        })
    }
}

impl FromJson for RecoveredReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            files: field(value, "files")?,
            corrected: field(value, "corrected")?,
            // An older pelago does not send these.
            emptied: field(value, "emptied").unwrap_or(0),
            shortened: field(value, "shortened").unwrap_or(0),
            damaged: field(value, "damaged")?,
            mended: field(value, "mended").unwrap_or(0),
        })
    }
}

/// Returns the name of the way in which requests of the kernel come.
const fn requests_by(no_ring: Option<&str>) -> &'static str {
    if no_ring.is_none() { "io_uring" } else { "device" }
}

impl PassthroughReport {
    const fn data_path(&self) -> &'static str {
        if self.why_not.is_none() { "passthrough" } else { "daemon" }
    }

    fn to_json(&self) -> Value {
        json!({ "wanted": self.wanted.name(), "why_not": self.why_not })
    }
}

impl FromJson for PassthroughReport {
    fn from_json(value: &Value) -> Option<Self> {
        let wanted = Passthrough::from_name(value["wanted"].as_str()?)?;
        Some(Self { wanted, why_not: field(value, "why_not")? })
    }
}

impl DurabilityReport {
    fn to_json(self) -> Value {
        json!({
            "done": self.done,
            "safe": self.safe,
            "sync_interval_ms": self.sync_interval_ms,
            "unsafe_for_ms": self.unsafe_for_ms,
        })
    }
}

impl FromJson for DurabilityReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            done: field(value, "done")?,
            safe: field(value, "safe")?,
            sync_interval_ms: field(value, "sync_interval_ms")?,
            unsafe_for_ms: field(value, "unsafe_for_ms")?,
        })
    }
}

impl SpaceReport {
    fn to_json(self) -> Value {
        json!({
            "bytes": self.bytes,
            "available_bytes": self.available_bytes,
            "holds_reserve": self.holds_reserve,
            "is_short": self.is_short,
        })
    }
}

impl FromJson for SpaceReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            bytes: field(value, "bytes")?,
            available_bytes: field(value, "available_bytes")?,
            holds_reserve: field(value, "holds_reserve")?,
            is_short: field(value, "is_short")?,
        })
    }
}

impl MemoryReport {
    fn to_json(&self) -> Value {
        json!({ "name": self.name, "used": self.used, "limit": self.limit })
    }
}

impl FromJson for MemoryReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            name: field(value, "name")?,
            used: field(value, "used")?,
            limit: field(value, "limit")?,
        })
    }
}

impl WorkerReport {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "doing": self.doing,
            "items": self.items,
            "last_error": self.last_error,
        })
    }
}

impl FromJson for WorkerReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            name: field(value, "name")?,
            doing: field(value, "doing")?,
            items: field(value, "items")?,
            last_error: field(value, "last_error")?,
        })
    }
}

impl SessionReport {
    fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "peer": self.peer,
            "name": self.name,
            "connected": self.connected,
            "silent_ms": self.silent_ms,
            "running": self.running,
        })
    }
}

impl FromJson for SessionReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            id: field(value, "id")?,
            peer: field(value, "peer")?,
            name: field(value, "name")?,
            connected: field(value, "connected")?,
            silent_ms: field(value, "silent_ms")?,
            running: field(value, "running")?,
        })
    }
}

impl TableReport {
    fn to_json(self) -> Value {
        json!({
            "disk_bytes": self.disk_bytes,
            "journal_bytes": self.journal_bytes,
            "memory_bytes": self.memory_bytes,
            "keeps_up": self.keeps_up,
        })
    }
}

impl FromJson for TableReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            disk_bytes: field(value, "disk_bytes")?,
            journal_bytes: field(value, "journal_bytes")?,
            memory_bytes: field(value, "memory_bytes")?,
            keeps_up: field(value, "keeps_up")?,
        })
    }
}

impl FromJson for u64 {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_u64()
    }
}

impl FromJson for u32 {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl FromJson for i64 {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl FromJson for bool {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromJson for String {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(Self::from)
    }
}

impl FromJson for PathBuf {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(Self::from)
    }
}

impl<T: FromJson> FromJson for Option<T> {
    fn from_json(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_json(value).map(Some) }
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_json).collect()
    }
}

/// Returns a path for JSON: bytes that are not UTF-8 become U+FFFD.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_socket() {
        let report = UpReport::sample();
        assert_eq!(UpReport::from_json(&report.to_json()), Some(report));
    }

    #[test]
    fn what_is_absent_survives_the_socket() {
        let mut report = UpReport::sample();
        report.space = None;
        report.passthrough.why_not = None;
        report.workers[0].last_error = None;
        assert_eq!(UpReport::from_json(&report.to_json()), Some(report));
    }

    #[test]
    fn a_report_without_a_field_is_refused() {
        let mut object = UpReport::sample().to_json();
        object.as_object_mut().unwrap().remove("progress");
        object["durability"].as_object_mut().unwrap().remove("safe");
        assert_eq!(UpReport::from_json(&object), None);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let mut object = UpReport::sample().to_json();
        object["durability"]["newer"] = json!(1);
        assert_eq!(UpReport::from_json(&object), Some(UpReport::sample()));
    }

    #[test]
    fn the_data_path_follows_from_the_reason() {
        let mut report = UpReport::sample();
        assert_eq!(report.to_json()["data_path"], "daemon");
        report.passthrough.why_not = None;
        assert_eq!(report.to_json()["data_path"], "passthrough");
    }

    #[test]
    fn a_held_lock_without_an_answer_is_between() {
        let down = DownReport {
            dir: "/v".into(),
            is_far: false,
            pid: None,
            is_dying: false,
            stopped_cleanly: true,
            is_not_primary: false,
            dead_mount: Some("/v/files".into()),
        };
        assert_eq!(down.to_json()["state"], "down");
        let between = DownReport { pid: Some(7), ..down.clone() };
        assert_eq!(between.to_json()["state"], "between");
        assert_eq!(between.to_json()["pid"], 7);
        assert_eq!(DownReport { is_dying: true, ..between }.to_json()["state"], "dying");
    }
}
