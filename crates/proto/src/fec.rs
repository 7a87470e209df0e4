//! Forward error correction: datagrams from a primary to its mirror that survive losses without a
//! question, an answer or a timer.
//!
//! The bytes of a stream travel in numbered data packets. Two layers of repair packets follow them,
//! as in Maelstrom (Balakrishnan et al., NSDI 2008), on which SMFS stands (Weatherspoon et al.,
//! FAST 2009):
//!
//! - *Blocks*: up to 64 data packets that follow each other, with up to 16 repair packets of a
//!   Reed-Solomon code. If a block has r data packets, any r of all of them rebuild it. A block
//!   closes when it is full, after a millisecond, or when a caller waits.
//! - *Layers*: the XOR of every i-th data packet, for bursts that take more of a block than its
//!   repair packets. The step i is twice the length of most bursts.
//!
//! The decoder goes round both: a packet that one layer has rebuilt may be the last one that the
//! other lacks. What it cannot rebuild is sent again: the reports count it as lost.
//!
//! # The repair that is sent
//!
//! A waiter is promised that its bytes outlive the primary once they have left it. So a block that
//! a caller waits for gets the least number of repair packets with which its residual loss
//! ([`residual`]) is at most 10⁻⁹ at the upper bound of the loss seen, and *so does each earlier
//! block that has not arrived*: of a stream only the beginning can be used. Blocks that no caller
//! waits for get one, and the encoder keeps the others until they have arrived. It always encodes
//! for 16, because the repair packets of a shorter code are not the first ones of a longer one.
//!
//! Repair has at most a third of the link over any second. If that is used up, blocks close later,
//! with the packets of more waiters in them, and so need a smaller share of it. Only blocks of
//! waiters are exempt while no more bytes wait for the link: four packets alone need five at 1 % of
//! loss, and these take the place of nothing.
//!
//! # Why data packets carry a stream
//!
//! A data packet has two numbers. By its *sequence number* repair packets name it, and the decoder
//! can tell that one is missing. By its *offset* its bytes have a place in the stream, which the
//! connection can fill as well, in pieces of any size: it knows nothing of packets. Both are in
//! the symbol that is coded, so a rebuilt packet is as good as one that arrived. Neither is the
//! number of the datagram: that is the nonce of a seal, and a packet that did not leave the
//! machine is sent again under another one.
//!
//! # What a peer can do
//!
//! Each datagram is sealed, so one that is forged or cut never comes here, and one that is replayed
//! is stopped by [`ReplayWindow`]. Only the peer itself can lie. It is the author of the stream, so
//! it gains nothing with bytes that it could have sent openly, and a group's sum tells what is
//! wrong in the end. A rebuilt packet is accepted only if its symbol is one (its length fits, zeros
//! follow) and its bytes join those of its neighbours that are here. Otherwise what it was rebuilt
//! from is dropped, and nothing of it is kept: no packet that arrived is ever replaced by one that
//! was rebuilt. All memory is bounded by limits, whatever numbers a peer claims.
//!
//! # The contract
//!
//! [`Encoder`], [`Decoder`] and [`StreamBuffer`] have no clock and do no I/O. Times are counted
//! from any origin. Rebuilding a block takes about a millisecond, so it is no part of the decoder:
//! [`Decoder::take`] returns a [`Damaged`] block, which any thread may turn into a [`Rebuilt`] one
//! for [`Decoder::handle_rebuilt`].
//!
//! [`ReplayWindow`]: crate::link::ReplayWindow

use std::time::Duration;

pub use damaged::{Damaged, Rebuilt};
pub use decoder::{Decoder, DecoderCounts};
pub use encoder::Encoder;
pub use residual::{RESIDUAL, least_repair, residual};
pub use stream::StreamBuffer;

mod budget;
mod damaged;
mod decoder;
mod encoder;
mod gaps;
mod layer;
mod residual;
mod stream;
mod symbol;
#[cfg(test)]
mod tests;

/// The time after which a block closes if no more bytes wait for the link.
pub const BLOCK_TIME: Duration = Duration::from_millis(1);

/// The repair packets that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepairMode {
    /// As many as the loss seen and the waiters ask for.
    #[default]
    Auto,
    /// All of each block, whatever share of the link they take.
    Full,
    /// None.
    Off,
}
