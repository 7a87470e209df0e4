//! What a volume's process answers.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::status_report::{FarReport, FromJson, UpReport};

/// The error that stands for [`ControlReply::Denied`].
const DENIED: &str = "denied";

/// The answer to a [`Request`](super::Request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlReply {
    /// To `status`: the state of the volume.
    Status(Box<UpReport>),
    /// To `status`: the state of a mount of a volume that another process serves.
    Far(FarReport),
    /// To `unmount`: the volume was unmounted here, and the process is stopping.
    Unmounted(PathBuf),
    /// To `unmount`: this mount is in use, and nothing was changed.
    Busy(PathBuf),
    /// To `listen`: the address of the server, with its key.
    Listening(String),
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
            Self::Unmounted(point) => json!({ "unmounted": point.to_string_lossy() }),
            Self::Busy(point) => json!({ "busy": point.to_string_lossy() }),
            Self::Listening(address) => json!({ "listening": address, "ask": "listen" }),
            Self::Denied => json!({ "error": DENIED }),
            Self::Failed(says) => json!({ "error": says }),
        }
    }

    /// Parses a line; `None` if it is not an answer of this version.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let object: Value = serde_json::from_slice(line).ok()?;
        if let Some(says) = object["error"].as_str() {
            return Some(if says == DENIED { Self::Denied } else { Self::Failed(says.to_owned()) });
        }
        if object["ask"] == "listen" {
            return object["listening"].as_str().map(|at| Self::Listening(at.to_owned()));
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
            ControlReply::Unmounted("/v/files".into()),
            ControlReply::Busy("/v/files".into()),
            ControlReply::Listening("key@host:1".to_owned()),
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
