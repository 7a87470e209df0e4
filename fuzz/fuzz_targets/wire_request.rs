//! Decodes any bytes as a request, unchanged and with each request number that exists. A decoded
//! request encodes to the same bytes: a request has one form. So has an origin before it.
#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use pelago_wire::codec::{REQUESTS, decode_call, decode_origin, encode_call, encode_origin};
use pelago_wire::limits;

/// The bytes of the number of the request.
const NUMBER: Range<usize> = 16..18;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    if let Ok((origin, call)) = decode_origin(bytes) {
        let mut encoded = Vec::new();
        encode_origin(&origin, &mut encoded);
        encoded.extend(call);
        assert_eq!(encoded, bytes);
    }
    let mut known = bytes.to_vec();
    if known.len() < NUMBER.end {
        return;
    }
    for row in REQUESTS {
        known[NUMBER].copy_from_slice(&row.number.to_le_bytes());
        decode(&known);
    }
});

fn decode(body: &[u8]) {
    let Ok(call) = decode_call(body) else { return };
    assert!(body.len() <= limits::FRAME_BODY_BYTES);
    let mut encoded = Vec::new();
    encode_call(call.uid, call.gid, call.mutation, &call.request, &mut encoded)
        .expect("what was decoded keeps to the limits");
    assert_eq!(encoded, body);
    // Neither the description nor the form for logs panics.
    assert!(!call.request.describe().operation.name().is_empty());
    assert!(!format!("{call:?}").is_empty());
}
