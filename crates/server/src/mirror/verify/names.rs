//! The names of what differs at the mirror: paths from the root of the volume.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::table_failed;
use pelago_store::rows::{NameRow, Row as _};
use pelago_store::table::TableRead;
use pelago_wire::InodeId;

use crate::mirror::Mirror;
use crate::mirror::group::SendError;

/// The most names of each list of a result.
pub(super) const NAMES: usize = 1000;
/// The most folders above a name.
pub(super) const DEPTH: usize = 4096;

/// The places of files that have a row in one folder alone, and others under their number.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<InodeId, (InodeId, Vec<u8>)>);

impl Places {
    /// Finds the files to which these rows belong by their numbers alone: by one scan of all names,
    /// if there are any.
    pub(super) fn of<'a>(
        mirror: &Mirror,
        rows: &dyn TableRead,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, SendError> {
        let numbers = keys.filter_map(owner_of).collect::<HashSet<_>>();
        let is_found = |ino: &InodeId| mirror.parts.shard.name_of_dir(*ino).is_ok();
        let mut sought: HashSet<_> = numbers.into_iter().filter(|ino| !is_found(ino)).collect();
        let mut found = HashMap::new();
        if sought.is_empty() {
            return Ok(Self(found));
        }
        let all = key::all(RowKind::Name);
        let scanned = rows.scan(&all.from, &all.to, &mut |row_key, value| {
            if let Some(Key::Name { dir, name, .. }) = Key::parse(row_key)
                && let Ok((_, row)) = NameRow::decode(value)
                && sought.remove(&row.ino())
            {
                found.insert(row.ino(), (dir, name.to_vec()));
            }
            match sought.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        scanned.map_err(|error| table_failed("verifying the mirror", &error))?;
        Ok(Self(found))
    }

    /// Returns the folder and the name of such a file.
    pub(super) fn get(&self, ino: InodeId) -> Option<(InodeId, &[u8])> {
        self.0.get(&ino).map(|(dir, name)| (*dir, name.as_slice()))
    }
}

/// Returns the file to which a row under the number of a file belongs; `None` for any other row.
pub(super) fn owner_of(row_key: &[u8]) -> Option<InodeId> {
    match Key::parse(row_key)? {
        Key::Inode { ino }
        | Key::Moved { ino }
        | Key::ParentPointer { ino, .. }
        | Key::Inline { ino }
        | Key::Xattr { ino, .. }
        | Key::XattrNames { ino }
        | Key::Tag { ino, .. }
        | Key::Orphan { ino } => Some(ino),
        _ => None,
    }
}

/// Adds the path of the file to which a row belongs, unless there are many.
pub(super) fn add_name(names: &mut Vec<String>, mirror: &Mirror, places: &Places, row_key: &[u8]) {
    if names.len() < NAMES {
        let name = path_of(mirror, places, row_key);
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
}

/// Returns the path of the file to which a row belongs, from the root of the volume; if it has
/// none, its number, or the kind of the row.
fn path_of(mirror: &Mirror, places: &Places, row_key: &[u8]) -> String {
    let (dir, last) = match (Key::parse(row_key), owner_of(row_key)) {
        (Some(Key::Name { dir, name, .. }), _) => (dir, text(name)),
        (_, Some(ino)) => match places.get(ino) {
            Some((dir, name)) => (dir, text(name)),
            None => (ino, String::new()),
        },
        // Those of the volume as a whole.
        (_, None) => return format!("a row of kind {}", row_key.first().copied().unwrap_or(0)),
    };
    let mut names = vec![last];
    let mut here = dir;
    while here != InodeId::ROOT {
        match mirror.parts.shard.name_of_dir(here) {
            Ok((above, Some(name))) if names.len() < DEPTH => {
                names.push(text(name.as_bytes()));
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

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
