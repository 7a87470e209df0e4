//! The report on a relay.

use std::path::PathBuf;

use pelago_net::mirror::RelayStatus;
use pelago_store::volume::VolumeId;
use serde_json::{Value, json};

use super::{DatagramLine, FromJson, link_text};
use crate::json::VERSION;
use crate::output;

/// A relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelayReport {
    /// The version of pelago that runs it.
    pub(crate) pelago: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Its folder, absolute.
    pub(crate) dir: PathBuf,
    /// The address for primaries, `KEY@HOST:PORT`.
    pub(crate) listening: String,
    /// The volumes whose groups it passes on.
    pub(crate) volumes: Vec<RelayedReport>,
}

/// A volume whose groups a relay passes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelayedReport {
    /// The id of the volume, in hexadecimal digits.
    pub(crate) volume: String,
    /// The address of the mirror, `KEY@HOST:PORT`.
    pub(crate) mirror: String,
    /// The primary is connected.
    pub(crate) connected: bool,
    /// The number of groups that the mirror does not have.
    pub(crate) groups: u64,
    /// The bytes of these groups.
    pub(crate) bytes: u64,
    /// The reason why the mirror takes nothing now.
    pub(crate) problem: Option<String>,
    /// The state of the line to the mirror, for people; `None` if no datagrams are sent.
    pub(crate) link: Option<String>,
    /// The same in numbers.
    pub(crate) datagrams: Option<DatagramLine>,
}

impl RelayReport {
    /// Returns the object of `relay --json` and of `status --json`.
    pub(crate) fn to_json(&self) -> Value {
        let volumes: Vec<Value> = self.volumes.iter().map(RelayedReport::to_json).collect();
        json!({
            "version": VERSION,
            "state": "relay",
            "pelago": self.pelago,
            "pid": self.pid,
            "dir": self.dir.to_string_lossy(),
            "listening": self.listening,
            "volumes": volumes,
        })
    }

    /// Returns the lines of `relay` and of `status`.
    pub(crate) fn to_text(&self) -> String {
        let dir = self.dir.display();
        let pid = self.pid;
        let address = &self.listening;
        let mut lines = format!("relay     {dir} (process {pid})\nlistening {address}\n");
        lines.extend(self.volumes.iter().map(RelayedReport::line));
        lines
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            pelago: "1.2.3".to_owned(),
            pid: 7,
            dir: "/r".into(),
            listening: "key@host:1".to_owned(),
            volumes: vec![RelayedReport::sample()],
        }
    }
}

impl RelayedReport {
    fn to_json(&self) -> Value {
        json!({
            "volume": self.volume,
            "mirror": self.mirror,
            "connected": self.connected,
            "groups": self.groups,
            "bytes": self.bytes,
            "problem": self.problem,
            "link": self.link,
            "datagrams": self.datagrams.map(DatagramLine::to_json),
        })
    }

    fn line(&self) -> String {
        let volume = &self.volume;
        let mirror = self.mirror.split_once('@').map_or(self.mirror.as_str(), |(_, place)| place);
        let primary = if self.connected { "connected" } else { "not connected" };
        let left = match self.groups {
            0 => "all is there".to_owned(),
            groups => format!("{groups} groups to send, {}", output::bytes(self.bytes)),
        };
        let problem = self.problem.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let link = self.link.as_ref().map(|link| format!("link      {link}\n"));
        let link = link.unwrap_or_default();
        format!("{volume} to {mirror}: {left}; primary {primary}{problem}\n{link}")
    }

    #[cfg(test)]
    fn sample() -> Self {
        Self {
            volume: "ab".repeat(16),
            mirror: "key@mirror:7440".to_owned(),
            connected: true,
            groups: 3,
            bytes: 2 << 20,
            problem: None,
            link: None,
            datagrams: Some(DatagramLine::sample()),
        }
    }
}

impl From<RelayStatus> for RelayedReport {
    fn from(status: RelayStatus) -> Self {
        Self {
            volume: VolumeId(status.volume).to_string(),
            mirror: status.mirror,
            connected: status.has_primary,
            groups: status.groups,
            bytes: status.bytes,
            problem: status.apart,
            datagrams: status.link.as_ref().map(DatagramLine::from),
            link: status.link.map(|link| {
                // The promise of level *network* leaves this to chance.
                let chance = link.residual.max(0.0);
                format!("{}; chance of loss without this relay {chance:.0e}", link_text(&link))
            }),
        }
    }
}

impl FromJson for RelayReport {
    fn from_json(value: &Value) -> Option<Self> {
        if value["state"] != "relay" {
            return None;
        }
        let volumes = value["volumes"].as_array()?;
        Some(Self {
            pelago: String::from_json(&value["pelago"])?,
            pid: u32::from_json(&value["pid"])?,
            dir: PathBuf::from_json(&value["dir"])?,
            listening: String::from_json(&value["listening"])?,
            volumes: volumes.iter().map(RelayedReport::from_json).collect::<Option<_>>()?,
        })
    }
}

impl FromJson for RelayedReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            volume: String::from_json(&value["volume"])?,
            mirror: String::from_json(&value["mirror"])?,
            connected: bool::from_json(&value["connected"])?,
            groups: u64::from_json(&value["groups"])?,
            bytes: u64::from_json(&value["bytes"])?,
            problem: value["problem"].as_str().map(str::to_owned),
            link: value["link"].as_str().map(str::to_owned),
            datagrams: DatagramLine::from_json(&value["datagrams"]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_the_mirror_does_not_have() {
        let report = RelayedReport::sample();
        let line = report.line();
        let expected = "to mirror:7440: 3 groups to send, 2.0 MiB; primary connected\n";
        assert!(line.ends_with(expected), "{line}");
        let problem = Some("the mirror is full".to_owned());
        let gone = RelayedReport { groups: 0, connected: false, problem, ..report };
        let line = gone.line();
        let expected = "all is there; primary not connected; the mirror is full\n";
        assert!(line.ends_with(expected), "{line}");
    }
}
