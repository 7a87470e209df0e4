//! The local time of this machine, by the zone files of the system (RFC 8536).
//!
//! A file lists the changes of the offset from UTC, and has the rule for later years as POSIX
//! writes it in `TZ`. The C library would read them too, but no crate has a safe binding for that.

#![expect(clippy::big_endian_bytes, reason = "zone files have them")]

use std::env;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::rule::Rule;

/// The limit for a zone file; those of the system have less than 4 KiB.
const FILE_BYTES: u64 = 64 << 10;
/// The zone of the machine.
const LOCAL: &str = "/etc/localtime";
/// The folder of all zones, which `TZ` names.
const ZONES: &str = "/usr/share/zoneinfo";

/// The offsets of a local time from UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Zone {
    /// The offset before the first change, in seconds east of Greenwich.
    first: i64,
    /// The times of the changes, in seconds since 1970, with the offset from then on.
    changes: Vec<(i64, i64)>,
    /// The rule after the last change; `None` if the offset stays.
    rule: Option<Rule>,
}

/// The error of a zone that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the time zone {} of this machine cannot be read", .0.display())]
pub(crate) struct ZoneError(PathBuf);

impl Zone {
    /// UTC.
    pub(crate) const UTC: Self = Self { first: 0, changes: Vec::new(), rule: None };

    /// Returns the zone of this process: that of `TZ`, or of the machine.
    pub(crate) fn local() -> Result<Self, ZoneError> {
        let Some(named) = env::var_os("TZ") else { return Self::of_file(Path::new(LOCAL)) };
        let text = named.to_str().ok_or_else(|| ZoneError(PathBuf::from(&named)))?;
        match text.strip_prefix(':').unwrap_or(text) {
            "" => Ok(Self::UTC),
            name => match Rule::parse(name) {
                Some(rule) => Ok(Self::of_rule(rule)),
                // An absolute path replaces the folder.
                None => Self::of_file(&Path::new(ZONES).join(name)),
            },
        }
    }

    /// Returns the zone that has had the same rule in all years.
    pub(super) const fn of_rule(rule: Rule) -> Self {
        Self { first: 0, changes: Vec::new(), rule: Some(rule) }
    }

    fn of_file(path: &Path) -> Result<Self, ZoneError> {
        let failed = |_: io::Error| ZoneError(path.to_owned());
        let file = match File::open(path) {
            // A machine without the file has UTC.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path == Path::new(LOCAL) => {
                return Ok(Self::UTC);
            }
            file => file.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(&bytes).ok_or_else(|| ZoneError(path.to_owned()))
    }

    /// Parses a zone file, of version 2 or later; `None` if it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        // The block of version 1 has times of 32 bits.
        let first = Header::take(&mut from)?;
        take(&mut from, first.bytes(4)?)?;
        let header = Header::take(&mut from)?;
        let mut block = take(&mut from, header.bytes(8)?)?;
        let times = take(&mut block, header.times.checked_mul(8)?)?;
        let kinds = take(&mut block, header.times)?;
        let types = take(&mut block, header.types.checked_mul(TYPE_BYTES)?)?;
        let offset = |kind: usize| -> Option<i64> {
            let mut one = types.get(kind.checked_mul(TYPE_BYTES)?..)?;
            Some(i64::from(i32::from_be_bytes(array(&mut one)?)))
        };
        let mut changes = Vec::new();
        for (mut time, kind) in times.chunks(8).zip(kinds) {
            changes.push((i64::from_be_bytes(array(&mut time)?), offset(usize::from(*kind))?));
        }
        let footer = str::from_utf8(from).ok()?.strip_prefix('\n')?;
        let rule = match footer.split_once('\n')?.0 {
            "" => None,
            rule => Some(Rule::parse(rule)?),
        };
        Some(Self { first: offset(0)?, changes, rule })
    }

    /// Returns the offset from UTC at a time in seconds since 1970.
    fn offset_at(&self, time: i64) -> i64 {
        let after = self.changes.partition_point(|(at, _)| *at <= time);
        if after == self.changes.len()
            && let Some(rule) = &self.rule
        {
            return rule.offset_at(time);
        }
        let change = after.checked_sub(1).and_then(|at| self.changes.get(at));
        change.map_or(self.first, |(_, offset)| *offset)
    }

    /// Returns the time of a local time, the earlier one if there are two; `None` if the clocks
    /// skip it. Both are in seconds since 1970.
    pub(crate) fn time_of(&self, local: i64) -> Option<i64> {
        // No offset is as large as a day, and no two changes are as near.
        let offsets = [local - DAY, local + DAY].map(|near| self.offset_at(near));
        let fits = |offset: &i64| self.offset_at(local - offset) == *offset;
        offsets.into_iter().filter(fits).map(|offset| local - offset).min()
    }
}

