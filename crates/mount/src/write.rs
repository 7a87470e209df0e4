//! WRITE, and the cached pages that it makes stale.

use std::sync::Arc;

use pelago_client::{FilePos, Written};
use pelago_fuse::operation::Write;
use pelago_fuse::{Header, Reply, reply};
use pelago_wire::{OpenId, WriteFlags};

use crate::open_ids::OpenPath;
use crate::replies::written;
use crate::state::State;
use crate::{attr, flags};

/// Writes the bytes of a request.
pub(crate) fn write(
    state: &Arc<State>,
    header: &Header,
    request: &Write<'_>,
    reply: Reply<reply::Written>,
) {
    let &Write { file, offset, data, kill_privileges, flags, .. } = request;
    let to = FilePos { open: OpenId(file.0), offset };
    if request.from_cache {
        state.open_ids.inode_changes(attr::ino(header.node));
    }
    state.open_ids.writes(to.open);
    let node = attr::ino(header.node);
    state.entry_attrs.changes(node);
    let finder = EndFinder::of(state, request);
    let append = finder != EndFinder::Kernel;
    let write_flags = WriteFlags { append, kill_privileges, ..WriteFlags::NONE };
    let answer = state.files.write(&state.context(header), to, data, write_flags);
    let has_pages =
        append && (state.lifetimes.keeps_everything() || state.page_versions.are_used(node));
    if !flags::is_direct(flags) && !has_pages {
        if answer.is_ready() {
            return answer.then(move |result| written(result, reply));
        }
        let state = Arc::clone(state);
        return answer.then(move |result| state.written(node, result, reply));
    }
    let state = Arc::clone(state);
    answer.then(move |result| {
        if let Ok(Written { bytes, size }) = result {
            state.stale_pages.add(node, offset, bytes);
            if append {
                state.stale_pages.add(node, size.saturating_sub(bytes), bytes);
            }
        }
        state.written(node, result, reply);
    });
}

/// The side that finds the end of a file for an append.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndFinder {
    /// The kernel, which sees every change: its offset is right, and its pages have the bytes there
    /// already. The offset is the end of the file, or with `RWF_NOAPPEND`, which the request does
    /// not show, the offset of the call. The parts of one write with `O_DIRECT` arrive in any order
    /// (`ASYNC_DIO`), so only their offsets keep them in order.
    Kernel,
    /// The server, because others change the file unseen by the kernel. Pages of other opens, or of
    /// an open from before other sessions, may have other bytes at both places: the kernel's offset
    /// and the end of the file. So the pages of both are dropped.
    Server,
}

impl EndFinder {
    fn of(state: &State, request: &Write<'_>) -> Self {
        if !request.appends() || flags::is_direct(request.flags) || request.from_cache {
            return Self::Kernel;
        }
        match state.open_ids.path(OpenId(request.file.0)) {
            Some(OpenPath::Direct) => Self::Server,
            // Another session may have written after the end that the kernel has cached: Linux
            // requests no attributes before an append.
            Some(OpenPath::Cached) if state.lifetimes.was_shared() => Self::Server,
            _ => Self::Kernel,
        }
    }
}
