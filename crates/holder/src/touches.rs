//! What a request of this client changes.

use pelago_wire::{Handle, InodeId, Name, Request, Touched};

use crate::kept::Kept;

/// The names that a request removes or replaces.
pub(crate) fn removed_names(request: &Request) -> Vec<(InodeId, &Name)> {
    match request {
        Request::Unlink { dir, name } | Request::RemoveDir { dir, name } => vec![(dir.ino, name)],
        Request::Rename { from_dir, from, to_dir, to, .. } => {
            vec![(from_dir.ino, from), (to_dir.ino, to)]
        }
        _ => Vec::new(),
    }
}

/// Returns what a request changes, as far as it is known before it is carried out. The match has no
/// wildcard, so the compiler names a new request here.
pub(crate) fn touches(
    request: &Request,
    kept: &Kept,
    inode_of: impl Fn(pelago_wire::OpenId) -> Option<InodeId>,
) -> Vec<Touched> {
    let node = |node: &Handle| Touched::Node(node.ino);
    let named = |dir: &Handle, name: &Name| Touched::Name { dir: dir.ino, name: name.clone() };
    let written = |open| inode_of(open).map(Touched::Node).into_iter().collect();
    match request {
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::ReadLink { .. }
        | Request::Flush { .. }
        | Request::Fsync { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::StatFs
        | Request::Search { .. }
        | Request::Tags { .. }
        | Request::Seek { .. }
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::ReclaimLock { .. }
        | Request::CreateUnnamed { .. } => Vec::new(),
        Request::Open { node: of, flags, .. } | Request::Reopen { node: of, flags, .. } => {
            if flags.write || flags.truncate { vec![node(of)] } else { Vec::new() }
        }
        Request::Write { open, .. }
        | Request::Allocate { open, .. }
        | Request::CopyRange { to: open, .. }
        | Request::Release { open } => written(*open),
        Request::SetAttr { node: of, .. }
        | Request::SetXattr { node: of, .. }
        | Request::RemoveXattr { node: of, .. } => vec![node(of)],
        Request::Create { dir, name, .. }
        | Request::MakeDir { dir, name, .. }
        | Request::MakeNode { dir, name, .. }
        | Request::Symlink { dir, name, .. } => vec![node(dir), named(dir, name)],
        Request::Link { node: of, dir, name } => vec![node(of), node(dir), named(dir, name)],
        Request::Unlink { dir, name } | Request::RemoveDir { dir, name } => {
            let mut all = vec![node(dir), named(dir, name)];
            all.extend(led_to(kept, dir, name));
            all
        }
        Request::Rename { from_dir, from, to_dir, to, .. } => {
            let mut all = vec![node(from_dir), named(from_dir, from), named(to_dir, to)];
            all.extend((to_dir.ino != from_dir.ino).then(|| node(to_dir)));
            all.extend(led_to(kept, from_dir, from));
            all.extend(led_to(kept, to_dir, to));
            all
        }
    }
}

fn led_to(kept: &Kept, dir: &Handle, name: &Name) -> Option<Touched> {
    kept.name(dir.ino, name).flatten().map(|led_to| Touched::Node(led_to.ino))
}
