//! The status of a volume as text: lines of a label and a text, which begins in column 11.

use std::path::Path;

use super::{
    DownReport, FarReport, GuardReport, HttpReport, MirrorLine, PassthroughReport, RecoveredReport,
    SessionReport, SpaceReport, StatusReport, UpReport, WorkerReport,
};
use crate::data_path::Passthrough;
use crate::output;

impl StatusReport {
    /// Returns the lines of `status`.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Up(report) => report.to_text(),
            Self::Far(report) => report.to_text(),
            Self::Mirrors(report) => report.to_text(),
            Self::Relay(report) => report.to_text(),
            Self::Standby(report) => report.to_text(),
            Self::StoreServerDown { dir, store } => {
                let dir = dir.display();
                let store = store.display();
                format!(
                    "store     {store}\nstate     no server runs from {dir}: \
                     `pelago serve {dir} --store {store}` starts it\n"
                )
            }
            Self::MirrorsDown(dir) => {
                let dir = dir.display();
                format!(
                    "mirrors   {dir}\nstate     down: `pelago serve {dir} --mirrors` starts it\n"
                )
            }
            Self::RelayDown(dir) => {
                let dir = dir.display();
                format!("relay     {dir}\nstate     down: `pelago relay {dir}` starts it\n")
            }
            Self::Down(report) => report.to_text(),
        }
    }
}

impl UpReport {
    fn to_text(&self) -> String {
        let mut lines = format!(
            "volume    {} ({})\nstate     up, process {}{}, {}\nmounted   {}\nsafe      {}\n",
            self.dir.display(),
            self.id,
            self.pid,
            self.mode(),
            self.files(),
            self.mounted.as_deref().map_or_else(|| "nowhere".into(), Path::to_string_lossy),
            self.safe(),
        );
        lines.extend(self.outdated.as_ref().map(|why| format!("cut off   {why}\n")));
        lines.extend(self.guard.as_ref().and_then(GuardReport::line));
        if let Some(address) = &self.listening {
            lines.push_str(&format!("listening {address}\n"));
        }
        if let Some(address) = &self.http {
            lines.push_str(&format!("http      {address}\n"));
        }
        if let Some(traffic) = &self.http_traffic {
            lines.push_str(&traffic.line());
        }
        lines.extend(self.store.as_ref().map(|store| format!("store     {}\n", store.text())));
        lines.extend(self.mirror.as_ref().map(MirrorLine::lines));
        lines.extend(self.sessions.iter().map(SessionReport::line));
        lines.push_str(&awaited_line(self.awaited_sessions));
        lines.push_str(&self.recovered.lines());
        lines.push_str(&self.speed_line());
        lines.push_str(&space_line(self.space.as_ref()));
        let used = self.memory.iter().map(|each| each.used).sum();
        let limit = self.memory.iter().map(|each| each.limit).sum();
        lines.push_str(&format!(
            "memory    {} of {}; table on disk {}\n",
            output::bytes(used),
            output::bytes(limit),
            output::bytes(self.table.disk_bytes)
        ));
        if let Some(why) = &self.no_index {
            lines.push_str(&format!("search    looks at every file: {why}\n"));
        }
        lines.extend(self.workers.iter().map(WorkerReport::line));
        lines
    }

    /// Returns the line on the paths of bytes and of requests; empty without a mount.
    pub(crate) fn speed_line(&self) -> String {
        let bytes = self.passthrough.path();
        let requests = requests(self.no_ring.as_deref());
        self.mounted
            .as_ref()
            .map(|_| format!("speed     {bytes}; {requests}\n"))
            .unwrap_or_default()
    }

    /// Returns the text after the process in a line: that the mount is read-only, or nothing.
    pub(crate) const fn mode(&self) -> &'static str {
        if self.read_only { ", read-only" } else { "" }
    }

    fn files(&self) -> String {
        let open = self.open_files;
        let files = match self.pending_closes {
            0 => format!("{open} files open"),
            closed => format!("{open} files open, {closed} closed but still in use"),
        };
        match self.lock_waiters {
            0 => files,
            waiters => format!("{files}, {waiters} requests wait for a file lock"),
        }
    }

    fn safe(&self) -> String {
        let durability = self.durability;
        let what = if durability.done == durability.safe {
            "everything".to_owned()
        } else {
            format!("all but the last {} ms", durability.unsafe_for_ms)
        };
        format!("{what} ({} of {} batches)", durability.safe, durability.done)
    }
}

