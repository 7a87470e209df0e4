//! GETLK, SETLK and SETLKW: requests for file locks, which go to the server.

use std::sync::Arc;

use pelago_fuse::operation::{FileLock as FuseLock, FileLockKind, Getlk, Setlk};
use pelago_fuse::{Header, Reply};
use pelago_wire::{Context, FileLock, InodeId, LockKind, LockMode, LockOwner, OpenId, RequestId};

use crate::attr;
use crate::locks::Interrupt;
use crate::replies::done;
use crate::state::State;

/// A lock that is being set.
struct Setting {
    state: Arc<State>,
    ino: InodeId,
    open: OpenId,
    owner: LockOwner,
    lock: FileLock,
}

/// Finds a lock that keeps one from being set.
pub(crate) fn get(state: &State, context: Context, request: Getlk, reply: Reply<FuseLock>) {
    let open = OpenId(request.file.0);
    let owner = LockOwner(request.owner.0);
    let answer = state.files.get_lock(&context, open, owner, from_kernel(request.lock, false));
    answer.then(move |result| match result {
        Ok(Some(found)) => reply.ok(&to_kernel(found)),
        Ok(None) => reply.ok(&FuseLock { kind: FileLockKind::Unlock, ..request.lock }),
        Err(error) => reply.error(attr::error(error)),
    });
}

/// Sets or removes a lock.
pub(crate) fn set(state: &Arc<State>, header: &Header, request: Setlk, reply: Reply<()>) {
    let setting = Setting {
        state: Arc::clone(state),
        ino: attr::ino(header.node),
        open: OpenId(request.file.0),
        owner: LockOwner(request.owner.0),
        lock: from_kernel(request.lock, request.is_flock),
    };
    let number = request.wait.then_some(header.unique);
    setting.start(state.context(header), number, reply);
}

/// Interrupts a request that waits for a lock. Returns `false` if there is none with this number.
pub(crate) fn interrupt(state: &State, unique: u64) -> bool {
    match state.locks.interrupt(unique) {
        Interrupt::Cancel => state.files.cancel(&numbered(Context::direct(0, 0), unique)),
        Interrupt::Kept => {}
        Interrupt::Unknown => return false,
    }
    true
}

impl Setting {
    /// Sends the request, which may wait if it has a number, and replies.
    fn start(self, context: Context, number: Option<u64>, reply: Reply<()>) {
        let Self { open, owner, lock, .. } = self;
        let state = Arc::clone(&self.state);
        let context = number.map_or(context, |number| numbered(context, number));
        self.note();
        if let Some(number) = number {
            state.locks.sending(number);
        }
        let answer = state.files.set_lock(&context, open, owner, lock, number.is_some());
        if !answer.is_ready()
            && let Some(number) = number
            && state.locks.sent(number)
        {
            state.files.cancel(&context);
        }
        answer.then(move |result| {
            if let Some(number) = number {
                self.state.locks.answered(number);
            }
            if result.is_ok() {
                // A close by another thread may have come in between and ended older locks.
                self.note();
            }
            done(result, reply);
        });
    }

    /// Records that the owner may have a lock that a close ends.
    fn note(&self) {
        if self.lock.kind != LockKind::Flock && self.lock.mode != LockMode::Unlock {
            self.state.locks.sets(self.ino, self.open, self.owner);
        }
    }
}

/// Returns the context of a request that can be cancelled by its number.
const fn numbered(context: Context, unique: u64) -> Context {
    Context { request: RequestId(unique), ..context }
}

/// Returns the lock that the kernel requests. A request does not say whether its owner is a process
/// or an open file description (`F_OFD_SETLK`).
const fn from_kernel(lock: FuseLock, is_flock: bool) -> FileLock {
    let FuseLock { kind, start, end, pid } = lock;
    let mode = match kind {
        FileLockKind::Read => LockMode::Read,
        FileLockKind::Write => LockMode::Write,
        FileLockKind::Unlock => LockMode::Unlock,
    };
    let kind = if is_flock { LockKind::Flock } else { LockKind::Posix };
    FileLock { kind, mode, start, end, pid }
}

/// Returns a lock as the kernel expects it.
const fn to_kernel(lock: FileLock) -> FuseLock {
    let FileLock { mode, start, end, pid, .. } = lock;
    let kind = match mode {
        LockMode::Read => FileLockKind::Read,
        LockMode::Write => FileLockKind::Write,
        LockMode::Unlock => FileLockKind::Unlock,
    };
    FuseLock { kind, start, end, pid }
}
