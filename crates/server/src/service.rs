//! Gives each request its place to run: now, on the thread of its caller, where it touches only
//! memory and the table; on a thread of the pool where it may wait for the medium; and its answer
//! later where it is about what is safe.

use std::sync::Arc;

use parking_lot::RwLock;

use pelago_store::table::{Pressure, SharedTable};
use pelago_wire::{
    Bulk, Code, Context, Description, Done, Effect, Error, InodeId, OpenId, Reply, Request, Service,
};

use crate::pool::{Caller, Pool, Turn};
use crate::seek::Seeks;
use pelago_data::Space;
use pelago_data::{MayBlock, Notifier, OpError, OpenFiles};
use pelago_meta::durability::Durability;
use pelago_meta::reply_cache::RequestKey;
use pelago_meta::shard::Shard;

use carry_out::Call;

mod bytes;
mod carry_out;
mod names;

/// What a router is made of.
pub(crate) struct Parts {
    /// Who decides about names and attributes.
    pub(crate) shard: Arc<Shard>,
    /// Who has the bytes of open files.
    pub(crate) opens: Arc<OpenFiles>,
    /// OpContext whether it keeps up.
    pub(crate) table: SharedTable,
    /// Who knows what is safe.
    pub(crate) durability: Arc<Durability>,
    /// OpContext for its space, and whether new data is taken.
    pub(crate) space: Arc<Space>,
    /// Where requests run that may wait.
    pub(crate) pool: Arc<Pool>,
    /// Changes are refused.
    pub(crate) read_only: bool,
    /// Called when a file has lost its last name and nobody has it open.
    pub(crate) reap: Notifier,
}

/// The service of a server.
pub(crate) struct Router {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    seeks: Seeks,
    /// Held to read while a request runs on its caller's thread. Taken before all others.
    stopped: RwLock<bool>,
}

/// What is answered, and when.
enum Answer {
    /// At once.
    Now(Reply),
    /// When everything that is done now is safe.
    WhenSafe(Reply, Told),
    /// When it is found.
    WhenFound(InodeId),
}

/// What is told of an error of writing back by a request that waits for what is safe, so that it is
/// not told again.
#[derive(Debug, Clone, Copy)]
enum Told {
    /// An open of a file.
    Open(OpenId),
    /// A directory.
    Directory(InodeId),
    /// Nothing: the caller has neither yet.
    Nothing,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::Now(reply)
    }
}

type Answered = Result<Answer, OpError>;

impl Router {
    /// A router that takes requests.
    #[must_use]
    pub(crate) fn new(parts: Parts) -> Self {
        let seeks = Seeks::new(Arc::clone(&parts.shard));
        Self { inner: Arc::new(Inner { parts, seeks, stopped: RwLock::new(false) }) }
    }

    /// From now on every request is answered `Unavailable`; those that wait for a thread too.
    /// Returns when none runs any more.
    pub(crate) fn stop(&self) {
        *self.inner.stopped.write() = true;
        self.inner.parts.pool.stop();
        self.inner.seeks.stop();
    }
}

impl Service for Router {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let inner = &self.inner;
        let invalidations = inner.parts.durability.invalidations();
        match inner.run_here(context, &request, bulk.bytes(), MayBlock::No) {
            Ok(Answer::Now(reply)) => return Some(Ok(reply)),
            Err(OpError::Failed(error)) => return Some(Err(error)),
            Err(OpError::WouldBlock) => {}
            answered @ Ok(Answer::WhenSafe(..) | Answer::WhenFound(_)) => {
                inner.finish(answered, invalidations, later());
                return None;
            }
        }
        let (caller, done) = (Caller::from(context), later());
        let Some(room) = inner.parts.pool.room(caller, payload(&request, bulk.bytes())) else {
            // Decision 10: without room for its payload a request runs here and slows its caller.
            let answered = inner.run_here(context, &request, bulk.bytes(), MayBlock::Yes);
            inner.finish(answered, invalidations, done);
            return None;
        };
        let (inner, context) = (Arc::clone(inner), *context);
        let bytes = bulk.bytes().to_vec();
        let job = move |turn| match turn {
            Turn::Run => {
                let invalidations = inner.parts.durability.invalidations();
                let answered = inner.run(&context, &request, &bytes, MayBlock::Yes);
                drop((bytes, room));
                inner.finish(answered, invalidations, done);
            }
            Turn::Stopped => done(Err(Code::Unavailable.into())),
        };
        self.inner.parts.pool.submit(caller, Box::new(job));
        None
    }

    fn losses(&self) -> u64 {
        self.inner.parts.durability.writeback_errors.count()
    }
}