impl RecoveredReport {
    /// Returns the lines on files that the start has found lost or damaged, or has mended; empty if
    /// there are none.
    pub(crate) fn lines(&self) -> String {
        let count = |number: u64| match number {
            1 => "1 file".to_owned(),
            more => format!("{more} files"),
        };
        let mut lines = String::new();
        if self.emptied + self.shortened > 0 {
            let parts = [(self.emptied, "empty"), (self.shortened, "shorter than before")];
            let parts = parts.iter().filter(|(number, _)| *number > 0);
            let parts: Vec<_> =
                parts.map(|(number, how)| format!("{} {how}", count(*number))).collect();
            let parts = parts.join(", ");
            lines
                .push_str(&format!("lost      {parts}: bytes that were not synced; see the log\n"));
        }
        if self.damaged > 0 {
            lines.push_str(&format!("damaged   {}: run `pelago check`\n", count(self.damaged)));
        }
        if self.mended > 0 {
            let what = count(self.mended);
            lines.push_str(&format!(
                "mended    {what} of the volume, from a second one; see the log\n"
            ));
        }
        lines
    }
}

impl PassthroughReport {
    /// Returns the path of bytes, and the reason if it is the daemon path.
    fn path(&self) -> String {
        match (&self.why_not, self.wanted) {
            (Some(why_not), _) => format!("daemon path: {why_not}"),
            (None, Passthrough::Always) => {
                "passthrough: the kernel reads and writes all files itself".to_owned()
            }
            (None, _) => "passthrough: the kernel reads and writes large files itself".to_owned(),
        }
    }
}

/// Returns the way in which requests of the kernel come, and the reason if it is the device.
fn requests(no_ring: Option<&str>) -> String {
    match no_ring {
        None => "requests over io_uring".to_owned(),
        Some(why_not) => format!("requests by /dev/fuse (io_uring: {why_not})"),
    }
}

/// Returns the line on a start that is not over; empty after the start.
fn awaited_line(sessions: u64) -> String {
    match sessions {
        0 => String::new(),
        1 => "starting  requests wait for 1 session of the last run\n".to_owned(),
        more => format!("starting  requests wait for {more} sessions of the last run\n"),
    }
}

fn space_line(space: Option<&SpaceReport>) -> String {
    let Some(space) = space else {
        return "space     unknown: the disk does not report it\n".to_owned();
    };
    let free = output::bytes(space.available_bytes);
    let all = output::bytes(space.bytes);
    let short = if space.is_short { "; short: new data is refused" } else { "" };
    format!("space     {free} free of {all}{short}\n")
}

/// The silence in milliseconds after which a server may be lost.
const GONE_MS: u64 = 10_000;

impl FarReport {
    fn to_text(&self) -> String {
        let Self { server, pid, waiting, .. } = self;
        let point = self.mounted.display();
        let mode = if self.read_only { ", read-only" } else { "" };
        let state = match self.connected {
            true => format!("connected, {waiting} requests wait for an answer"),
            false => {
                format!("not connected for {} s, {waiting} requests wait", self.silent_ms / 1000)
            }
        };
        let speed = requests(self.no_ring.as_deref());
        let mounted = format!("{point} (process {pid}{mode})");
        let guard = self.guard.line().unwrap_or_default();
        let next = match self.connected || self.silent_ms < GONE_MS {
            true => "",
            false => {
                "next      if the server is lost and its mirror was promoted, mount that: a mount \
                 does not move over by itself yet\n"
            }
        };
        let server = format!("server    {server}\nmounted   {mounted}\n");
        format!("{server}{guard}state     {state}\nspeed     {speed}\n{next}")
    }
}

impl GuardReport {
    /// Returns the line on a guard that is missing; `None` if there is one.
    fn line(&self) -> Option<String> {
        let why = self.why_not()?;
        Some(format!("guard     none: {why}; if the process is killed, programs may hang\n"))
    }
}

impl HttpReport {
    fn line(&self) -> String {
        format!(
            "sent      {} over HTTP, {} read; {} clients of {} files, {} waiting for a read\n",
            output::bytes(self.served_bytes),
            output::bytes(self.disk_bytes),
            self.clients,
            self.files,
            self.askers
        )
    }
}

impl SessionReport {
    fn line(&self) -> String {
        let Self { peer, running, .. } = self;
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        let seconds = self.silent_ms / 1000;
        match self.connected {
            true => format!("session   {peer}{name}: connected, {running} requests run\n"),
            false => format!("session   {peer}{name}: not connected for {seconds} s\n"),
        }
    }
}

