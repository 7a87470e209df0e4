//! Requests while there are other sessions than that of the server's own mount.
//!
//! The kernel below that mount keeps what it was answered for a long time, and other sessions keep
//! what they have leases on. So a change is announced to all but its author first, carried out once
//! they have dropped what it touches, and answered after the announcement has ended. A request that
//! waits for them holds no thread. The server's own mount has no leases: it counts as holder of
//! everything, and is told by a call.
//!
//! An inode that another session has open for writing counts as changing until its release: its
//! size and times change with each write, and at commits which no request causes.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use pelago_data::{MayBlock, OpError, OpenKey};
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_proto::leases::{ChangeId, Leased, Recall};
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, InodeId, LocalCache, Name, Reply, Request, SessionId,
    Then, Touched,
};

use super::{Call, Dispatcher};
use crate::other_sessions::Noted;
use crate::pool::{Caller, Invocation};

/// How often a change is announced for what its names lead to. The last time it is carried out
/// whatever they lead to by then.
const ATTEMPTS: u32 = 8;

/// What a request does to what others keep.
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
    /// What the announcement to other sessions is known by, once it was made.
    change: Option<ChangeId>,
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
    /// The cache of the server's own mount, unless that is the author, or there is none.
    cache: Option<Arc<dyn LocalCache>>,
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
        (Touches::Changes(mut announced), cache) => {
            if context.replayed.is_some() {
                announced.forget_names();
            }
            begin(dispatcher, cache, context, (asked.0, announced), later());
            None
        }
        (Touches::Opens(open), _) => {
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
        (Touches::Release(open), cache) => match others.closed(open) {
            Some(ino) => {
                let of_answer = Arc::clone(dispatcher);
                then(dispatcher, &call, asked, later, move |answer| {
                    of_answer.note_written(open.session, ino);
                    let Some(cache) = cache else { return answer() };
                    let changes = [Touched::Node(ino), Touched::Bytes(ino)];
                    cache.end(&changes);
                    cache.when_dropped(&changes, answer);
                })
            }
            None => dispatcher.ask(&call, asked.0, asked.1, later),
        },
        _ => dispatcher.ask(&call, asked.0, asked.1, later),
    }
}

/// Carries out a request of the server's own mount while there are other sessions.
pub(super) fn ask_own(
    dispatcher: &Arc<Dispatcher>,
    context: &Context,
    request: Request,
    bulk: Bulk<'_>,
    later: &mut dyn FnMut() -> Done,
) -> Option<Result<Reply, Error>> {
    let touches = match dispatcher.touches(context, &request) {
        Ok(touches) => touches,
        Err(error) => return Some(Err(error)),
    };
    let call = Call::from(context);
    match touches {
        Touches::Changes(announced) if !announced.changes.is_empty() => {
            begin(dispatcher, None, context, (request, announced), later());
            None
        }
        Touches::Release(open) => match dispatcher.parts.opens.opened(open) {
            Ok((ino, flags)) if flags.write => {
                let of_answer = Arc::clone(dispatcher);
                then(dispatcher, &call, (request, bulk), later, move |answer| {
                    of_answer.note_written(SessionId::DIRECT, ino);
                    answer();
                })
            }
            _ => dispatcher.ask(&call, request, bulk, later),
        },
        _ => dispatcher.ask(&call, request, bulk, later),
    }
}

