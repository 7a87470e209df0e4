//! Keys of machines, with their files and the addresses of servers.

pub use pelago_keynote::key::{
    KEY_BYTES, KeyTextError, NoRandomness, PrivateKey, PublicKey, openssh,
};
use pelago_wire::limits;

pub mod address;
pub mod file;

/// The limits of the parser are those of this program.
const _: () = assert!(
    limits::KEY_FILE_BYTES == pelago_keynote::key::KEY_FILE_BYTES
        && limits::KEY_NAME_BYTES == pelago_keynote::key::NAME_BYTES
        && limits::KEYS_BYTES == pelago_keynote::key::named::KEYS_BYTES
);
