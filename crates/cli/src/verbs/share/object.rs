//! The folder or file that is shared: its inode in the mount.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use pelago_keynote::{Credential, Grant, Principal, SharedName, SharedObject};
use pelago_net::key::address::ServerAddress;
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_wire::InodeId;

use super::error::{ShareError, not_here, written_failed};
use crate::credential::{Whereabouts, printable};
use crate::failure::{Exit, Failure, Outcome};
use crate::locate;

/// A folder or a file that is shared.
pub(super) struct Object {
    pub(super) ino: InodeId,
    /// The parent; the root of the mount for the root itself.
    pub(super) parent: InodeId,
    /// The name, as its bytes are.
    pub(super) name: Vec<u8>,
    /// It is the root of the mount.
    pub(super) is_root: bool,
    pub(super) is_folder: bool,
}

impl Object {
    /// Returns the object of a share: this one, or the file that has its name at any time.
    pub(super) fn shared(&self, path: &Path, by_name: bool) -> Outcome<SharedObject> {
        let ino = self.ino.raw();
        if !by_name {
            return Ok(if self.is_folder {
                SharedObject::Folder(ino)
            } else {
                SharedObject::File(ino)
            });
        }
        let unusable = |error, hint| Failure::new(Exit::Usage, error).hint(hint);
        if self.is_folder {
            let error = ShareError::FolderByName(path.to_owned());
            return Err(unusable(error, "share it without `--by-name`: it follows the folder"));
        }
        let name = SharedName::new(&self.name).ok_or_else(|| {
            let error = ShareError::NoName(path.to_owned());
            unusable(error, "rename the file: a name is text without control characters")
        })?;
        Ok(SharedObject::Name { directory: self.parent.raw(), name })
    }

    /// Returns the credential by which `key` grants this object to another key.
    pub(super) fn credential(
        self,
        address: &ServerAddress,
        to: &PublicKey,
        grant: &Grant,
        key: &PrivateKey,
    ) -> Outcome<String> {
        let Self { ino: object, parent, name, is_folder, .. } = self;
        let name = printable(&name);
        let whereabouts = Whereabouts { address: address.clone(), object, is_folder, parent, name };
        let credential = Credential {
            comment: &whereabouts.to_lines(),
            licensee: Principal(*to.as_bytes()),
            conditions: &grant.conditions(),
        };
        credential.sign(&key.signing_key()).map_err(written_failed)
    }
}

/// Finds the inode of a folder or a file in the mount at `point`.
pub(super) fn examine(point: &Path, path: &Path) -> Outcome<Object> {
    let absolute = locate::absolute(path)?;
    if !absolute.starts_with(point) {
        return Err(not_here(absolute));
    }
    let failed = |source| {
        Failure::new(Exit::NotFound, ShareError::Examined { path: path.to_owned(), source })
    };
    let device = fs::metadata(point).map_err(failed)?.dev();
    // A symbolic link, or another mount, may lead to a tree with other inode numbers.
    let of_mount = |meta: Metadata| match meta.dev() == device {
        true => Ok(meta),
        false => Err(not_here(absolute.clone())),
    };
    let meta = of_mount(fs::metadata(path).map_err(failed)?)?;
    if !(meta.is_dir() || meta.is_file()) || InodeId::from_raw(meta.ino()).is_of_mount() {
        return Err(Failure::new(Exit::Usage, ShareError::NotShared(absolute))
            .hint("share a folder or a regular file"));
    }
    let is_root = point == absolute;
    // A link to a file may be in another directory than the file.
    let place =
        if meta.is_dir() { absolute.clone() } else { path.canonicalize().map_err(failed)? };
    let parent = match (is_root, meta.is_dir()) {
        (true, _) => InodeId::ROOT.raw(),
        (false, true) => fs::metadata(path.join("..")).map_err(failed)?.ino(),
        (false, false) => {
            let above = place.parent().unwrap_or(point);
            of_mount(fs::metadata(above).map_err(failed)?)?.ino()
        }
    };
    Ok(Object {
        ino: InodeId::from_raw(meta.ino()),
        parent: InodeId::from_raw(parent),
        name: place.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default(),
        is_root,
        is_folder: meta.is_dir(),
    })
}