/// Returns whether others are told of such a request while there are any.
pub(super) const fn concerns_others(request: &Request) -> bool {
    match request {
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::ReadLink { .. }
        | Request::Flush { .. }
        | Request::Fsync { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::Write { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::StatFs
        | Request::Allocate { .. }
        | Request::Seek { .. }
        | Request::CopyRange { .. }
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::ReclaimLock { .. }
        | Request::CreateUnnamed { .. } => false,
        Request::Open { flags, .. } | Request::Reopen { flags, .. } => {
            flags.write || flags.truncate
        }
        Request::SetAttr { .. }
        | Request::Create { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::Release { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. } => true,
    }
}

/// Begins a change: announces it.
fn begin(
    dispatcher: &Arc<Dispatcher>,
    cache: Option<Arc<dyn LocalCache>>,
    context: &Context,
    (request, announced): (Request, Announced),
    done: Done,
) {
    dispatcher.others.changing();
    let (dispatcher, context) = (Arc::clone(dispatcher), *context);
    PendingChange { dispatcher, cache, context, request, attempt: 1, done }.announce(announced);
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
                Touches::Changes(Announced {
                    changes: all.into(),
                    expected: None,
                    opens,
                    writes,
                    change: None,
                })
            }
            Request::Reopen { node, flags, open } if flags.write => {
                let (opens, writes) = (Some(key(*open)), true);
                let changes = Arc::new([Touched::Node(node.ino)]);
                Touches::Changes(Announced { changes, expected: None, opens, writes, change: None })
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
                change: None,
            }),
            Request::Create { dir, name, flags, open, .. } => {
                let (opens, writes) = (Some(key(*open)), flags.write);
                let changes = Arc::new([Touched::Node(dir.ino), named(*dir, name)]);
                Touches::Changes(Announced { changes, expected: None, opens, writes, change: None })
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
        let expected = Some(expected);
        Ok(Touches::Changes(Announced { changes, expected, opens, writes, change: None }))
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
        change: None,
    })
}

impl PendingChange {
    /// Announces the change, and carries it out once the others have dropped what it touches: on
    /// this thread if that is so when the announcement returns, else on one of the pool.
    fn announce(self, mut announced: Announced) {
        if self.attempt == ATTEMPTS {
            announced.expected = None;
        }
        let here = thread::current().id();
        let (dispatcher, author) = (Arc::clone(&self.dispatcher), self.context.session);
        let changes = Arc::clone(&announced.changes);
        dispatcher.announce(author, &changes, move |change| {
            announced.change = Some(change);
            let (cache, changes) = (self.cache.clone(), Arc::clone(&announced.changes));
            let go = move || self.go_on(here, announced);
            match cache {
                Some(cache) => cache.begin(&changes, Box::new(go)),
                None => go(),
            }
        });
    }

    /// Carries the change out, on the thread `here` or on one of the pool.
    fn go_on(self, here: ThreadId, announced: Announced) {
        if thread::current().id() == here {
            return self.carry_out(announced);
        }
        let (dispatcher, caller) = (Arc::clone(&self.dispatcher), Caller::from(&self.context));
        let job = move |invocation| match invocation {
            Invocation::Run => self.carry_out(announced),
            Invocation::Cancelled => self.end(&announced, Err(Code::Unavailable.into())),
        };
        dispatcher.parts.pool.submit(caller, Box::new(job));
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
        let cache = self.cache.clone();
        match (result, announced.opens.filter(|_| announced.writes), cache) {
            (Err(error), ..) if error.code == Code::Busy && announced.expected.is_some() => {
                self.repeat(&announced);
            }
            (Ok(Reply::Opened { attr, path }), Some(open), Some(cache)) => {
                self.dispatcher.end_announced(&announced);
                if let Some(Touched::Bytes(ino)) = announced.changes.last() {
                    cache.bytes_changed(*ino);
                }
                let ino = attr.ino;
                let go = move || self.opened((open, ino), Ok(Reply::Opened { attr, path }));
                cache.when_dropped(&announced.changes, Box::new(go));
            }
            (Ok(Reply::Created { entry, path }), Some(open), Some(cache)) => {
                let ino = entry.attr.ino;
                let changes: Arc<[Touched]> = Arc::new([Touched::Node(ino)]);
                let go = move || {
                    self.end_announcement(&announced);
                    self.opened((open, ino), Ok(Reply::Created { entry, path }));
                };
                // No name: the cache has dropped it when this returns.
                cache.begin(&changes, Box::new(go));
            }
            (Ok(reply), Some(open), None) if !self.is_own() => {
                self.end_announcement(&announced);
                let ino = match &reply {
                    Reply::Opened { attr, .. } => attr.ino,
                    Reply::Created { entry, .. } => entry.attr.ino,
                    _ => return self.answer(Ok(reply)),
                };
                self.opened((open, ino), Ok(reply));
            }
            (result, ..) => {
                if let Ok(reply) = &result {
                    self.announce_late(&announced, reply);
                }
                self.end(&announced, result);
            }
        }
    }

