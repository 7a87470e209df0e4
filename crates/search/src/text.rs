//! The text of a file: its first bytes.

use pelago_meta::tree::Tree;
use pelago_store::content::{ContentStore, FileAccess};
use pelago_store::report::content_failed;
use pelago_store::rows::Rnode;
use pelago_wire::{Error, limits};

/// Returns the first bytes of a regular file, at most [`limits::TEXT_SEARCHED_BYTES`]; `None` if
/// the file has no bytes, or if its content file was replaced by a newer one.
///
/// # Errors
/// If a row or a disk fails.
pub fn first_bytes(
    tree: &Tree,
    content: &ContentStore,
    rnode: &Rnode,
) -> Result<Option<Vec<u8>>, Error> {
    let Rnode { ino, flags, generation, .. } = *rnode;
    if flags.inline {
        return tree.inline(ino);
    }
    let Some(generation) = generation.filter(|_| flags.has_content) else { return Ok(None) };
    let opened = content.open_file(ino, generation, FileAccess::Read);
    let Some(file) = opened.map_err(|error| content_failed(&error))? else { return Ok(None) };
    let mut bytes = vec![0; limits::TEXT_SEARCHED_BYTES];
    let read = file.read_at(&mut bytes, 0).map_err(|error| content_failed(&error))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}
