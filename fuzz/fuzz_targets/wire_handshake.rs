//! Decodes any bytes as the messages that begin and end a connection, unchanged and after the
//! magic. A decoded message encodes to the same bytes, except a hello, which has reserved bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_wire::handshake::{Closing, HELLO_BYTES, Hello, MAGIC, Refused, Welcome};
use pelago_wire::version;

fuzz_target!(|bytes: &[u8]| {
    hello(bytes);
    let mut whole = [MAGIC.as_slice(), bytes].concat();
    whole.resize(HELLO_BYTES, 0);
    hello(&whole);
    if let Ok(welcome) = Welcome::decode(bytes) {
        assert_eq!(welcome.encode(), bytes);
    }
    if let Ok(refused) = Refused::decode(bytes) {
        assert!(!refused.code.says().is_empty());
        assert_eq!(refused.encode(), bytes);
    }
    if let Ok(closing) = Closing::decode(bytes) {
        assert!(!closing.code.says().is_empty());
        assert_eq!(closing.encode(), bytes);
    }
});

fn hello(bytes: &[u8]) {
    let Ok(hello) = Hello::decode(bytes) else { return };
    assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    if let Some(chosen) = version::negotiate(hello.wire_min, hello.wire_max) {
        assert!((hello.wire_min..=hello.wire_max).contains(&chosen));
        assert!((version::OLDEST..=version::NEWEST).contains(&chosen));
    }
}
