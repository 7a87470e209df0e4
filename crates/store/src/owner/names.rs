//! The names of batons, `E.P.N`, of engine's folders, `E.P`, and of beats, `P.N`.
//!
//! Numbers are lower-case hexadecimal of fixed width, so a name has one spelling. Files with other
//! names are ignored.

use std::fmt;
use std::io;

/// The id of a process of a store: a random number, never 0. A server that starts again is another
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(u64);

impl ProcessId {
    /// Draws the id of a process.
    ///
    /// # Errors
    /// If the kernel gives no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        // 0 is no process: 1 stands in for it.
        Ok(Self(u64::from_le_bytes(bytes).max(1)))
    }

    /// Parses the text that [`fmt::Display`] writes; `None` if it is no id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        hex(text, 16).filter(|number| *number != 0).map(Self)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of a baton.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatonName {
    pub(super) epoch: u32,
    /// The owner; `None` if it has released the baton.
    pub(super) process: Option<ProcessId>,
    pub(super) turn: u64,
}

impl BatonName {
    /// The baton of a new store.
    pub(super) const FIRST: Self = Self { epoch: 0, process: None, turn: 0 };

    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let epoch = u32::try_from(hex(parts.next()?, 8)?).ok()?;
        let process = match hex(parts.next()?, 16)? {
            0 => None,
            number => Some(ProcessId(number)),
        };
        let turn = hex(parts.next()?, 16)?;
        parts.next().is_none().then_some(Self { epoch, process, turn })
    }
}

impl fmt::Display for BatonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = self.process.map_or(0, |process| process.0);
        write!(f, "{:08x}.{process:016x}.{:016x}", self.epoch, self.turn)
    }
}

/// The name of the engine's folder of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunName {
    pub(super) epoch: u32,
    pub(super) process: ProcessId,
}

impl RunName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (epoch, process) = name.split_once('.')?;
        let epoch = u32::try_from(hex(epoch, 8)?).ok()?;
        Some(Self { epoch, process: ProcessId::parse(process)? })
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}", self.epoch, self.process)
    }
}

/// The name of the file by which a process shows that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BeatName {
    pub(super) process: ProcessId,
    pub(super) number: u64,
}

impl BeatName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (process, number) = name.split_once('.')?;
        Some(Self { process: ProcessId::parse(process)?, number: hex(number, 16)? })
    }
}

impl fmt::Display for BeatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}", self.process, self.number)
    }
}

/// Parses a number of exactly `digits` lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u64> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == digits && is_hex).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let process = Some(ProcessId(0xab));
        let baton = BatonName { epoch: 7, process, turn: 16 };
        assert_eq!(baton.to_string(), "00000007.00000000000000ab.0000000000000010");
        assert_eq!(BatonName::parse(&baton.to_string()), Some(baton));
        let first = "00000000.0000000000000000.0000000000000000";
        assert_eq!(
            (BatonName::FIRST.to_string(), BatonName::parse(first)),
            (first.to_owned(), Some(BatonName::FIRST))
        );
        for other in [
            "",
            ".",
            "..",
            "00000007.00000000000000ab",
            "7.ab.10",
            "0000000g.00000000000000ab.0000000000000010",
            "00000007.00000000000000AB.0000000000000010",
            "00000007.00000000000000ab.+000000000000010",
            "00000007.00000000000000ab.0000000000000010.",
            "00000007.00000000000000ab.0000000000000010.1",
        ] {
            assert_eq!(BatonName::parse(other), None, "{other}");
        }
        assert_eq!(RunName::parse("00000007.0000000000000000"), None, "no process");
        assert_eq!(BeatName::parse("0000000000000000.0000000000000001"), None, "no process");
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_none(text in "[0-9a-f.]{0,48}|\\PC*") {
            if let Some(name) = BatonName::parse(&text) {
                prop_assert_eq!(name.to_string(), text.clone());
            }
            if let Some(name) = RunName::parse(&text) {
                prop_assert_eq!(name.to_string(), text.clone());
            }
            if let Some(name) = BeatName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn every_name_is_read_back(epoch: u32, number: u64, turn: u64) {
            let process = (number != 0).then_some(ProcessId(number));
            let baton = BatonName { epoch, process, turn };
            prop_assert_eq!(BatonName::parse(&baton.to_string()), Some(baton));
            if let Some(process) = process {
                let run = RunName { epoch, process };
                prop_assert_eq!(RunName::parse(&run.to_string()), Some(run));
                let beat = BeatName { process, number: turn };
                prop_assert_eq!(BeatName::parse(&beat.to_string()), Some(beat));
            }
        }
    }
}
