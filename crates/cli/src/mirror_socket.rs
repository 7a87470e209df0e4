//! The socket by which mounts of this machine read a mirror before a promotion.
//!
//! Other machines and guests are not let in: a revocation may be on its way from the primary.

use std::io;
use std::path::PathBuf;

use pelago_net::IdleServer;
use pelago_server::ReadableMirror;
use pelago_store::folder::Folder;
use pelago_store::volume;

/// The socket of a mirror. Dropping it ends the sessions of the readers.
struct MirrorSocket {
    _server: IdleServer,
    /// The folder of the mirror, for the path of the socket.
    _folder: Folder,
}

/// Listens for the readers of a mirror. If that fails, the mirror is kept all the same.
pub(crate) fn listen(mirror: ReadableMirror) -> Option<Box<dyn Send + Sync>> {
    let path = mirror.path.clone();
    match open(mirror) {
        Ok(socket) => Some(Box::new(socket)),
        Err(error) => {
            tracing::warn!(%error, mirror = %path.display(), "a mirror cannot be mounted");
            None
        }
    }
}

fn open(mirror: ReadableMirror) -> io::Result<MirrorSocket> {
    let folder = Folder::open(&mirror.path).map_err(io::Error::other)?;
    let path: PathBuf = volume::session_socket_path(&folder.proc_path());
    let start = move || {
        let server = mirror.server().map_err(|error| io::Error::other(error.says()))?;
        Ok(server.session_service())
    };
    let server = IdleServer::listen(&path, Box::new(start))?;
    Ok(MirrorSocket { _server: server, _folder: folder })
}
