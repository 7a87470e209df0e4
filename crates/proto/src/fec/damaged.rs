//! The rebuilding of a block: all that it takes, as values that may travel to another thread.

use std::sync::Arc;

use pelago_wire::limits;
use reed_solomon_simd::{Error, ReedSolomonDecoder};

/// All that repair packets say of their block: those that do not agree are of different blocks, so
/// none can keep others from theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockKey {
    /// The sequence number of the first data packet.
    pub(super) first: u64,
    /// The number of data packets.
    pub(super) packets: u8,
    /// Bytes of a symbol.
    pub(super) length: usize,
}

/// A block of which data packets are missing, with enough others to rebuild them.
#[derive(Debug, Clone)]
pub struct Damaged {
    pub(super) key: BlockKey,
    /// The symbol of each data packet, if it is here.
    pub(super) symbols: Vec<Option<Arc<[u8]>>>,
    /// The repair symbols that are here, by their indexes.
    pub(super) repair: Vec<(u8, Arc<[u8]>)>,
}

/// The missing symbols of a block: none if they cannot be rebuilt.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    pub(super) key: BlockKey,
    /// Each with the sequence number of its data packet.
    pub(super) symbols: Vec<(u64, Vec<u8>)>,
}

impl Damaged {
    /// Rebuilds the missing data packets. It takes about a millisecond, however few they are: the
    /// library fills a table of all 65,536 elements of its field.
    #[must_use]
    pub fn rebuild(&self) -> Rebuilt {
        // Symbols that contradict each other give none.
        Rebuilt { key: self.key, symbols: self.missing().unwrap_or_default() }
    }

    fn missing(&self) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let BlockKey { first, packets, length } = self.key;
        let packets = usize::from(packets);
        let mut code = ReedSolomonDecoder::new(packets, limits::BLOCK_REPAIR_PACKETS, length)?;
        let mut padded = Vec::with_capacity(length);
        for (index, symbol) in self.symbols.iter().enumerate() {
            let Some(symbol) = symbol else { continue };
            padded.clear();
            padded.extend_from_slice(symbol);
            if padded.len() < length {
                padded.resize(length, 0);
            }
            code.add_original_shard(index, &padded)?;
        }
        for (index, symbol) in &self.repair {
            code.add_recovery_shard(usize::from(*index), symbol)?;
        }
        let restored = code.decode()?;
        let symbols = restored.restored_original_iter();
        Ok(symbols
            .map(|(index, symbol)| (first.saturating_add(index as u64), symbol.to_vec()))
            .collect())
    }
}
