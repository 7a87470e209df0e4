//! The datagrams between a primary and its mirror, as `docs/protocol.md` specifies them (3.3.1).
//!
//! They carry the bytes of one stream, the same that the connection could carry. A *data packet*
//! has a sequence number without gaps, by which repair packets name it, and its offset in the
//! stream, by which its bytes are put in order. So neither end has to agree on blocks in advance,
//! and what is missing is a range of the stream, whoever brings it.
//!
//! The number of a datagram is another one. It is the nonce of its seal and never used twice, while
//! a data packet that has not arrived is sent again under a new number.

use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader};
use crate::error::{Code, Error};
use crate::limits;

/// Bytes of a symbol before those of the stream: their length u16, and their offset u64.
pub const SYMBOL_HEAD_BYTES: usize = 10;
/// Bytes of the longest symbol.
pub const SYMBOL_BYTES: usize = SYMBOL_HEAD_BYTES + limits::DATAGRAM_STREAM_BYTES;
/// The greatest number, sequence number and offset: sums of two of them do not overflow.
const GREATEST: u64 = i64::MAX as u64;

const DATA: u8 = 0;
const REPAIR: u8 = 1;
const LAYER: u8 = 2;
const REPORT: u8 = 3;

/// Bytes of a datagram besides its body: its number and its seal.
const AROUND: usize = 8 + limits::DATAGRAM_SEAL_BYTES;
/// Bytes of the longest report.
const MOST_REPORT: usize = 1 + 6 * 8 + 4 + 12 * limits::REPORT_RUNS;
const _: () = assert!(AROUND + 17 + limits::DATAGRAM_STREAM_BYTES <= limits::DATAGRAM_BYTES);
const _: () = assert!(AROUND + 11 + SYMBOL_BYTES <= limits::DATAGRAM_BYTES);
const _: () = assert!(AROUND + MOST_REPORT <= limits::DATAGRAM_BYTES);
const _: () = assert!(SYMBOL_BYTES.is_multiple_of(2), "the code takes words of two bytes");

/// A datagram before it is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// Its number, of its direction: rises with each datagram.
    pub number: u64,
    /// What it carries.
    pub body: DatagramBody,
}

/// The contents of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatagramBody {
    /// Bytes of the stream.
    Data(DataPacket),
    /// A repair symbol of a block of data packets that follow each other.
    Repair(RepairPacket),
    /// The XOR of data packets that are equally far from each other.
    Layer(LayerPacket),
    /// What has arrived.
    Report(LinkReport),
}

/// A packet with bytes of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPacket {
    /// The number of the packet among the data packets, from 0 and without gaps.
    pub sequence: u64,
    /// The offset of the first byte in the stream.
    pub offset: u64,
    /// The bytes: 1 to [`limits::DATAGRAM_STREAM_BYTES`].
    pub bytes: Vec<u8>,
}

/// A repair symbol of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairPacket {
    /// The sequence number of the first data packet of the block.
    pub first: u64,
    /// The number of data packets: 1 to [`limits::BLOCK_PACKETS`].
    pub packets: u8,
    /// The index of the symbol among those of the block, below [`limits::BLOCK_REPAIR_PACKETS`].
    pub index: u8,
    /// The symbol, as long as the longest one of the block: an even number of bytes.
    pub symbol: Vec<u8>,
}

/// The XOR of the symbols of data packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerPacket {
    /// The sequence number of the first data packet.
    pub first: u64,
    /// The distance from each data packet to the next: 1 to [`limits::LAYER_STEP`].
    pub step: u8,
    /// The number of data packets: 2 to [`limits::LAYER_PACKETS`].
    pub packets: u8,
    /// The XOR of their symbols, as long as the longest one: an even number of bytes.
    pub symbol: Vec<u8>,
}

