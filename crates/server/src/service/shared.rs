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
use pelago_proto::leases::Recall;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, FileKind, InodeId, LocalCache, Reply, Request, SessionId,
    Then, Touched,
};

use super::touches::{Announced, Impact};
use super::{Call, Dispatcher};
use crate::completion::CancelKey;
use crate::leases::Wait;
use crate::other_sessions::Noted;
use crate::pool::{Caller, Invocation};

/// How often a change is announced for what its names lead to. The last time it is carried out
/// whatever they lead to by then.
const ATTEMPTS: u32 = 8;

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
pub(super) fn announce_and_dispatch(
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
    let impact = match dispatcher.impact(context, &request) {
        Ok(impact) => impact,
        // What it names may be gone since it was carried out.
        Err(error) => match dispatcher.stored_reply(context, request.describe().effect) {
            Ok(Some(_)) => Impact::Nothing,
            Ok(None) => return Some(Err(error)),
            Err(error) => return Some(Err(error)),
        },
    };
    let call = Call::from(context);
    let asked = (request, bulk);
    match (impact, others.cache().map(Arc::clone)) {
        (Impact::Changes(mut announced), cache) => {
            if context.replayed.is_some() {
                announced.forget_names();
            }
            begin(dispatcher, cache, context, (asked.0, announced), later());
            None
        }
        (Impact::Opens(open), _) => {
            let of_answer = Arc::clone(dispatcher);
            then(dispatcher, &call, asked, later, move |answer| {
                of_answer.release_if_ended(open);
                answer();
            })
        }
        (Impact::Bytes(ino), cache) => write(dispatcher, &call, asked, later, (ino, cache)),
        (Impact::Release(open), cache) => match others.closed(open) {
            Some(ino) => {
                let of_answer = Arc::clone(dispatcher);
                dispatcher.leases.closing(ino);
                dispatcher.leases.end_bytes(context.session, ino);
                then(dispatcher, &call, asked, later, move |answer| {
                    of_answer.leases.closed(ino);
                    let Some(cache) = cache else { return answer() };
                    let changes = [Touched::Node(ino), Touched::Bytes(ino)];
                    cache.end(&changes);
                    cache.when_dropped(&changes, answer);
                })
            }
            None => dispatcher.dispatch(&call, asked.0, asked.1, later),
        },
        _ => dispatcher.dispatch(&call, asked.0, asked.1, later),
    }
}