impl Inner {
    /// Carries out a request on the thread of its caller, which [`Router::stop`] does not wait for
    /// otherwise.
    fn run_here(
        &self,
        context: &Context,
        request: &Request,
        bytes: &[u8],
        may_block: MayBlock,
    ) -> Answered {
        // Recursive: an answer may call in again on this thread while `stop` waits for the lock.
        let stopped = self.stopped.read_recursive();
        match *stopped {
            true => Err(Code::Unavailable.into()),
            false => self.run(context, request, bytes, may_block),
        }
    }

    /// Answers a request. `invalidations` is the count from before it ran: if the table was opened
    /// again since, what it did may be lost.
    fn finish(&self, answered: Answered, invalidations: u64, done: Done) {
        match answered {
            Ok(Answer::Now(reply)) => done(Ok(reply)),
            Ok(Answer::WhenSafe(reply, told)) => {
                let (opens, durability) = (Arc::clone(&self.parts.opens), &self.parts.durability);
                let tell = move |safe: Result<(), Error>| match safe {
                    Ok(()) => done(Ok(reply)),
                    Err(cause) => done(Err(match told {
                        Told::Open(open) => opens.open_error(open, cause),
                        Told::Directory(dir) => opens.directory_error(dir, cause),
                        Told::Nothing => cause,
                    })),
                };
                durability.when_safe(durability.done(), invalidations, Box::new(tell));
            }
            Ok(Answer::WhenFound(ino)) => self.seeks.seek(ino, done),
            Err(OpError::Failed(error)) => done(Err(error)),
            // Unreachable: only a brief run asks to be repeated, and `ask` repeats it.
            Err(OpError::WouldBlock) => done(Err(Code::Bug.into())),
        }
    }

    /// Carries out a request. Every request passes here, reads too: what holds for all requests of
    /// one effect is decided here and nowhere else.
    fn run(
        &self,
        context: &Context,
        request: &Request,
        bytes: &[u8],
        may_block: MayBlock,
    ) -> Answered {
        let Description { operation, effect, subjects, .. } = request.describe();
        let _span = tracing::debug_span!(
            "request",
            operation = operation.name(),
            inode = subjects.each_inode().next().map(InodeId::raw),
            open = subjects.each_open().next().map(|open| open.0),
            session = ?context.session,
        )
        .entered();
        if let Some(reply) = self.admit(context, effect, may_block)? {
            return Ok(reply.into());
        }
        let call = Call { parts: &self.parts, context, bytes, may_block };
        let answered = call.carry_out(request);
        if let Err(OpError::Failed(error)) = &answered
            && error.code == Code::NoSpace
            && effect.writes_rows()
        {
            self.parts.space.note_full();
        }
        answered
    }

    /// Decides whether a request with this effect may be carried out now. Returns the stored reply
    /// if it was carried out before.
    ///
    /// Only replies to sessions other than the direct one are stored. Such a session cannot have
    /// open files yet, so requests whose replies are not stored are refused for it.
    ///
    /// # Errors
    /// [`Code::ReadOnly`], [`Code::NoSpace`], [`Code::NotSupported`]; [`OpError::WouldBlock`] if
    /// the engine falls behind and the caller is an event loop.
    fn admit(
        &self,
        context: &Context,
        effect: Effect,
        may_block: MayBlock,
    ) -> Result<Option<Reply>, OpError> {
        match effect {
            Effect::None => return Ok(None),
            Effect::Commit => {}
            Effect::Change { .. } if self.parts.read_only => return Err(Code::ReadOnly.into()),
            Effect::Change { replayed, grows } => {
                if let Some(request_key) = RequestKey::of(context) {
                    if !replayed {
                        return Err(Code::NotSupported.into());
                    }
                    if let Some(reply) = self.parts.shard.answered(&request_key)? {
                        return Ok(Some(reply));
                    }
                }
                if grows {
                    self.parts.space.admit()?;
                }
            }
        }
        if may_block == MayBlock::No && self.parts.table.pressure() == Pressure::High {
            return Err(OpError::WouldBlock);
        }
        Ok(None)
    }
}

/// Returns the bytes that are kept for a request that waits: those of its caller, and those in
/// itself that may be many.
fn payload(request: &Request, bytes: &[u8]) -> usize {
    let own = match request {
        Request::SetXattr { value, .. } => value.len(),
        Request::Symlink { target, .. } => target.len(),
        _ => 0,
    };
    own + bytes.len()
}

#[cfg(test)]
mod tests;
