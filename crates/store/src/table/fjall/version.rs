//! The engine's version files: which sorted runs a keyspace has.
//!
//! `current` names one, `v` and a number, with its checksum. The engine does not compare the
//! checksum, and removes every sorted run that the version does not name: with one wrong byte there
//! it would remove rows that were safe.

use std::fs;
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::Error;

/// Bytes of `current`: the number, the checksum, and which checksum it is.
const CURRENT_BYTES: usize = 8 + 16 + 1;
/// XXH3 with 128 bits.
const XXH3: u8 = 0;

/// Compares the version that `current` names with its checksum.
///
/// # Errors
/// [`Error::Corrupt`] if they differ or one is missing.
pub(super) fn check(current: &Path) -> Result<(), Error> {
    let bytes = read(current)?;
    let damage = |place: &Path, what: &str| {
        Err(Error::Corrupt { place: place.to_owned(), what: what.to_owned() })
    };
    let Some((number, sum)) = parse(&bytes) else {
        return damage(current, "it names no version");
    };
    let place = current.with_file_name(format!("v{number}"));
    if xxh3_128(&read(&place)?) == sum {
        Ok(())
    } else {
        damage(&place, "its checksum is not the one that was noted of it")
    }
}

fn parse(bytes: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (sum, kind) = rest.split_first_chunk()?;
    let known = bytes.len() == CURRENT_BYTES && kind == [XXH3];
    known.then_some((u64::from_le_bytes(*number), u128::from_le_bytes(*sum)))
}

fn read(place: &Path) -> Result<Vec<u8>, Error> {
    fs::read(place).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::Corrupt { place: place.to_owned(), what: "it is missing".to_owned() }
        }
        _ => Error::from_io("looking at the table's files", error),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes a version and what names it.
    pub(crate) fn make(current: &Path, version: &[u8]) -> Vec<u8> {
        let sum = xxh3_128(version).to_le_bytes();
        let named = [&7_u64.to_le_bytes()[..], &sum, &[XXH3]].concat();
        fs::write(current.with_file_name("v7"), version).unwrap();
        fs::write(current, &named).unwrap();
        named
    }

    #[test]
    fn a_version_is_what_was_noted_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let current = folder.path().join("current");
        let is_damage = || matches!(check(&current), Err(Error::Corrupt { .. }));
        assert!(is_damage());
        let good = make(&current, b"runs");
        check(&current).unwrap();
        fs::remove_file(folder.path().join("v7")).unwrap();
        assert!(is_damage());
        fs::write(folder.path().join("v7"), b"rums").unwrap();
        assert!(is_damage());
        fs::write(folder.path().join("v7"), b"runs").unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&current, &bad).unwrap();
            assert!(is_damage(), "byte {at}");
        }
        fs::write(&current, &good[..CURRENT_BYTES - 1]).unwrap();
        assert!(is_damage());
    }
}
