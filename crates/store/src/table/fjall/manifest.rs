//! The check of a keyspace's manifest: the file that lists the sorted runs of the keyspace.
//!
//! The file `current` holds the number of the manifest `v`NUMBER and the checksum of that file. The
//! engine does not compare the checksum, and it deletes every sorted run that the manifest does not
//! list: one wrong byte there would delete rows that were safe.
//!
//! If one bit is wrong, in either file, the checksum tells which: so a salvage still knows which
//! runs there were.

use std::path::{Path, PathBuf};
use std::{fs, io};

use xxhash_rust::xxh3::xxh3_128;

use crate::table::Error;

/// Bytes of `current`: number, checksum, type of the checksum.
const CURRENT_BYTES: usize = 8 + 16 + 1;
/// The type of XXH3 with 128 bits.
const XXH3: u8 = 0;
/// Most bytes of a manifest in which a wrong bit is looked for: the time rises with their square.
/// One of some hundred runs is smaller.
const MENDED_BYTES: usize = 16 << 10;

/// A manifest that matches its checksum.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// Compares the manifest that `current` names with its checksum, and returns it.
///
/// # Errors
/// [`Error::Corrupt`] if they differ, or if a file is missing.
pub(super) fn check(current: &Path) -> Result<Manifest, Error> {
    let bytes = read(current)?;
    let corrupt = |path: &Path, what: &str| {
        Err(Error::Corrupt { path: path.to_owned(), what: what.to_owned() })
    };
    let Some((number, sum)) = parse(&bytes) else {
        return corrupt(current, "it names no manifest");
    };
    let path = current.with_file_name(format!("v{number}"));
    let bytes = read(&path)?;
    if xxh3_128(&bytes) == sum {
        Ok(Manifest { path, bytes })
    } else {
        corrupt(&path, "its checksum does not match")
    }
}

/// Returns the manifest as it was, if one bit of it or of `current` is wrong, and no more.
pub(super) fn put_right(current: &Path) -> Option<Vec<u8>> {
    let named = fs::read(current).ok()?;
    let sum = u128::from_le_bytes(*named.get(8..)?.first_chunk()?);
    // The wrong bit may be in the number.
    for entry in fs::read_dir(current.parent()?).ok()?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix('v'));
        if number.is_some_and(|number| number.parse::<u64>().is_ok())
            && let Ok(mut bytes) = fs::read(entry.path())
            && put_bit_right(&mut bytes, sum)
        {
            return Some(bytes);
        }
    }
    None
}

/// Flips the bit of `bytes` without which they have this checksum. Returns false if there is none;
/// the wrong bit may be in the checksum too.
fn put_bit_right(bytes: &mut [u8], sum: u128) -> bool {
    if (xxh3_128(bytes) ^ sum).count_ones() <= 1 {
        return true;
    }
    if bytes.len() > MENDED_BYTES {
        return false;
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if xxh3_128(bytes) == sum {
                return true;
            }
            bytes[at] ^= 1 << bit;
        }
    }
    false
}

/// Returns the name of the manifest that the bytes of `current` name.
pub(super) fn named_by(current: &[u8]) -> Option<String> {
    parse(current).map(|(number, _)| format!("v{number}"))
}

fn parse(bytes: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (sum, kind) = rest.split_first_chunk()?;
    let is_known = bytes.len() == CURRENT_BYTES && kind == [XXH3];
    is_known.then_some((u64::from_le_bytes(*number), u128::from_le_bytes(*sum)))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::Corrupt { path: path.to_owned(), what: "it is missing".to_owned() }
        }
        _ => Error::from_io("reading the table's files", error),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes a manifest and the `current` that names it. Returns the bytes of `current`.
    pub(crate) fn write(current: &Path, manifest: &[u8]) -> Vec<u8> {
        let sum = xxh3_128(manifest).to_le_bytes();
        let named = [&7_u64.to_le_bytes()[..], &sum, &[XXH3]].concat();
        fs::write(current.with_file_name("v7"), manifest).unwrap();
        fs::write(current, &named).unwrap();
        named
    }

    #[test]
    fn a_manifest_must_match_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let current = folder.path().join("current");
        let is_damage = || matches!(check(&current), Err(Error::Corrupt { .. }));
        assert!(is_damage());
        let good = write(&current, b"runs");
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
            assert_eq!(put_right(&current).as_deref(), Some(&b"runs"[..]), "byte {at}");
        }
        fs::write(&current, &good[..CURRENT_BYTES - 1]).unwrap();
        assert!(is_damage());
    }

    #[test]
    fn one_wrong_bit_is_found_and_two_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let current = folder.path().join("current");
        let good: Vec<u8> = (0..100).collect();
        write(&current, &good);
        let manifest = folder.path().join("v7");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&manifest, &bad).unwrap();
            assert_eq!(put_right(&current).as_ref(), Some(&good), "bit {bit}");
            bad[(bit / 8 + 50) % 100] ^= 1;
            fs::write(&manifest, &bad).unwrap();
            assert_eq!(put_right(&current), None, "bit {bit}");
        }
        fs::remove_file(&manifest).unwrap();
        assert_eq!(put_right(&current), None);
    }
}
