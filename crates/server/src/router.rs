//! Gives each request its place to run: now, on the thread of its caller, where it touches only
//! memory and the table; on a thread of the pool where it may wait for the medium; and its answer
//! later where it is about what is safe.

use std::sync::Arc;

use parking_lot::RwLock;

use pelago_store::table::{Pressure, SharedTable};
use pelago_wire::{
    Bulk, Code, Context, DataPath, Done, Error, FileKind, Handle, InodeId, Name, OpenFlags, OpenId,
    RenameFlags, Reply, Request, Service,
};

use crate::answers::{Asked, Receipt};
use crate::clock;
use crate::open::{Allocate, Copy, Halt, Opening, Opens, Patience, Poke, Write, Written};
use crate::pool::{Caller, Pool, Turn};
use crate::progress::Progress;
use crate::seek::Seeks;
use crate::shard::{Move, NewNode, Page, Removed, SetXattr, Shard};
use crate::space::Space;

use kinds::{brings_data, changes, is_remembered, payload, writes_rows};

mod kinds;

/// What a router is made of.
pub(crate) struct Parts {
    /// Who decides about names and attributes.
    pub(crate) shard: Arc<Shard>,
    /// Who has the bytes of open files.
    pub(crate) opens: Arc<Opens>,
    /// Asked whether it keeps up.
    pub(crate) table: SharedTable,
    /// Who knows what is safe.
    pub(crate) progress: Arc<Progress>,
    /// Asked for its space, and whether new data is taken.
    pub(crate) space: Arc<Space>,
    /// Where requests run that may wait.
    pub(crate) pool: Arc<Pool>,
    /// Changes are refused.
    pub(crate) read_only: bool,
    /// Called when a file has lost its last name and nobody has it open.
    pub(crate) reap: Poke,
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

type Answered = Result<Answer, Halt>;

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
    fn call(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: Done) {
        let mut done = Some(done);
        let mut later = || done.take().expect("it is asked for once");
        if let Some(answer) = self.ask(context, request, bulk, &mut later) {
            later()(answer);
        }
    }

    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let inner = &self.inner;
        let doubts = inner.parts.progress.doubts();
        match inner.run_here(context, &request, bulk.bytes(), Patience::Brief) {
            Ok(Answer::Now(reply)) => return Some(Ok(reply)),
            Err(Halt::Failed(error)) => return Some(Err(error)),
            Err(Halt::Later) => {}
            answered @ Ok(Answer::WhenSafe(..) | Answer::WhenFound(_)) => {
                inner.finish(answered, doubts, later());
                return None;
            }
        }
        let (caller, done) = (Caller::from(context), later());
        let Some(room) = inner.parts.pool.room(caller, payload(&request, bulk.bytes())) else {
            // What may not be kept is carried out where it is: its caller is slowed down so.
            let answered = inner.run_here(context, &request, bulk.bytes(), Patience::Long);
            inner.finish(answered, doubts, done);
            return None;
        };
        let (inner, context) = (Arc::clone(inner), *context);
        let bytes = bulk.bytes().to_vec();
        let job = move |turn| match turn {
            Turn::Run => {
                let doubts = inner.parts.progress.doubts();
                let answered = inner.run(&context, &request, &bytes, Patience::Long);
                drop((bytes, room));
                inner.finish(answered, doubts, done);
            }
            Turn::Stopped => done(Err(Code::Unavailable.into())),
        };
        self.inner.parts.pool.submit(caller, Box::new(job));
        None
    }

    fn losses(&self) -> u64 {
        self.inner.parts.progress.losses.count()
    }
}

impl Inner {
    /// Runs on the thread of the caller, who may be one that [`Router::stop`] does not know of.
    fn run_here(
        &self,
        context: &Context,
        request: &Request,
        bytes: &[u8],
        patience: Patience,
    ) -> Answered {
        // Others may be waiting to stop while a caller comes back out of its own answer.
        let stopped = self.stopped.read_recursive();
        match *stopped {
            true => Err(Code::Unavailable.into()),
            false => self.run(context, request, bytes, patience),
        }
    }

    /// Answers a request. `doubts` is the count from before it ran: if the table was opened again
    /// since, what it did may be lost.
    fn finish(&self, answered: Answered, doubts: u64, done: Done) {
        match answered {
            Ok(Answer::Now(reply)) => done(Ok(reply)),
            Ok(Answer::WhenSafe(reply, told)) => {
                let (opens, progress) = (Arc::clone(&self.parts.opens), &self.parts.progress);
                let tell = move |safe: Result<(), Error>| match safe {
                    Ok(()) => done(Ok(reply)),
                    Err(cause) => done(Err(match told {
                        Told::Open(open) => opens.tell_open(open, cause),
                        Told::Directory(dir) => opens.tell_directory(dir, cause),
                        Told::Nothing => cause,
                    })),
                };
                progress.when_safe(progress.done(), doubts, Box::new(tell));
            }
            Ok(Answer::WhenFound(ino)) => self.seeks.seek(ino, done),
            Err(Halt::Failed(error)) => done(Err(error)),
            // Nobody asks for more patience than there is.
            Err(Halt::Later) => done(Err(Code::Bug.into())),
        }
    }