    /// Returns whether the server's own mount is the author.
    fn is_own(&self) -> bool {
        self.context.session == SessionId::DIRECT
    }

    /// Announces inodes that the names led to when the change was carried out, and not when it was
    /// announced: until it is answered others may show what they were before.
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
        if late.is_empty() {
            return;
        }
        let dispatcher = Arc::clone(&self.dispatcher);
        self.dispatcher.announce(self.context.session, &late, move |change| {
            dispatcher.leases.end(change);
        });
        if let Some(cache) = &self.cache {
            // No name: the cache has dropped it when this returns.
            cache.begin(&late, Box::new(|| {}));
            cache.end(&late);
        }
    }

    /// Answers an open for writing. The change of its inode goes on until the release.
    fn opened(self, (open, ino): (OpenKey, InodeId), result: Result<Reply, Error>) {
        let Self { dispatcher, cache, done, .. } = self;
        let noted = dispatcher.others.opened(open, ino);
        if noted == Noted::Ended {
            dispatcher.release_if_ended(open);
        }
        match (noted, cache) {
            (Noted::New, _) | (_, None) => {}
            // Its change goes on since it was opened first.
            (Noted::Known, Some(cache)) => cache.end(&[Touched::Node(ino)]),
            (Noted::Ended, Some(cache)) => cache.end(&[Touched::Node(ino), Touched::Bytes(ino)]),
        }
        dispatcher.others.changed();
        done(result);
    }

    /// Announces the change anew: a name leads to another inode now.
    fn repeat(self, announced: &Announced) {
        self.end_announcement(announced);
        match self.dispatcher.touches(&self.context, &self.request) {
            Ok(Touches::Changes(announced)) => {
                Self { attempt: self.attempt + 1, ..self }.announce(announced);
            }
            Ok(_) => self.answer(Err(Code::Bug.into())),
            Err(error) => self.answer(Err(error)),
        }
    }

    fn end(self, announced: &Announced, result: Result<Reply, Error>) {
        self.end_announcement(announced);
        if let Some(open) = announced.opens.filter(|_| !self.is_own()) {
            self.dispatcher.release_if_ended(open);
        }
        match self.cache.clone() {
            Some(cache) => {
                cache.when_dropped(&announced.changes, Box::new(move || self.answer(result)));
            }
            None => self.answer(result),
        }
    }

    fn end_announcement(&self, announced: &Announced) {
        self.dispatcher.end_announced(announced);
        if let Some(cache) = &self.cache {
            cache.end(&announced.changes);
        }
    }

    fn answer(self, result: Result<Reply, Error>) {
        self.dispatcher.others.changed();
        (self.done)(result);
    }
}

impl Dispatcher {
    /// Announces a change to the other sessions that have leases on what it touches; `then` is
    /// called once they have dropped it.
    fn announce(
        self: &Arc<Self>,
        author: SessionId,
        touched: &[Touched],
        then: impl FnOnce(ChangeId) + Send + 'static,
    ) {
        let connections = self.connections();
        let send = |recall: &Recall| {
            if let Some(connections) = &connections {
                connections.recall(recall.session, recall.number, &recall.touched);
            }
        };
        self.leases.announce(author, touched, send, then);
    }

    fn end_announced(&self, announced: &Announced) {
        if let Some(change) = announced.change {
            self.leases.end(change);
        }
    }

    /// Notes that a file is not open for writing any more: what was read of it before may be old.
    pub(super) fn note_written(&self, session: SessionId, ino: InodeId) {
        self.leases.note(session, Leased::Node(ino));
    }
}
