//! FALLOCATE and COPY_FILE_RANGE.

use std::sync::Arc;

use pelago_client::{ByteRange, FilePos};
use pelago_fuse::operation::{CopyFileRange, Fallocate};
use pelago_fuse::{Errno, Header, Reply, reply};
use pelago_wire::{OpenId, Touched};

use crate::state::State;
use crate::{attr, flags};

/// Reserves or frees a range.
pub(crate) fn allocate(state: &Arc<State>, header: &Header, request: Fallocate, reply: Reply<()>) {
    let Fallocate { file, offset, length, mode } = request;
    let mode = match flags::allocate(mode) {
        Ok(mode) => mode,
        Err(code) => return reply.error(attr::error(code.into())),
    };
    let open = OpenId(file.0);
    let node = attr::ino(header.node);
    state.open_ids.writes(open);
    state.entry_attrs.changes(node);
    let range = ByteRange { offset, length };
    let answer = state.files.allocate(&state.context(header), open, range, mode);
    let state = Arc::clone(state);
    answer.then(move |result| {
        state.done(result, reply, || vec![Touched::Node(node), Touched::Bytes(node)]);
    });
}

/// Copies within the server.
pub(crate) fn copy(
    state: &Arc<State>,
    header: &Header,
    request: CopyFileRange,
    reply: Reply<reply::Written>,
) {
    if request.flags != 0 {
        return reply.error(Errno::INVAL);
    }
    let from = FilePos { open: OpenId(request.from.0), offset: request.from_offset };
    let to = FilePos { open: OpenId(request.to.0), offset: request.to_offset };
    state.open_ids.writes(to.open);
    // The reply has 32 bits for the number of bytes.
    let length = request.length.min(u64::from(u32::MAX));
    let answer = state.files.copy_range(&state.context(header), from, to, length);
    let node = attr::ino(request.to_node);
    let state = Arc::clone(state);
    answer.then(move |result| state.written(node, result, reply));
}
