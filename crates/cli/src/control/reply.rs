//! Replies of the control socket, and their encoding in JSON.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::ConflictsReport;
use crate::output;
use crate::status_report::{
    FarReport, FromJson, MirrorsReport, PromotedReport, StandbyReport, UpReport,
};

/// The text of the error that encodes [`ControlReply::Denied`].
const DENIED: &str = "denied";

/// The answer to a [`Request`](super::Request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlReply {
    /// To `status`: the state of the volume.
    Status(Box<UpReport>),
    /// To `status`: the state of a mount of a volume that another process serves.
    Far(FarReport),
    /// To `status`: the mirrors of a folder.
    Mirrors(MirrorsReport),
    /// To `status`: a server that stands by at a shared store.
    Standby(StandbyReport),
    /// To `promote`: the mirror is the primary.
    Promoted(PromotedReport),
    /// To `mirror` and `end-mirror`: the mirror of the volume is set, or given up.
    MirrorSet,
    /// To `wait-for-mirror`: the state of the mirror.
    Mirrored {
        /// The group commit: the mirror is to have all changes that were done before it.
        commit: u64,
        /// The mirror has these changes.
        done: bool,
    },
    /// To `unmount`: the volume was unmounted here, and the process is stopping.
    Unmounted(PathBuf),
    /// To `unmount`: this mount is in use, and nothing has changed.
    Busy(PathBuf),
    /// To `listen`: the address of the server, with its key.
    Listening(String),
    /// To `credentials`: the block of the guest's chain; empty if the name is none that was
    /// attached. To `issue`: the block of the chain that the server has issued.
    Credentials(String),
    /// To `invite`: the number of the site.
    Invited(u16),
    /// To `sites`: the sites of the volume.
    Sites(SitesReport),
    /// To `conflicts`: the versions that are kept.
    Conflicts(ConflictsReport),
    /// To `drop-kept`: the version is removed.
    KeptDropped,
    /// To `leave`: the site has left the volume, and the process is stopping.
    Left,
    /// The sender is neither the volume's user nor root.
    Denied,
    /// The request failed; the text says why.
    Failed(String),
}

/// The sites of the volume, as one of them knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitesReport {
    /// The number of the site that answers.
    pub(crate) own: u16,
    /// The other sites.
    pub(crate) others: Vec<SiteLine>,
    /// The number of files of other sites of which copies are on this disk.
    pub(crate) copied_files: u64,
    /// Their bytes that are here.
    pub(crate) copied_bytes: u64,
    /// The bytes that they may take.
    pub(crate) cache_bytes: u64,
    /// The number of files of other sites whose bytes are on this disk, and nowhere else.
    pub(crate) staying_files: u64,
    /// Of those, files of which the home does not know all that was written.
    pub(crate) untold_files: u64,
    /// The number of versions that are kept because the file has got other bytes.
    pub(crate) kept_versions: u64,
}

/// Another site of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteLine {
    /// The number of the site.
    pub(crate) site: u16,
    /// The name of the site.
    pub(crate) name: String,
    /// The site has joined; otherwise it is invited.
    pub(crate) has_joined: bool,
    /// The key of its server; empty if it has not joined.
    pub(crate) key: String,
    /// The address of its server, `HOST:PORT`; empty if it is unknown.
    pub(crate) address: String,
    /// Milliseconds since its server last sent something; `None` if no request was sent yet.
    pub(crate) silent_ms: Option<u64>,
    /// The number of requests that were sent to the site.
    pub(crate) requests: u64,
    /// The number of requests that were answered while it was silent, from what was known before.
    pub(crate) stale_answers: u64,
    /// The number of own directories whose names the site is to add or to remove.
    pub(crate) unfinished: u64,
}

impl SitesReport {
    pub(crate) fn to_json(&self) -> Value {
        let Self { own, others, copied_files, copied_bytes, cache_bytes, .. } = self;
        let Self { staying_files, untold_files, kept_versions, .. } = self;
        json!({
            "site": own,
            "sites": others.iter().map(SiteLine::to_json).collect::<Vec<_>>(),
            "copied_files": copied_files,
            "copied_bytes": copied_bytes,
            "cache_bytes": cache_bytes,
            "staying_files": staying_files,
            "untold_files": untold_files,
            "kept_versions": kept_versions,
        })
    }

