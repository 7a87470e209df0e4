//! The messages of a relay: a machine at the edge of a site, which passes the groups of a primary
//! on to the mirror ([`crate::mirror`]) although the primary may be gone.
//!
//! The primary connects to the relay with the role [`crate::handshake::Hello::RELAY`], and so does
//! the relay to the mirror. The relay keeps *records*: the bodies of the parts of groups, sealed
//! from the primary to the mirror. It can delay or drop them, but not read or forge them.

use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader};
use crate::codec::fields::Text;
use crate::error::{Code, Error};
use crate::limits;
use crate::mirror::{GroupProof, PrimaryRun};

pub use link::{OfferedRelay, OnReport, RelayAnswer, RelayLink};
pub use spool::{KeptRecord, RelaySpool, RelaySpools, SpoolPlace};

mod link;
mod spool;

/// A message to or from a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayMessage {
    /// The first message of the primary, which names its mirror.
    Offer(RelayOffer),
    /// A record of the primary, which the relay passes on as it is.
    Record(Record),
    /// The primary lives; answered by a report that is [`RelaySays::Ready`].
    Ping,
    /// A report of the relay.
    Report(RelayReport),
}

/// The offer of a primary to a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayOffer {
    /// The reign of the primary.
    pub reign: u64,
    /// Its run.
    pub run: PrimaryRun,
    /// The mirror as `KEY@HOST:PORT`, at most [`limits::SITE_ADDRESS_BYTES`].
    pub mirror: String,
    /// The amount of repair packets.
    pub repair: RelayRepair,
}

/// The amount of repair packets that a relay sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayRepair {
    /// None.
    Off,
    /// As many as the loss of the link needs.
    Auto,
    /// As many as a block has.
    Full,
}

/// A sealed part of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The number of its group in the run.
    pub group: u64,
    /// The number of the record in the run, from 1: the nonce of its seal, so it is used once.
    pub number: u64,
    /// It ends its group.
    pub is_last: bool,
    /// A caller waits until its group is on the link ([`RelaySays::Sent`]).
    pub is_awaited: bool,
    /// The sealed body: at most [`limits::FRAME_BODY_BYTES`] - [`Record::HEAD_BYTES`].
    pub sealed: Vec<u8>,
}

/// A report of a relay about the groups of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayReport {
    /// The number of a group, or of groups, as the report has it.
    pub number: u64,
    /// The report.
    pub says: RelaySays,
}

/// The content of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelaySays {
    /// The answer to an offer or a ping: the number is that of the last group of the run that the
    /// relay has had whole, 0 if none.
    Ready,
    /// The answer to an offer: the relay still has so many groups of another run, and takes none
    /// of this one before the mirror has them.
    Undelivered,
    /// The relay has this group whole.
    Kept,
    /// The kernel of the relay has sent each data packet of this group, and of every earlier group
    /// that the mirror does not have, and as many repair packets of each block as a waiter needs.
    Sent,
    /// The mirror has this group on stable storage, and proves it.
    Safe(GroupProof),
    /// The mirror does not take groups now, for this reason (for people).
    Apart(String),
    /// The mirror takes groups again.
    Joined,
    /// The mirror was promoted: the number is the reign of the other primary.
    Replaced,
}

const OFFER: u8 = 0;
const RECORD: u8 = 1;
const PING: u8 = 2;
const REPORT: u8 = 3;

const READY: u8 = 0;
const UNDELIVERED: u8 = 1;
const KEPT: u8 = 2;
const SENT: u8 = 3;
const SAFE: u8 = 4;
const APART: u8 = 5;
const JOINED: u8 = 6;
const REPLACED: u8 = 7;

const LAST: u8 = 1;
const AWAITED: u8 = 2;

impl Record {
    /// Bytes of the body of a record before its sealed bytes: kind u8, group u64, number u64,
    /// flags u8.
    pub const HEAD_BYTES: usize = 18;

