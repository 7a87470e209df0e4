//! The leases on the facts of a reply, for the session that gets it, and the wait for the leases of
//! other sessions on written bytes.

use std::sync::Arc;

use pelago_keynote::Right;
use pelago_proto::leases::Leased;
use pelago_wire::{
    Attr, Code, Context, Done, Error, FileKind, Handle, InodeId, LeaseMoment, LeasedAnswer, Leases,
    Reply, Request, RequestId, SessionId, Touched, WriteEra, limits,
};

use super::{Call, Dispatcher, Submission, shared};
use crate::completion::CancelKey;
use crate::leases::Wait;
use crate::policy::Asker;

impl Dispatcher {
    /// Carries out a request of any session, and answers it after no other session holds the lease
    /// on the bytes of a file that the answer opens or shows: the client of that session may have
    /// held back bytes that a program wrote.
    pub(super) fn dispatch_and_await_writers(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let is_alone = context.session == SessionId::DIRECT && !self.others.any();
        let opens_existing = submission.request.opens().existing().is_some();
        if is_alone && self.leases.writers() == 0 && !opens_existing {
            // A session that begins now holds back only what its programs write after this request
            // has begun. But a file that is opened now is read later.
            return self.dispatch_own(context, submission);
        }
        let key = CancelKey::from(context);
        let Submission { request, bulk, later } = submission;
        let mut after_writers = || -> Done {
            let dispatcher = Arc::clone(self);
            let done = later();
            Box::new(move |mut result| {
                let written = dispatcher.shown_and_written(key.session, &mut result);
                dispatcher.answer_after_writers(key, written, result, done);
            })
        };
        let submission = Submission { request, bulk, later: &mut after_writers };
        let answered = match context.session {
            SessionId::DIRECT => self.dispatch_own(context, submission),
            _ => shared::announce_and_dispatch(self, context, submission),
        };
        let mut result = answered?;
        let written = self.shown_and_written(context.session, &mut result);
        if written.is_empty() {
            return Some(result);
        }
        self.answer_after_writers(key, written, result, later());
        None
    }

    /// Carries out a request of the server's own mount. While there is no other session nothing is
    /// announced, at the cost of one atomic load.
    pub(super) fn dispatch_own(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let call = Call::from(context);
        if !submission.request.touches().concerns_others() {
            return self.dispatch(&call, submission);
        }
        // Recursive, as in `run_here`. No lease is granted while this is locked.
        let running = self.stopped.read_recursive();
        let may_bar = matches!(submission.request, Request::Rename { .. })
            && (self.parts.policy.has_guests() || self.parts.policy.unsettled().is_some());
        if self.others.any() || may_bar {
            drop(running);
            return shared::announce_own_and_dispatch(self, context, submission);
        }
        let Submission { request, bulk, later } = submission;
        let mut counted_later = || -> Done {
            let unannounced = self.others.unannounced();
            let done = later();
            Box::new(move |result| {
                drop(unannounced);
                done(result);
            })
        };
        self.dispatch(&call, Submission { request, bulk, later: &mut counted_later })
    }