const DAY: i64 = super::calendar::DAY_SECONDS;

/// The bytes of a type of local time: its offset, whether it is summer time, and its name.
const TYPE_BYTES: usize = 6;

/// The counts in the head of a block.
struct Header {
    uts: usize,
    standards: usize,
    leaps: usize,
    times: usize,
    types: usize,
    letters: usize,
}

impl Header {
    fn take(from: &mut &[u8]) -> Option<Self> {
        let is_zone = take(from, 4)? == b"TZif";
        let version = take(from, 16)?.first()?;
        if !is_zone || *version < b'2' {
            return None;
        }
        let mut count = || usize::try_from(u32::from_be_bytes(array(from)?)).ok();
        Some(Self {
            uts: count()?,
            standards: count()?,
            leaps: count()?,
            times: count()?,
            types: count()?,
            letters: count()?,
        })
    }

    /// Returns the length of the block whose times have so many bytes.
    fn bytes(&self, width: usize) -> Option<usize> {
        let parts = [
            self.times.checked_mul(width + 1)?,
            self.types.checked_mul(TYPE_BYTES)?,
            self.letters,
            self.leaps.checked_mul(width + 4)?,
            self.standards,
            self.uts,
        ];
        parts.into_iter().try_fold(0, usize::checked_add)
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(head)
}

fn array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    take(from, N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file of version 2: an offset of one hour, two from 1000 on, one from 2000 on.
    fn file(footer: &str) -> Vec<u8> {
        let header = |times: u32, types: u32, letters: u32| {
            let mut bytes = b"TZif2".to_vec();
            bytes.extend([0; 15]);
            for count in [0, 0, 0, times, types, letters] {
                bytes.extend(count.to_be_bytes());
            }
            bytes
        };
        let mut bytes = header(0, 1, 1);
        bytes.extend([0; 7]);
        bytes.extend(header(2, 2, 4));
        for time in [1000_i64, 2000] {
            bytes.extend(time.to_be_bytes());
        }
        bytes.extend([1, 0]);
        for offset in [3600_i32, 7200] {
            bytes.extend(offset.to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(b"abc\0");
        bytes.extend(format!("\n{footer}\n").as_bytes());
        bytes
    }

    #[test]
    fn the_changes_of_a_file_are_followed() {
        let zone = Zone::parse(&file("")).unwrap();
        for (time, offset) in [(0, 3600), (999, 3600), (1000, 7200), (1999, 7200), (2000, 3600)] {
            assert_eq!(zone.offset_at(time), offset, "{time}");
        }
        assert_eq!(zone.offset_at(i64::MAX), 3600);
        let ruled = Zone::parse(&file("XYZ-5")).unwrap();
        assert_eq!(ruled.offset_at(1999), 7200);
        assert_eq!(ruled.offset_at(2000), 5 * 3600);
    }

    #[test]
    fn a_file_that_is_cut_or_no_zone_is_refused() {
        let good = file("XYZ-5");
        for end in 0..good.len() {
            assert_eq!(Zone::parse(&good[..end]), None, "{end}");
        }
        assert_eq!(Zone::parse(&file("nonsense")), None);
        let mut huge = good;
        for byte in &mut huge[20..44] {
            *byte = 0xff;
        }
        assert_eq!(Zone::parse(&huge), None);
    }

    #[test]
    fn a_local_time_that_is_skipped_is_none_and_of_two_the_earlier_is_meant() {
        let zone = Zone::of_rule(Rule::parse("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        // 2026-03-29 at 01:59, 02:30 and 03:00; 2026-10-25 at 02:30.
        let spring = 1_774_742_400;
        assert_eq!(zone.time_of(spring + 7140), Some(spring + 3540));
        assert_eq!(zone.time_of(spring + 9000), None);
        assert_eq!(zone.time_of(spring + 10_800), Some(spring + 3600));
        let autumn = 1_792_886_400;
        assert_eq!(zone.time_of(autumn + 9000), Some(autumn + 1800));
    }

    #[test]
    fn the_files_of_this_machine_are_read() {
        let path = Path::new(ZONES).join("Europe/Berlin");
        if !path.exists() {
            return eprintln!("skipped: this machine has no zone files");
        }
        let zone = Zone::of_file(&path).unwrap();
        // 2026-07-01 and 2199-01-01, 12:00 UTC.
        assert_eq!(zone.offset_at(1_782_907_200), 7200);
        assert_eq!(zone.offset_at(7_226_582_400), 3600);
    }
}
