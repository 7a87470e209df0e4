//! The folder of a shared store, which several servers may make at once.
//!
//! Servers that meet an empty folder each prepare a whole store in a folder of their own, `new.X`:
//! seed, format, and `0` with the first baton. The rename of `new.X` to `shard` decides. It never
//! replaces a folder that is not empty, and `shard` is never empty again, so exactly one rename
//! ever succeeds. Then each server moves the small files out of `shard`, `format` last. Each file
//! exists once, so a file that is gone was moved by another server. After a crash at any point the
//! next server completes the rest.

use std::path::Path;

use pelago_wire::limits;
use rustix::fs::renameat;
use rustix::io::Errno;

use super::detect::{self, open_subfolder};
use super::error::VolumeError;
use super::format::Format;
use super::layout::{
    ALIVE, CLIENTS, CONTENT, FORMAT, FORMAT_COPY, KEYS, NEW, POLICY, PROOF, SECRET, SEED,
    SEED_COPY, SERVERS, SHARD,
};
use super::seed::HashSeed;
use super::twice::Pair;
use super::{Volume, VolumeId, create_dir, read_format, write_format};
use crate::folder::Folder;
use crate::owner;

/// Settings of a new shared store, which never change afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedOptions {
    /// The size in bytes up to which a file is stored in the table. Values above
    /// [`limits::INLINE_BYTES`] count as that.
    pub inline_bytes: u32,
    /// The number of shards: 1.
    pub shards: u16,
}

impl Default for SharedOptions {
    fn default() -> Self {
        Self { inline_bytes: limits::INLINE_DEFAULT_BYTES as u32, shards: 1 }
    }
}

/// Most looks at a folder while other servers make a store of it.
const TRIES: u32 = 16;

/// The content of a folder that is to be a shared store.
enum Found {
    /// Nothing, or the leftovers of servers that died before a rename decided.
    Empty(Folder),
    /// A store whose files are not all in their places.
    Begun(Folder),
    /// A file `format` or `format.copy`.
    Whole(Folder),
}

impl Volume {
    /// Opens the shared store in the folder `dir`, or makes it with `options` if the folder is
    /// missing or empty. Several servers may do so at once, on several machines. No lock is taken:
    /// [`crate::owner`] decides which server may change the store.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::NotShared`] if the folder has the volume of a single server.
    pub fn open_or_create_shared(dir: &Path, options: SharedOptions) -> Result<Self, VolumeError> {
        if options.shards != 1 {
            return Err(VolumeError::Shards { path: dir.into(), found: options.shards });
        }
        for _ in 0..TRIES {
            match find(dir)? {
                None => create_dir(dir)?,
                Some(Found::Empty(folder)) => begin(&folder, options)?,
                Some(Found::Begun(folder)) => complete(&folder)?,
                Some(Found::Whole(folder)) => return open(folder),
            }
        }
        let what = "it changes while it is looked at";
        Err(VolumeError::Corrupt { path: dir.join(SHARD), what })
    }
}

impl Volume {
    /// Opens the shared store in the folder `dir`, which must have the volume `id`: for a server
    /// that has served it before. Makes nothing: a file system that is not mounted looks like an
    /// empty folder.
    ///
    /// # Errors
    /// [`VolumeError::StoreGone`] if there is no volume, [`VolumeError::StoreOfOther`] if there is
    /// another one.
    pub fn open_shared(dir: &Path, id: VolumeId) -> Result<Self, VolumeError> {
        let volume = match find(dir)? {
            None | Some(Found::Empty(_)) => {
                return Err(VolumeError::StoreGone { path: dir.into() });
            }
            Some(Found::Begun(folder)) => {
                complete(&folder)?;
                open(folder)?
            }
            Some(Found::Whole(folder)) => open(folder)?,
        };
        if volume.id() != id {
            let found = volume.id();
            return Err(VolumeError::StoreOfOther { path: dir.into(), found, wanted: id });
        }
        Ok(volume)
    }
}

