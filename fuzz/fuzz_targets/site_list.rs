//! Parses any bytes as the list of a volume's sites. What is parsed is signed again, and is the
//! same list.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_keynote::key::PrivateKey;
use pelago_keynote::{Principal, SignedSiteList};

fuzz_target!(|bytes: &[u8]| {
    let Ok(parsed) = SignedSiteList::parse(bytes) else { return };
    let list = parsed.unverified();
    let key = PrivateKey::from_seed([7; 32]).signing_key();
    let text = list.sign(&key);
    let again = SignedSiteList::parse(text.as_bytes()).expect("a list is parsed again");
    assert_eq!(again.verify(&Principal::of(&key)), Ok(list));
});
