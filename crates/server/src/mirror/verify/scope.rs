//! The part of the volume that a verification is about: all of it, or a file or folder with all
//! below it.

use pelago_store::key::Key;
use pelago_store::report::table_failed;
use pelago_store::rows::{NameRow, Row as _};
use pelago_wire::{Code, Handle, InodeId};

use super::names::{DEPTH, Places, owner_of};
use crate::mirror::Mirror;
use crate::mirror::group::SendError;

/// The part of the volume that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Volume,
    /// This file or folder, with all below it.
    Below(InodeId),
}

impl Scope {
    /// Returns whether a row that differs, or has rows behind it that only the mirror has, counts.
    /// One of the volume as a whole does only with all of the volume.
    pub(super) fn has_row(
        self,
        mirror: &Mirror,
        places: &Places,
        row_key: &[u8],
    ) -> Result<bool, SendError> {
        let Self::Below(top) = self else { return Ok(true) };
        if let Some(ino) = owner_of(row_key) {
            return match places.get(ino) {
                Some(_) if ino == top => Ok(true),
                Some((dir, _)) => Ok(is_below(mirror, dir, top)),
                None => has_node(mirror, ino, top),
            };
        }
        let Some(Key::Name { dir, .. }) = Key::parse(row_key) else { return Ok(false) };
        if is_below(mirror, dir, top) {
            return Ok(true);
        }
        // Its own name is in another folder.
        let value = mirror.parts.table.get(row_key);
        let value = value.map_err(|error| table_failed("verifying the mirror", &error))?;
        let named = value.and_then(|value| NameRow::decode(&value).ok().map(|(_, row)| row.ino()));
        Ok(named == Some(top))
    }

    /// Returns whether the content file with this number, whose rnode is in this row, is compared.
    pub(super) fn has_file(
        self,
        mirror: &Mirror,
        row_key: &[u8],
        ino: InodeId,
    ) -> Result<bool, SendError> {
        let Self::Below(top) = self else { return Ok(true) };
        match Key::parse(row_key) {
            _ if ino == top => Ok(true),
            Some(Key::Name { dir, .. }) => Ok(is_below(mirror, dir, top)),
            _ => has_node(mirror, ino, top),
        }
    }
}

/// Returns whether a node with a row of its own is `top`, or has a name below it.
fn has_node(mirror: &Mirror, ino: InodeId, top: InodeId) -> Result<bool, SendError> {
    if ino == top {
        return Ok(true);
    }
    // Without such a row it is gone here, and a look for it would read all names.
    let is_there = mirror.parts.table.get(&pelago_store::key::inode(ino));
    let is_there = is_there.map_err(|error| table_failed("verifying the mirror", &error))?;
    if is_there.is_none() {
        return Ok(false);
    }
    match mirror.parts.shard.placement(Handle::own(ino), false) {
        Ok(found) => Ok(found.dirs.iter().any(|dir| is_below(mirror, *dir, top))),
        Err(error) if error.code == Code::Stale => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a folder is `top`, or below it.
fn is_below(mirror: &Mirror, dir: InodeId, top: InodeId) -> bool {
    let mut here = dir;
    for _ in 0..DEPTH {
        if here == top {
            return true;
        }
        match mirror.parts.shard.name_of_dir(here) {
            Ok((above, Some(_))) => here = above,
            Ok((_, None)) | Err(_) => return false,
        }
    }
    false
}
