//! The encoding of the rights of guests.
//!
//! The server makes these values, so one over its limit is `Bug`.

use super::field::{DecodeError, Field, Reader};
use crate::access::{DeniedRight, GuestAccess};
use crate::error::{Code, Error};
use crate::limits;

/// The letters of all rights.
const LETTERS: &[u8] = b"rwxcdga";

/// The letter of a right, a u8.
pub(crate) enum RightLetter {}

impl Field for RightLetter {
    type Value = u8;
    const MOST: usize = u8::MOST;

    fn put(value: &u8, out: &mut Vec<u8>) -> Result<(), Error> {
        if LETTERS.contains(value) { u8::put(value, out) } else { Err(Code::Bug.into()) }
    }

    fn take(from: &mut Reader<'_>) -> Result<u8, DecodeError> {
        let letter = u8::take(from)?;
        if LETTERS.contains(&letter) { Ok(letter) } else { Err(from.invalid()) }
    }
}

/// A list with its number as u8.
macro_rules! lists {
    ($($(#[doc = $doc:literal])+ $marker:ident = $of:ty, $value:ty, $limit:expr;)+) => { $(
        $(#[doc = $doc])+
        pub(crate) enum $marker {}

        impl Field for $marker {
            type Value = Vec<$value>;
            const MOST: usize = u8::MOST + $limit * <$of as Field>::MOST;

            fn put(value: &Vec<$value>, out: &mut Vec<u8>) -> Result<(), Error> {
                if value.len() > $limit {
                    return Err(Code::Bug.into());
                }
                u8::put(&u8::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
                value.iter().try_for_each(|one| <$of as Field>::put(one, out))
            }

            fn take(from: &mut Reader<'_>) -> Result<Vec<$value>, DecodeError> {
                let number = from.length::<u8>($limit)?;
                let mut all = Vec::with_capacity(number);
                for _ in 0..number {
                    all.push(<$of as Field>::take(from)?);
                }
                Ok(all)
            }
        }
    )+ };
}

lists! {
    /// Guests and their rights, at most [`limits::ACCESS_GUESTS`].
    GuestAccesses = GuestAccess, GuestAccess, limits::ACCESS_GUESTS;
    /// Letters of rights, at most seven.
    RightLetters = RightLetter, u8, LETTERS.len();
    /// Rights that a guest does not have, at most seven.
    DeniedRights = DeniedRight, DeniedRight, LETTERS.len();
}
