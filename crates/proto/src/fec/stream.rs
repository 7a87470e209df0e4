//! The stream at the mirror: bytes that come in any order, by datagrams and by the connection.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use pelago_wire::limits;

/// Bytes that a piece takes besides its own.
const PIECE_BYTES: usize = 64;

/// Bytes of a stream that wait for those before them.
#[derive(Debug, Default)]
pub struct StreamBuffer {
    /// The first byte that has not come.
    next: u64,
    /// By offset; they do not overlap, and all come after `next`.
    ahead: BTreeMap<u64, Vec<u8>>,
    ahead_bytes: usize,
    /// In order.
    ready: VecDeque<Vec<u8>>,
}

impl StreamBuffer {
    /// Returns the buffer of a stream of which nothing has come.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes. Those that are here already are dropped, and so are those that come too far
    /// ahead, beyond [`limits::STREAM_AHEAD_BYTES`]: they are missing once the others are here.
    pub fn insert(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        let mut at = offset.max(self.next);
        while at < end {
            let before = self.ahead.range(..=at).next_back();
            let before = before.map_or(0, |(from, piece)| from + piece.len() as u64);
            if before > at {
                at = before;
                continue;
            }
            let after = self.ahead.range(at..).next().map_or(end, |(from, _)| (*from).min(end));
            let Some(piece) = cut(bytes, at - offset..after - offset) else { return };
            let is_next = at == self.next;
            if !is_next && self.ahead_bytes + PIECE_BYTES + piece.len() > limits::STREAM_AHEAD_BYTES
            {
                return;
            }
            self.ahead_bytes += PIECE_BYTES + piece.len();
            self.ahead.insert(at, piece.to_vec());
            at = after;
        }
        self.advance();
    }

    /// Returns the next bytes, in order.
    pub fn poll_bytes(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Returns the offset of the first byte that has not come.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Moves what follows the bytes that are ready.
    fn advance(&mut self) {
        while let Some(piece) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= PIECE_BYTES + piece.len();
            self.next += piece.len() as u64;
            self.ready.push_back(piece);
        }
    }
}

fn cut(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
    bytes.get(range)
}
