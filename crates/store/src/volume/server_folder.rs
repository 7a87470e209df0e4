//! The folder of a server of a shared store: what belongs to the server and not to the volume.
//!
//! ```text
//! store          the path of the store's folder, one line
//! lock           locked while the server runs; holds its process id
//! key            the private key of the server
//! listen         the address at which it listens unless it is told another one
//! log            messages of the server
//! control.sock   the socket of `pelago status`
//! ```

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::VolumeError;
use super::layout::{KEY, LISTEN, LISTEN_NEW, LOCK, LOG, PUBLIC, SOCKET, STORE, STORE_NEW};
use super::lock::Lock;
use super::{create_dir, detect};
use crate::folder::Folder;
use crate::owner::LockId;

/// All names in the folder.
const NAMES: [&str; 8] = [STORE, STORE_NEW, LOCK, KEY, LISTEN, LISTEN_NEW, LOG, SOCKET];
/// Greatest length of the file `store`: that of a path, and a newline.
const STORE_BYTES: u64 = 4097;

/// The folder of a server of a shared store, locked.
#[derive(Debug)]
pub struct ServerFolder {
    folder: Folder,
    lock_id: LockId,
    _lock: Lock,
}

impl ServerFolder {
    /// Opens the folder `dir` of a server of the store in the folder `store`, an absolute path;
    /// makes it if it is missing or empty.
    ///
    /// # Errors
    /// [`VolumeError`]: the folder is a volume, that of a server of another store, has other files,
    /// or is in use.
    pub fn open_or_create(dir: &Path, store: &Path) -> Result<Self, VolumeError> {
        let folder = match Folder::open(dir) {
            Err(error) if error.is_not_found() => {
                create_dir(dir)?;
                Folder::open(dir)?
            }
            opened => opened?,
        };
        if detect::is_volume(&folder)? {
            return Err(VolumeError::IsVolume { path: dir.into() });
        }
        for name in folder.entries()? {
            if !NAMES.iter().any(|known| name == *known) && name != "lost+found" {
                let found = name.to_string_lossy().escape_debug().to_string();
                return Err(VolumeError::NotAVolume { path: dir.into(), found });
            }
        }
        for name in [STORE, LOCK, KEY, LISTEN, LOG] {
            folder.check_file(name)?;
        }
        let lock = Lock::take(&folder)?;
        match store_in(&folder)? {
            Some(other) if other != store => {
                return Err(VolumeError::OtherStore { path: dir.into(), store: other });
            }
            Some(_) => {}
            None => write_store(&folder, store)?,
        }
        let lock_id = LockId::of(&lock.file)
            .map_err(|error| VolumeError::from_io("examining", &dir.join(LOCK), error))?;
        Ok(Self { folder, lock_id, _lock: lock })
    }

    /// Returns the folder.
    #[must_use]
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns which file is locked: no other process of this machine has it while this one does.
    #[must_use]
    pub const fn lock_id(&self) -> LockId {
        self.lock_id
    }
}

/// Returns the folder of the shared store whose server has the folder `dir`; `None` if there is
/// none.
///
/// # Errors
/// [`VolumeError`] if the folder or its file `store` cannot be used.
pub fn store_of(dir: &Path) -> Result<Option<PathBuf>, VolumeError> {
    match Folder::open(dir) {
        Err(error) if error.is_not_found() => Ok(None),
        opened => store_in(&opened?),
    }
}

fn write_store(folder: &Folder, store: &Path) -> Result<(), VolumeError> {
    let mut file = folder.replace_file(STORE_NEW, PUBLIC)?;
    let text = [store.as_os_str().as_bytes(), b"\n"].concat();
    let written = file.write_all(&text).and_then(|()| file.sync_all());
    let path = folder.path().join(STORE_NEW);
    written.map_err(|error| VolumeError::from_io("writing", &path, error))?;
    folder.rename(STORE_NEW, STORE)?;
    Ok(folder.sync()?)
}

fn store_in(folder: &Folder) -> Result<Option<PathBuf>, VolumeError> {
    let file = match folder.open_file(STORE, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(STORE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| VolumeError::from_io("reading", &folder.path().join(STORE), error))?;
    let path = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if !path.starts_with(b"/") || path.contains(&b'\n') {
        let what = "it does not hold the path of a store";
        return Err(VolumeError::Corrupt { path: folder.path().join(STORE), what });
    }
    Ok(Some(PathBuf::from(OsStr::from_bytes(path))))
}
