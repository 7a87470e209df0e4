//! Parses any text as a key of OpenSSH, public and private, and as a list of named keys, and any
//! bytes as what such a private file encodes. A public key has one text of ours.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use pelago_keynote::key::named::NamedKeys;
use pelago_net::key::PublicKey;
use pelago_net::key::openssh::private;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";

fuzz_target!(|bytes: &[u8]| {
    let file = format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(bytes));
    let _refused = private::parse(&file);
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(key) = text.parse::<PublicKey>() {
        assert!(PublicKey::is_meant(text.trim()));
        assert_eq!(PublicKey::from_own_text(&key.to_string()), Ok(key));
    }
    if let Ok(list) = NamedKeys::parse(text) {
        let again = NamedKeys::parse(&list.to_text()).expect("a list is read again");
        assert!(again.iter().eq(list.iter()));
    }
    if let Ok(key) = private::parse(text) {
        let public = private::parse(text.trim()).map(|again| again.public());
        assert_eq!(public, Ok(key.public()));
    }
});