    /// Returns the bytes of the head, which the seal protects too.
    #[must_use]
    pub fn head(&self) -> [u8; Self::HEAD_BYTES] {
        let flags = if self.is_last { LAST } else { 0 } | if self.is_awaited { AWAITED } else { 0 };
        let mut head = [0; Self::HEAD_BYTES];
        head[0] = RECORD;
        head[1..9].copy_from_slice(&self.group.to_le_bytes());
        head[9..17].copy_from_slice(&self.number.to_le_bytes());
        head[17] = flags;
        head
    }
}

impl RelayMessage {
    /// Encodes the message: its number u8, and its fields.
    ///
    /// # Errors
    /// `TooBig` if a limit is exceeded.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        match self {
            Self::Offer(offer) => {
                out.push(OFFER);
                offer.put(&mut out)?;
            }
            Self::Record(record) => {
                out.extend_from_slice(&record.head());
                out.extend_from_slice(&record.sealed);
            }
            Self::Ping => out.push(PING),
            Self::Report(report) => {
                out.push(REPORT);
                report.put(&mut out)?;
            }
        }
        if out.len() > limits::FRAME_BODY_BYTES { Err(Code::TooBig.into()) } else { Ok(out) }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is no message of this version.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(body, "Relay");
        let [number] = from.at("Relay.message").array()?;
        let message = match number {
            OFFER => Self::Offer(RelayOffer::take(&mut from)?),
            RECORD => {
                let group = u64::take(from.at("Record.group"))?;
                let number = u64::take(from.at("Record.number"))?;
                let [flags] = from.at("Record.flags").array()?;
                if flags & !(LAST | AWAITED) != 0 {
                    return Err(from.invalid());
                }
                let left = from.left();
                let sealed = from.at("Record.sealed").bytes(left)?.to_vec();
                let is_last = flags & LAST != 0;
                let is_awaited = flags & AWAITED != 0;
                Self::Record(Record { group, number, is_last, is_awaited, sealed })
            }
            PING => Self::Ping,
            REPORT => Self::Report(RelayReport::take(&mut from)?),
            number => return Err(from.unknown(number.into())),
        };
        from.finish("Relay")?;
        Ok(message)
    }
}

impl RelayOffer {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.mirror.len() > limits::SITE_ADDRESS_BYTES {
            return Err(Code::TooBig.into());
        }
        u64::put(&self.reign, out)?;
        out.extend_from_slice(&self.run);
        out.push(match self.repair {
            RelayRepair::Off => 0,
            RelayRepair::Auto => 1,
            RelayRepair::Full => 2,
        });
        Text::put(&self.mirror, out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let reign = u64::take(from.at("Offer.reign"))?;
        let run = from.at("Offer.run").array()?;
        let repair = match from.at("Offer.repair").array()? {
            [0] => RelayRepair::Off,
            [1] => RelayRepair::Auto,
            [2] => RelayRepair::Full,
            [number] => return Err(from.unknown(number.into())),
        };
        let mirror = Text::take(from.at("Offer.mirror"))?;
        if mirror.len() > limits::SITE_ADDRESS_BYTES {
            return Err(from.invalid());
        }
        Ok(Self { reign, run, mirror, repair })
    }
}