    /// Grants leases on the facts of a reply; see `SessionService::lease`. Attributes without a
    /// lease are marked as volatile.
    pub(super) fn lease(
        &self,
        session: SessionId,
        since: LeaseMoment,
        answer: LeasedAnswer<'_>,
    ) -> Leases {
        let LeasedAnswer { node, names, mutation, origin, opens_for_writing, result, changed } =
            answer;
        let asker = self.parts.policy.asker(session);
        let may_lease = match &asker {
            Asker::Trusted => true,
            Asker::Guest(guest) => self.parts.policy.may_lease(guest),
            Asker::AbsentGuest => false,
        };
        if !may_lease {
            result.iter_mut().flat_map(Reply::attrs_mut).for_each(|attr| attr.volatile = true);
            return Leases::default();
        }
        // A recall of a name says the name, which is for those who may list the directory.
        let may_list = |dir: &InodeId| match &asker {
            Asker::Guest(guest) => self.has_right(guest, session, *dir, Right::Read),
            Asker::Trusted | Asker::AbsentGuest => true,
        };
        // By the open that has created a file a guest may write it without the right to, but not
        // after a start: bytes that it has held back would be refused then.
        let may_write = |file: &InodeId| match &asker {
            Asker::Guest(guest) => self.has_right(guest, session, *file, Right::Write),
            Asker::Trusted | Asker::AbsentGuest => true,
        };
        let names = names.filter(may_list);
        // A guest's bytes are refused earlier than those of others, so that no more is held back
        // then.
        let opens_for_writing = opens_for_writing
            && (!matches!(asker, Asker::Guest(_)) || self.parts.space.admit_guest().is_ok());
        if !self.parts.sites.is_alone() {
            // Only the home of a node grants leases on it: the clients of this site have none on
            // what this server has leased from another one.
            let own = self.parts.sites.own();
            let mut facts: Vec<InodeId> = node.into_iter().chain(names).collect();
            facts.extend(result.iter_mut().flat_map(Reply::attrs_mut).map(|attr| attr.ino));
            if facts.iter().any(|ino| ino.site() != own) {
                result.iter_mut().flat_map(Reply::attrs_mut).for_each(|attr| attr.volatile = true);
                return Leases::default();
            }
        }
        // A stored reply has facts of the past.
        let shard = &self.parts.shard;
        let of_reply = origin.map_or((session, mutation), |it| (it.session, it.mutation));
        let is_of_earlier_epoch = mutation > 0
            && session.epoch() < shard.epoch()
            && shard.has_reply_of_earlier_epoch(of_reply.0, of_reply.1);
        let is_stored = is_of_earlier_epoch || origin.is_some_and(|origin| origin.may_be_repeated);
        let is_quiet = || self.stopped.try_write().is_some();
        // What is answered during the grace comes before Reclaimed, which ends the leases of the
        // session: the client would keep one that is forgotten here.
        let is_starting = !self.parts.grace.is_over();
        if is_starting
            || is_stored
            || !has_facts(result)
            || !self.others.may_grant(session, is_quiet)
        {
            return Leases::default();
        }
        let made = made_dir(result).filter(|_| mutation > 0).filter(may_list);
        let opened = opened_file(result).filter(|_| opens_for_writing).filter(may_write);
        let bytes = opened.and_then(|ino| self.lease_bytes(session, since, ino));
        // Only the session itself can write a file that it has just made, and has alone.
        let is_new = bytes.is_some() && matches!(result, Ok(Reply::Created { .. }));
        let written = opened.filter(|_| is_new);
        let may_hold = |on| written.map(Leased::Node) == Some(on) || self.may_hold(on);
        let mut attrs: Vec<_> = result.iter_mut().flat_map(Reply::attrs_mut).collect();
        let is_going = |attr: &Attr| {
            attr.links == 0 || attr.kind == FileKind::Directory && shard.is_closed(attr.ino)
        };
        for gone in attrs.iter_mut().filter(|attr| is_going(attr)) {
            // No request would ever recall it.
            gone.volatile = true;
        }
        let nodes = attrs.iter().filter(|attr| !attr.volatile).map(|attr| attr.ino);
        let mut all: Vec<Leased> = nodes.chain(node).map(Leased::Node).collect();
        let of_nodes = all.len();
        all.extend(names.map(Leased::Names));
        all.extend(made.map(Leased::Names));
        let granted = self.leases.grant(session, since, &all, may_hold);
        if granted.contains(&false) {
            self.make_room(session);
        }
        let mut each = granted.iter().copied();
        for attr in attrs.iter_mut().filter(|attr| !attr.volatile) {
            attr.volatile = !each.next().unwrap_or(false);
        }
        Leases {
            node: match node {
                // It was added after the nodes of the attributes.
                Some(_) => granted[of_nodes - 1],
                None => granted[..of_nodes].contains(&true),
            },
            names: names.is_some() && granted[of_nodes],
            changed: changed.is_some_and(|(attr, since)| self.lease_changed(session, since, attr)),
            made: made.is_some() && granted[granted.len() - 1],
            bytes,
        }
    }

    /// Grants a lease on attributes that were read after the reply was known.
    fn lease_changed(&self, session: SessionId, since: LeaseMoment, attr: &Attr) -> bool {
        let node = [Leased::Node(attr.ino)];
        // A file without a name is removed soon, and no request would recall the lease.
        attr.links > 0 && self.leases.grant(session, since, &node, |on| self.may_hold(on))[0]
    }

