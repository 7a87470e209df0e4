//! The folder of a server of a shared store: the files that belong to the server and not to the
//! volume.
//!
//! ```text
//! store          the path of the store's folder, and the id of its volume, a line each
//! lock           locked while the server runs; holds its process id
//! key            the private key of the server
//! listen         the address at which it listens, unless an option names another one
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
use super::{VolumeId, create_dir, detect};
use crate::folder::Folder;
use crate::owner::LockId;

/// All names in the folder.
const NAMES: [&str; 8] = [STORE, STORE_NEW, LOCK, KEY, LISTEN, LISTEN_NEW, LOG, SOCKET];
/// Greatest length of the file `store`: a path, an id, and two line feeds.
const STORE_BYTES: u64 = 4096 + 1 + 32 + 1;

/// The folder of a server of a shared store, locked.
#[derive(Debug)]
pub struct ServerFolder {
    folder: Folder,
    /// The volume of its store; `None` if it has served none yet.
    volume: Option<VolumeId>,
    lock_id: LockId,
    _lock: Lock,
}

/// The content of the file `store`.
struct StoreLines {
    path: PathBuf,
    volume: VolumeId,
}

impl ServerFolder {
    /// Opens the folder `dir` of a server of the store in the folder `store`, an absolute path;
    /// makes it if it is missing.
    ///
    /// # Errors
    /// [`VolumeError`] if the folder is a volume, belongs to a server of another store, has other
    /// files, or is in use.
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
                return Err(VolumeError::NotAServer { path: dir.into(), found });
            }
        }
        for name in [STORE, LOCK, KEY, LISTEN, LOG] {
            folder.check_file(name)?;
        }
        let lock = Lock::take(&folder)?;
        let known = store_in(&folder)?;
        if let Some(StoreLines { path, .. }) = known.as_ref().filter(|known| known.path != store) {
            return Err(VolumeError::OtherStore { path: dir.into(), store: path.clone() });
        }
        let volume = known.map(|known| known.volume);
        let lock_id = LockId::of(&lock.file)
            .map_err(|error| VolumeError::from_io("examining", &dir.join(LOCK), error))?;
        Ok(Self { folder, volume, lock_id, _lock: lock })
    }

    /// Returns the folder.
    #[must_use]
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the volume of the store; `None` if the server has not served it yet.
    #[must_use]
    pub const fn volume(&self) -> Option<VolumeId> {
        self.volume
    }

    /// Records the volume of the store in the folder `store`: this server never serves another
    /// volume.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn remember(&self, store: &Path, volume: VolumeId) -> Result<(), VolumeError> {
        if self.volume == Some(volume) {
            return Ok(());
        }
        let path = self.folder.path().join(STORE_NEW);
        let text = [store.as_os_str().as_bytes(), format!("\n{volume}\n").as_bytes()].concat();
        let mut file = self.folder.replace_file(STORE_NEW, PUBLIC)?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        written.map_err(|error| VolumeError::from_io("writing", &path, error))?;
        self.folder.rename(STORE_NEW, STORE)?;
        Ok(self.folder.sync()?)
    }

    /// Returns the numbers of the locked file: no other process of this machine holds this lock
    /// meanwhile.
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
        opened => Ok(store_in(&opened?)?.map(|known| known.path)),
    }
}

fn store_in(folder: &Folder) -> Result<Option<StoreLines>, VolumeError> {
    let file = match folder.open_file(STORE, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(STORE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| VolumeError::from_io("reading", &folder.path().join(STORE), error))?;
    let known = parse(&bytes).ok_or_else(|| VolumeError::Corrupt {
        path: folder.path().join(STORE),
        what: "it does not hold the path of a store and the id of its volume",
    });
    known.map(Some)
}

fn parse(bytes: &[u8]) -> Option<StoreLines> {
    let mut lines = bytes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    let path = lines.next()?;
    let id = lines.next()?;
    if lines.next().is_some() || !path.starts_with(b"/") {
        return None;
    }
    let volume = VolumeId::parse(std::str::from_utf8(id).ok()?)?;
    Some(StoreLines { path: PathBuf::from(OsStr::from_bytes(path)), volume })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_store_is_read_back_or_refused() {
        let known = parse(b"/mnt/team\n000102030405060708090a0b0c0d0e0f\n").unwrap();
        assert_eq!(known.path, Path::new("/mnt/team"));
        assert_eq!(known.volume.to_string(), "000102030405060708090a0b0c0d0e0f");
        let id = "000102030405060708090a0b0c0d0e0f";
        let good = format!("/a\n{id}\n");
        assert!((0..good.len()).all(|cut| parse(&good.as_bytes()[..cut]).is_none()));
        for bad in [format!("a\n{id}\n"), format!("/a\n{id}\n\n"), format!("/a\n\n{id}\n")] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
