//! The versions of files of other offices that others have passed over, for the control socket.

use std::cmp::Reverse;

use pelago_server::{KeptVersion, Server};
use pelago_wire::{Code, InodeId};

use crate::control::{ConflictLine, ConflictsReport, ControlReply};

/// The most versions in a reply, whose line has a limit.
const LISTED: usize = 2000;

/// Returns the versions, the newest first: of the file with this inode number, or of all.
pub(super) fn list(server: &Server, inode: Option<u64>) -> ConflictsReport {
    let mut kept = server.kept_versions(inode.map(InodeId::from_raw));
    kept.sort_by_key(|version| Reverse((version.mtime, version.node.raw())));
    let left_out = kept.len().saturating_sub(LISTED) as u64;
    let conflicts = kept.into_iter().take(LISTED).map(line).collect();
    ConflictsReport { conflicts, left_out }
}

fn line(version: KeptVersion) -> ConflictLine {
    let KeptVersion { node, file, site, site_name, mtime, bytes } = version;
    ConflictLine {
        node: node.raw(),
        inode: file.ino.raw(),
        dir: file.dir.raw(),
        hash: file.hash.0,
        office: if site_name.is_empty() { site.to_string() } else { site_name },
        seconds: mtime.seconds,
        bytes,
    }
}

/// Removes a version.
pub(super) fn drop_kept(server: &Server, node: u64) -> ControlReply {
    match server.drop_kept(InodeId::from_raw(node)) {
        Ok(()) => ControlReply::KeptDropped,
        Err(error) if error.code == Code::NotFound => {
            ControlReply::Failed("no such version is kept".to_owned())
        }
        Err(error) => ControlReply::Failed(error.to_string()),
    }
}
