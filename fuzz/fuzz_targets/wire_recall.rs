//! Decodes any bytes as a recall. A decoded recall encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::codec::{decode_recall, encode_recall};
use pelago_wire::{Recalled, limits};

fuzz_target!(|bytes: &[u8]| {
    let Ok(recalled) = decode_recall(bytes) else { return };
    assert!(bytes.len() <= limits::RECALL_BYTES);
    if let Recalled::Things(things) = &recalled {
        assert!(things.len() <= limits::RECALL_THINGS);
    }
    let mut encoded = Vec::new();
    encode_recall(&recalled, &mut encoded).expect("it was decoded");
    assert_eq!(encoded, bytes);
});
