//! Requests of other sessions than that of the server's own mount.
//!
//! The kernel below that mount keeps what it was answered for a long time. So a change by another
//! session is announced to it first, carried out once the kernel has dropped what the change
//! touches, and answered after the announcement has ended. A request that waits for the kernel
//! holds no thread.
//!
//! An inode that another session has open for writing counts as changing until its release: its
//! size and times change with each write, and at commits which no request causes.

use std::sync::Arc;
use std::thread;

use pelago_data::{MayBlock, OpError, OpenKey};
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, InodeId, LocalCache, Name, Reply, Request, Then,
    Touched,
};

use super::{Call, Dispatcher};
use crate::other_sessions::Noted;
use crate::pool::{Caller, Invocation};

/// How often a change is announced for what its names lead to. The last time it is carried out
/// whatever they lead to by then.
const ATTEMPTS: u32 = 8;

/// What a request does to the cache of the server's own mount.
enum Touches {
    /// Nothing: it reads, or what it changes is announced already.
    Nothing,
    /// It makes an open that writes nothing.
    Opens(OpenKey),
    /// The bytes of this file, which the session has open for writing.
    Bytes(InodeId),
    /// It ends an open.
    Release(OpenKey),
    /// It changes this.
    Changes(Announced),
}

/// What a change touches, as it was when it was announced.
struct Announced {
    changes: Arc<[Touched]>,
    /// What the names of the request lead to, if the request relies on it.
    expected: Option<ExpectedNodes>,
    /// The open that the request makes.
    opens: Option<OpenKey>,
    /// Whether that is one for writing.
    writes: bool,
}

impl Announced {
    /// Leaves out names: until all that was lost is carried out again the kernel has been answered
    /// none, and one that asks for them must not be waited for.
    fn forget_names(&mut self) {
        let inodes = |touched: &&Touched| !matches!(touched, Touched::Name { .. });
        self.changes = self.changes.iter().filter(inodes).cloned().collect();
    }
}

/// A change on its way: announced, carried out, answered.
struct PendingChange {
    dispatcher: Arc<Dispatcher>,
    cache: Arc<dyn LocalCache>,
    context: Context,
    request: Request,
    attempt: u32,
    done: Done,
}

/// Carries out a request of a session other than the direct one.
pub(super) fn ask(
    dispatcher: &Arc<Dispatcher>,
    context: &Context,
    request: Request,
    bulk: Bulk<'_>,
    later: &mut dyn FnMut() -> Done,
) -> Option<Result<Reply, Error>> {
    let others = &dispatcher.others;
    if !others.has(context.session) {
        return Some(Err(Code::Unavailable.into()));
    }
    let touches = match dispatcher.touches(context, &request) {
        Ok(touches) => touches,
        // What it names may be gone since it was carried out.
        Err(error) => match dispatcher.stored_reply(context, request.describe().effect) {
            Ok(Some(_)) => Touches::Nothing,
            Ok(None) => return Some(Err(error)),
            Err(error) => return Some(Err(error)),
        },
    };
    let (call, asked) = (Call::from(context), (request, bulk));
    match (touches, others.cache().map(Arc::clone)) {
        (Touches::Changes(mut announced), Some(cache)) => {
            if context.replayed.is_some() {
                announced.forget_names();
            }
            let (request, done) = (asked.0, later());
            let dispatcher = Arc::clone(dispatcher);
            others.changing();
            let context = *context;
            PendingChange { dispatcher, cache, context, request, attempt: 1, done }
                .announce(announced);
            None
        }
        (Touches::Opens(open) | Touches::Changes(Announced { opens: Some(open), .. }), _) => {
            let of_answer = Arc::clone(dispatcher);
            then(dispatcher, &call, asked, later, move |answer| {
                of_answer.release_if_ended(open);
                answer();
            })
        }
        (Touches::Bytes(ino), Some(cache)) => {
            then(dispatcher, &call, asked, later, move |answer| {
                cache.bytes_changed(ino);
                cache.when_dropped(&[Touched::Bytes(ino)], answer);
            })
        }
        (Touches::Release(open), Some(cache)) => match others.closed(open) {
            Some(ino) => then(dispatcher, &call, asked, later, move |answer| {
                let changes = [Touched::Node(ino), Touched::Bytes(ino)];
                cache.end(&changes);
                cache.when_dropped(&changes, answer);
            }),
            None => dispatcher.ask(&call, asked.0, asked.1, later),
        },
        _ => dispatcher.ask(&call, asked.0, asked.1, later),
    }
}