/// A report of what has arrived from the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkReport {
    /// The highest number of a datagram that has arrived.
    pub highest: u64,
    /// When it arrived, in microseconds from any origin of the receiver.
    pub arrived: u64,
    /// The time from then to the report, in microseconds.
    pub held: u32,
    /// Bytes of all datagrams that have arrived, each counted once.
    pub bytes: u64,
    /// The first number that is not settled: datagrams before it that have not arrived are lost.
    pub settled: u64,
    /// How many numbers before `settled` are lost.
    pub lost: u64,
    /// The first sequence number whose data packet has neither arrived nor been rebuilt nor come
    /// otherwise.
    pub complete: u64,
    /// The newest runs of lost numbers before `settled`, oldest first, at most
    /// [`limits::REPORT_RUNS`].
    pub runs: Vec<LostRun>,
}

/// Numbers of datagrams that were lost one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRun {
    /// The first number.
    pub first: u64,
    /// How many there are, at least one.
    pub length: u32,
}

impl Datagram {
    /// Encodes the datagram: its number u64, the number of its kind u8, and its fields.
    ///
    /// # Errors
    /// `TooBig` if a limit is exceeded.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(limits::DATAGRAM_BYTES);
        u64::put(&self.number, &mut out)?;
        match &self.body {
            DatagramBody::Data(packet) => {
                out.push(DATA);
                packet.put(&mut out)?;
            }
            DatagramBody::Repair(packet) => {
                out.push(REPAIR);
                packet.put(&mut out)?;
            }
            DatagramBody::Layer(packet) => {
                out.push(LAYER);
                packet.put(&mut out)?;
            }
            DatagramBody::Report(report) => {
                out.push(REPORT);
                report.put(&mut out)?;
            }
        }
        Ok(out)
    }

    /// Decodes a datagram whose seal was opened.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if the bytes are no datagram of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes, "Datagram");
        let number = take_number(from.at("Datagram.number"))?;
        let [kind] = from.at("Datagram.kind").array()?;
        let body = match kind {
            DATA => DatagramBody::Data(DataPacket::take(&mut from)?),
            REPAIR => DatagramBody::Repair(RepairPacket::take(&mut from)?),
            LAYER => DatagramBody::Layer(LayerPacket::take(&mut from)?),
            REPORT => DatagramBody::Report(LinkReport::take(&mut from)?),
            kind => return Err(from.unknown(kind.into())),
        };
        from.finish("Datagram")?;
        Ok(Self { number, body })
    }
}

impl DatagramBody {
    /// Returns the bytes of the sealed datagram, without the headers of UDP and IP.
    #[must_use]
    pub fn sealed_bytes(&self) -> usize {
        let fields = match self {
            Self::Data(packet) => 16 + packet.bytes.len(),
            Self::Repair(packet) => 10 + packet.symbol.len(),
            Self::Layer(packet) => 10 + packet.symbol.len(),
            Self::Report(report) => 6 * 8 + 4 + 12 * report.runs.len(),
        };
        AROUND + 1 + fields
    }
}

impl DataPacket {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.bytes.len() > limits::DATAGRAM_STREAM_BYTES {
            return Err(Code::TooBig.into());
        }
        u64::put(&self.sequence, out)?;
        u64::put(&self.offset, out)?;
        out.extend_from_slice(&self.bytes);
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let sequence = take_number(from.at("Data.sequence"))?;
        let offset = take_number(from.at("Data.offset"))?;
        let bytes = take_rest(from.at("Data.bytes"), limits::DATAGRAM_STREAM_BYTES)?;
        if bytes.is_empty() || offset + bytes.len() as u64 > GREATEST {
            return Err(from.invalid());
        }
        Ok(Self { sequence, offset, bytes })
    }
}

