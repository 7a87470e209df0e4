//! Decodes any bytes as the body of a response with blocks, in pieces, unchanged and after a valid
//! head. Each event is within the file, and at most one frame is buffered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::blocks::{BlockEvent, BlockReader, BlocksHead, Extents};
use pelago_wire::limits::BLOCK_BYTES;

fuzz_target!(|input: (usize, u64, &[u8])| {
    let (piece, size, bytes) = input;
    let piece = piece % 5000 + 1;
    decode(bytes, piece);
    let size = size % (64 << 20);
    let extents = Extents::of(size).expect("it is below the limit");
    decode(&[&BlocksHead { extents }.encode(), bytes].concat(), piece);
});

fn decode(bytes: &[u8], piece: usize) {
    let mut reader = BlockReader::default();
    let mut file = None;
    for mut piece in bytes.chunks(piece) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(BlockEvent::Head(extents))) => file = Some(extents),
                Ok(Some(BlockEvent::Block { block, bytes })) => {
                    let range = file.expect("the head comes first").block(block);
                    assert_eq!(range.end - range.start, bytes.len() as u64);
                    assert!(!bytes.is_empty() && bytes.len() <= BLOCK_BYTES);
                }
                Ok(Some(
                    BlockEvent::Hash { extent, .. } | BlockEvent::Unreadable { extent, .. },
                )) => {
                    assert!(extent < file.expect("the head comes first").count());
                }
                Ok(Some(_)) => assert!(reader.finish().is_ok()),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(piece.is_empty());
    }
}
