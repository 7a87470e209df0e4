//! Decodes any bytes as the files `format` and `seed`, unchanged and with a valid checksum. A
//! decoded file must encode to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_store::volume::{Format, HashSeed};
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    decode(&[bytes, &xxh3_64(bytes).to_le_bytes()].concat());
});

fn decode(bytes: &[u8]) {
    if let Ok(format) = Format::decode(bytes) {
        assert_eq!(format.encode(), bytes);
    }
    if let Ok(seed) = HashSeed::decode(bytes) {
        assert_eq!(seed.encode(), bytes);
    }
}