impl RepairPacket {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        u64::put(&self.first, out)?;
        out.extend([self.packets, self.index]);
        put_symbol(&self.symbol, out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = take_number(from.at("Repair.first"))?;
        let [packets] = from.at("Repair.packets").array()?;
        if packets == 0 || usize::from(packets) > limits::BLOCK_PACKETS {
            return Err(from.invalid());
        }
        let [index] = from.at("Repair.index").array()?;
        if usize::from(index) >= limits::BLOCK_REPAIR_PACKETS {
            return Err(from.invalid());
        }
        Ok(Self { first, packets, index, symbol: take_symbol(from.at("Repair.symbol"))? })
    }
}

impl LayerPacket {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        u64::put(&self.first, out)?;
        out.extend([self.step, self.packets]);
        put_symbol(&self.symbol, out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = take_number(from.at("Layer.first"))?;
        let [step] = from.at("Layer.step").array()?;
        if step == 0 || usize::from(step) > limits::LAYER_STEP {
            return Err(from.invalid());
        }
        let [packets] = from.at("Layer.packets").array()?;
        if packets < 2 || usize::from(packets) > limits::LAYER_PACKETS {
            return Err(from.invalid());
        }
        Ok(Self { first, step, packets, symbol: take_symbol(from.at("Layer.symbol"))? })
    }
}

impl LinkReport {
    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let Self { highest, arrived, held, bytes, settled, lost, complete, runs } = self;
        if runs.len() > limits::REPORT_RUNS {
            return Err(Code::TooBig.into());
        }
        u64::put(highest, out)?;
        u64::put(arrived, out)?;
        u32::put(held, out)?;
        for number in [bytes, settled, lost, complete] {
            u64::put(number, out)?;
        }
        for run in runs {
            u64::put(&run.first, out)?;
            u32::put(&run.length, out)?;
        }
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut report = Self {
            highest: take_number(from.at("Report.highest"))?,
            arrived: take_number(from.at("Report.arrived"))?,
            held: u32::take(from.at("Report.held"))?,
            bytes: take_number(from.at("Report.bytes"))?,
            settled: take_number(from.at("Report.settled"))?,
            lost: take_number(from.at("Report.lost"))?,
            complete: take_number(from.at("Report.complete"))?,
            runs: Vec::new(),
        };
        while from.at("Report.runs").left() > 0 {
            let run = LostRun { first: take_number(from)?, length: u32::take(from)? };
            if run.length == 0 || report.runs.len() == limits::REPORT_RUNS {
                return Err(from.invalid());
            }
            report.runs.push(run);
        }
        Ok(report)
    }
}

/// Takes a number that may be added to another one.
fn take_number(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match u64::take(from)? {
        number if number > GREATEST => Err(from.invalid()),
        number => Ok(number),
    }
}

/// Takes all bytes that are left.
fn take_rest(from: &mut Reader<'_>, limit: usize) -> Result<Vec<u8>, DecodeError> {
    let length = from.left();
    if length > limit {
        return Err(from.invalid());
    }
    Ok(from.bytes(length)?.to_vec())
}

fn put_symbol(symbol: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    if symbol.len() > SYMBOL_BYTES {
        return Err(Code::TooBig.into());
    }
    out.extend_from_slice(symbol);
    Ok(())
}

