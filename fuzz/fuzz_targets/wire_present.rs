//! Decodes any bytes as the credentials that a guest presents. A decoded message encodes to the
//! same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::present::Present;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(present) = Present::decode(bytes) {
        assert_eq!(present.encode().as_deref(), Ok(bytes));
    }
});
