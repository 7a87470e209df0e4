//! Paths of the sockets and the mount point of a running server, in the folder of its volume.

use std::path::{Path, PathBuf};

use super::layout::{FILES, SESSION_SOCKET, SOCKET};

/// Returns the path of the socket on which the server of the volume in `dir` answers
/// `pelago status`. It may be too long for a socket address: use it below [`Folder::proc_path`].
///
/// [`Folder::proc_path`]: crate::folder::Folder::proc_path
#[must_use]
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}

/// Returns the path of the socket to which mounts by other processes of this machine connect. It
/// may be too long for a socket address: use it below [`Folder::proc_path`].
///
/// [`Folder::proc_path`]: crate::folder::Folder::proc_path
#[must_use]
pub fn session_socket_path(dir: &Path) -> PathBuf {
    dir.join(SESSION_SOCKET)
}

/// Returns the path of the default mount point of the volume in `dir`.
#[must_use]
pub fn mount_path(dir: &Path) -> PathBuf {
    dir.join(FILES)
}
