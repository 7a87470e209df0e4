//! What kinds of requests there are.

use pelago_wire::Request;

/// Whether a read-only server refuses it.
pub(super) fn changes(request: &Request) -> bool {
    match request {
        Request::Open { flags, .. } => flags.write || flags.truncate,
        Request::Flush { .. } | Request::Release { .. } | Request::Fsync { .. } => false,
        _ => writes_rows(request),
    }
}

/// Whether its answer is remembered: it changes names or attributes, by rows alone.
pub(super) fn is_remembered(request: &Request) -> bool {
    match request {
        Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. } => true,
        // Size and time of the bytes are known where those are.
        Request::SetAttr { open: None, set, .. } => set.size.is_none() && set.mtime.is_none(),
        _ => false,
    }
}

/// Whether it may write to the table.
pub(super) fn writes_rows(request: &Request) -> bool {
    match request {
        Request::SetAttr { .. }
        | Request::Create { .. }
        | Request::CreateNameless { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. }
        | Request::Write { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::Allocate { .. }
        | Request::CopyRange { .. } => true,
        Request::Open { flags, .. } => flags.write || flags.truncate,
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::ReadLink { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::StatFs
        | Request::Seek { .. } => false,
    }
}

/// Whether it needs more of the medium than there was.
pub(super) fn brings_data(request: &Request) -> bool {
    match request {
        Request::Create { .. }
        | Request::CreateNameless { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::Link { .. }
        | Request::SetXattr { .. } => true,
        Request::Rename { flags, .. } => flags.leaves_a_whiteout(),
        _ => false,
    }
}

/// Bytes that are kept for a request that waits: those of its caller, and those in itself that may
/// be many.
pub(super) fn payload(request: &Request, bytes: &[u8]) -> usize {
    let own = match request {
        Request::SetXattr { value, .. } => value.len(),
        Request::Symlink { target, .. } => target.len(),
        _ => 0,
    };
    own + bytes.len()
}