/// Makes sure, without a change, that the folder `dir` is a shared store or can become one.
///
/// # Errors
/// [`VolumeError`], as [`Volume::open_or_create_shared`].
pub fn expect_store(dir: &Path) -> Result<(), VolumeError> {
    match find(dir)? {
        Some(Found::Whole(folder)) if !read_format(&folder)?.value.is_shared() => {
            Err(VolumeError::NotShared { path: dir.into() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Examines the folder `dir` without changing it; `None` if it is missing.
fn find(dir: &Path) -> Result<Option<Found>, VolumeError> {
    let folder = match Folder::open(dir) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    if detect::is_volume(&folder)? {
        return Ok(Some(Found::Whole(folder)));
    }
    let names = folder.entries()?;
    for name in &names {
        let known = [SHARD, CONTENT, ALIVE, SERVERS, SEED, SEED_COPY, "lost+found"];
        let is_begun = name.to_str().is_some_and(|name| {
            known.contains(&name) || name.starts_with(NEW) || name.starts_with(PROOF)
        });
        if !is_begun && !detect::is_volume(&folder)? {
            let found = name.to_string_lossy().escape_debug().to_string();
            return Err(VolumeError::NotAVolume { path: dir.into(), found });
        }
    }
    let shard = match folder.open_folder(SHARD) {
        Err(error) if error.is_not_found() => None,
        opened => Some(opened?),
    };
    let Some(shard) = shard.filter(|shard| shard.entries().is_ok_and(|all| !all.is_empty())) else {
        return match names.iter().find(|name| [SEED, SEED_COPY].iter().any(|seed| *name == seed)) {
            None => Ok(Some(Found::Empty(folder))),
            Some(found) => {
                let found = found.to_string_lossy().into_owned();
                Err(VolumeError::NotAVolume { path: dir.into(), found })
            }
        };
    };
    // `format` is looked for in `shard` first: another server may be moving it out.
    let is_begun = shard.contains(FORMAT)? || detect::is_volume(&folder)?;
    if is_begun {
        return Ok(Some(Found::Begun(folder)));
    }
    match shard.contains(owner::FIRST_SHARD)? {
        true => {
            let what = "it is missing, and the volume has data";
            Err(VolumeError::Corrupt { path: dir.join(FORMAT), what })
        }
        false => Err(VolumeError::NotAVolume { path: dir.into(), found: SHARD.to_owned() }),
    }
}

/// Prepares a store in a folder of its own, and makes it the store in `folder` if no other server
/// was faster.
fn begin(folder: &Folder, options: SharedOptions) -> Result<(), VolumeError> {
    let mut random = [0; 8];
    let random = getrandom::fill(&mut random).map(|()| u64::from_le_bytes(random));
    let failed = |error| VolumeError::from_io("creating an id for", folder.path(), error);
    let random = random.map_err(|error| failed(std::io::Error::other(error)))?;
    let name = format!("{NEW}{random:016x}");
    let made = prepare(folder, &name, options).and_then(|()| decide(folder, &name));
    if !matches!(made, Ok(true))
        && let Err(error) = folder.remove_tree(&name)
    {
        tracing::debug!(%error, "a prepared store stays: it has no meaning");
    }
    match made {
        Ok(_) => Ok(()),
        // Another server has completed the store, and removed this one's folder as a leftover.
        Err(_) if folder.contains(SHARD)? => Ok(()),
        Err(error) => Err(error),
    }
}

fn prepare(folder: &Folder, name: &str, options: SharedOptions) -> Result<(), VolumeError> {
    let own = folder.create_folder(name)?;
    let shard = own.create_folder(owner::FIRST_SHARD)?;
    let baton = owner::first_baton();
    let written = shard.create_new(&baton, SECRET)?.sync_all();
    written.map_err(|error| VolumeError::from_io("writing", &shard.path().join(&baton), error))?;
    shard.sync()?;
    HashSeed::create_shared(&own)?;
    let inline_bytes = options.inline_bytes.min(limits::INLINE_BYTES as u32);
    let format = Format::new_shared(inline_bytes)
        .map_err(|error| VolumeError::from_io("creating an id for", own.path(), error))?;
    write_format(&own, &format)?;
    Ok(own.sync()?)
}

/// Renames the prepared folder `name` to `shard`. Returns false if another server's folder is
/// `shard` already.
fn decide(folder: &Folder, name: &str) -> Result<bool, VolumeError> {
    match renameat(folder, name, folder, SHARD) {
        Ok(()) => {
            folder.sync()?;
            Ok(true)
        }
        // If the answer to the rename was lost and it was sent again, the name is gone and the
        // rename was done.
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(false),
        Err(error) => {
            let path = folder.path().join(SHARD);
            Err(VolumeError::from_io("writing", &path, error.into()))
        }
    }
}

/// Moves the small files of a store to their places, after the rename to `shard`.
fn complete(folder: &Folder) -> Result<(), VolumeError> {
    let shard = folder.open_folder(SHARD)?;
    for name in [CONTENT, ALIVE, SERVERS] {
        folder.create_folder(name)?;
    }
    for name in [SEED_COPY, SEED, FORMAT_COPY, FORMAT] {
        match renameat(&shard, name, folder, name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                let path = folder.path().join(name);
                return Err(VolumeError::from_io("writing", &path, error.into()));
            }
        }
        folder.sync()?;
    }
    Ok(shard.sync()?)
}

/// Opens a store that is whole.
fn open(folder: Folder) -> Result<Volume, VolumeError> {
    for name in [FORMAT, FORMAT_COPY, SEED, SEED_COPY, CLIENTS, POLICY, KEYS] {
        folder.check_file(name)?;
    }
    if !read_format(&folder)?.value.is_shared() {
        return Err(VolumeError::NotShared { path: folder.path().into() });
    }
    // Another server may have moved only one of the two files of the format so far.
    complete(&folder)?;
    let Pair { value: format, mut mends, .. } = read_format(&folder)?;
    let content = open_subfolder(&folder, CONTENT)?;
    let seeds = HashSeed::read_shared(&folder)?;
    mends.extend(seeds.mends);
    remove_leftovers(&folder)?;
    Ok(Volume {
        table: folder.clone(),
        content,
        format,
        seed: seeds.value,
        other_seed: seeds.other,
        mends,
        was_clean: false,
        _lock: None,
        folder,
    })
}

/// Removes the prepared folders of servers that were not the first. A server that still prepares
/// one finds that there is a store.
fn remove_leftovers(folder: &Folder) -> Result<(), VolumeError> {
    for name in folder.entries()? {
        if name.to_str().is_some_and(|name| name.starts_with(NEW))
            && let Err(error) = folder.remove_tree(&name)
        {
            tracing::debug!(%error, "a prepared store stays: it has no meaning");
        }
    }
    Ok(())
}
