//! Reports on the mirrors that a process keeps, and on a mirror that was promoted.

use std::path::PathBuf;

use pelago_server::{MirrorStatus, Promoted};
use pelago_store::clock;
use serde_json::{Value, json};

use super::FromJson;
use crate::json::VERSION;

/// The mirrors of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MirrorsReport {
    /// The version of pelago that keeps the mirrors.
    pub(crate) pelago: String,
    /// The process that keeps the mirrors.
    pub(crate) pid: u32,
    /// The folder of the mirrors, absolute.
    pub(crate) dir: PathBuf,
    /// The address for primaries, `KEY@HOST:PORT`.
    pub(crate) listening: String,
    /// The mirrors.
    pub(crate) mirrors: Vec<MirrorReport>,
    /// The number of primaries that were replaced and became mirrors here, whose own changes are
    /// kept; `None` if that cannot be read.
    pub(crate) kept: Option<u64>,
}

/// A mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MirrorReport {
    /// The id of the volume, in hexadecimal digits.
    pub(crate) volume: String,
    /// The reign of its primary; 0 if no copy is complete.
    pub(crate) reign: u64,
    /// The number of the last group that the mirror has.
    pub(crate) number: u64,
    /// The time of that group's cut, in seconds since 1970 by the clock of the primary.
    pub(crate) cut: Option<i64>,
    /// The primary is connected.
    pub(crate) connected: bool,
    /// The time since which it is connected or not, in seconds since 1970; `None` means since the
    /// start of the process.
    pub(crate) since: Option<i64>,
    /// The reign of the promotion, if the mirror was promoted.
    pub(crate) promoted: Option<u64>,
    /// It was the primary, and waits for the one that has replaced it.
    pub(crate) adopted: bool,
    /// The number of mounts that read it.
    pub(crate) readers: u64,
    /// The reason why the last group was not kept.
    pub(crate) error: Option<String>,
}

/// A mirror that was promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromotedReport {
    /// The folder of the volume.
    pub(crate) path: PathBuf,
    /// The reign of the volume.
    pub(crate) reign: u64,
    /// The number of the last group of the earlier primary that the volume has, if it is known.
    pub(crate) number: Option<u64>,
    /// The time of that group's cut, in seconds since 1970 by the clock of that primary.
    pub(crate) cut: Option<i64>,
}

impl MirrorsReport {
    /// Returns the object of `serve --mirrors --json` and of `status --json`.
    pub(crate) fn to_json(&self) -> Value {
        let mirrors: Vec<Value> = self.mirrors.iter().map(MirrorReport::to_json).collect();
        json!({
            "version": VERSION,
            "state": "mirrors",
            "pelago": self.pelago,
            "pid": self.pid,
            "dir": self.dir.to_string_lossy(),
            "listening": self.listening,
            "mirrors": mirrors,
            "kept": self.kept,
        })
    }

    /// Returns the lines of `serve --mirrors` and of `status`.
    pub(crate) fn to_text(&self) -> String {
        let dir = self.dir.display();
        let pid = self.pid;
        let address = &self.listening;
        let mut lines = format!("mirrors   {dir} (process {pid})\nlistening {address}\n");
        let now = clock::now().seconds;
        lines.extend(self.mirrors.iter().map(|mirror| mirror.line(now)));
        if self.kept != Some(0) {
            lines.push_str(&format!(
                "kept      what only a replaced primary had: `pelago conflicts -V {dir}`\n"
            ));
        }
        lines
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            pelago: "1.2.3".to_owned(),
            pid: 7,
            dir: "/m".into(),
            listening: "key@host:1".to_owned(),
            mirrors: vec![MirrorReport::sample()],
            kept: Some(2),
        }
    }
}

impl FromJson for MirrorsReport {
    fn from_json(value: &Value) -> Option<Self> {
        if value["state"] != "mirrors" {
            return None;
        }
        let mirrors = value["mirrors"].as_array()?;
        Some(Self {
            pelago: String::from_json(&value["pelago"])?,
            pid: u32::from_json(&value["pid"])?,
            dir: PathBuf::from_json(&value["dir"])?,
            listening: String::from_json(&value["listening"])?,
            mirrors: mirrors.iter().map(MirrorReport::from_json).collect::<Option<_>>()?,
            kept: value["kept"].as_u64(),
        })
    }
}

impl MirrorReport {
    fn to_json(&self) -> Value {
        json!({
            "volume": self.volume,
            "reign": self.reign,
            "group": self.number,
            "cut": self.cut,
            "connected": self.connected,
            "since": self.since,
            "promoted": self.promoted,
            "adopted": self.adopted,
            "readers": self.readers,
            "error": self.error,
        })
    }