/// Carries a request out, and calls `after` with what answers it.
fn then(
    dispatcher: &Arc<Dispatcher>,
    call: &Call,
    (request, bulk): (Request, Bulk<'_>),
    later: &mut dyn FnMut() -> Done,
    after: impl FnOnce(Then) + Send + 'static,
) -> Option<Result<Reply, Error>> {
    let mut after = Some(after);
    let answered = dispatcher.ask(call, request, bulk, &mut || {
        let (after, done) = (after.take(), later());
        Box::new(move |result| match after {
            Some(after) => after(Box::new(move || done(result))),
            None => done(result),
        })
    });
    match (answered, after) {
        (Some(result), Some(after)) => {
            let done = later();
            after(Box::new(move || done(result)));
            None
        }
        (answered, _) => answered,
    }
}

impl Dispatcher {
    /// Returns what a write to an open touches. Of a request that is carried out again the open may
    /// have ended.
    fn bytes_of(&self, context: &Context, open: OpenKey) -> Result<Touches, Error> {
        let node = context.replayed.and_then(|replayed| replayed.node);
        let found = self.parts.opens.inode_of(open);
        found.or_else(|error| node.map(|node| node.ino).ok_or(error)).map(Touches::Bytes)
    }

    /// Releases an open that was made while its session ended.
    fn release_if_ended(&self, open: OpenKey) {
        if self.others.has(open.session) {
            return;
        }
        match self.parts.opens.release(open, MayBlock::Yes) {
            // It was not made, or the end of the session has found it.
            Ok(()) | Err(OpError::Failed(Error { code: Code::BadOpen })) => {}
            Err(error) => {
                tracing::warn!(?error, "an open of a session that ended is not committed")
            }
        }
    }

    /// Returns what a request touches. The match has no wildcard, so the compiler names a new
    /// request here.
    fn touches(&self, context: &Context, request: &Request) -> Result<Touches, Error> {
        let key = |open| OpenKey::of(context, open);
        Ok(match request {
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
            | Request::Seek { .. }
            | Request::GetLock { .. }
            | Request::SetLock { .. }
            | Request::ReclaimLock { .. } => Touches::Nothing,
            Request::Write { open, .. }
            | Request::Allocate { open, .. }
            | Request::CopyRange { to: open, .. } => self.bytes_of(context, key(*open))?,
            Request::Release { open } => Touches::Release(key(*open)),
            Request::SetAttr { node, set, .. } if set.size.is_some() => {
                changes([Touched::Node(node.ino), Touched::Bytes(node.ino)])
            }
            Request::SetAttr { node, .. }
            | Request::SetXattr { node, .. }
            | Request::RemoveXattr { node, .. } => changes([Touched::Node(node.ino)]),
            Request::Open { node, flags, open } if flags.write || flags.truncate => {
                let mut all = vec![Touched::Node(node.ino)];
                all.extend(flags.truncate.then_some(Touched::Bytes(node.ino)));
                let (opens, writes) = (Some(key(*open)), flags.write);
                Touches::Changes(Announced { changes: all.into(), expected: None, opens, writes })
            }
            Request::Reopen { node, flags, open } if flags.write => {
                let (opens, writes) = (Some(key(*open)), true);
                let changes = Arc::new([Touched::Node(node.ino)]);
                Touches::Changes(Announced { changes, expected: None, opens, writes })
            }
            Request::Open { open, .. } | Request::Reopen { open, .. } => Touches::Opens(key(*open)),
            Request::CreateUnnamed { flags, open, .. } if !flags.write => {
                Touches::Opens(key(*open))
            }
            // Others may know the inode once it has a name.
            Request::CreateUnnamed { open, .. } => Touches::Changes(Announced {
                changes: Arc::new([]),
                expected: None,
                opens: Some(key(*open)),
                writes: true,
            }),
            Request::Create { dir, name, flags, open, .. } => {
                let (opens, writes) = (Some(key(*open)), flags.write);
                let changes = Arc::new([Touched::Node(dir.ino), named(*dir, name)]);
                Touches::Changes(Announced { changes, expected: None, opens, writes })
            }
            Request::MakeDir { dir, name, .. }
            | Request::MakeNode { dir, name, .. }
            | Request::Symlink { dir, name, .. } => {
                changes([Touched::Node(dir.ino), named(*dir, name)])
            }
            Request::Link { node, dir, name } => {
                changes([Touched::Node(node.ino), Touched::Node(dir.ino), named(*dir, name)])
            }
            Request::Unlink { dir, name } | Request::RemoveDir { dir, name } => {
                self.names((*dir, name), None)?
            }
            Request::Rename { from_dir, from, to_dir, to, .. } => {
                self.names((*from_dir, from), Some((*to_dir, to)))?
            }
        })
    }

    /// Returns what the removal of a name touches, or the move from one to another: the names,
    /// their directories, and what they lead to.
    fn names(&self, first: At<'_>, second: Option<At<'_>>) -> Result<Touches, Error> {
        let expected = ExpectedNodes {
            first: self.led_to(first)?,
            second: second.map_or(Ok(None), |at| self.led_to(at))?,
        };
        let mut all = vec![Touched::Node(first.0.ino), named(first.0, first.1)];
        if let Some((dir, name)) = second {
            all.push(named(dir, name));
            all.extend((dir.ino != first.0.ino).then_some(Touched::Node(dir.ino)));
        }
        let (one, other) = (expected.first, expected.second);
        all.extend(one.map(Touched::Node));
        all.extend(other.filter(|_| other != one).map(Touched::Node));
        let (changes, opens, writes) = (all.into(), None, false);
        Ok(Touches::Changes(Announced { changes, expected: Some(expected), opens, writes }))
    }

    /// Returns what a name leads to now.
    fn led_to(&self, (dir, name): At<'_>) -> Result<Option<InodeId>, Error> {
        match self.parts.shard.lookup(dir, name) {
            Ok(entry) => Ok(Some(entry.attr.ino)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A name in a directory.
type At<'a> = (Handle, &'a Name);

fn named(dir: Handle, name: &Name) -> Touched {
    Touched::Name { dir: dir.ino, name: name.clone() }
}

fn changes<const N: usize>(changes: [Touched; N]) -> Touches {
    Touches::Changes(Announced {
        changes: Arc::new(changes),
        expected: None,
        opens: None,
        writes: false,
    })
}

impl PendingChange {
    /// Announces the change, and carries it out once the cache has dropped what it touches: on this
    /// thread if that is so when [`LocalCache::begin`] returns, else on one of the pool.
    fn announce(self, mut announced: Announced) {
        if self.attempt == ATTEMPTS {
            announced.expected = None;
        }
        let (here, cache) = (thread::current().id(), Arc::clone(&self.cache));
        let changes = Arc::clone(&announced.changes);
        let go = move || {
            if thread::current().id() == here {
                return self.carry_out(announced);
            }
            let (dispatcher, caller) = (Arc::clone(&self.dispatcher), Caller::from(&self.context));
            let job = move |invocation| match invocation {
                Invocation::Run => self.carry_out(announced),
                Invocation::Cancelled => self.end(&announced, Err(Code::Unavailable.into())),
            };
            dispatcher.parts.pool.submit(caller, Box::new(job));
        };
        cache.begin(&changes, Box::new(go));
    }

    fn carry_out(self, announced: Announced) {
        let call = Call { context: self.context, expected: announced.expected };
        let (dispatcher, request) = (Arc::clone(&self.dispatcher), self.request.clone());
        let mut this = Some((self, announced));
        let now = dispatcher.ask(&call, request, Bulk::None, &mut || {
            let (this, announced) = this.take().expect("a service asks for one callback");
            Box::new(move |result| this.finish(announced, result))
        });
        if let (Some(result), Some((this, announced))) = (now, this) {
            this.finish(announced, result);
        }
    }

    /// Continues with the result of the request.
    fn finish(self, announced: Announced, result: Result<Reply, Error>) {
        match (result, announced.opens) {
            (Err(error), _) if error.code == Code::Busy && announced.expected.is_some() => {
                self.repeat(&announced);
            }
            (Ok(Reply::Opened { attr, path }), Some(open)) if announced.writes => {
                if let Some(Touched::Bytes(ino)) = announced.changes.last() {
                    self.cache.bytes_changed(*ino);
                }
                let (ino, cache) = (attr.ino, Arc::clone(&self.cache));
                let go = move || self.opened((open, ino), Ok(Reply::Opened { attr, path }));
                cache.when_dropped(&announced.changes, Box::new(go));
            }
            (Ok(Reply::Created { entry, path }), Some(open)) if announced.writes => {
                let (ino, cache) = (entry.attr.ino, Arc::clone(&self.cache));
                let changes: Arc<[Touched]> = Arc::new([Touched::Node(ino)]);
                let go = move || {
                    self.cache.end(&announced.changes);
                    self.opened((open, ino), Ok(Reply::Created { entry, path }));
                };
                // No name: the cache has dropped it when this returns.
                cache.begin(&changes, Box::new(go));
            }
            (result, _) => {
                if let Ok(reply) = &result {
                    self.announce_late(&announced, reply);
                }
                self.end(&announced, result);
            }
        }
    }

    /// Announces inodes that the names led to when the change was carried out, and not when it was
    /// announced: until it is answered the cache may show what they were before.
    fn announce_late(&self, announced: &Announced, reply: &Reply) {
        let led_to = match reply {
            Reply::Removed(attr) => [Some(attr.ino), None],
            Reply::Renamed { moved, replaced } => {
                [Some(moved.ino), replaced.map(|replaced| replaced.attr.ino)]
            }
            _ => return,
        };
        let late = led_to.into_iter().flatten().map(Touched::Node);
        let late: Arc<[Touched]> = late.filter(|node| !announced.changes.contains(node)).collect();
        if !late.is_empty() {
            // No name: the cache has dropped it when this returns.
            self.cache.begin(&late, Box::new(|| {}));
            self.cache.end(&late);
        }
    }

    /// Answers an open for writing. The change of its inode goes on until the release.
    fn opened(self, (open, ino): (OpenKey, InodeId), result: Result<Reply, Error>) {
        let Self { dispatcher, cache, done, .. } = self;
        match dispatcher.others.opened(open, ino) {
            Noted::New => {}
            // Its change goes on since it was opened first.
            Noted::Known => cache.end(&[Touched::Node(ino)]),
            Noted::Ended => {
                dispatcher.release_if_ended(open);
                cache.end(&[Touched::Node(ino), Touched::Bytes(ino)]);
            }
        }
        dispatcher.others.changed();
        done(result);
    }

    /// Announces the change anew: a name leads to another inode now.
    fn repeat(self, announced: &Announced) {
        self.cache.end(&announced.changes);
        match self.dispatcher.touches(&self.context, &self.request) {
            Ok(Touches::Changes(announced)) => {
                Self { attempt: self.attempt + 1, ..self }.announce(announced);
            }
            Ok(_) => self.answer(Err(Code::Bug.into())),
            Err(error) => self.answer(Err(error)),
        }
    }

    fn end(self, announced: &Announced, result: Result<Reply, Error>) {
        self.cache.end(&announced.changes);
        if let Some(open) = announced.opens {
            self.dispatcher.release_if_ended(open);
        }
        let cache = Arc::clone(&self.cache);
        cache.when_dropped(&announced.changes, Box::new(move || self.answer(result)));
    }

    fn answer(self, result: Result<Reply, Error>) {
        self.dispatcher.others.changed();
        (self.done)(result);
    }
}
