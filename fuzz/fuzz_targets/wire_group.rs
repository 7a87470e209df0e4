//! Decodes any bytes as a part of a group, and as the state of a mirror. A decoded value encodes to
//! the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::mirror::{GroupPart, GroupState};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(part) = GroupPart::decode(bytes) {
        assert_eq!(part.encode().as_deref(), Ok(bytes));
    }
    if let Ok(state) = GroupState::decode(bytes) {
        // Only a failure has a text.
        assert_eq!(GroupState::decode(&state.encode()), Ok(state));
    }
});