    fn run(
        &self,
        context: &Context,
        request: &Request,
        bytes: &[u8],
        patience: Patience,
    ) -> Answered {
        if !writes_rows(request) {
            return self.carry_out(context, request, bytes, patience);
        }
        self.mutate(context, request, patience, || {
            self.carry_out(context, request, bytes, patience)
        })
    }

    /// The one door of all that changes rows: whether it was carried out already, whether it may
    /// be, and whether it may now. The answers of sessions other than the direct one are remembered
    /// in the batch that carries a request out; what cannot be answered twice that way, open files
    /// above all, is refused for them until sessions have open files.
    fn mutate(
        &self,
        context: &Context,
        request: &Request,
        patience: Patience,
        run: impl FnOnce() -> Answered,
    ) -> Answered {
        if changes(request) {
            if self.parts.read_only {
                return Err(Code::ReadOnly.into());
            }
            if let Some(receipt) = Receipt::of(context) {
                if !is_remembered(request) {
                    return Err(Code::NotSupported.into());
                }
                if let Some(reply) = self.parts.shard.answered(&receipt)? {
                    return Ok(reply.into());
                }
            }
        }
        if brings_data(request) {
            self.parts.space.admit()?;
        }
        if patience == Patience::Brief && self.parts.table.pressure() == Pressure::High {
            return Err(Halt::Later);
        }
        run()
    }

