//! Decodes any bytes as a datagram whose seal was opened. A decoded value encodes to the same
//! bytes, and fits a sealed datagram.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::datagram::Datagram;
use pelago_wire::limits;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(datagram) = Datagram::decode(bytes) {
        assert_eq!(datagram.encode().as_deref(), Ok(bytes));
        let sealed = datagram.body.sealed_bytes();
        assert_eq!(sealed, bytes.len() + limits::DATAGRAM_SEAL_BYTES);
        assert!(sealed <= limits::DATAGRAM_BYTES);
    }
});
