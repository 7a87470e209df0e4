//! Failures of starting, mounting and stopping, each with a hint.

use std::io;
use std::path::{Path, PathBuf};

use pelago_mount::busy::{MountUser, mount_users};
use pelago_mount::{MountError, UnmountError, mountinfo};
use pelago_server::{StartError, StopError};
use pelago_store::volume::VolumeError;

use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use crate::verbs::check::salvage_hint;

/// Checks that a mount point given by the user is a directory, before anything is created. An
/// existing mount on it is checked later.
pub(super) fn expect_point(point: &Path, dir: &Path) -> Outcome<()> {
    if is_mounted(point) {
        return Ok(());
    }
    let error = match point.metadata() {
        Ok(meta) if meta.is_dir() && point == dir => {
            return Err(Failure::new(Exit::Failed, PointError::IsVolume)
                .hint("name another folder with `--mount POINT`, or omit it"));
        }
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => MountError::PointNotDirectory(point.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            MountError::PointMissing(point.to_owned())
        }
        // Mounting will fail with a better error.
        Err(_) => return Ok(()),
    };
    Err(mount_failed(error))
}

/// Returns whether something is mounted on `point`.
pub(super) fn is_mounted(point: &Path) -> bool {
    mountinfo::at(point).is_ok_and(|mounted| mounted.is_some())
}

#[derive(Debug, thiserror::Error)]
#[error("{} keeps mirrors, and is no volume", .0.display())]
struct KeepsMirrors(PathBuf);

/// Returns the failure of a start in a folder that keeps mirrors.
pub(super) fn keeps_mirrors(dir: &Path) -> Failure {
    Failure::new(Exit::Failed, KeepsMirrors(dir.to_owned())).hint(
        "`pelago serve DIR --mirrors` keeps them; `pelago site promote DIR/mirrors/VOLUME --force` \
         makes one of them a volume",
    )
}

#[derive(Debug, thiserror::Error)]
#[error("{} is the folder of a server of a shared store, and is no volume", .0.display())]
struct IsStoreServer(PathBuf);

/// Returns the failure of a start in the folder of a server of a shared store.
pub(super) fn is_store_server(dir: &Path, store: &Path) -> Failure {
    let hint = format!("`pelago serve {} --store {}` starts it", dir.display(), store.display());
    Failure::new(Exit::Usage, IsStoreServer(dir.to_owned())).hint(hint)
}

#[derive(Debug, thiserror::Error)]
enum PointError {
    #[error("a volume cannot be mounted over its own folder")]
    IsVolume,
    #[error("the dead mount on {} cannot be detached", .point.display())]
    NotDetached {
        point: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Returns the failure of a server that did not start.
pub(crate) fn start_failed(error: StartError, dir: &Path) -> Failure {
    let path = dir.display();
    match error {
        StartError::Volume(error) => {
            let hint = match &error {
                VolumeError::InUse { .. } => {
                    format!(
                        "`pelago status -V {path}` prints its state, \
                         `pelago unmount -V {path}` stops it"
                    )
                }
                VolumeError::Corrupt { .. } => salvage_hint(dir),
                _ => return Failure::from(error),
            };
            Failure::from(error).hint(hint)
        }
        error => {
            let exit = Exit::from(error.kind());
            let can_be_repaired = matches!(error, StartError::Damaged { .. });
            let failure = Failure::new(exit, error);
            if exit == Exit::Damaged {
                let failure = failure.at_risk("yes, the volume cannot be read as it is");
                match can_be_repaired {
                    true => failure.hint(format!("run `pelago check {path}`")),
                    false => failure.hint(salvage_hint(dir)),
                }
            } else {
                failure
            }
        }
    }
}

/// Returns the failure of a mount.
pub(crate) fn mount_failed(error: MountError) -> Failure {
    let (exit, hint) = match &error {
        MountError::PointMissing(point) => {
            (Exit::NotFound, format!("run `mkdir -p {}`, then retry", point.display()))
        }
        MountError::PointNotDirectory(_) | MountError::PointNotEmpty(_) => {
            (Exit::Failed, "name an empty folder with `--mount POINT`".to_owned())
        }
        MountError::PointBusy { .. } => (
            Exit::Failed,
            "unmount that one, or name another folder with `--mount POINT`".to_owned(),
        ),
        MountError::PointDead(point) => {
            (Exit::Failed, format!("run `pelago unmount {}`, then retry", point.display()))
        }
        MountError::NoDevice => (
            Exit::Failed,
            "run `modprobe fuse` as root; start a container with `--device /dev/fuse`".to_owned(),
        ),
        MountError::NoPermission(_) => (
            Exit::Denied,
            "mount on a folder that you own, run as root, or give the container CAP_SYS_ADMIN"
                .to_owned(),
        ),
        MountError::NoHelper => {
            (Exit::Failed, "install fuse3 (Debian: `apt install fuse3`), or run as root".to_owned())
        }
        MountError::NoRing(_) => {
            (Exit::Failed, "mount with `--io-uring auto`, which uses /dev/fuse then".to_owned())
        }
        MountError::Helper { .. } | MountError::Kernel(_) => {
            (Exit::Failed, "`dmesg` may tell more".to_owned())
        }
    };
    Failure::new(exit, error).hint(hint)
}

/// Returns the failure of a default mount point that could not be created or used.
pub(super) fn point_not_made(error: VolumeError) -> Failure {
    Failure::from(error).hint("or name an empty folder with `--mount POINT`")
}

/// Returns the failure of a dead mount that could not be detached.
pub(crate) fn detach_failed(source: io::Error, point: &Path) -> Failure {
    Failure::new(Exit::Denied, PointError::NotDetached { point: point.to_owned(), source })
        .hint(detach_hint(point))
}

fn detach_hint(point: &Path) -> String {
    format!("run `umount -l {}` as the user who mounted it, then retry", point.display())
}

/// Returns the failure of a server that did not stop cleanly.
pub(super) fn stop_failed(error: StopError) -> Failure {
    Failure::new(Exit::Failed, error)
        .at_risk("yes, changes that were not fsynced; everything else is kept")
        .hint("`pelago up` recovers the volume")
}

/// Returns the message of a first Ctrl-C that did not stop the volume.
pub(super) fn still_used(error: &UnmountError, point: &Path) -> String {
    let users = mount_users(point).unwrap_or_default();
    let named = |user: &MountUser| format!("{} ({})", user.pid, output::name(&user.command));
    let shown: Vec<String> = users.iter().map(named).collect();
    let by = if shown.is_empty() { String::new() } else { format!(" by {}", shown.join(", ")) };
    format!("pelago: {error}{by}\n  next: end it, then press Ctrl-C again: that stops in any case")
}