    /// Grants a lease on the bytes of a file that the session has opened for writing, if no other
    /// session has it open and the disk has room for the bytes that the client may hold back.
    /// Returns the era of the lease.
    fn lease_bytes(
        &self,
        session: SessionId,
        since: LeaseMoment,
        ino: InodeId,
    ) -> Option<WriteEra> {
        let opens = &self.parts.opens;
        let held_back = (self.leases.writers() as u64 + 1) * limits::DIRTY_FILE_BYTES as u64;
        let is_granted = self.parts.space.has_room(held_back)
            && opens.is_used_only_by(session, ino)
            && self.leases.grant_bytes(session, since, ino, || opens.is_used_only_by(session, ino));
        is_granted.then(|| self.others.era(session))
    }

    /// Recalls these leases, and then answers with the new attributes. A lease that is granted
    /// later is for writes that the answer need not show.
    pub(super) fn answer_after_writers(
        self: &Arc<Self>,
        key: CancelKey,
        mut written: Vec<InodeId>,
        mut result: Result<Reply, Error>,
        done: Done,
    ) {
        if written.is_empty() {
            return done(result);
        }
        // A listing can have more files than one recall can name.
        let rest = written.split_off(written.len().min(limits::RECALL_THINGS));
        let touched: Vec<Touched> = written.iter().copied().map(Touched::Node).collect();
        let dispatcher = Arc::clone(self);
        self.announce(key, &touched, move |wait| match wait {
            Wait::Over(change) => {
                dispatcher.leases.end(change);
                for attr in result.iter_mut().flat_map(Reply::attrs_mut) {
                    if written.contains(&attr.ino)
                        && let Ok(now) = dispatcher.parts.shard.attr(Handle::own(attr.ino))
                    {
                        *attr = now;
                    }
                }
                dispatcher.answer_after_writers(key, rest, result, done);
            }
            // The file is open, and must not be read before the recall is over, which takes at most
            // a term.
            Wait::Cancelled if opened_file(&result).is_some() => {
                let uncancellable = CancelKey { request: RequestId(0), ..key };
                dispatcher.answer_after_writers(uncancellable, written, result, done);
            }
            Wait::Cancelled => done(Err(Code::Interrupted.into())),
        });
    }

    /// Returns the files in a reply on whose bytes another session has the lease. A listing for the
    /// server of another site shows only the names of such files.
    fn shown_and_written(
        &self,
        session: SessionId,
        result: &mut Result<Reply, Error>,
    ) -> Vec<InodeId> {
        let shown = result.iter_mut().flat_map(Reply::attrs_mut).map(|attr| attr.ino);
        let written = self.leases.written_by_others(session, shown);
        if let Ok(Reply::Listed { entries, .. }) = result
            && !written.is_empty()
            && self.parts.sites.of_session(session).is_some()
        {
            // Another site's server asks for the attributes in case a program wants them. A recall
            // for each listing would stop the writers of this site.
            let is_written = |ino: InodeId| written.contains(&ino);
            for listed in entries.iter_mut().filter(|listed| is_written(listed.ino)) {
                listed.entry = None;
            }
            return Vec::new();
        }
        written
    }

    /// Returns whether a fact stays true until a change of it is announced: not for a file that is
    /// written.
    fn may_hold(&self, on: Leased) -> bool {
        match on {
            Leased::Node(ino) => !self.parts.opens.has_writers(ino),
            Leased::Names(_) => true,
        }
    }
}

/// Returns whether a reply has facts: an error has one if it says that a name or an extended
/// attribute does not exist.
fn has_facts(result: &Result<Reply, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => matches!(error.code, Code::NotFound | Code::NoXattr),
    }
}

/// Returns the file that a reply opens, if it has a name.
fn opened_file(result: &Result<Reply, Error>) -> Option<InodeId> {
    let attr = result.as_ref().ok()?.opened()?;
    (attr.kind == FileKind::Regular && attr.links > 0).then_some(attr.ino)
}

/// Returns the directory that a change has made, if it has.
fn made_dir(result: &Result<Reply, Error>) -> Option<InodeId> {
    match result {
        Ok(Reply::Entry(entry)) => {
            (entry.attr.kind == FileKind::Directory).then_some(entry.attr.ino)
        }
        _ => None,
    }
}
