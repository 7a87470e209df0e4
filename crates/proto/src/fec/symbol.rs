//! Symbols: the form in which data packets are coded (RFC 6363 calls them source symbols).
//!
//! A symbol is the length of the bytes u16, their offset u64, the bytes, and zeros up to an even
//! length. Zeros after it change no sum, so symbols of different lengths are coded together as if
//! all were as long as the longest one.

use pelago_wire::datagram::{DataPacket, SYMBOL_HEAD_BYTES};
use pelago_wire::limits;

/// Returns the symbol of a packet.
pub(super) fn of(packet: &DataPacket) -> Vec<u8> {
    let length = packet.bytes.len();
    let mut symbol = Vec::with_capacity(even(SYMBOL_HEAD_BYTES + length));
    // A packet has at most DATAGRAM_STREAM_BYTES.
    symbol.extend((length as u16).to_le_bytes());
    symbol.extend(packet.offset.to_le_bytes());
    symbol.extend(&packet.bytes);
    symbol.resize(even(symbol.len()), 0);
    symbol
}

/// Returns the packet of a symbol with any number of zeros after it, or `None` if it is no symbol
/// of a packet: its length exceeds it, or what follows is not zero.
pub(super) fn packet(sequence: u64, symbol: &[u8]) -> Option<DataPacket> {
    let (length, rest) = symbol.split_first_chunk::<2>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (bytes, zeros) = rest.split_at_checked(length)?;
    let offset = u64::from_le_bytes(*offset);
    let is_right = (1..=limits::DATAGRAM_STREAM_BYTES).contains(&length)
        && offset <= i64::MAX as u64 - length as u64
        && zeros.iter().all(|byte| *byte == 0);
    is_right.then(|| DataPacket { sequence, offset, bytes: bytes.to_vec() })
}

/// Returns the bytes of the stream that a symbol of a packet has: from its offset on, before the
/// end.
pub(super) fn range(symbol: &[u8]) -> Option<(u64, u64)> {
    let (length, rest) = symbol.split_first_chunk::<2>()?;
    let offset = u64::from_le_bytes(*rest.first_chunk::<8>()?);
    Some((offset, offset.saturating_add(u16::from_le_bytes(*length).into())))
}

/// Adds a symbol to a sum, which grows to its length.
pub(super) fn add(sum: &mut Vec<u8>, symbol: &[u8]) {
    if sum.len() < symbol.len() {
        sum.resize(symbol.len(), 0);
    }
    sum.iter_mut().zip(symbol).for_each(|(sum, byte)| *sum ^= byte);
}

/// Returns an even number of bytes, which the code takes.
const fn even(bytes: usize) -> usize {
    bytes.next_multiple_of(2)
}
