//! The state of a volume's mirror, which the primary reports.

use serde_json::{Value, json};

use super::FromJson;
use crate::output;

/// The mirror of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MirrorLine {
    /// The address of the mirror, `KEY@HOST:PORT`.
    pub(crate) peer: String,
    /// The reign of this primary.
    pub(crate) reign: u64,
    /// The state of the mirror, for people.
    pub(crate) state: String,
    /// The mirror has a whole state of the volume, and receives each change.
    pub(crate) follows: bool,
    /// Bytes of the changes that the mirror does not have.
    pub(crate) bytes_at_risk: u64,
    /// The age of the oldest of these changes in milliseconds; 0 if the mirror has all changes.
    pub(crate) ms_at_risk: u64,
    /// The time of the cut whose state the mirror has, in seconds since 1970.
    pub(crate) as_of: Option<i64>,
}

impl MirrorLine {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "address": self.peer,
            "reign": self.reign,
            "state": self.state,
            "follows": self.follows,
            "bytes_at_risk": self.bytes_at_risk,
            "ms_at_risk": self.ms_at_risk,
            "as_of": self.as_of,
        })
    }

    /// Returns the lines of `status`.
    pub(super) fn lines(&self) -> String {
        let place = self.peer.split_once('@').map_or(self.peer.as_str(), |(_, place)| place);
        let tenths = self.ms_at_risk / 100;
        let risk = match self.follows {
            true => format!(
                "{}.{} s, {} at risk",
                tenths / 10,
                tenths % 10,
                output::bytes(self.bytes_at_risk)
            ),
            false if self.as_of.is_none() => "all is at risk".to_owned(),
            false => format!(
                "{}.{} s, {} at risk; {}",
                tenths / 10,
                tenths % 10,
                output::bytes(self.bytes_at_risk),
                self.state
            ),
        };
        match self.follows || self.as_of.is_some() {
            true => format!("mirror    {place}: {risk}\n"),
            false => format!("mirror    {place}: {risk}; {}\n", self.state),
        }
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            peer: "key@mirror:7440".to_owned(),
            reign: 2,
            state: "follows".to_owned(),
            follows: true,
            bytes_at_risk: 3_100_000,
            ms_at_risk: 840,
            as_of: Some(1_700_000_000),
        }
    }
}

impl FromJson for MirrorLine {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            peer: String::from_json(&value["address"])?,
            reign: u64::from_json(&value["reign"])?,
            state: String::from_json(&value["state"])?,
            follows: bool::from_json(&value["follows"])?,
            bytes_at_risk: u64::from_json(&value["bytes_at_risk"])?,
            ms_at_risk: u64::from_json(&value["ms_at_risk"])?,
            as_of: Option::from_json(&value["as_of"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_at_risk() {
        let follows = MirrorLine::sample();
        assert_eq!(follows.lines(), "mirror    mirror:7440: 0.8 s, 3.0 MiB at risk\n");
        let state = "not connected: the network is unreachable".to_owned();
        let lost = MirrorLine { follows: false, state: state.clone(), ..follows.clone() };
        let expected = "mirror    mirror:7440: 0.8 s, 3.0 MiB at risk; not connected: the network \
                        is unreachable\n";
        assert_eq!(lost.lines(), expected);
        let never = MirrorLine { as_of: None, ..lost };
        let expected = "mirror    mirror:7440: all is at risk; not connected: the network is \
                        unreachable\n";
        assert_eq!(never.lines(), expected);
    }
}
