//! READ: bytes of files that come through the daemon.

use pelago_client::FilePos;
use pelago_fuse::operation::Read;
use pelago_fuse::{Header, Reply};
use pelago_wire::OpenId;

use crate::attr;
use crate::state::State;

/// Replies to FUSE_READ. The bytes are put into the memory of the reply if it has any.
pub(crate) fn read(state: &State, header: &Header, request: Read, mut reply: Reply<[u8]>) {
    let Read { file, offset, size } = request;
    let context = state.context(header);
    let files = &state.files;
    let open = OpenId(file.0);
    let answer = reply.with_room(|room| match room {
        Some(room) => files.read_into(&context, FilePos { open, offset }, size, room),
        None => files.read(&context, open, offset, size),
    });
    answer.then(move |result| match result {
        Ok(buffer) => match buffer.room_bytes() {
            Some(bytes) => reply.ok_in_room(bytes),
            None => reply.ok(buffer.as_bytes()),
        },
        Err(error) => reply.error(attr::error(error)),
    });
}
