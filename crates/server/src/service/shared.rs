//! Coherence: requests while there are sessions beside that of the server's own mount.
//!
//! The kernel below that mount caches replies for a long time, and the clients of other sessions
//! cache what they hold leases on. So a change is announced to all sessions but its author, carried
//! out after they have dropped what it touches, and answered after the announcement has ended. A
//! request that waits for them holds no thread. The server's own mount has no leases: it counts as
//! a holder of everything, and is notified by a call.
//!
//! An inode that another session has open for writing counts as changing until the release: its
//! size and times change with each write, and at commits that no request causes.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use pelago_data::{MayBlock, OpError, OpenKey};
use pelago_proto::leases::Recall;
use pelago_trace::RequestSpan;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, FileKind, InodeId, LocalCache, Reply, Request, SessionId,
    Then, Touched,
};

use super::touches::{Announced, Impact};
use super::{Call, Dispatcher, Submission};
use crate::completion::CancelKey;
use crate::leases::Wait;
use crate::other_sessions::WriterState;
use crate::pool::{Caller, Invocation};

/// The number of announcements of a change whose names lead to other inodes each time. After the
/// last one it is carried out, whatever the names lead to by then.
const ATTEMPTS: u32 = 8;

/// A change between its announcement and its answer.
struct PendingChange {
    dispatcher: Arc<Dispatcher>,
    /// The cache of the server's own mount; `None` if that is the author, or there is none.
    cache: Option<Arc<dyn LocalCache>>,
    context: Context,
    request: Request,
    attempt: u32,
    done: Done,
    span: RequestSpan,
}

/// Carries out a request of a session other than the direct one.
pub(super) fn announce_and_dispatch(
    dispatcher: &Arc<Dispatcher>,
    context: &Context,
    submission: Submission<'_>,
) -> Option<Result<Reply, Error>> {
    let others = &dispatcher.others;
    if !others.has(context.session) {
        return Some(Err(Code::Unavailable.into()));
    }
    let request = &submission.request;
    let impact = match dispatcher.impact(context, request) {
        Ok(impact) => impact,
        // What it names may be gone since it was carried out.
        Err(error) => match dispatcher.stored_reply(context, request.describe().effect) {
            Ok(Some(_)) => Impact::Nothing,
            Ok(None) => return Some(Err(error)),
            Err(error) => return Some(Err(error)),
        },
    };
    let call = Call::from(context);
    let cache = others.cache().map(Arc::clone);
    match impact {
        Impact::Changes(mut announced) => {
            if context.replayed.is_some() {
                announced.forget_names();
            }
            // A change has no bytes.
            let Submission { request, bulk: _, later } = submission;
            begin(dispatcher, cache, context, request, announced, later());
            None
        }
        Impact::Opens(open) => {
            let of_answer = Arc::clone(dispatcher);
            dispatch_then(dispatcher, &call, submission, move |answer| {
                of_answer.release_if_ended(open);
                answer();
            })
        }
        Impact::Bytes(ino) => write(dispatcher, &call, submission, ino, cache),
        Impact::Release(open) => release(dispatcher, &call, submission, open, cache),
        Impact::Nothing => dispatcher.dispatch(&call, submission),
    }
}

/// Releases an open of a session other than the direct one.
fn release(
    dispatcher: &Arc<Dispatcher>,
    call: &Call,
    submission: Submission<'_>,
    open: OpenKey,
    cache: Option<Arc<dyn LocalCache>>,
) -> Option<Result<Reply, Error>> {
    let Some(ino) = dispatcher.others.closed(open) else {
        return dispatcher.dispatch(call, submission);
    };
    let of_answer = Arc::clone(dispatcher);
    dispatcher.leases.closing(ino);
    dispatcher.leases.end_bytes(call.context.session, ino);
    dispatch_then(dispatcher, call, submission, move |answer| {
        of_answer.leases.closed(ino);
        let Some(cache) = cache else { return answer() };
        let changes = [Touched::Node(ino), Touched::Bytes(ino)];
        cache.end(&changes);
        cache.when_dropped(&changes, answer);
    })
}

