//! The list of what only a primary had that was replaced: a line of JSON for each change.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use pelago_store::folder::Folder;
use pelago_store::volume::VolumeId;
use rustix::fs::OFlags;
use serde_json::{Map, Value, json};

use super::{FILES, KEPT, LIST, failed};
use crate::mirrors::error::MirrorError;
use crate::mirrors::own_changes::{Own, OwnChange};

/// What only a primary had that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptChanges {
    /// The volume.
    pub volume: VolumeId,
    /// The reign of the primary.
    pub reign: u64,
    /// The folder with the files.
    pub files: PathBuf,
    /// The changes.
    pub changes: Vec<KeptChange>,
}

/// A change that only a primary had that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptChange {
    /// What it is.
    pub what: OwnChange,
    /// The path from the root of the volume.
    pub path: String,
    /// The path of the file at the new primary, if it is another one.
    pub there: Option<String>,
    /// The new primary has changed the file too.
    pub is_of_both: bool,
    /// The file is kept, with this many bytes; `None` if it is not.
    pub bytes: Option<u64>,
    /// The time of the last change of the bytes, in seconds since 1970, if it is known.
    pub changed: Option<i64>,
    /// Permissions, owner and group, if the file was there.
    pub attributes: Option<(u16, u32, u32)>,
}

impl OwnChange {
    /// Returns the word for it, in the list and for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Attributes => "attributes",
            Self::Named => "named",
            Self::Removed => "removed",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Missing, Self::Changed, Self::Attributes, Self::Named, Self::Removed];
        all.into_iter().find(|what| what.word() == word)
    }
}

/// Returns the line of a change, whose file is kept if it has `bytes`.
pub(super) fn line_of(own: &Own, bytes: Option<u64>, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let mut line = json!({ "what": own.what.word(), "path": text_of(&own.path) });
    if let Some(there) = &own.there {
        line["there"] = text_of(there).into();
    }
    if own.is_of_both {
        line["both"] = true.into();
    }
    if let Some(bytes) = bytes {
        line["bytes"] = bytes.into();
    }
    if let Some(rnode) = &own.rnode {
        line["changed"] = rnode.mtime.seconds.into();
        line["mode"] = rnode.mode.into();
        line["uid"] = rnode.uid.into();
        line["gid"] = rnode.gid.into();
    }
    if !xattrs.is_empty() {
        let escaped = |(name, value): &(Vec<u8>, Vec<u8>)| {
            let name = String::from_utf8_lossy(name).into_owned();
            (name, Value::from(value.escape_ascii().to_string()))
        };
        line["xattrs"] = xattrs.iter().map(escaped).collect::<Map<_, _>>().into();
    }
    line
}

fn text_of(path: &[Vec<u8>]) -> String {
    let names: Vec<_> = path.iter().map(|name| String::from_utf8_lossy(name)).collect();
    names.join("/")
}

/// Returns the change of a line; `None` if it is damaged.
fn change_of(line: &str) -> Option<KeptChange> {
    let line: Value = serde_json::from_str(line).ok()?;
    let number = |name: &str| line[name].as_u64();
    let attributes = || {
        let mode = u16::try_from(number("mode")?).ok()?;
        Some((mode, u32::try_from(number("uid")?).ok()?, u32::try_from(number("gid")?).ok()?))
    };
    Some(KeptChange {
        what: OwnChange::from_word(line["what"].as_str()?)?,
        path: line["path"].as_str()?.to_owned(),
        there: line["there"].as_str().map(str::to_owned),
        is_of_both: line["both"] == true,
        bytes: number("bytes"),
        changed: line["changed"].as_i64(),
        attributes: attributes(),
    })
}

/// Returns the number of primaries that were replaced and became mirrors in the folder `dir` of a
/// server of mirrors, and whose own changes are kept.
///
/// # Errors
/// [`MirrorError`].
pub fn kept_count(dir: &Path) -> Result<usize, MirrorError> {
    let dir = Folder::open(dir)?;
    if !dir.contains(KEPT)? {
        return Ok(0);
    }
    let names = dir.open_folder(KEPT)?.entries()?;
    Ok(names.iter().filter(|name| primary_of(name).is_some()).count())
}

/// Returns the volume and the reign of a primary whose changes are in a folder of this name.
fn primary_of(name: &OsStr) -> Option<(VolumeId, u64)> {
    let (volume, reign) = name.to_str()?.split_once('.')?;
    Some((VolumeId::parse(volume)?, reign.parse().ok()?))
}

/// Returns what only primaries had that were replaced, and that became mirrors in the folder `dir`
/// of a server of mirrors: the oldest reign of a volume first.
///
/// # Errors
/// [`MirrorError`]. Lines of a list that are damaged are left out.
pub fn kept_changes(dir: &Path) -> Result<Vec<KeptChanges>, MirrorError> {
    let dir = Folder::open(dir)?;
    if !dir.contains(KEPT)? {
        return Ok(Vec::new());
    }
    let kept = dir.open_folder(KEPT)?;
    let mut found = Vec::new();
    for name in kept.entries()? {
        let Some((volume, reign)) = primary_of(&name) else { continue };
        let folder = kept.open_folder(&name)?;
        let list = folder.open_file(LIST, OFlags::RDONLY)?;
        let changes = changes_of(list, &folder.path().join(LIST))?;
        found.push(KeptChanges { volume, reign, files: folder.path().join(FILES), changes });
    }
    found.sort_by_key(|kept| (kept.volume.0, kept.reign));
    Ok(found)
}

fn changes_of(list: File, path: &Path) -> Result<Vec<KeptChange>, MirrorError> {
    let mut changes = Vec::new();
    for line in BufReader::new(list).lines() {
        let line = line.map_err(|source| failed("reading", path, source))?;
        changes.extend(change_of(&line));
    }
    Ok(changes)
}
