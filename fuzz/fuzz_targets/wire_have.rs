//! Decodes any bytes as a have-map, unchanged and after a valid head. A decoded map encodes to the
//! same bytes, and is within the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::blocks::{Extents, HaveMap};
use pelago_wire::limits::{BLOCKS_FILE_BYTES, HAVE_RUNS};

fuzz_target!(|input: (u64, &[u8])| {
    let (size, bytes) = input;
    let file = Extents::of(size % (BLOCKS_FILE_BYTES + 1)).expect("it is below the limit");
    decode(bytes, file);
    let mut known = HaveMap::default().encode();
    let runs = u32::try_from(bytes.len() / 16).expect("the fuzzer's inputs are short");
    known[12..].copy_from_slice(&runs.to_le_bytes());
    known.extend(&bytes[..bytes.len() / 16 * 16]);
    decode(&known, file);
});

fn decode(bytes: &[u8], file: Extents) {
    let Ok(map) = HaveMap::decode(bytes, file) else { return };
    assert_eq!(map.encode(), bytes);
    assert!(map.runs().len() <= HAVE_RUNS);
    for run in map.runs() {
        let end = run.first + run.blocks;
        assert!(end <= file.blocks());
        assert!(map.contains(run.first) && map.contains(end - 1) && !map.contains(end));
    }
}