    fn from_json(object: &Value) -> Option<Self> {
        let sites = object["sites"].as_array()?;
        Some(Self {
            own: u16::try_from(object["site"].as_u64()?).ok()?,
            others: sites.iter().map(SiteLine::from_json).collect::<Option<_>>()?,
            copied_files: object["copied_files"].as_u64()?,
            copied_bytes: object["copied_bytes"].as_u64()?,
            cache_bytes: object["cache_bytes"].as_u64()?,
            staying_files: object["staying_files"].as_u64()?,
            untold_files: object["untold_files"].as_u64()?,
            kept_versions: object["kept_versions"].as_u64()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        let others = vec![SiteLine::sample()];
        Self {
            own: 0,
            others,
            copied_files: 3,
            copied_bytes: 5000,
            cache_bytes: 8 << 30,
            staying_files: 4,
            untold_files: 1,
            kept_versions: 2,
        }
    }
}

impl fmt::Display for SitesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { others, copied_files, copied_bytes, cache_bytes, .. } = self;
        if others.is_empty() {
            return writeln!(f, "no other site");
        }
        others.iter().try_for_each(|site| writeln!(f, "{site}"))?;
        if *copied_files > 0 {
            let [bytes, most] = [*copied_bytes, *cache_bytes].map(output::bytes);
            writeln!(f, "copies of {copied_files} files of others: {bytes} of at most {most}")?;
        }
        let Self { staying_files, untold_files, kept_versions, .. } = self;
        if *staying_files > 0 {
            let files = "files of others have their bytes only here";
            writeln!(f, "{staying_files} {files}; {untold_files} are not told yet")?;
        }
        if *kept_versions > 0 {
            writeln!(f, "{kept_versions} versions are kept that others have passed over")?;
        }
        Ok(())
    }
}

impl SiteLine {
    fn to_json(&self) -> Value {
        let Self {
            site,
            name,
            has_joined,
            key,
            address,
            silent_ms,
            requests,
            stale_answers,
            unfinished,
        } = self;
        json!({
            "site": site,
            "name": name,
            "joined": has_joined,
            "key": key,
            "address": address,
            "silent_ms": silent_ms,
            "requests": requests,
            "stale_answers": stale_answers,
            "unfinished": unfinished,
        })
    }

    fn from_json(object: &Value) -> Option<Self> {
        Some(Self {
            site: u16::try_from(object["site"].as_u64()?).ok()?,
            name: object["name"].as_str()?.to_owned(),
            has_joined: object["joined"].as_bool()?,
            key: object["key"].as_str()?.to_owned(),
            address: object["address"].as_str()?.to_owned(),
            silent_ms: object["silent_ms"].as_u64(),
            requests: object["requests"].as_u64()?,
            stale_answers: object["stale_answers"].as_u64()?,
            unfinished: object["unfinished"].as_u64()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            site: 1,
            name: "berlin".to_owned(),
            has_joined: true,
            key: "pelago1key".to_owned(),
            address: "10.0.0.2:7440".to_owned(),
            silent_ms: Some(40),
            requests: 7,
            stale_answers: 3,
            unfinished: 2,
        }
    }
}

impl fmt::Display for SiteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, name, has_joined, address, silent_ms, stale_answers, unfinished, .. } =
            self;
        let address = if address.is_empty() { "no address yet" } else { address };
        match (has_joined, silent_ms) {
            (false, _) => write!(f, "{site}  {name}  invited")?,
            (true, Some(ms)) if *ms >= SILENT_MS => {
                let says = "if its mirror was promoted: an office does not move over by itself yet";
                write!(f, "{site}  {name}  {address}  silent for {} s; {says}", ms / 1000)?;
            }
            (true, _) => write!(f, "{site}  {name}  {address}")?,
        }
        match stale_answers {
            0 => {}
            1 => f.write_str("  a call was answered from before its silence")?,
            more => write!(f, "  {more} calls were answered from before its silence")?,
        }
        match unfinished {
            0 => Ok(()),
            1 => f.write_str("  a mkdir or rmdir waits for it"),
            more => write!(f, "  {more} mkdirs and rmdirs wait for it"),
        }
    }
}

/// The silence after which a site may be down: a live site sends something more often.
const SILENT_MS: u64 = 8_000;

