//! Why a volume does not come up, in words that help.

use std::io;
use std::path::Path;

use pelago_mount::busy::{MountUser, mount_users};
use pelago_mount::{MountError, UnmountError, mountinfo};
use pelago_server::{StartError, StopError};
use pelago_store::volume::VolumeError;

use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// A mount point that is named must be there, before anything is made. What is mounted there is
/// looked at later.
pub(super) fn expect_point(point: &Path, dir: &Path) -> Outcome<()> {
    if is_mounted(point) {
        return Ok(());
    }
    let error = match point.metadata() {
        Ok(meta) if meta.is_dir() && point == dir => {
            return Err(Failure::new(Exit::Failed, PointError::IsVolume)
                .hint("name another folder with --mount, or none"));
        }
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => MountError::PointNotDirectory(point.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            MountError::PointMissing(point.to_owned())
        }
        // The mount itself says what is wrong.
        Err(_) => return Ok(()),
    };
    Err(mount_failed(error))
}

/// Answers whether something is mounted there.
pub(super) fn is_mounted(point: &Path) -> bool {
    mountinfo::at(point).is_ok_and(|mounted| mounted.is_some())
}

#[derive(Debug, thiserror::Error)]
enum PointError {
    #[error("a volume cannot be mounted over its own folder")]
    IsVolume,
    #[error("the dead mount on {} cannot be taken out of the tree", .point.display())]
    Stuck {
        point: std::path::PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The server did not start.
pub(crate) fn start_failed(error: StartError, dir: &Path) -> Failure {
    let dir = dir.display();
    match error {
        StartError::Volume(error) => {
            let hint = match &error {
                VolumeError::InUse { .. } => {
                    format!(
                        "`pelago status -V {dir}` says how it is, `pelago unmount -V {dir}` ends it"
                    )
                }
                VolumeError::Corrupt { .. } => {
                    format!("keep a copy of {dir} before anything else")
                }
                _ => return Failure::from(error),
            };
            Failure::from(error).hint(hint)
        }
        error => {
            let exit = Exit::from(error.kind());
            let failure = Failure::new(exit, error);
            if exit == Exit::Damaged {
                failure
                    .at_risk("yes, the volume cannot be read as it is")
                    .hint(format!("keep a copy of {dir}, then `pelago check {dir}`"))
            } else {
                failure
            }
        }
    }
}

/// The mount did not come about.
pub(super) fn mount_failed(error: MountError) -> Failure {
    let (exit, hint) = match &error {
        MountError::PointMissing(point) => {
            (Exit::NotFound, format!("`mkdir -p {}`, then again", point.display()))
        }
        MountError::PointNotDirectory(_) | MountError::PointNotEmpty(_) => {
            (Exit::Failed, "name an empty folder with `--mount POINT`".to_owned())
        }
        MountError::PointBusy { .. } => (
            Exit::Failed,
            "unmount that one, or name another folder with `--mount POINT`".to_owned(),
        ),
        MountError::PointDead(point) => {
            (Exit::Failed, format!("`umount -l {}` as who mounted it, then again", point.display()))
        }
        MountError::NoDevice => (
            Exit::Failed,
            "`modprobe fuse` as root; in a container, run it with `--device /dev/fuse`".to_owned(),
        ),
        MountError::NoPermission(_) => (
            Exit::Denied,
            "mount on a folder of your own, as root, or in a container with CAP_SYS_ADMIN"
                .to_owned(),
        ),
        MountError::NoHelper => {
            (Exit::Failed, "install fuse3 (Debian: `apt install fuse3`), or run as root".to_owned())
        }
        MountError::Helper { .. } | MountError::Kernel(_) => {
            (Exit::Failed, "`dmesg` may say more".to_owned())
        }
    };
    Failure::new(exit, error).hint(hint)
}

/// The volume's own directory for the mount could not be made or used.
pub(super) fn point_not_made(error: VolumeError) -> Failure {
    Failure::from(error).hint("or name an empty folder elsewhere with `--mount POINT`")
}

/// What a former life has left mounted could not be detached.
pub(super) fn stuck(source: io::Error, point: &Path) -> Failure {
    Failure::new(Exit::Denied, PointError::Stuck { point: point.to_owned(), source })
        .hint(format!("`umount -l {}` as who mounted it, then again", point.display()))
}

/// The server did not stop cleanly.
pub(super) fn stop_failed(error: StopError) -> Failure {
    Failure::new(Exit::Failed, error)
        .at_risk("bytes that were not fsynced; everything else is kept")
        .hint("`pelago up` recovers the volume")
}

/// Why Ctrl-C did not end it, and what does.
pub(super) fn still_used(error: &UnmountError, point: &Path) -> String {
    let users = mount_users(point).unwrap_or_default();
    let named = |user: &MountUser| format!("{} ({})", user.pid, output::name(&user.command));
    let shown: Vec<String> = users.iter().map(named).collect();
    let by = if shown.is_empty() { String::new() } else { format!(" by {}", shown.join(", ")) };
    format!("pelago: {error}{by}\n  next: end that, then Ctrl-C again; it then ends in any case")
}
