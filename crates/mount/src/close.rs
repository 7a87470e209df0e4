//! Ends of descriptors (FLUSH) and of opens (RELEASE), and of all opens when the mount ends.

use std::sync::Arc;

use pelago_fuse::operation::{Flush, Release};
use pelago_fuse::{Header, Reply};
use pelago_wire::{Context, Error, InodeId, LockOwner, OpenId, RequestId};

use crate::open_ids::OpenPath;
use crate::replies::done;
use crate::state::State;
use crate::{attr, flags};

/// Commits what was written before a descriptor was closed, and ends the `fcntl` locks of its
/// process on the file: Linux sends no unlock at a close, FLUSH alone says so. A close that has
/// neither to do is not sent to the server.
pub(crate) fn flush(state: &State, header: &Header, request: Flush, reply: Reply<()>) {
    let open = OpenId(request.file.0);
    let ino = attr::ino(header.node);
    let owner = LockOwner(request.owner.0);
    let owner = state.locks.take(ino, owner).then_some(owner);
    if owner.is_none() && !state.open_ids.must_commit(open, ino) {
        return reply.ok(&());
    }
    // A FLUSH ends locks, so it must be sent even if its program was killed. It goes without the
    // number of the request, by which the requests of a killed program are dropped.
    let context = Context { request: RequestId(0), ..state.context(header) };
    let answer = state.files.flush(&context, open, owner);
    answer.then(move |result| done(result, reply));
}

/// Ends an open.
pub(crate) fn release(state: &Arc<State>, header: &Header, request: Release, reply: Reply<()>) {
    let write = flags::open(request.flags, false).write;
    let ending = Ending { open: OpenId(request.file.0), ino: attr::ino(header.node), write };
    ending.perform(state, &state.context(header), move |result| done(result, reply));
}

/// An open that ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) open: OpenId,
    pub(crate) ino: InodeId,
    /// The open was for writing.
    pub(crate) write: bool,
}

impl Ending {
    /// Ends an open that the kernel never got, because the program that requested it was killed.
    pub(crate) fn unwanted(self, state: &Arc<State>, context: &Context) {
        // As for FLUSH: requests of a killed program are dropped by their number.
        let context = Context { request: RequestId(0), ..*context };
        self.perform(state, &context, |released| {
            if let Err(error) = released {
                tracing::debug!(%error, "an open that is not wanted cannot be released");
            }
        });
    }

    fn perform(
        self,
        state: &Arc<State>,
        context: &Context,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let Self { open, ino, write } = self;
        let state = Arc::clone(state);
        // The kernel has closed its descriptor before RELEASE. Ours must go before the server
        // checks whether any process still has the file open.
        match state.open_ids.remove(open) {
            Some(OpenPath::Passthrough) => state.backings.release(ino),
            Some(OpenPath::Cached) => state.close_pages(ino),
            Some(OpenPath::Direct) | None => {}
        }
        state.locks.released(ino, open);
        let answer = state.files.release(context, open);
        answer.then(move |result| {
            if write {
                state.attr_ttl.write_closed(ino);
            }
            then(result);
        });
    }
}

/// Ends the opens that the kernel has left when the mount ended.
pub(crate) fn release_all(state: &State) {
    for open in state.open_ids.take() {
        if let Err(error) = state.files.release(&Context::direct(0, 0), open).wait() {
            tracing::warn!(%error, "releasing a file at the end of the mount failed");
        }
    }
}