impl ControlReply {
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Status(report) => report.to_json(),
            Self::Far(report) => report.to_json(),
            Self::Mirrors(report) => report.to_json(),
            Self::Standby(report) => report.to_json(),
            Self::Promoted(report) => report.to_json(),
            Self::MirrorSet => json!({ "mirror": "set" }),
            Self::Mirrored { commit, done } => json!({ "mirrored": done, "commit": commit }),
            Self::Unmounted(point) => json!({ "unmounted": point.to_string_lossy() }),
            Self::Busy(point) => json!({ "busy": point.to_string_lossy() }),
            Self::Listening(address) => json!({ "listening": address, "ask": "listen" }),
            Self::Credentials(block) => json!({ "credentials": block }),
            Self::Invited(site) => json!({ "invited": site }),
            Self::Sites(report) => report.to_json(),
            Self::Conflicts(report) => report.to_json(),
            Self::KeptDropped => json!({ "kept": "dropped" }),
            Self::Left => json!({ "left": true }),
            Self::Denied => json!({ "error": DENIED }),
            Self::Failed(says) => json!({ "error": says }),
        }
    }

    /// Parses a line; `None` if it is not a reply of this version.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let object: Value = serde_json::from_slice(line).ok()?;
        if let Some(says) = object["error"].as_str() {
            return Some(if says == DENIED { Self::Denied } else { Self::Failed(says.to_owned()) });
        }
        if object["ask"] == "listen" {
            return object["listening"].as_str().map(|at| Self::Listening(at.to_owned()));
        }
        if let Some(block) = object["credentials"].as_str() {
            return Some(Self::Credentials(block.to_owned()));
        }
        if object["mirror"] == "set" {
            return Some(Self::MirrorSet);
        }
        if let Some(done) = object["mirrored"].as_bool() {
            return Some(Self::Mirrored { commit: object["commit"].as_u64()?, done });
        }
        if let Some(report) = ConflictsReport::from_json(&object) {
            return Some(Self::Conflicts(report));
        }
        if object["kept"] == "dropped" {
            return Some(Self::KeptDropped);
        }
        if object["left"] == true {
            return Some(Self::Left);
        }
        if let Some(site) = object["invited"].as_u64() {
            return u16::try_from(site).ok().map(Self::Invited);
        }
        if object["sites"].is_array() && object["state"].is_null() {
            return SitesReport::from_json(&object).map(Self::Sites);
        }
        if let Some(report) = MirrorsReport::from_json(&object) {
            return Some(Self::Mirrors(report));
        }
        if let Some(report) = StandbyReport::from_json(&object) {
            return Some(Self::Standby(report));
        }
        if let Some(report) = PromotedReport::from_json(&object) {
            return Some(Self::Promoted(report));
        }
        let path = |key: &str| object[key].as_str().map(PathBuf::from);
        if let Some(point) = path("busy") {
            return Some(Self::Busy(point));
        }
        if let Some(point) = path("unmounted") {
            return Some(Self::Unmounted(point));
        }
        let far = || FarReport::from_json(&object).map(Self::Far);
        UpReport::from_json(&object).map(Box::new).map(Self::Status).or_else(far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_says_what_waits_for_it() {
        let of = |stale_answers, unfinished| {
            SiteLine { stale_answers, unfinished, ..SiteLine::sample() }.to_string()
        };
        let says = |unfinished| of(0, unfinished);
        assert_eq!(says(0), "1  berlin  10.0.0.2:7440");
        assert_eq!(says(1), "1  berlin  10.0.0.2:7440  a mkdir or rmdir waits for it");
        assert!(says(2).ends_with("  2 mkdirs and rmdirs wait for it"), "{}", says(2));
        let stale = of(3, 0);
        assert!(stale.ends_with("  3 calls were answered from before its silence"), "{stale}");
    }

    #[test]
    fn an_answer_survives_the_socket() {
        let answers = [
            ControlReply::Status(Box::new(UpReport::sample())),
            ControlReply::Far(FarReport::sample()),
            ControlReply::Mirrors(MirrorsReport::sample()),
            ControlReply::Standby(StandbyReport::sample()),
            ControlReply::Promoted(PromotedReport::sample()),
            ControlReply::Unmounted("/v/files".into()),
            ControlReply::Busy("/v/files".into()),
            ControlReply::Listening("key@host:1".to_owned()),
            ControlReply::Credentials("block\n".to_owned()),
            ControlReply::Invited(1),
            ControlReply::Left,
            ControlReply::Conflicts(ConflictsReport::sample()),
            ControlReply::KeptDropped,
            ControlReply::MirrorSet,
            ControlReply::Mirrored { commit: 3, done: true },
            ControlReply::Mirrored { commit: 4, done: false },
            ControlReply::Sites(SitesReport::sample()),
            ControlReply::Denied,
            ControlReply::Failed("no".to_owned()),
        ];
        for answer in answers {
            let line = answer.to_json().to_string();
            assert_eq!(ControlReply::parse(line.as_bytes()), Some(answer), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_answer_is_refused() {
        for line in ["", "[]", "7", "{}", r#"{"state":"up"}"#, r#"{"state":"down"}"#] {
            assert_eq!(ControlReply::parse(line.as_bytes()), None, "{line}");
        }
    }
}
