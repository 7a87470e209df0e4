//! Decodes any bytes as the header of a frame, unchanged and with each kind that exists. A decoded
//! header encodes to the same bytes, and keeps to the limits of its kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};

fuzz_target!(|bytes: [u8; HEADER_BYTES]| {
    decode(&bytes);
    for kind in FrameKind::ALL {
        let mut known = bytes;
        known[8..10].copy_from_slice(&kind.number().to_le_bytes());
        decode(&known);
        // Random bytes are rarely zero in the fields that must be zero, and so would rarely decode.
        known[10..16].fill(0);
        decode(&known);
        // Nor are the high bytes of lengths, which would exceed the limits.
        known[2..4].fill(0);
        known[6..8].fill(0);
        decode(&known);
    }
});

fn decode(bytes: &[u8; HEADER_BYTES]) {
    if let Ok(header) = Header::decode(bytes) {
        assert!(header.body as usize <= header.kind.body_limit());
        assert!(header.bulk as usize <= header.kind.bulk_limit());
        assert_eq!(header.number != 0, header.kind.has_number());
        assert_eq!(&header.encode(), bytes);
    }
}