impl WorkerReport {
    fn line(&self) -> String {
        let failed = self.last_error.as_ref().map(|error| format!("; last error: {error}"));
        format!(
            "worker    {}: {}, {} done{}\n",
            self.name,
            self.doing,
            self.items,
            failed.unwrap_or_default()
        )
    }
}

impl DownReport {
    fn to_text(&self) -> String {
        if self.is_far {
            return self.far_text();
        }
        let dir = self.dir.display();
        if self.is_dying {
            return format!(
                "volume    {dir}\n\
                 state     its process was killed and cannot end: programs hold it\n\
                 next      `pelago up` or `pelago unmount` ends it\n"
            );
        }
        if let Some(pid) = self.pid {
            return format!(
                "volume    {dir}\nstate     process {pid} is starting or stopping it\n"
            );
        }
        let how = if self.stopped_cleanly {
            "stopped cleanly"
        } else {
            "not stopped cleanly: the next start recovers it"
        };
        let mut lines = format!("volume    {dir}\nstate     down, {how}\n");
        if let Some(point) = &self.dead_mount {
            lines.push_str(&format!(
                "mounted   {}, dead: `pelago up` or `pelago unmount` removes it\n",
                point.display()
            ));
        }
        if self.is_not_primary {
            lines.push_str(&format!(
                "primary   elsewhere: this is a mirror, or its mirror was promoted\n\
                 next      if it was the primary, `pelago serve DIR --mirrors --adopt {dir}` makes \
                 it a mirror of the new one\n"
            ));
        } else {
            lines.push_str("next      `pelago up` starts and mounts it\n");
        }
        lines
    }

    /// Returns the lines on a mount whose process is gone.
    fn far_text(&self) -> String {
        let point = self.dead_mount.as_deref().unwrap_or(&self.dir).display();
        format!(
            "mounted   {point}, dead: its process has ended without unmounting\n\
             next      the same `pelago mount` mounts it again, `pelago unmount` removes it\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_files_that_are_still_in_use_are_counted() {
        let counts = UpReport { open_files: 0, pending_closes: 3, ..UpReport::sample() };
        let report = UpReport { lock_waiters: 0, ..counts };
        assert_eq!(report.files(), "0 files open, 3 closed but still in use");
    }

    #[test]
    fn no_closed_file_is_not_worth_a_word() {
        let counts = UpReport { open_files: 2, pending_closes: 0, ..UpReport::sample() };
        let report = UpReport { lock_waiters: 0, ..counts };
        assert_eq!(report.files(), "2 files open");
    }

    #[test]
    fn requests_that_wait_for_a_lock_are_counted() {
        let report = UpReport { lock_waiters: 3, pending_closes: 0, ..UpReport::sample() };
        assert_eq!(report.files(), "5 files open, 3 requests wait for a file lock");
    }

    #[test]
    fn a_start_that_waits_for_sessions_says_so() {
        let text = |awaited_sessions| UpReport { awaited_sessions, ..UpReport::sample() }.to_text();
        assert!(text(1).contains("starting  requests wait for 1 session of the last run\n"));
        assert!(text(2).contains("starting  requests wait for 2 sessions of the last run\n"));
        assert!(!text(0).contains("starting"));
    }

    #[test]
    fn a_guard_is_named_only_if_it_is_missing() {
        let text = UpReport::sample().to_text();
        assert!(text.contains("\nguard     none: it was killed; if the process"), "{text}");
        assert!(!FarReport::sample().to_text().contains("guard"));
    }

    #[test]
    fn the_daemon_path_has_its_reason() {
        let why_not = Some("passthrough needs root".to_owned());
        let report = PassthroughReport { wanted: Passthrough::Auto, why_not };
        assert_eq!(report.path(), "daemon path: passthrough needs root");
    }

    #[test]
    fn passthrough_names_the_files_it_is_for() {
        let line = |wanted| PassthroughReport { wanted, why_not: None }.path();
        assert!(line(Passthrough::Auto).contains("large files"));
        assert!(line(Passthrough::Always).contains("all files"));
    }

    #[test]
    fn batches_that_are_not_safe_have_an_age() {
        let report = UpReport::sample();
        assert_eq!(report.safe(), "all but the last 4 ms (8 of 9 batches)");
    }
}