    fn line(&self, now: i64) -> String {
        let volume = &self.volume;
        if let Some(reign) = self.promoted {
            return format!("promoted  {volume}: a volume of its own, reign {reign}\n");
        }
        let state = match (self.reign, self.cut) {
            (reign, _) if self.adopted => {
                format!("was the primary of reign {reign}, and waits for the new one")
            }
            (0, _) => "no complete copy yet".to_owned(),
            (_, None) => format!("group {} of before the start", self.number),
            (_, Some(cut)) => {
                let ago = now.saturating_sub(cut).max(0);
                format!("group {} of {} ({ago} s ago)", self.number, time(cut))
            }
        };
        let primary = match (self.connected, self.since) {
            (true, _) => "primary connected".to_owned(),
            (false, Some(since)) => format!("primary gone since {}", time(since)),
            (false, None) => "primary not here since the start".to_owned(),
        };
        let error = self.error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
        let readers = match self.readers {
            0 => String::new(),
            1 => ", mounted once".to_owned(),
            many => format!(", mounted {many} times"),
        };
        format!("mirror    of {volume}: {state}, {primary}{readers}{error}\n")
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            volume: "ab".repeat(16),
            reign: 1,
            number: 4,
            cut: Some(3_600),
            connected: false,
            since: Some(7_261),
            promoted: None,
            adopted: false,
            readers: 0,
            error: None,
        }
    }
}

impl From<MirrorStatus> for MirrorReport {
    fn from(status: MirrorStatus) -> Self {
        Self {
            volume: status.volume.to_string(),
            reign: status.reign,
            number: status.number,
            cut: status.cut.map(|cut| cut.seconds),
            connected: status.is_connected,
            since: status.since.map(|since| since.seconds),
            promoted: status.promoted,
            adopted: status.is_adopted,
            readers: status.readers as u64,
            error: status.error,
        }
    }
}

impl FromJson for MirrorReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            volume: String::from_json(&value["volume"])?,
            reign: u64::from_json(&value["reign"])?,
            number: u64::from_json(&value["group"])?,
            cut: value["cut"].as_i64(),
            connected: bool::from_json(&value["connected"])?,
            since: value["since"].as_i64(),
            promoted: value["promoted"].as_u64(),
            adopted: value["adopted"].as_bool().unwrap_or(false),
            readers: value["readers"].as_u64().unwrap_or(0),
            error: value["error"].as_str().map(str::to_owned),
        })
    }
}

impl PromotedReport {
    /// Returns the object of `site promote --json`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "version": VERSION,
            "promoted": self.path.to_string_lossy(),
            "reign": self.reign,
            "group": self.number,
            "cut": self.cut,
        })
    }

    /// Returns the lines of `site promote`.
    pub(crate) fn to_text(&self) -> String {
        let path = self.path.display();
        let reign = self.reign;
        let group = match (self.number, self.cut) {
            (Some(number), Some(cut)) => format!("it has group {number}, of {}", time(cut)),
            (Some(number), None) => format!("it has group {number}"),
            (None, _) => "an earlier command had begun to promote it".to_owned(),
        };
        format!(
            "promoted  {path} (reign {reign})\n\
             state     {group}; what its primary did after that is not in it\n\
             next      `pelago serve {path} --listen ADDR`, then on each machine \
             `pelago mount KEY@HOST:PORT POINT`\n\
             back      once the old primary's machine is, `pelago serve DIR --mirrors --adopt \
             FOLDER` there\n"
        )
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self { path: "/m/mirrors/ab".into(), reign: 2, number: Some(4), cut: Some(3_600) }
    }
}

impl From<Promoted> for PromotedReport {
    fn from(promoted: Promoted) -> Self {
        let Promoted { path, reign, number, cut, .. } = promoted;
        Self { path, reign, number, cut: cut.map(|cut| cut.seconds) }
    }
}

impl FromJson for PromotedReport {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            path: PathBuf::from_json(&value["promoted"])?,
            reign: u64::from_json(&value["reign"])?,
            number: value["group"].as_u64(),
            cut: value["cut"].as_i64(),
        })
    }
}

/// Returns the time of day in UTC.
fn time(seconds: i64) -> String {
    let day = seconds.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", day / 3_600, day / 60 % 60, day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_says_how_old_its_state_is() {
        let mirror = MirrorReport::sample();
        let volume = &mirror.volume;
        assert_eq!(
            mirror.line(3_605),
            format!(
                "mirror    of {volume}: group 4 of 01:00:00 UTC (5 s ago), primary gone since \
                 02:01:01 UTC\n"
            )
        );
        let new = MirrorReport { reign: 0, connected: true, error: Some("x".to_owned()), ..mirror };
        assert!(new.line(0).ends_with("no complete copy yet, primary connected; x\n"));
        let adopted = MirrorReport { reign: 3, adopted: true, ..new.clone() };
        assert!(adopted.line(0).contains("was the primary of reign 3, and waits for the new one"));
        let promoted = MirrorReport { promoted: Some(2), ..new };
        assert!(promoted.line(0).starts_with("promoted  abab"));
    }
}