    fn carry_out(
        &self,
        context: &Context,
        request: &Request,
        bytes: &[u8],
        patience: Patience,
    ) -> Answered {
        match request {
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Open { .. }
            | Request::Create { .. }
            | Request::CreateNameless { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::Fsync { .. }
            | Request::FsyncDir { .. }
            | Request::SetAttr { .. }
            | Request::Allocate { .. }
            | Request::Seek { .. }
            | Request::CopyRange { .. } => self.files(context, request, bytes, patience),
            Request::Rename { from_dir, from, to_dir, to, flags } => {
                let wanted = Move { from_dir: *from_dir, from, to_dir: *to_dir, to };
                self.rename(context, wanted, *flags, patience)
            }
            Request::Link { node, dir, name } => self.link(context, *node, (*dir, name), patience),
            Request::Find { ino } => self.find(*ino),
            Request::StatFs if patience == Patience::Brief => Err(Halt::Later),
            Request::StatFs => Ok(Reply::Volume(self.parts.space.measure()?).into()),
            _ => Ok(self.rows(context, request).inspect_err(|error| self.met(error))?.into()),
        }
    }

    /// A file of which only the number is known.
    fn find(&self, ino: InodeId) -> Answered {
        let shard = &self.parts.shard;
        match shard.found(Handle::own(ino)) {
            Err(error) if error.code == Code::Stale && shard.gave_out(ino) => {
                Ok(Answer::WhenFound(ino))
            }
            found => Ok(Reply::Entry(found?).into()),
        }
    }

    /// What touches open files.
    fn files(
        &self,
        context: &Context,
        request: &Request,
        bytes: &[u8],
        patience: Patience,
    ) -> Answered {
        let opens = &self.parts.opens;
        let reply = match request {
            Request::Create { .. } | Request::CreateNameless { .. } | Request::Open { .. } => {
                return self.open(context, request, patience);
            }
            Request::Read { open, offset, size } => {
                Reply::Data(opens.read(*open, *offset, *size, patience)?)
            }
            Request::Write { open, offset, kill_privileges } => {
                let (offset, kill_privileges) = (*offset, *kill_privileges);
                return self.write(*open, Write { offset, bytes, kill_privileges }, patience);
            }
            Request::Flush { open } => {
                opens.flush(*open, patience)?;
                Reply::Done
            }
            Request::Release { open } => {
                opens.release(*open, patience)?;
                Reply::Done
            }
            Request::Fsync { open, data_only } => {
                opens.fsync(*open, *data_only, patience)?;
                return Ok(Answer::WhenSafe(Reply::Done, Told::Open(*open)));
            }
            Request::FsyncDir { dir, since } => {
                self.parts.shard.attr(*dir)?;
                if self.parts.progress.losses.tell(dir.ino, *since) {
                    return Err(Code::Io.into());
                }
                return Ok(Answer::WhenSafe(Reply::Done, Told::Directory(dir.ino)));
            }
            Request::SetAttr { node, set, .. } if Receipt::of(context).is_some() => {
                let asked = Asked::by(context, clock::now());
                Reply::Attr(self.parts.shard.set_attr(*node, set, asked)?)
            }
            Request::SetAttr { node, open, set } => {
                Reply::Attr(opens.set_attr(*node, *open, set, patience)?)
            }
            _ => return self.ranges(context, request, patience),
        };
        Ok(reply.into())
    }

    /// What opens files. Whoever writes synchronously without us relies on the mark to be safe.
    fn open(&self, context: &Context, request: &Request, patience: Patience) -> Answered {
        let opens = &self.parts.opens;
        let (reply, flags) = match request {
            Request::Create { dir, name, mode, flags } => {
                let created = opens.create(context, (*dir, name), *mode, *flags, patience);
                let (entry, open, path) = created.inspect_err(|halt| self.met_by(halt))?;
                (Reply::Created { entry, open, path }, flags)
            }
            Request::CreateNameless { dir, mode, flags } => {
                let created = opens.create_nameless(context, *dir, *mode, *flags, patience);
                let (entry, open, path) = created.inspect_err(|halt| self.met_by(halt))?;
                (Reply::Created { entry, open, path }, flags)
            }
            Request::Open { node, flags } => {
                // As with ranges: nobody says who may keep setuid and setgid bits.
                let kills = flags.kill_privileges || (flags.passthrough && context.uid != 0);
                let asked = OpenFlags { kill_privileges: kills, ..*flags };
                let Opening { open, attr, path } = opens.open(*node, asked, patience)?;
                (Reply::Opened { open, attr, path }, flags)
            }
            _ => return Err(Code::NotSupported.into()),
        };
        let passes = matches!(
            reply,
            Reply::Created { path: DataPath::Passthrough(_), .. }
                | Reply::Opened { path: DataPath::Passthrough(_), .. }
        );
        match passes && flags.write && flags.sync {
            // If it fails, the caller never has this open.
            true => Ok(Answer::WhenSafe(reply, Told::Nothing)),
            false => Ok(reply.into()),
        }
    }

    /// What touches ranges of open files. Changes by anybody but root take setuid and setgid bits
    /// away: the kernel does not say who may keep them.
    fn ranges(&self, context: &Context, request: &Request, patience: Patience) -> Answered {
        let opens = &self.parts.opens;
        let kill_privileges = context.uid != 0;
        match request {
            Request::Allocate { open, offset, length, mode } => {
                let (offset, length, mode) = (*offset, *length, *mode);
                let asked = Allocate { offset, length, mode, kill_privileges };
                let sync = opens.allocate(*open, asked, patience)?;
                Ok(if sync {
                    Answer::WhenSafe(Reply::Done, Told::Open(*open))
                } else {
                    Reply::Done.into()
                })
            }
            Request::Seek { open, from } => {
                Ok(Reply::Offset(opens.seek(*open, *from, patience)?).into())
            }
            Request::CopyRange { from, from_offset, to, to_offset, length } => {
                let (from, from_offset, length) = (*from, *from_offset, *length);
                let (to, to_offset) = (*to, *to_offset);
                let copy = Copy { from, from_offset, to, to_offset, length, kill_privileges };
                Ok(written(opens.copy_range(copy, patience)?, to))
            }
            _ => Err(Code::NotSupported.into()),
        }
    }

    fn write(&self, open: OpenId, write: Write<'_>, patience: Patience) -> Answered {
        Ok(written(self.parts.opens.write(open, write, patience)?, open))
    }

    /// What touches only rows.
    fn rows(&self, context: &Context, request: &Request) -> Result<Reply, Error> {
        let shard = &self.parts.shard;
        let asked = Asked::by(context, clock::now());
        let reply = match request {
            Request::Lookup { dir, name } => Reply::Entry(shard.lookup(*dir, name)?),
            Request::Parent { dir } => Reply::Entry(shard.parent(*dir)?),
            Request::GetAttr { node } => Reply::Attr(shard.attr(*node)?),
            Request::ReadLink { node } => Reply::Bytes(shard.read_link(*node)?),
            Request::List { dir, after, behind, entries, attributes } => {
                let entries = usize::try_from(*entries).unwrap_or(usize::MAX);
                let (behind, attributes) = (behind.as_ref(), *attributes);
                let page = Page { dir: *dir, after: *after, behind, entries, attributes };
                let (entries, end) = shard.list(page)?;
                Reply::Listed { entries, end }
            }
            Request::GetXattr { node, name } => Reply::Bytes(shard.get_xattr(*node, name)?),
            Request::ListXattr { node } => Reply::Bytes(shard.list_xattr(context, *node)?),
            Request::SetXattr { node, name, value, flags, kill_setgid } => {
                let xattr = SetXattr { name, value, flags: *flags, kill_setgid: *kill_setgid };
                shard.set_xattr(*node, &xattr, asked)?;
                Reply::Done
            }
            Request::RemoveXattr { node, name } => {
                shard.remove_xattr(*node, name, asked)?;
                Reply::Done
            }
            Request::Unlink { dir, name } => self.removed(shard.unlink(*dir, name, asked)?),
            Request::RemoveDir { dir, name } => self.removed(shard.remove_dir(*dir, name, asked)?),
            Request::MakeDir { dir, name, mode } => {
                self.make(context, (*dir, name), NewNode::directory(*mode))?
            }
            Request::MakeNode { dir, name, kind, mode, rdev } => {
                if matches!(kind, FileKind::Directory | FileKind::Symlink) {
                    return Err(Code::Invalid.into());
                }
                let new = NewNode { kind: *kind, rdev: *rdev, ..NewNode::file(*mode) };
                self.make(context, (*dir, name), new)?
            }
            Request::Symlink { dir, name, target } => {
                self.make(context, (*dir, name), NewNode::symlink(target.clone()))?
            }
            _ => return Err(Code::NotSupported.into()),
        };
        Ok(reply)
    }

    fn make(
        &self,
        context: &Context,
        (dir, name): (Handle, &Name),
        new: NewNode,
    ) -> Result<Reply, Error> {
        self.parts.shard.create(context, dir, name, new, false, clock::now()).map(Reply::Entry)
    }

    fn removed(&self, removed: Removed) -> Reply {
        if removed.orphaned {
            (self.parts.reap)();
        }
        Reply::Removed(removed.attr)
    }

    /// One more name, or the first of a file: whoever finds it by that name finds the bytes too,
    /// after a crash as well.
    fn link(
        &self,
        context: &Context,
        node: Handle,
        (dir, name): (Handle, &Name),
        patience: Patience,
    ) -> Answered {
        let Parts { shard, opens, .. } = &self.parts;
        opens.commit_nameless(node, patience).inspect_err(|halt| self.met_by(halt))?;
        let linked = shard.link(node, dir, name, Asked::by(context, clock::now()));
        Ok(Reply::Entry(linked.inspect_err(|error| self.met(error))?).into())
    }

    /// A rename over an existing file: the new bytes must be safe before the old ones can go.
    fn rename(
        &self,
        context: &Context,
        wanted: Move<'_>,
        flags: RenameFlags,
        patience: Patience,
    ) -> Answered {
        let Parts { shard, opens, .. } = &self.parts;
        let doubts = self.parts.progress.doubts();
        let losses = self.parts.progress.losses.count() > 0;
        if flags.replaces() && (opens.any_unsafe() || opens.count() > 0 || losses) {
            let source = shard.lookup(wanted.from_dir, wanted.from)?.handle;
            let target = shard.lookup(wanted.to_dir, wanted.to);
            if target.is_err_and(|error| error.code == Code::NotFound) {
                // Nothing is replaced.
            } else if let Err(error) = target.and_then(|_| opens.expect_no_loss(source.ino)) {
                return Err(error.into());
            } else if !opens.is_unsafe(source.ino) {
                opens.commit_open(source.ino, patience)?;
            } else if patience == Patience::Brief {
                return Err(Halt::Later);
            } else {
                opens.make_safe(source)?;
            }
        }
        // The bytes that were made safe above may have been lost since.
        let asked = Asked { doubts: Some(doubts), ..Asked::by(context, clock::now()) };
        let renamed = match patience {
            Patience::Brief => shard.rename_at_once(context, wanted, flags, asked),
            Patience::Long => shard.rename(context, wanted, flags, asked).map(Some),
        };
        let renamed = renamed.inspect_err(|error| self.met(error))?.ok_or(Halt::Later)?;
        if renamed.replaced.is_some_and(|removed| removed.orphaned) {
            (self.parts.reap)();
        }
        Ok(renamed.reply().into())
    }

    fn met_by(&self, halt: &Halt) {
        if let Halt::Failed(error) = halt {
            self.met(error);
        }
    }

    /// Somebody met this error.
    fn met(&self, error: &Error) {
        if error.code == Code::NoSpace {
            self.parts.space.noticed_full();
        }
    }
}

fn written(written: Written, open: OpenId) -> Answer {
    let reply = Reply::Written { bytes: written.bytes, size: written.size };
    if written.sync { Answer::WhenSafe(reply, Told::Open(open)) } else { Answer::Now(reply) }
}

#[cfg(test)]
mod tests;
