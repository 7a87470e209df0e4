//! The door of a mirror: the socket by which mounts of this machine read it before a promotion.
//!
//! Other machines and guests are not let in: a revocation may be on its way from the primary.

use std::io;
use std::path::PathBuf;

use pelago_net::IdleServer;
use pelago_server::ReadableMirror;
use pelago_store::folder::Folder;
use pelago_store::volume;

/// An open door. Dropping it ends the sessions of the readers.
struct Door {
    _server: IdleServer,
    /// The folder of the mirror, for the path of the socket.
    _folder: Folder,
}

/// Opens the door of a mirror. Without it the mirror is kept all the same.
pub(crate) fn open(mirror: ReadableMirror) -> Option<Box<dyn Send + Sync>> {
    let path = mirror.path.clone();
    match listen(mirror) {
        Ok(door) => Some(Box::new(door)),
        Err(error) => {
            tracing::warn!(%error, mirror = %path.display(), "a mirror cannot be mounted");
            None
        }
    }
}

fn listen(mirror: ReadableMirror) -> io::Result<Door> {
    let folder = Folder::open(&mirror.path).map_err(io::Error::other)?;
    let socket: PathBuf = volume::session_socket_path(&folder.proc_path());
    let start = move || {
        let server = mirror.server().map_err(|error| io::Error::other(error.says()))?;
        Ok(server.session_service())
    };
    let server = IdleServer::listen(&socket, Box::new(start))?;
    Ok(Door { _server: server, _folder: folder })
}
