//! Decodes any bytes as the reply to a request and as a cached reply, unchanged and with each reply
//! number that exists. A decoded reply encodes to the same bytes, except the payload of an error,
//! which is reserved.
#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use pelago_wire::codec::{
    DecodedReply, REPLIES, decode_answer, decode_reply, encode_answer, encode_reply,
};
use pelago_wire::limits;

/// The bytes of the status.
const STATUS: Range<usize> = 12..14;
/// The bytes of the number of the reply.
const NUMBER: Range<usize> = 14..16;

fuzz_target!(|bytes: &[u8]| {
    answer(bytes, &[]);
    stored(bytes);
    let mut known = bytes.to_vec();
    if known.len() < NUMBER.end {
        return;
    }
    for row in REPLIES {
        known[STATUS].fill(0);
        known[NUMBER].copy_from_slice(&row.number.to_le_bytes());
        answer(&known, &[]);
        answer(&known, b"bulk");
        stored(&known[NUMBER.start..]);
    }
});

fn answer(body: &[u8], bulk: &[u8]) {
    let Ok(DecodedReply { stamp, result, granted }) = decode_answer(body, bulk.to_vec()) else {
        return;
    };
    assert!(body.len() <= limits::FRAME_BODY_BYTES);
    let mut encoded = Vec::new();
    encode_answer(stamp, &result, granted, &mut encoded);
    match &result {
        Ok(reply) => {
            assert_eq!(reply.bulk(), bulk);
            assert_eq!(encoded, body);
        }
        Err(error) => {
            assert!(bulk.is_empty());
            let again = decode_answer(&encoded, Vec::new()).expect("it was encoded");
            assert_eq!((again.stamp, again.result.err()), (stamp, Some(*error)));
        }
    }
}

fn stored(bytes: &[u8]) {
    let Ok(reply) = decode_reply(bytes) else { return };
    let mut encoded = Vec::new();
    encode_reply(&reply, &mut encoded).expect("what was decoded keeps to the limits");
    assert_eq!(encoded, bytes);
}