/// Writes bytes. Those that a client has kept back are written only if its session still has the
/// lease on them: others may have written there since. Until the sessions of the last run are back
/// no other one has, unless an era has ended.
fn write(
    dispatcher: &Arc<Dispatcher>,
    call: &Call,
    asked: (Request, Bulk<'_>),
    later: &mut dyn FnMut() -> Done,
    (ino, cache): (InodeId, Option<Arc<dyn LocalCache>>),
) -> Option<Result<Reply, Error>> {
    let session = call.context.session;
    // What is carried out again was written under a lease.
    let era = asked.0.kept_back().filter(|_| call.context.replayed.is_none());
    let is_present = era == Some(dispatcher.others.era(session));
    let is_leased = is_present && dispatcher.leases.begin_write(session, ino);
    let is_lost = !is_leased && (!is_present || dispatcher.parts.grace.is_over());
    if era.is_some() && is_lost {
        return Some(Err(Code::LeaseLost.into()));
    }
    if !is_leased && cache.is_none() {
        return dispatcher.dispatch(call, asked.0, asked.1, later);
    }
    let of_answer = Arc::clone(dispatcher);
    then(dispatcher, call, asked, later, move |answer| {
        if is_leased {
            of_answer.leases.end_write(session, ino);
        }
        let Some(cache) = cache else { return answer() };
        cache.bytes_changed(ino);
        cache.when_dropped(&[Touched::Bytes(ino)], answer);
    })
}

/// Carries out a request of the server's own mount while there are other sessions.
pub(super) fn announce_own_and_dispatch(
    dispatcher: &Arc<Dispatcher>,
    context: &Context,
    request: Request,
    bulk: Bulk<'_>,
    later: &mut dyn FnMut() -> Done,
) -> Option<Result<Reply, Error>> {
    let impact = match dispatcher.impact(context, &request) {
        Ok(impact) => impact,
        Err(error) => return Some(Err(error)),
    };
    let call = Call::from(context);
    match impact {
        Impact::Changes(announced) if !announced.changes.is_empty() => {
            begin(dispatcher, None, context, (request, announced), later());
            None
        }
        Impact::Release(open) => match dispatcher.parts.opens.opened(open) {
            Ok((ino, flags)) if flags.write => {
                let of_answer = Arc::clone(dispatcher);
                dispatcher.leases.closing(ino);
                then(dispatcher, &call, (request, bulk), later, move |answer| {
                    of_answer.leases.closed(ino);
                    answer();
                })
            }
            _ => dispatcher.dispatch(&call, request, bulk, later),
        },
        _ => dispatcher.dispatch(&call, request, bulk, later),
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
    let dispatcher = Arc::clone(dispatcher);
    let context = *context;
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
    let answered = dispatcher.dispatch(call, request, bulk, &mut || {
        let after = after.take();
        let done = later();
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
    /// Releases an open that was made while its session ended.
    fn release_if_ended(&self, open: OpenKey) {
        if self.others.has(open.session) {
            return;
        }
        let opened = self.parts.opens.opened(open).ok();
        let written = opened.filter(|(_, flags)| flags.write).map(|(ino, _)| ino);
        written.into_iter().for_each(|ino| self.leases.closing(ino));
        let released = self.parts.opens.release(open, MayBlock::Yes);
        written.into_iter().for_each(|ino| self.leases.closed(ino));
        match released {
            // It was not made, or the end of the session has found it.
            Ok(()) | Err(OpError::Failed(Error { code: Code::BadOpen })) => {}
            Err(error) => {
                tracing::warn!(?error, "an open of a session that ended is not committed")
            }
        }
    }
}

impl PendingChange {
    /// Announces the change, and carries it out once the others have dropped what it touches: on
    /// this thread if that is so when the announcement returns, else on one of the pool.
    fn announce(self, mut announced: Announced) {
        if self.attempt == ATTEMPTS {
            announced.expected = None;
        }
        let here = thread::current().id();
        let dispatcher = Arc::clone(&self.dispatcher);
        let key = CancelKey::from(&self.context);
        let changes = Arc::clone(&announced.changes);
        dispatcher.announce(key, &changes, move |wait| {
            let Wait::Over(change) = wait else {
                return self.answer(Err(Code::Interrupted.into()));
            };
            announced.change = Some(change);
            let cache = self.cache.clone();
            let changes = Arc::clone(&announced.changes);
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
        let dispatcher = Arc::clone(&self.dispatcher);
        let caller = Caller::from(&self.context);
        let job = move |invocation| match invocation {
            Invocation::Run => self.carry_out(announced),
            Invocation::Cancelled => self.end(&announced, Err(Code::Unavailable.into())),
        };
        dispatcher.parts.pool.submit(caller, Box::new(job));
    }

    fn carry_out(self, announced: Announced) {
        let call = Call { context: self.context, expected: announced.expected };
        let dispatcher = Arc::clone(&self.dispatcher);
        let request = self.request.clone();
        let mut this = Some((self, announced));
        let now = dispatcher.dispatch(&call, request, Bulk::None, &mut || {
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
                match reply.opened().map(|attr| attr.ino) {
                    Some(ino) => self.opened((open, ino), Ok(reply)),
                    None => self.answer(Ok(reply)),
                }
            }
            (Ok(reply), ..) => self.announce_late(announced, reply),
            (result, ..) => self.end(&announced, result),
        }
    }

    /// Returns whether the server's own mount is the author.
    fn is_own(&self) -> bool {
        self.context.session == SessionId::DIRECT
    }

    /// Announces inodes that the names led to when the change was carried out, and not when it was
    /// announced: until it is answered others may show what they were before. Then answers.
    fn announce_late(self, announced: Announced, reply: Reply) {
        let led_to = match &reply {
            Reply::Removed(attr) => [Some(attr.ino), None],
            Reply::Renamed { moved, replaced } => {
                [Some(moved.ino), replaced.map(|replaced| replaced.attr.ino)]
            }
            _ => [None, None],
        };
        if let Some(dir) = removed_dir(&reply) {
            self.dispatcher.leases.dir_removed(dir);
        }
        let late = led_to.into_iter().flatten().map(Touched::Node);
        let late: Arc<[Touched]> = late.filter(|node| !announced.changes.contains(node)).collect();
        if late.is_empty() {
            return self.end(&announced, Ok(reply));
        }
        if let Some(cache) = &self.cache {
            // No name: the cache has dropped it when this returns.
            cache.begin(&late, Box::new(|| {}));
            cache.end(&late);
        }
        let dispatcher = Arc::clone(&self.dispatcher);
        dispatcher.announce(CancelKey::from(&self.context), &late, move |wait| {
            if let Wait::Over(change) = wait {
                self.dispatcher.leases.end(change);
            }
            // It is carried out, also if its caller waits no more.
            self.end(&announced, Ok(reply));
        });
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
        match self.dispatcher.impact(&self.context, &self.request) {
            Ok(Impact::Changes(announced)) => {
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

/// Returns the directory that a change has removed.
fn removed_dir(reply: &Reply) -> Option<InodeId> {
    let removed = match reply {
        Reply::Removed(attr) => attr,
        Reply::Renamed { replaced: Some(replaced), .. } => &replaced.attr,
        _ => return None,
    };
    (removed.kind == FileKind::Directory && removed.links == 0).then_some(removed.ino)
}

impl Dispatcher {
    /// Announces a change to the other sessions that have leases on what it touches; `then` is
    /// called once they have dropped it.
    pub(super) fn announce(
        self: &Arc<Self>,
        request: CancelKey,
        touched: &[Touched],
        then: impl FnOnce(Wait) + Send + 'static,
    ) {
        self.leases.announce(request, touched, |recall| self.send(recall), then);
    }

    /// Takes leases away if there are too many to grant a session more.
    pub(super) fn make_room(&self, session: SessionId) {
        self.leases.make_room(session, |recall| self.send(recall));
    }

    fn send(&self, recall: &Recall) {
        if let Some(connections) = self.connections() {
            connections.recall(recall.session, recall.number, &recall.touched);
        }
    }

    fn end_announced(&self, announced: &Announced) {
        if let Some(change) = announced.change {
            self.leases.end(change);
        }
    }
}
