//! Decodes any bytes as a message to or from a relay. A decoded message encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::relay::RelayMessage;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = RelayMessage::decode(bytes) {
        assert_eq!(message.encode().as_deref(), Ok(bytes));
    }
});