/// Writes bytes. Those that a client has held back are written only if its session still has the
/// lease on them: other sessions may have written there since. Until the sessions of the last run
/// are back no other session has, unless an era has ended.
fn write(
    dispatcher: &Arc<Dispatcher>,
    call: &Call,
    submission: Submission<'_>,
    ino: InodeId,
    cache: Option<Arc<dyn LocalCache>>,
) -> Option<Result<Reply, Error>> {
    let session = call.context.session;
    // A replayed write was made under a lease.
    let era = submission.request.kept_back().filter(|_| call.context.replayed.is_none());
    let is_present = era == Some(dispatcher.others.era(session));
    let is_leased = is_present && dispatcher.leases.begin_write(session, ino);
    let is_lost = !is_leased && (!is_present || dispatcher.parts.grace.is_over());
    if era.is_some() && is_lost {
        return Some(Err(Code::LeaseLost.into()));
    }
    if !is_leased && cache.is_none() {
        return dispatcher.dispatch(call, submission);
    }
    let of_answer = Arc::clone(dispatcher);
    dispatch_then(dispatcher, call, submission, move |answer| {
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
    submission: Submission<'_>,
) -> Option<Result<Reply, Error>> {
    let impact = match dispatcher.impact(context, &submission.request) {
        Ok(impact) => impact,
        Err(error) => return Some(Err(error)),
    };
    let call = Call::from(context);
    match impact {
        Impact::Changes(announced) if !announced.changes.is_empty() => {
            let Submission { request, bulk: _, later } = submission;
            begin(dispatcher, None, context, request, announced, later());
            None
        }
        Impact::Release(open) => {
            let opened = dispatcher.parts.opens.opened(open).ok();
            let Some((ino, _)) = opened.filter(|(_, flags)| flags.write) else {
                return dispatcher.dispatch(&call, submission);
            };
            let of_answer = Arc::clone(dispatcher);
            dispatcher.leases.closing(ino);
            dispatch_then(dispatcher, &call, submission, move |answer| {
                of_answer.leases.closed(ino);
                answer();
            })
        }
        Impact::Changes(_) | Impact::Opens(_) | Impact::Bytes(_) | Impact::Nothing => {
            dispatcher.dispatch(&call, submission)
        }
    }
}

/// Begins a change: announces it.
fn begin(
    dispatcher: &Arc<Dispatcher>,
    cache: Option<Arc<dyn LocalCache>>,
    context: &Context,
    request: Request,
    announced: Announced,
    done: Done,
) {
    dispatcher.others.changing();
    let dispatcher = Arc::clone(dispatcher);
    let context = *context;
    let span = RequestSpan::current();
    PendingChange { dispatcher, cache, context, request, attempt: 1, done, span }
        .announce(announced);
}

/// Carries out a request, and calls `after` with the function that sends its answer.
fn dispatch_then(
    dispatcher: &Arc<Dispatcher>,
    call: &Call,
    submission: Submission<'_>,
    after: impl FnOnce(Then) + Send + 'static,
) -> Option<Result<Reply, Error>> {
    let Submission { request, bulk, later } = submission;
    let mut after = Some(after);
    let mut later_after = || -> Done {
        let after = after.take();
        let done = later();
        Box::new(move |result| match after {
            Some(after) => after(Box::new(move || done(result))),
            None => done(result),
        })
    };
    let submission = Submission { request, bulk, later: &mut later_after };
    match (dispatcher.dispatch(call, submission), after) {
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
    /// Announces the change, and carries it out after the other sessions have dropped what it
    /// touches: on this thread if they have when the announcement returns, else on a thread of the
    /// pool.
    fn announce(self, mut announced: Announced) {
        if self.attempt == ATTEMPTS {
            announced.expected = None;
        }
        let here = thread::current().id();
        let dispatcher = Arc::clone(&self.dispatcher);
        let key = CancelKey::from(&self.context);
        let changes = Arc::clone(&announced.changes);
        let barred = Arc::clone(&announced.barred);
        dispatcher.announce_barring(key, &changes, &barred, move |wait| {
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
        // This thread works for the request that this one has waited for.
        let span = self.span.clone();
        let job = move |invocation| match invocation {
            Invocation::Run => self.carry_out(announced),
            Invocation::Cancelled => self.end(&announced, Err(Code::Unavailable.into())),
        };
        span.in_scope(|| dispatcher.parts.pool.submit(caller, Box::new(job)));
    }

    fn carry_out(self, announced: Announced) {
        let barred = Arc::clone(&announced.barred);
        let call = Call { context: self.context, expected: announced.expected, barred };
        let dispatcher = Arc::clone(&self.dispatcher);
        let request = self.request.clone();
        let mut this = Some((self, announced));
        let mut later = || -> Done {
            let (this, announced) = this.take().expect("a service asks for one callback");
            Box::new(move |result| this.finish(announced, result))
        };
        let submission = Submission { request, bulk: Bulk::None, later: &mut later };
        let now = dispatcher.dispatch(&call, submission);
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
                let go = move || self.opened(open, ino, Ok(Reply::Opened { attr, path }));
                cache.when_dropped(&announced.changes, Box::new(go));
            }
            (Ok(Reply::Created { entry, path }), Some(open), Some(cache)) => {
                let ino = entry.attr.ino;
                let changes: Arc<[Touched]> = Arc::new([Touched::Node(ino)]);
                let go = move || {
                    self.end_announcement(&announced);
                    self.opened(open, ino, Ok(Reply::Created { entry, path }));
                };
                // Only names take time: the cache has dropped a node when this returns.
                cache.begin(&changes, Box::new(go));
            }
            (Ok(reply), Some(open), None) if !self.is_own() => {
                self.end_announcement(&announced);
                match reply.opened().map(|attr| attr.ino) {
                    Some(ino) => self.opened(open, ino, Ok(reply)),
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

    /// Announces inodes to which the names led when the change was carried out, but not when it was
    /// announced, and then answers: until the answer other sessions may show the inodes as they
    /// were before.
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
        let dropped = Arc::clone(&late);
        let cache = self.cache.clone();
        let of_cache = cache.clone();
        let answer: Then = Box::new(move || {
            if let Some(cache) = of_cache {
                cache.end(&dropped);
            }
            let dispatcher = Arc::clone(&self.dispatcher);
            dispatcher.announce(CancelKey::from(&self.context), &dropped, move |wait| {
                if let Wait::Over(change) = wait {
                    self.dispatcher.leases.end(change);
                }
                // The change is carried out, even if its caller no longer waits.
                self.end(&announced, Ok(reply));
            });
        });
        match cache {
            // The kernel may be about to install such a node.
            Some(cache) => cache.begin(&late, answer),
            None => answer(),
        }
    }

    /// Answers an open for writing. The change of its inode goes on until the release.
    fn opened(self, open: OpenKey, ino: InodeId, result: Result<Reply, Error>) {
        let Self { dispatcher, cache, done, .. } = self;
        let writer = dispatcher.others.opened(open, ino);
        if writer == WriterState::SessionEnded {
            dispatcher.release_if_ended(open);
        }
        match (writer, cache) {
            (WriterState::New, _) | (_, None) => {}
            // The change that began with the first open goes on.
            (WriterState::OpenedAgain, Some(cache)) => cache.end(&[Touched::Node(ino)]),
            (WriterState::SessionEnded, Some(cache)) => {
                cache.end(&[Touched::Node(ino), Touched::Bytes(ino)]);
            }
        }
        dispatcher.others.changed();
        done(result);
    }

    /// Announces the change again, because a name leads to another inode now.
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

/// Returns the directory that a change has removed, if it has.
fn removed_dir(reply: &Reply) -> Option<InodeId> {
    let removed = match reply {
        Reply::Removed(attr) => attr,
        Reply::Renamed { replaced: Some(replaced), .. } => &replaced.attr,
        _ => return None,
    };
    (removed.kind == FileKind::Directory && removed.links == 0).then_some(removed.ino)
}

impl Dispatcher {
    /// Announces a change to the other sessions that hold leases on what it touches; calls `then`
    /// after they have dropped it.
    pub(super) fn announce(
        self: &Arc<Self>,
        request: CancelKey,
        touched: &[Touched],
        then: impl FnOnce(Wait) + Send + 'static,
    ) {
        self.announce_barring(request, touched, &[], then);
    }

    /// As [`Dispatcher::announce`], for a change by which the rights of the sessions in `barred`
    /// may change: it waits until they have dropped everything.
    pub(super) fn announce_barring(
        self: &Arc<Self>,
        request: CancelKey,
        touched: &[Touched],
        barred: &[SessionId],
        then: impl FnOnce(Wait) + Send + 'static,
    ) {
        self.leases.announce(request, touched, barred, |recall| self.send(recall), then);
    }

    /// Recalls leases if there are too many to grant a session more.
    pub(super) fn make_room(&self, session: SessionId) {
        self.leases.make_room(session, |recall| self.send(recall));
    }

    fn send(&self, recall: &Recall) {
        if let Some(connections) = self.connections() {
            connections.recall(recall.session, recall.number, &recall.recalled);
        }
    }

    fn end_announced(&self, announced: &Announced) {
        if let Some(change) = announced.change {
            self.leases.end(change);
        }
    }
}
