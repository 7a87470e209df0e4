//! WRITE: where the bytes go, and which cached pages they make stale.

use std::sync::Arc;

use pelago_client::{FilePos, WriteFlags, Written};
use pelago_fuse::operation::Write;
use pelago_fuse::{Header, Reply, reply};
use pelago_wire::OpenId;

use crate::caller::Caller;
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
    let write_flags = WriteFlags { append: server_finds_end(state, request), kill_privileges };
    let answer = state.files.write(&Caller::of(header).context(), to, data, write_flags);
    if !flags::is_direct(flags) {
        return answer.then(move |result| written(result, reply));
    }
    let (state, node) = (Arc::clone(state), attr::ino(header.node));
    answer.then(move |result| {
        if let Ok(Written { bytes, .. }) = result {
            state.stale_pages.add(node, offset, bytes);
        }
        written(result, reply);
    });
}

/// Returns whether the bytes go to the end of the file as the server finds it, and the kernel's
/// offset is ignored.
///
/// They do if the program appends at this moment, and others may change the file unseen by the
/// kernel. Else the kernel's offset is right, and its pages have the bytes there already: it is the
/// end of the file, or with `RWF_NOAPPEND`, which no request tells, the offset of the call. The
/// parts of one write with `O_DIRECT` arrive in any order, so only their offsets keep them in
/// order.
fn server_finds_end(state: &State, request: &Write<'_>) -> bool {
    request.appends()
        && !flags::is_direct(request.flags)
        && state.open_ids.path(OpenId(request.file.0)) == Some(OpenPath::Direct)
}
