//! Comparison of the files of an index with the checksums of the engine, a piece at a time: the
//! engine's own comparison has a whole file in memory.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use serde_json::Value;
use tantivy::Index;

use crate::directory::Files;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Two numbers at the end of a file: the bytes of its footer, and the mark that there is one.
const END_BYTES: u64 = 8;
const MAGIC: u32 = 1337;
/// A footer has a version and a checksum.
const FOOTER_BYTES: u32 = 50_000;

/// Returns the first file of the last commit that has other bytes than were written.
pub(crate) fn damaged(index: &Index, files: &Files) -> tantivy::Result<Option<PathBuf>> {
    let managed = index.directory().list_managed_files();
    let mut paths: Vec<PathBuf> = index.load_metas()?.list_segment_files().into_iter().collect();
    paths.sort();
    for path in paths.into_iter().filter(|path| managed.contains(path)) {
        if !is_right(files, &path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn is_right(files: &Files, path: &Path) -> io::Result<bool> {
    let mut file = files.open_whole(path)?;
    let size = file.metadata()?.len();
    let Some(end) = size.checked_sub(END_BYTES) else { return Ok(false) };
    file.seek(SeekFrom::Start(end))?;
    let mut numbers = [0; 4];
    file.read_exact(&mut numbers)?;
    let footer = u32::from_le_bytes(numbers);
    file.read_exact(&mut numbers)?;
    let body = end.checked_sub(footer.into()).filter(|_| footer <= FOOTER_BYTES);
    let Some(body) = body.filter(|_| u32::from_le_bytes(numbers) == MAGIC) else {
        return Ok(false);
    };
    file.seek(SeekFrom::Start(body))?;
    let mut text = vec![0; footer as usize];
    file.read_exact(&mut text)?;
    let footer: Option<Value> = serde_json::from_slice(&text).ok();
    let Some(wanted) = footer.and_then(|footer| footer["crc"].as_u64()) else { return Ok(false) };
    file.seek(SeekFrom::Start(0))?;
    let mut rest = file.take(body);
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match rest.read(&mut piece)? {
            0 => return Ok(u64::from(hasher.finalize()) == wanted),
            bytes => hasher.update(&piece[..bytes]),
        }
    }
}
