//! The encoding of [`SetAttr`]: a u16 with a bit for each value that follows and for each flag, and
//! then the values in the order of their bits.

use super::field::{DecodeError, Field, Reader};
use super::fields::Mode;
use crate::attr::{SetAttr, SetTime, Time};
use crate::error::Error;

const MODE: u16 = 1 << 0;
const UID: u16 = 1 << 1;
const GID: u16 = 1 << 2;
const SIZE: u16 = 1 << 3;
const ATIME: u16 = 1 << 4;
const ATIME_NOW: u16 = 1 << 5;
const MTIME: u16 = 1 << 6;
const MTIME_NOW: u16 = 1 << 7;
const CTIME: u16 = 1 << 8;
const KILL_PRIVILEGES: u16 = 1 << 9;
const KILL_SETGID: u16 = 1 << 10;
const ALL: u16 = (1 << 11) - 1;

impl Field for SetAttr {
    type Value = Self;
    const MOST: usize = 2 + Mode::MOST + 2 * u32::MOST + u64::MOST + 3 * Time::MOST;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        let bits_of = |time, to, now| match time {
            None => 0,
            Some(SetTime::Now) => now,
            Some(SetTime::To(_)) => to,
        };
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let bits = bit(value.mode.is_some(), MODE)
            | bit(value.uid.is_some(), UID)
            | bit(value.gid.is_some(), GID)
            | bit(value.size.is_some(), SIZE)
            | bits_of(value.atime, ATIME, ATIME_NOW)
            | bits_of(value.mtime, MTIME, MTIME_NOW)
            | bit(value.ctime.is_some(), CTIME)
            | bit(value.kill_privileges, KILL_PRIVILEGES)
            | bit(value.kill_setgid, KILL_SETGID);
        u16::put(&bits, out)?;
        put_present::<Mode>(value.mode.as_ref(), out)?;
        put_present::<u32>(value.uid.as_ref(), out)?;
        put_present::<u32>(value.gid.as_ref(), out)?;
        put_present::<u64>(value.size.as_ref(), out)?;
        for time in [value.atime, value.mtime] {
            if let Some(SetTime::To(time)) = time {
                Time::put(&time, out)?;
            }
        }
        put_present::<Time>(value.ctime.as_ref(), out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bits = u16::take(from)?;
        if bits & !ALL != 0 {
            return Err(from.unknown(bits.into()));
        }
        Ok(Self {
            mode: take_present::<Mode>(bits & MODE, from)?,
            uid: take_present::<u32>(bits & UID, from)?,
            gid: take_present::<u32>(bits & GID, from)?,
            size: take_present::<u64>(bits & SIZE, from)?,
            atime: take_time(bits & ATIME, bits & ATIME_NOW, from)?,
            mtime: take_time(bits & MTIME, bits & MTIME_NOW, from)?,
            ctime: take_present::<Time>(bits & CTIME, from)?,
            kill_privileges: bits & KILL_PRIVILEGES != 0,
            kill_setgid: bits & KILL_SETGID != 0,
        })
    }
}

fn put_present<T: Field>(value: Option<&T::Value>, out: &mut Vec<u8>) -> Result<(), Error> {
    value.map_or(Ok(()), |value| T::put(value, out))
}

fn take_present<T: Field>(
    bit: u16,
    from: &mut Reader<'_>,
) -> Result<Option<T::Value>, DecodeError> {
    if bit == 0 { Ok(None) } else { T::take(from).map(Some) }
}

fn take_time(to: u16, now: u16, from: &mut Reader<'_>) -> Result<Option<SetTime>, DecodeError> {
    match (to, now) {
        (0, 0) => Ok(None),
        (0, _) => Ok(Some(SetTime::Now)),
        (_, 0) => Time::take(from).map(|time| Some(SetTime::To(time))),
        (_, _) => Err(from.invalid()),
    }
}
