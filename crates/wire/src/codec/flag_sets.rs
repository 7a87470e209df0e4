//! The encoding of structures of flags: a u16 with a bit for each. The era of leases on bytes
//! follows if its bit is set.

use super::field::{DecodeError, Field, Reader};
use crate::error::Error;
use crate::flags::{OpenFlags, PlaceFlags, WriteFlags};
use crate::leases::Leases;
use crate::write_era::WriteEra;

macro_rules! flag_sets {
    ($($type:ident { $($flag:ident = $bit:literal,)+ $(; $era:ident = $with:literal)? })+) => { $(
        impl Field for $type {
            type Value = Self;
            const MOST: usize = u16::MOST $(+ {
                let _ = stringify!($era);
                u32::MOST
            })?;

            fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
                let Self { $($flag,)+ $($era)? } = *value;
                let with_era = 0 $(| u16::from($era.is_some()) << $with)?;
                u16::put(&(with_era $(| u16::from($flag) << $bit)+), out)?;
                $(if let Some(era) = $era {
                    u32::put(&era.0, out)?;
                })?
                Ok(())
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bits = u16::take(from)?;
                if bits & !(0 $(| 1 << $bit)+ $(| 1 << $with)?) != 0 {
                    return Err(from.unknown(bits.into()));
                }
                $(let $era = match bits & 1 << $with {
                    0 => None,
                    _ => Some(WriteEra(u32::take(from)?)),
                };)?
                Ok(Self { $($flag: bits & 1 << $bit != 0,)+ $($era)? })
            }
        }
    )+ };
}

flag_sets! {
    OpenFlags {
        read = 0,
        write = 1,
        append = 2,
        truncate = 3,
        sync = 4,
        kill_privileges = 5,
        no_atime = 6,
        strict_atime = 7,
        passthrough = 8,
    }
    WriteFlags { append = 0, commit = 2, kill_privileges = 8, ; behind = 1 }
    PlaceFlags { asks = 0, given = 1, kill_privileges = 8, }
    Leases { node = 0, names = 1, changed = 2, made = 3, ; bytes = 4 }
}
