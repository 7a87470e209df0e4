//! Versions of files of other sites that are kept here, because their files have got other bytes.

use pelago_store::rows::StayState;
use pelago_wire::{Code, Error, Handle, InodeId};

use super::super::LocalService;
use crate::stays::KeptVersion;

impl LocalService {
    /// Returns the versions that are kept: of this file, or of all. A node that is being removed is
    /// left out.
    pub(crate) fn kept_versions(&self, file: Option<InodeId>) -> Vec<KeptVersion> {
        let parts = &self.dispatcher.parts;
        let kept = parts.sites.stays.kept(file);
        let version = |node: InodeId| {
            let file = parts.sites.stays.row(node)?.file;
            let attr = parts.shard.attr(Handle::own(node)).ok()?;
            let site = file.ino.site();
            let site_name = parts.sites.names(&[site]).pop().unwrap_or_default();
            Some(KeptVersion { node, file, site, site_name, mtime: attr.mtime, bytes: attr.size })
        };
        kept.into_iter().filter_map(version).collect()
    }

    /// Removes the version that a node has, with its bytes.
    ///
    /// # Errors
    /// `NotFound` if it has none that is kept; `ReadOnly`; those of the table.
    pub(crate) fn drop_kept(&self, node: InodeId) -> Result<(), Error> {
        let parts = &self.dispatcher.parts;
        let row = parts.sites.stays.row(node);
        if row.is_none_or(|row| row.state != StayState::Kept) {
            return Err(Code::NotFound.into());
        }
        if parts.served.read_only {
            return Err(Code::ReadOnly.into());
        }
        match parts.sites.stays.end(node) {
            Ok(true) => (parts.notify_orphans)(),
            Ok(false) => {}
            // Another call has removed it.
            Err(error) if error.code == Code::Stale => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
