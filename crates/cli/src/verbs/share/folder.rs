//! The folder that is shared: its inode in the mount.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use pelago_keynote::{Credential, Principal, SharedFolder};
use pelago_net::key::address::ServerAddress;
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_wire::InodeId;

use super::error::{ShareError, not_here, written_failed};
use crate::credential::{Whereabouts, printable};
use crate::failure::{Exit, Failure, Outcome};
use crate::locate;

/// A folder that is shared.
pub(super) struct Directory {
    pub(super) ino: InodeId,
    /// The parent; the root of the mount for the root itself.
    pub(super) parent: InodeId,
    pub(super) name: String,
    /// It is the root of the mount.
    pub(super) is_root: bool,
}

impl Directory {
    /// Returns the credential by which `key` grants this folder to another key.
    pub(super) fn credential(
        self,
        address: &ServerAddress,
        to: &PublicKey,
        grant: &SharedFolder,
        key: &PrivateKey,
    ) -> Outcome<String> {
        let Self { ino, parent, name, .. } = self;
        let whereabouts = Whereabouts { address: address.clone(), directory: ino, parent, name };
        let credential = Credential {
            comment: &whereabouts.to_lines(),
            licensee: Principal(*to.as_bytes()),
            conditions: &grant.conditions(),
        };
        credential.sign(&key.signing_key()).map_err(written_failed)
    }
}

/// Finds the inode of a folder in the mount at `point`.
pub(super) fn examine(point: &Path, path: &Path) -> Outcome<Directory> {
    let absolute = locate::absolute(path)?;
    if !absolute.starts_with(point) {
        return Err(not_here(absolute));
    }
    let failed = |source| {
        Failure::new(Exit::NotFound, ShareError::Examined { path: path.to_owned(), source })
    };
    let meta = fs::metadata(path).map_err(failed)?;
    // A symbolic link, or another mount, may lead to a tree with other inode numbers.
    if meta.dev() != fs::metadata(point).map_err(failed)?.dev() {
        return Err(not_here(absolute));
    }
    if !meta.is_dir() || InodeId::from_raw(meta.ino()).is_of_mount() {
        return Err(Failure::new(Exit::Usage, ShareError::NotFolder(absolute))
            .hint("share the folder that it is in"));
    }
    let parent = fs::metadata(path.join("..")).map_err(failed)?.ino();
    let is_root = point == absolute;
    let name = absolute.file_name().map(|name| printable(name.as_bytes())).unwrap_or_default();
    Ok(Directory {
        ino: InodeId::from_raw(meta.ino()),
        parent: if is_root { InodeId::ROOT } else { InodeId::from_raw(parent) },
        name,
        is_root,
    })
}
