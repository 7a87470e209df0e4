//! The table of contents of a file of the engine: where its sections are.
//!
//! Sorted runs and manifests end with it: `"TOC!"`, entries u32, for each one position u64, length
//! u64, name length u16 and name; then `"SFA!"`, 1, 0, XXH3-128 of the table of contents, its
//! position u64, its length u64; little-endian. The engine allocates as many entries as the file
//! says before it compares the checksum, so we read it first.

use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::xxh3_128;

/// A part of a file, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: Vec<u8>,
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Section {
    /// Returns the offset after its last byte.
    pub(super) const fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

const TRAILER_BYTES: usize = 38;
const TRAILER: [u8; 6] = *b"SFA!\x01\x00";
const CONTENTS: [u8; 4] = *b"TOC!";
/// Most bytes of a table of contents; those of the engine have some hundred.
const CONTENTS_BYTES: usize = 64 << 10;

/// Reads the sections of a file of `len` bytes. Returns `None` if the table of contents is damaged.
pub(super) fn sections(file: &impl FileExt, len: u64) -> io::Result<Option<Vec<Section>>> {
    let Some(trailer_at) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, trailer_at)?;
    let Some(trailer) = Trailer::parse(&trailer, trailer_at) else { return Ok(None) };
    let mut contents = vec![0; trailer.len];
    file.read_exact_at(&mut contents, trailer.at)?;
    Ok(trailer.sections(&contents))
}

/// Returns the sections of a file that is in memory. Returns `None` if the table of contents is
/// damaged.
pub(super) fn sections_in(bytes: &[u8]) -> Option<Vec<Section>> {
    let (rest, trailer) = bytes.split_last_chunk::<TRAILER_BYTES>()?;
    let trailer = Trailer::parse(trailer, rest.len() as u64)?;
    trailer.sections(&rest[trailer.at as usize..])
}

/// The end of a file: where the table of contents is, up to the trailer.
struct Trailer {
    sum: u128,
    at: u64,
    len: usize,
}

impl Trailer {
    fn parse(bytes: &[u8; TRAILER_BYTES], own_at: u64) -> Option<Self> {
        let mut rest = &bytes[..];
        let is_known = take::<6>(&mut rest) == Some(TRAILER);
        let sum = take::<16>(&mut rest).filter(|_| is_known).map(u128::from_le_bytes)?;
        let at = number(&mut rest)?;
        let len = own_at.checked_sub(at).filter(|len| *len <= CONTENTS_BYTES as u64)?;
        Some(Self { sum, at, len: len as usize })
    }

    fn sections(&self, contents: &[u8]) -> Option<Vec<Section>> {
        if xxh3_128(contents) == self.sum { parse(contents) } else { None }
    }
}

fn parse(contents: &[u8]) -> Option<Vec<Section>> {
    let mut rest = contents.strip_prefix(&CONTENTS)?;
    let count = u32::from_le_bytes(take(&mut rest)?);
    let mut sections = Vec::new();
    for _ in 0..count {
        let at = number(&mut rest)?;
        let len = number(&mut rest)?;
        let name_len = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let (name, after) = rest.split_at_checked(name_len)?;
        rest = after;
        sections.push(Section { name: name.to_vec(), at, len });
    }
    Some(sections)
}

/// Takes a u64 from the front.
pub(super) fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

/// Takes bytes from the front.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a file with these sections, as the engine writes it.
    pub(in super::super) fn archive(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut contents = CONTENTS.to_vec();
        contents.extend((sections.len() as u32).to_le_bytes());
        for (name, section) in sections {
            contents.extend((bytes.len() as u64).to_le_bytes());
            contents.extend((section.len() as u64).to_le_bytes());
            contents.extend((name.len() as u16).to_le_bytes());
            contents.extend(name.as_bytes());
            bytes.extend(*section);
        }
        let at = bytes.len() as u64;
        bytes.extend(&contents);
        bytes.extend(TRAILER);
        bytes.extend(xxh3_128(&contents).to_le_bytes());
        bytes.extend(at.to_le_bytes());
        bytes.extend((contents.len() as u64).to_le_bytes());
        bytes
    }

    #[test]
    fn each_byte_of_a_table_of_contents_counts() {
        let read = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            let found = sections(&file, bytes.len() as u64).unwrap();
            assert_eq!(found, sections_in(bytes));
            found
        };
        let good = archive(&[("one", b"1"), ("two", b"22")]);
        let found = read(&good).unwrap();
        assert_eq!((found[1].at, found[1].end(), &found[1].name[..]), (1, 3, &b"two"[..]));
        // The last eight bytes are a length that follows from the rest.
        for at in 3..good.len() - 8 {
            let mut bad = good.clone();
            bad[at] ^= 0x80;
            assert_eq!(read(&bad), None, "byte {at}");
            assert_eq!(read(&good[..at]), None, "length {at}");
        }
    }
}
