//! The names of what differs at the mirror: paths from the root of the volume.

use pelago_store::key::Key;
use pelago_wire::InodeId;

use crate::mirror::Mirror;

/// The most names of each list of a result.
pub(super) const NAMES: usize = 1000;
/// The most folders above a name.
const DEPTH: usize = 4096;

/// Adds the path of the file to which a row belongs, unless there are many.
pub(super) fn add_name(names: &mut Vec<String>, mirror: &Mirror, row_key: &[u8]) {
    if names.len() < NAMES {
        let name = path_of(mirror, row_key);
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
}

/// Returns the path of the file to which a row belongs, from the root of the volume; if it has
/// none, its number, or the kind of the row.
fn path_of(mirror: &Mirror, row_key: &[u8]) -> String {
    let (dir, last) = match Key::parse(row_key) {
        Some(Key::Name { dir, name, .. }) => (dir, String::from_utf8_lossy(name).into_owned()),
        Some(
            Key::Inode { ino }
            | Key::Moved { ino }
            | Key::ParentPointer { ino, .. }
            | Key::Inline { ino }
            | Key::Xattr { ino, .. }
            | Key::XattrNames { ino }
            | Key::Tag { ino, .. }
            | Key::Orphan { ino },
        ) => (ino, String::new()),
        // Those of the volume as a whole.
        Some(_) | None => {
            return format!("a row of kind {}", row_key.first().copied().unwrap_or(0));
        }
    };
    let mut names = vec![last];
    let mut here = dir;
    while here != InodeId::ROOT {
        match mirror.parts.shard.name_of_dir(here) {
            Ok((above, Some(name))) if names.len() < DEPTH => {
                names.push(String::from_utf8_lossy(name.as_bytes()).into_owned());
                here = above;
            }
            Ok(_) | Err(_) => return format!("inode {}", dir.raw()),
        }
    }
    names.push(String::new());
    names.reverse();
    let path = names.join("/");
    match path.strip_suffix('/') {
        Some("") => "/".to_owned(),
        Some(stripped) => stripped.to_owned(),
        None => path,
    }
}