impl RelayReport {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let (number, text) = match &self.says {
            RelaySays::Ready => (READY, ""),
            RelaySays::Undelivered => (UNDELIVERED, ""),
            RelaySays::Kept => (KEPT, ""),
            RelaySays::Sent => (SENT, ""),
            RelaySays::Safe(_) => (SAFE, ""),
            RelaySays::Apart(text) => (APART, text.as_str()),
            RelaySays::Joined => (JOINED, ""),
            RelaySays::Replaced => (REPLACED, ""),
        };
        out.push(number);
        u64::put(&self.number, out)?;
        Text::put(&text.to_owned(), out)?;
        if let RelaySays::Safe(proof) = &self.says {
            out.extend_from_slice(proof);
        }
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [says] = from.at("Report.says").array()?;
        let number = u64::take(from.at("Report.number"))?;
        let text = Text::take(from.at("Report.text"))?;
        // Only Apart has a text: a message has one form.
        if says != APART && !text.is_empty() {
            return Err(from.invalid());
        }
        let says = match says {
            READY => RelaySays::Ready,
            UNDELIVERED => RelaySays::Undelivered,
            KEPT => RelaySays::Kept,
            SENT => RelaySays::Sent,
            SAFE => RelaySays::Safe(from.at("Report.proof").array()?),
            APART => RelaySays::Apart(text),
            JOINED => RelaySays::Joined,
            REPLACED => RelaySays::Replaced,
            number => return Err(from.at("Report.says").unknown(number.into())),
        };
        Ok(Self { number, says })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<RelayMessage> {
        let record = |is_last, is_awaited| {
            RelayMessage::Record(Record {
                group: 3,
                number: 1 << 40,
                is_last,
                is_awaited,
                sealed: vec![7; 20],
            })
        };
        let report = |says| RelayMessage::Report(RelayReport { number: 9, says });
        let offer = |repair| {
            let mirror = "key@host:1".to_owned();
            RelayMessage::Offer(RelayOffer { reign: 2, run: [5; 16], mirror, repair })
        };
        vec![
            offer(RelayRepair::Off),
            offer(RelayRepair::Auto),
            offer(RelayRepair::Full),
            record(false, false),
            record(true, true),
            RelayMessage::Ping,
            report(RelaySays::Ready),
            report(RelaySays::Undelivered),
            report(RelaySays::Kept),
            report(RelaySays::Sent),
            report(RelaySays::Safe([8; 32])),
            report(RelaySays::Apart("the link is cut".to_owned())),
            report(RelaySays::Joined),
            report(RelaySays::Replaced),
        ]
    }

    /// Found by a fuzzer.
    #[test]
    fn only_a_mirror_that_is_apart_has_a_text() {
        let body = [REPORT, UNDELIVERED, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'x'];
        assert!(RelayMessage::decode(&body).is_err());
    }

    #[test]
    fn a_message_is_decoded_as_it_was_encoded() {
        for message in samples() {
            let body = message.encode().unwrap();
            assert_eq!(RelayMessage::decode(&body), Ok(message));
        }
    }

    #[test]
    fn a_message_is_neither_cut_nor_longer() {
        for message in samples() {
            let mut body = message.encode().unwrap();
            // The sealed bytes go to the end.
            let is_record = matches!(message, RelayMessage::Record(_));
            let least = if is_record { Record::HEAD_BYTES } else { body.len() };
            for end in 0..least {
                assert!(RelayMessage::decode(&body[..end]).is_err(), "{message:?} cut at {end}");
            }
            body.push(0);
            assert_eq!(RelayMessage::decode(&body).is_err(), !is_record, "{message:?}");
        }
    }

    #[test]
    fn what_is_beyond_a_limit_is_neither_sent_nor_taken() {
        let mirror = "x".repeat(limits::SITE_ADDRESS_BYTES + 1);
        let offer = RelayOffer { reign: 1, run: [0; 16], mirror, repair: RelayRepair::Off };
        assert_eq!(RelayMessage::Offer(offer).encode(), Err(Code::TooBig.into()));
        let sealed = vec![0; limits::FRAME_BODY_BYTES];
        let record = Record { group: 1, number: 1, is_last: false, is_awaited: false, sealed };
        assert_eq!(RelayMessage::Record(record.clone()).encode(), Err(Code::TooBig.into()));
        let mut flags =
            RelayMessage::Record(Record { sealed: vec![1], ..record }).encode().unwrap();
        flags[17] = 4;
        assert!(RelayMessage::decode(&flags).is_err());
    }
}
