//! The stage that the last change of a file has reached on its way to the mirror.

use std::fmt;
use std::time::Duration;

/// A stage of a change on its way to the mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MirrorStage {
    /// It is done: a loss of power may take it.
    Done,
    /// It is on stable storage at the server, and the volume has no mirror.
    Local,
    /// It is on stable storage at the server, and waits for its group.
    Queued,
    /// Its group is on its way to the mirror, or to the relay.
    Link,
    /// The relay has its group.
    Edge,
    /// The relay has sent its group, with as many repair packets as level *network* wants.
    Sent,
    /// The mirror has it on stable storage.
    Mirrored,
}

impl MirrorStage {
    /// All stages, in their order.
    pub const ALL: [Self; 7] =
        [Self::Done, Self::Local, Self::Queued, Self::Link, Self::Edge, Self::Sent, Self::Mirrored];

    /// Returns the name of a stage.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Local => "local",
            Self::Queued => "queued",
            Self::Link => "link",
            Self::Edge => "edge",
            Self::Sent => "sent",
            Self::Mirrored => "mirrored",
        }
    }
}

/// The stage that the last change of a file has reached, and the group that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The stage.
    pub stage: MirrorStage,
    /// The group, while the mirror does not have it and once it has a number.
    pub group: Option<SentGroup>,
}

/// A group that the mirror may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentGroup {
    /// Its number in the run of the server.
    pub number: u64,
    /// The time since its cut, in whole milliseconds.
    pub age: Duration,
}

impl Reached {
    /// Returns a stage without a group.
    #[must_use]
    pub const fn at(stage: MirrorStage) -> Self {
        Self { stage, group: None }
    }

    /// Parses the text that [`Self`] displays: the value of [`crate::xattr::REACHED`].
    #[must_use]
    pub fn decode(text: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(text).ok()?.split(' ');
        let name = words.next()?;
        let stage = MirrorStage::ALL.into_iter().find(|stage| stage.name() == name)?;
        let group = match (words.next(), words.next()) {
            (None, _) => None,
            (Some(group), Some(ms)) => {
                let number = group.strip_prefix("group=")?.parse().ok()?;
                let age = Duration::from_millis(ms.strip_prefix("ms=")?.parse().ok()?);
                Some(SentGroup { number, age })
            }
            (Some(_), None) => return None,
        };
        words.next().is_none().then_some(Self { stage, group })
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stage.name())?;
        match self.group {
            Some(SentGroup { number, age }) => write!(f, " group={number} ms={}", age.as_millis()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_survives_its_text() {
        let group = SentGroup { number: 12, age: Duration::from_millis(830) };
        for stage in MirrorStage::ALL {
            for group in [None, Some(group)] {
                let reached = Reached { stage, group };
                assert_eq!(Reached::decode(reached.to_string().as_bytes()), Some(reached));
            }
        }
        let sent = Reached { stage: MirrorStage::Sent, group: Some(group) };
        assert_eq!(sent.to_string(), "sent group=12 ms=830");
        assert!(MirrorStage::ALL.is_sorted());
    }

    #[test]
    fn another_text_is_refused() {
        let texts = ["", "sent ", " sent", "gone", "sent group=1", "sent group=1 ms=", "sent 1 2"];
        for text in texts.into_iter().chain(["sent group=1 ms=2 3", "sent group=-1 ms=2"]) {
            assert_eq!(Reached::decode(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Reached::decode(b"\xff"), None);
    }
}
