//! Parses any bytes as a credential, as a revocation and as a block for mail. A credential has one
//! identity, and a block encodes the same chain again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_keynote::{Assertion, Revocation, SharedFolder, armor, unarmor};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(assertion) = Assertion::parse(bytes) {
        assert_eq!(assertion.text().as_bytes(), bytes);
        assert_eq!(Assertion::parse(bytes).map(|again| again.id()), Ok(assertion.id()));
        let _granted = SharedFolder::of(&assertion);
        let _verified = assertion.verify();
    }
    if let Ok(revocation) = Revocation::parse(bytes) {
        let _verified = revocation.verify();
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(chain) = unarmor(text) {
        let block = armor(&chain).expect("a chain within the limits");
        assert_eq!(unarmor(&block), Ok(chain));
    }
});
