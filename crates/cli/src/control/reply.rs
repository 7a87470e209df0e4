//! Replies of the control socket, and their encoding in JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{ConflictsReport, SitesReport, VerifiedReport};
use crate::status_report::{
    FarReport, FromJson, MirrorsReport, PromotedReport, RelayReport, StandbyReport, UpReport,
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
    /// To `status`: a relay.
    Relay(RelayReport),
    /// To `status`: a server that stands by at a shared store.
    Standby(StandbyReport),
    /// To `promote`: the mirror is the primary.
    Promoted(PromotedReport),
    /// To `mirror` and `end-mirror`: the mirror of the volume is set, or given up.
    MirrorSet,
    /// To `make-safe`: all that was done is safe on this machine.
    MadeSafe,
    /// To `verify`: how far it is; `None` if nothing was compared in this run.
    Verified(Option<VerifiedReport>),
    /// To `hand-over`: the mirror is the primary, and this process stops.
    HandedOver {
        /// The reign of the mirror.
        reign: u64,
    },
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

impl ControlReply {
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Status(report) => report.to_json(),
            Self::Far(report) => report.to_json(),
            Self::Mirrors(report) => report.to_json(),
            Self::Relay(report) => report.to_json(),
            Self::Standby(report) => report.to_json(),
            Self::Promoted(report) => report.to_json(),
            Self::MirrorSet => json!({ "mirror": "set" }),
            Self::MadeSafe => json!({ "safe": true }),
            Self::Verified(None) => json!({ "verified": null, "ask": "verify" }),
            Self::Verified(Some(report)) => report.to_json(),
            Self::HandedOver { reign } => json!({ "handed_over": reign }),
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
        if object["ask"] == "verify" {
            return Some(Self::Verified(None));
        }
        if object["verified"].is_boolean() {
            return VerifiedReport::from_json(&object).map(|report| Self::Verified(Some(report)));
        }
        if let Some(reign) = object["handed_over"].as_u64() {
            return Some(Self::HandedOver { reign });
        }
        if object["safe"] == true {
            return Some(Self::MadeSafe);
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
        if let Some(report) = RelayReport::from_json(&object) {
            return Some(Self::Relay(report));
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
    fn an_answer_survives_the_socket() {
        let answers = [
            ControlReply::Status(Box::new(UpReport::sample())),
            ControlReply::Far(FarReport::sample()),
            ControlReply::Mirrors(MirrorsReport::sample()),
            ControlReply::Relay(RelayReport::sample()),
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
