//! The part of a start that differs for a volume with a mirror.

use std::path::Path;
use std::time::Duration;

use pelago_data::Passthrough;
use pelago_meta::shard::Shard;
use pelago_search::Indexing;
use pelago_store::volume::{VolumeError, set_not_primary};
use pelago_wire::Error;

use super::{OpenVolume, Options, Server, StartError};
use crate::mirror::Mirror;

/// Checks that no other folder is the primary of the volume. The row of the mirror is read, because
/// the mark in `format` may not have been written when this folder was replaced.
///
/// # Errors
/// [`VolumeError::NotPrimary`].
pub(super) fn expect_primary(
    mirror: &Mirror,
    volume: Option<&OpenVolume>,
) -> Result<(), StartError> {
    match volume {
        Some(open) if mirror.is_replaced() => {
            let path = open.volume.dir().to_path_buf();
            if let Err(error) = set_not_primary(open.volume.folder()) {
                tracing::warn!(%error, "cannot note that this folder is not the primary any more");
            }
            Err(VolumeError::NotPrimary { path }.into())
        }
        _ => Ok(()),
    }
}

impl Server {
    /// Starts over a folder that was the primary, to recover it: its rows say all that was done in
    /// it after a stop.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn start_replaced(dir: &Path) -> Result<Self, StartError> {
        let options = Options {
            grace: Duration::ZERO,
            passthrough: Passthrough::Never,
            indexing: Indexing::Never,
            workers: false,
            adopts: true,
            ..Options::default()
        };
        Self::start(dir, options)
    }
}

/// Returns the options, without passthrough if the volume has a mirror: writes by passthrough are
/// no requests, so the mirror would not get them.
pub(super) fn without_passthrough(options: Options, shard: &Shard) -> Result<Options, Error> {
    if shard.mirror_row()?.peer.is_empty() || options.passthrough == Passthrough::Never {
        return Ok(options);
    }
    tracing::info!("the volume has a mirror: programs write its files through the server");
    Ok(Options { passthrough: Passthrough::Never, ..options })
}