fn take_symbol(from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let symbol = take_rest(from, SYMBOL_BYTES)?;
    if symbol.len() <= SYMBOL_HEAD_BYTES || !symbol.len().is_multiple_of(2) {
        return Err(from.invalid());
    }
    Ok(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(runs: usize) -> LinkReport {
        let runs = vec![LostRun { first: 3, length: 2 }; runs];
        LinkReport {
            highest: 9,
            arrived: 1_000_000,
            held: 7,
            bytes: 10_800,
            settled: 6,
            lost: 2,
            complete: 4,
            runs,
        }
    }

    fn samples() -> Vec<DatagramBody> {
        let data = |length| DataPacket { sequence: 5, offset: 1 << 40, bytes: vec![7; length] };
        let repair =
            |length| RepairPacket { first: 1, packets: 64, index: 15, symbol: vec![1; length] };
        let layer =
            |length| LayerPacket { first: 2, step: 64, packets: 64, symbol: vec![2; length] };
        vec![
            DatagramBody::Data(data(1)),
            DatagramBody::Data(data(limits::DATAGRAM_STREAM_BYTES)),
            DatagramBody::Repair(repair(12)),
            DatagramBody::Repair(repair(SYMBOL_BYTES)),
            DatagramBody::Layer(layer(12)),
            DatagramBody::Layer(layer(SYMBOL_BYTES)),
            DatagramBody::Report(report(0)),
            DatagramBody::Report(report(limits::REPORT_RUNS)),
        ]
    }

    #[test]
    fn a_datagram_is_decoded_as_it_was_encoded_and_fits() {
        for body in samples() {
            let sealed = body.sealed_bytes();
            let datagram = Datagram { number: 1 << 50, body };
            let bytes = datagram.encode().unwrap();
            assert_eq!(bytes.len() + limits::DATAGRAM_SEAL_BYTES, sealed);
            assert!(sealed <= limits::DATAGRAM_BYTES, "{datagram:?}");
            assert_eq!(Datagram::decode(&bytes), Ok(datagram));
        }
    }

    /// Bytes and symbols go to the end of a datagram, so a cut one has fewer of them: the seal
    /// tells it from a whole one. Its head is never cut.
    #[test]
    fn no_head_is_cut() {
        for body in samples() {
            let head = match &body {
                DatagramBody::Data(_) => 8 + 17,
                DatagramBody::Repair(_) | DatagramBody::Layer(_) => 8 + 11,
                DatagramBody::Report(_) => 8 + 53,
            };
            let bytes = Datagram { number: 0, body }.encode().unwrap();
            for end in 0..head {
                assert!(Datagram::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn what_is_beyond_a_limit_is_neither_sent_nor_taken() {
        let encode = |body| Datagram { number: 0, body }.encode();
        let data = |sequence, offset, bytes| {
            DatagramBody::Data(DataPacket { sequence, offset, bytes: vec![0; bytes] })
        };
        let repair = |first, packets, index, bytes| {
            let symbol = vec![0; bytes];
            DatagramBody::Repair(RepairPacket { first, packets, index, symbol })
        };
        let layer = |first, step, packets, bytes| {
            DatagramBody::Layer(LayerPacket { first, step, packets, symbol: vec![0; bytes] })
        };
        let too_big = [
            data(0, 0, limits::DATAGRAM_STREAM_BYTES + 1),
            repair(0, 1, 0, SYMBOL_BYTES + 2),
            layer(0, 1, 2, SYMBOL_BYTES + 2),
            DatagramBody::Report(report(limits::REPORT_RUNS + 1)),
        ];
        for body in too_big {
            assert_eq!(encode(body), Err(Code::TooBig.into()));
        }
        let zero = LostRun { first: 1, length: 0 };
        let wrong = [
            data(0, 0, 0),
            data(1 << 63, 0, 1),
            data(0, GREATEST, 1),
            repair(1 << 63, 1, 0, 12),
            repair(0, 0, 0, 12),
            repair(0, 65, 0, 12),
            repair(0, 1, 16, 12),
            repair(0, 1, 0, 10),
            repair(0, 1, 0, 13),
            layer(0, 0, 2, 12),
            layer(0, 65, 2, 12),
            layer(0, 1, 1, 12),
            layer(0, 1, 65, 12),
            DatagramBody::Report(LinkReport { highest: u64::MAX, ..report(0) }),
            DatagramBody::Report(LinkReport { runs: vec![zero], ..report(0) }),
        ];
        for body in wrong {
            assert!(Datagram::decode(&encode(body.clone()).unwrap()).is_err(), "{body:?}");
        }
        let mut longer = encode(DatagramBody::Report(report(limits::REPORT_RUNS))).unwrap();
        longer.extend([1; 12]);
        assert!(Datagram::decode(&longer).is_err());
        assert!(Datagram::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 4]).is_err(), "a kind that is none");
    }
}
