//! Requests of guests: carried out only if the guest has the right that they need, before and
//! after.
//!
//! This check comes first. All later steps, such as lookups and recalls of leases, cause work for
//! others, which a stranger must not cause.
//!
//! A granted node can move away while a request is carried out, and a secret can be written into it
//! then. So the position of the node is found again before the reply to a read is sent, unless
//! nothing at all has changed, and the read is repeated if the node has moved. A change is checked
//! again when it takes effect, while no node moves and no right ends; see [`change_guard`].

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use pelago_keynote::Right;
use pelago_wire::{
    Attr, Bulk, Code, Context, Description, DirEntry, Done, Effect, Error, ForGuest, GuestGrant,
    GuestRefusal, GuestSubject, Handle, InodeId, LockMode, OpenEffect, Operation, RecordedPeer,
    Replayed, Reply, Request, SessionId, SessionRecord, VolumeStats, xattr,
};
use smallvec::smallvec;

use super::{Dispatcher, Submission};
use crate::completion::deliver;
use crate::policy::{Guest, RightSet, Terms, User};
use crate::sites::GuestService;
use rights::Subjects;

mod audited;
mod change_guard;
mod form;
mod leases;
mod modes;
mod revoking;
mod rights;
mod searching;
mod shown;

pub(super) use form::with_cut_mode;
pub(super) use modes::UserModes;
pub(super) use rights::GuestRights;

/// The number of attempts to carry out a request whose node moves each time. A commit of its bytes
/// looks like a move: of long reads of a file that others commit all the time, six of seven have
/// one meanwhile.
const ATTEMPTS: u32 = 128;

/// A request of a guest that is being carried out.
#[derive(Clone)]
struct GuestCall {
    dispatcher: Arc<Dispatcher>,
    guest: Arc<Guest>,
    /// The user as whom the guest acts.
    user: Arc<User>,
    /// The terms before anything was read that decides.
    terms: Terms,
    context: Context,
    request: Request,
    operation: Operation,
    /// The number of earlier attempts.
    attempt: u32,
}

impl Dispatcher {
    /// Carries out a request of a guest, or refuses it.
    #[cold]
    pub(super) fn dispatch_for_guest(
        self: &Arc<Self>,
        guest: Arc<Guest>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        match self.parts.sites.serves_guests() {
            GuestService::Yes => self.dispatch_for_current_guest(guest, context, submission),
            GuestService::Asking => {
                self.park_guest(guest, context, submission);
                None
            }
            GuestService::Alone(_) | GuestService::Outdated => Some(Err(Code::HostDown.into())),
        }
    }

    /// Has a request of a guest wait until this site knows what was taken back.
    fn park_guest(
        self: &Arc<Self>,
        guest: Arc<Guest>,
        context: &Context,
        submission: Submission<'_>,
    ) {
        let Submission { request, bulk, later } = submission;
        let dispatcher = Arc::clone(self);
        let context = *context;
        let bytes = bulk.into_bytes();
        let done = later();
        self.parts.sites.gate.park(Box::new(move || {
            if dispatcher.parts.sites.serves_guests() != GuestService::Yes {
                return done(Err(Code::TimedOut.into()));
            }
            deliver(done, |later| {
                let submission = Submission { request, bulk: Bulk::Owned(bytes), later };
                dispatcher.dispatch_for_current_guest(guest, &context, submission)
            });
        }));
    }

    /// Carries out a request of a guest, or refuses it, at a site that knows what was taken back.
    fn dispatch_for_current_guest(
        self: &Arc<Self>,
        guest: Arc<Guest>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let Submission { request, bulk, later } = submission;
        let dispatcher = Arc::clone(self);
        let standing = self.parts.policy.standing(&guest);
        if !standing.admits() {
            self.end_refused_guests();
        }
        let Some(user) = standing.user.as_ref().filter(|_| standing.admits()).cloned() else {
            return Some(Err(Code::Stale.into()));
        };
        let terms = standing.terms;
        // The ids that a guest's client claims are those of its own machine.
        let replayed = context.replayed.map(|replayed| Replayed { time: None, ..replayed });
        let request = searching::by_user(request, &user);
        let context = Context { uid: user.uid, gid: user.gid, replayed, ..*context };
        let Description { operation, effect, .. } = request.describe();
        let attempt = 0;
        let mut call =
            GuestCall { dispatcher, guest, user, terms, context, request, operation, attempt };
        match call.is_change(effect) {
            true => call.change(bulk, later),
            false => call.begin(later),
        }
    }

    /// Begins the session of a guest. Only one that may change something has a row: a next run
    /// waits for the sessions that it knows, and must not wait for each reader.
    pub(super) fn begin_guest(
        &self,
        session: SessionId,
        grant: &GuestGrant,
        record: &SessionRecord,
    ) -> Result<(), GuestRefusal> {
        let policy = &self.parts.policy;
        policy.begin(session, grant)?;
        if policy.may_change(session)
            && let Err(error) = self.parts.shard.begin_session(session, record)
        {
            policy.end(session);
            tracing::warn!(%error, "the session of a guest cannot be recorded");
            return Err(GuestRefusal("the server cannot record the session".to_owned()));
        }
        self.parts.opens.begin_session(session, RecordedPeer::Guest(grant.principal));
        self.others.begin(session);
        Ok(())
    }
}

impl Dispatcher {
    /// Returns whether a guest has a right to a node.
    pub(super) fn has_right(
        &self,
        guest: &Guest,
        session: SessionId,
        node: InodeId,
        right: Right,
    ) -> bool {
        let parts = &self.parts;
        if let Some(rights) = parts.policy.last_rights(guest, &parts.shard, node) {
            return rights.has(right);
        }
        // Guests whose credentials ask for the operation have no leases.
        let operation = Operation::List;
        let rights = GuestRights { parts, guest, session, operation, terms: None };
        let found = rights.find(GuestSubject::Node(Handle::own(node)));
        found.is_ok_and(|found| found.rights.has(right))
    }

    /// Returns the attributes of a node as a guest sees them; `None` if it has no right to it.
    pub(super) fn attr_for_guest(
        &self,
        guest: &Guest,
        session: SessionId,
        node: Handle,
    ) -> Option<Attr> {
        let parts = &self.parts;
        let standing = parts.policy.standing(guest);
        let user = standing.user.as_ref()?;
        let operation = Operation::GetAttr;
        let terms = Some(standing.terms);
        let rights = GuestRights { parts, guest, session, operation, terms };
        let found = rights.find(GuestSubject::Node(node)).ok()?;
        let mut attr = parts.shard.attr(node).ok()?;
        shown::show(&mut attr, found.rights, &UserModes { parts, user, session });
        Some(attr)
    }

    /// Ends the sessions of guests that have no right any more: their programs shall get the error
    /// of a share that has ended.
    fn end_refused_guests(&self) {
        if self.parts.policy.may_close()
            && let Some(connections) = self.connections()
        {
            connections.end_guests();
        }
    }
}

impl GuestCall {
    /// Returns whether the request changes something, so that it must not be repeated.
    fn is_change(&self, effect: Effect) -> bool {
        let is_lock = matches!(self.request.opens(), OpenEffect::Locks { .. })
            || matches!(self.request, Request::ReclaimLock { .. });
        match effect {
            Effect::None => is_lock,
            Effect::Once => false,
            Effect::Commit | Effect::Change { .. } => true,
        }
    }

    /// Carries out a request that changes something. Its rights are checked once more when it takes
    /// effect; see [`change_guard`].
    fn change(
        self,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let granted = match self.admit(self.terms) {
            Ok(Admitted::Answered(reply)) => return Some(Ok(reply)),
            Ok(Admitted::Granted(granted)) => granted,
            Err(error) => return Some(Err(error)),
        };
        let parts = &self.dispatcher.parts;
        let session = self.context.session;
        let request = match form::carried_out(parts, session, self.request.clone()) {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        let rights = granted.rights();
        let mut finish = || -> Done {
            let call = self.clone();
            let done = later();
            Box::new(move |result| done(call.changed(rights, result)))
        };
        let submission = Submission { request, bulk, later: &mut finish };
        let result = self.dispatcher.dispatch_own_file(&self.context, submission)?;
        Some(self.changed(rights, result))
    }

    /// Returns the answer to a change that was carried out.
    fn changed(&self, rights: RightSet, result: Result<Reply, Error>) -> Result<Reply, Error> {
        if let OpenEffect::Ends(open) = self.request.opens() {
            // Also if it reports an error.
            self.guest.remove_made(open);
        }
        let mut reply = result.inspect_err(|error| self.note_denied_late(*error))?;
        if let OpenEffect::Locks { .. } = self.request.opens() {
            self.keep_lock()?;
        }
        let modes = self.modes();
        reply.attrs_mut().into_iter().for_each(|attr| shown::show(attr, rights, &modes));
        Ok(reply)
    }

    /// Checks that the guest may still have the lock that it got, perhaps after a long wait, and
    /// removes it if not.
    fn keep_lock(&self) -> Result<(), Error> {
        let ForGuest::Needs(needs) = self.request.for_guest() else { return Ok(()) };
        let may_act = match self.dispatcher.parts.policy.admits(&self.guest) {
            true => self.rights(None).check(&needs).map(drop),
            false => Err(Code::Stale.into()),
        };
        if may_act.is_err()
            && let Request::SetLock { open, owner, lock, .. }
            | Request::ReclaimLock { open, owner, lock } = &self.request
        {
            let mut lock = *lock;
            lock.mode = LockMode::Unlock;
            let request = Request::SetLock { open: *open, owner: *owner, lock, wait: false };
            self.without_answer(request);
        }
        may_act.inspect_err(|error| self.note_denied_late(*error))
    }

    /// Carries out the request, and repeats it while the node moves.
    fn begin(&mut self, later: &mut dyn FnMut() -> Done) -> Option<Result<Reply, Error>> {
        loop {
            let admitted =
                if self.attempt == 0 { self.admit(self.terms) } else { self.admit_again() };
            let granted = match admitted {
                Ok(Admitted::Answered(reply)) => return Some(Ok(reply)),
                Ok(Admitted::Granted(granted)) => granted,
                Err(error) => {
                    self.end_made();
                    return Some(Err(error));
                }
            };
            if let Err(error) = self.modes().check(&self.request, None) {
                self.note_denied_late(error);
                self.end_made();
                return Some(Err(error));
            }
            let mut finish = || -> Done {
                let call = self.clone();
                let granted = granted.clone();
                let done = later();
                Box::new(move |result| call.finish(granted, result, done))
            };
            let mut result = self.carry_out(&mut finish)?;
            match self.check_answer(&granted, &mut result) {
                Answered::Yes => return Some(result),
                Answered::NodeMoved => self.attempt += 1,
            }
        }
    }

    /// Answers a request whose result came later, once this site knows what was taken back.
    fn finish(self, granted: Granted, result: Result<Reply, Error>, done: Done) {
        let dispatcher = Arc::clone(&self.dispatcher);
        let sites = &dispatcher.parts.sites;
        match sites.serves_guests() {
            GuestService::Yes => self.finish_now(granted, result, done),
            GuestService::Alone(_) | GuestService::Outdated => done(Err(Code::HostDown.into())),
            GuestService::Asking => sites.gate.park(Box::new(move || {
                let sites = &self.dispatcher.parts.sites;
                match sites.serves_guests() == GuestService::Yes {
                    true => self.finish_now(granted, result, done),
                    false => done(Err(Code::TimedOut.into())),
                }
            })),
        }
    }

    /// Answers a request whose result came later; repeats it if the node has moved.
    fn finish_now(mut self, granted: Granted, mut result: Result<Reply, Error>, done: Done) {
        match self.check_answer(&granted, &mut result) {
            Answered::Yes => return done(result),
            Answered::NodeMoved => self.attempt += 1,
        }
        deliver(done, |later| self.begin(later));
    }

    /// Returns the rights of the guest under these terms; `None` if they are read for each
    /// decision.
    fn rights(&self, terms: Option<Terms>) -> GuestRights<'_> {
        let Self { guest, context, operation, .. } = self;
        let parts = &self.dispatcher.parts;
        GuestRights { parts, guest, session: context.session, operation: *operation, terms }
    }

    fn modes(&self) -> UserModes<'_> {
        let session = self.context.session;
        UserModes { parts: &self.dispatcher.parts, user: &self.user, session }
    }

    /// Does the same as [`GuestCall::admit`], under the present terms.
    #[cold]
    fn admit_again(&self) -> Result<Admitted, Error> {
        let standing = self.dispatcher.parts.policy.standing(&self.guest);
        match standing.admits() {
            true => self.admit(standing.terms),
            false => {
                self.dispatcher.end_refused_guests();
                Err(Code::Stale.into())
            }
        }
    }

    /// Decides whether the request is carried out, under terms by which the guest may act, and
    /// records first uses and denials.
    #[inline]
    fn admit(&self, terms: Terms) -> Result<Admitted, Error> {
        let decided = self.decide(terms);
        match &decided {
            Ok(Admitted::Granted(granted)) => self.note_use(granted),
            Ok(Admitted::Answered(_)) => {}
            Err(error) => self.note_denied(*error),
        }
        decided
    }

    /// Decides whether the request is carried out.
    ///
    /// # Errors
    /// `AccessDenied` for a request that no guest may make on a granted node; `Stale` for a node
    /// that is not granted, which looks as one that does not exist.
    #[inline]
    fn decide(&self, terms: Terms) -> Result<Admitted, Error> {
        let Self { dispatcher, context, request, attempt, .. } = self;
        let parts = &dispatcher.parts;
        if *attempt >= ATTEMPTS {
            return Err(Code::Busy.into());
        }
        // Before any position is read.
        let batches = parts.durability.done();
        let granted = |subjects| Admitted::Granted(Granted { terms, batches, subjects });
        if let Some(replayed) = context.replayed {
            return self.admit_replay(&replayed).map(|()| granted(Subjects::new()));
        }
        let rights = self.rights(Some(terms));
        let find = |node| -> Result<Subjects, Error> {
            rights.find(GuestSubject::Node(node)).map(|found| smallvec![found])
        };
        match request.for_guest() {
            ForGuest::Needs(needs) => match (rights.check(&needs), request) {
                (Err(error), Request::Lookup { dir, name }) if error.code == Code::Stale => {
                    Ok(granted(smallvec![rights.find_named(*dir, name)?]))
                }
                (checked, _) => Ok(granted(checked?)),
            },
            ForGuest::Parent(node) | ForGuest::CommitDir(node) => Ok(granted(find(node)?)),
            ForGuest::Own | ForGuest::Space | ForGuest::Revoke => Ok(granted(Subjects::new())),
            ForGuest::Commit(open) => {
                let ends_locks = matches!(request, Request::Flush { owner: Some(_), .. });
                match form::writes(parts, context.session, open)? || ends_locks {
                    true => Ok(granted(Subjects::new())),
                    false => Ok(Admitted::Answered(Reply::Done)),
                }
            }
            ForGuest::NoXattr(node) => {
                find(node)?;
                Err(Code::NoXattr.into())
            }
            ForGuest::NotSupported(node) => {
                find(node)?;
                Err(Code::NotSupported.into())
            }
            ForGuest::Attach => self.attach(),
            ForGuest::Never => Err(self.refuse()),
        }
    }

    /// Decides whether a request is carried out that an earlier run has answered, and whose change
    /// may be lost. Bytes and attributes are written again if the guest may write the file. Other
    /// changes must still be there: a guest claims no inode and no time, because the number of
    /// another user's lost file can be guessed.
    ///
    /// # Errors
    /// `TimedOut` for a change that is lost.
    fn admit_replay(&self, replayed: &Replayed) -> Result<(), Error> {
        let Self { dispatcher, context, request, .. } = self;
        let effect = request.describe().effect;
        match request {
            Request::Write { .. }
            | Request::Allocate { .. }
            | Request::SetAttr { .. }
            | Request::Open { .. } => {
                change_guard::check_replayed(&self.rights(None), context, request, replayed)
            }
            _ if dispatcher.stored_reply(context, effect)?.is_some() => Ok(()),
            _ => Err(Code::TimedOut.into()),
        }
    }

    /// Adds a chain of credentials to the session.
    ///
    /// # Errors
    /// `AccessDenied` for a chain that is refused without a reason.
    fn attach(&self) -> Result<Admitted, Error> {
        let Request::Attach { chain } = &self.request else { return Err(Code::Invalid.into()) };
        match self.dispatcher.parts.policy.attach(&self.guest, chain) {
            Ok(()) => Ok(Admitted::Answered(Reply::Bytes(Vec::new()))),
            Err(GuestRefusal(why)) if why.is_empty() => Err(Code::AccessDenied.into()),
            Err(GuestRefusal(why)) => Ok(Admitted::Answered(Reply::Bytes(why.into_bytes()))),
        }
    }

    /// Returns the error for a request that no guest may make: `AccessDenied` if all its subjects
    /// are granted, else the error that an unknown node gives.
    fn refuse(&self) -> Error {
        let subjects = self.request.describe().subjects;
        let nodes = subjects.each_inode().map(|ino| GuestSubject::Node(Handle::own(ino)));
        let opens = subjects.each_open().map(GuestSubject::Open);
        let rights = self.rights(None);
        let refused = nodes.chain(opens).try_for_each(|subject| rights.find(subject).map(drop));
        refused.err().unwrap_or_else(|| Code::AccessDenied.into())
    }

    /// Carries out the request as one of any other session. A file that an earlier attempt has
    /// opened is opened again under the same number.
    fn carry_out(&self, later: &mut dyn FnMut() -> Done) -> Option<Result<Reply, Error>> {
        let Self { dispatcher, context, request, attempt, .. } = self;
        let request = match request.opens() {
            OpenEffect::Makes { node, open, flags } if *attempt > 0 => {
                Request::Reopen { node, flags, open }
            }
            OpenEffect::Makes { .. }
            | OpenEffect::MakesAgain { .. }
            | OpenEffect::Creates { .. }
            | OpenEffect::Ends(_)
            | OpenEffect::UsesGuarded
            | OpenEffect::Locks { .. }
            | OpenEffect::EndsLocks { .. }
            | OpenEffect::Nothing => request.clone(),
        };
        dispatcher.dispatch_own_file(context, Submission { request, bulk: Bulk::None, later })
    }

    /// Checks, after a request was carried out, that the guest still has the rights by which it
    /// was, and changes the result to the one that the guest is shown.
    fn check_answer(&self, before: &Granted, result: &mut Result<Reply, Error>) -> Answered {
        if result.is_err() {
            self.end_made();
        }
        let (terms, rights) = if self.is_unchanged(before) {
            (before.terms, before.rights())
        } else {
            // An error is information too: that there is no such name.
            let after = match self.admit_again() {
                Ok(Admitted::Granted(after)) => after,
                Ok(Admitted::Answered(reply)) => {
                    *result = Ok(reply);
                    return Answered::Yes;
                }
                Err(error) => {
                    if result.is_ok() {
                        self.end_open();
                    }
                    *result = Err(error);
                    return Answered::Yes;
                }
            };
            if !self.is_of_one_moment() && !after.is_where(before) {
                return Answered::NodeMoved;
            }
            (after.terms, after.rights())
        };
        if let Err(error) = self.show_answer(terms, rights, result) {
            *result = Err(error);
        }
        Answered::Yes
    }

    /// Leaves out what the guest is not shown of an answer.
    ///
    /// # Errors
    /// The one that the guest gets instead of the answer.
    fn show_answer(
        &self,
        terms: Terms,
        rights: RightSet,
        result: &mut Result<Reply, Error>,
    ) -> Result<(), Error> {
        if self.is_answered_by_rights() && !self.is_of_guest() {
            return Err(Code::Stale.into());
        }
        if self.tells_of_others(result) && !rights.has(Right::Audit) {
            return Err(Code::Stale.into());
        }
        let Ok(reply) = result else { return Ok(()) };
        self.leave_out_others(terms, rights, reply)?;
        if let Reply::Volume(stats) = reply {
            // The number of files in the volume is not granted to a guest.
            *stats = VolumeStats { files: 0, free_files: 0, ..*stats };
        }
        if let (Reply::Bytes(names), Request::ListXattr { .. }) = (reply, &self.request) {
            *names = names_of_users(names);
        }
        Ok(())
    }

    /// Returns whether what was granted is so still, without another decision: the terms of all
    /// rights are the same, and each subject is where it was.
    fn is_unchanged(&self, before: &Granted) -> bool {
        let ForGuest::Needs(needs) = self.request.for_guest() else { return false };
        let parts = &self.dispatcher.parts;
        let have_stayed = || {
            // No row of any node has changed: the usual case, without the lock of the shard.
            fence(Ordering::SeqCst);
            let rights = self.rights(None);
            parts.durability.done() == before.batches && rights.have_files(&needs, &before.subjects)
                || rights.are_where(&needs, &before.subjects)
        };
        self.context.replayed.is_none() && before.terms == parts.policy.terms() && have_stayed()
    }

    /// Leaves out a node that was found and is not granted, and shows attributes as the guest sees
    /// them. The node may have moved after it was found, or its attributes may have been read
    /// again, after a writer on another machine has sent bytes that it had held back.
    ///
    /// # Errors
    /// `NotFound` if the node that was found is not granted; `Busy`.
    fn leave_out_others(
        &self,
        terms: Terms,
        rights: RightSet,
        reply: &mut Reply,
    ) -> Result<(), Error> {
        let mut rights = rights;
        if let Reply::Listed { entries, .. } = reply {
            self.hide_attributes(entries);
        } else if let Reply::Entry(entry) = reply {
            let found = self.rights(Some(terms)).find(GuestSubject::Node(entry.handle));
            match (found, &self.request) {
                (Ok(found), _) => rights = found.rights,
                (Err(error), _) if error.code == Code::Busy => return Err(error),
                (Err(_), Request::Parent { dir }) => {
                    *entry = self.dispatcher.parts.shard.entry(*dir)?;
                }
                (Err(_), _) => return Err(Code::NotFound.into()),
            }
        }
        let modes = self.modes();
        reply.attrs_mut().into_iter().for_each(|attr| shown::show(attr, rights, &modes));
        Ok(())
    }

    /// Leaves out the attributes of a listing if more than the directories above decides; the
    /// kernel then looks them up one by one. The right to read a directory is one to all names in
    /// it, and a listing must not cost a decision for each of its entries.
    fn hide_attributes(&self, entries: &mut [DirEntry]) {
        if !self.dispatcher.parts.policy.grants_all_below(&self.guest) {
            entries.iter_mut().for_each(|listed| listed.entry = None);
        }
    }

    /// Releases the open that an earlier attempt has made, if any.
    fn end_made(&self) {
        if self.attempt > 0 {
            self.end_open();
        }
    }

    /// Releases the open that the request has made, because the guest gets an error.
    fn end_open(&self) {
        if let Some((open, _)) = self.request.opens().made() {
            // No program waits for the release, and nothing was written.
            self.without_answer(Request::Release { open });
        }
    }

    /// Carries out a request whose answer is not needed.
    fn without_answer(&self, request: Request) {
        let later = &mut || -> Done { Box::new(|_| {}) };
        let submission = Submission { request, bulk: Bulk::None, later };
        let _later = self.dispatcher.dispatch_local(&self.context, submission);
    }
}

/// The decision on a request of a guest.
enum Admitted {
    /// It is answered without being carried out.
    Answered(Reply),
    /// It is carried out.
    Granted(Granted),
}

/// The state of a request that was carried out.
enum Answered {
    /// The guest gets the result.
    Yes,
    /// Its node has moved meanwhile: it is carried out again.
    NodeMoved,
}

/// Granted subjects, with their positions before the request is carried out.
#[derive(Clone)]
struct Granted {
    /// The terms before they were granted.
    terms: Terms,
    /// The number of batches of changes before their positions were read.
    batches: u64,
    subjects: Subjects,
}

impl Granted {
    /// Returns the rights to the last subject: the node that the reply is about, or its directory.
    fn rights(&self) -> RightSet {
        self.subjects.last().map_or_else(RightSet::default, |found| found.rights)
    }

    /// Returns whether all subjects are where they were.
    fn is_where(&self, before: &Self) -> bool {
        let positions = |granted: &'_ Self| -> Vec<_> {
            granted.subjects.iter().map(|found| found.position.clone()).collect()
        };
        positions(self) == positions(before)
    }
}

/// Returns those of a list of names of extended attributes that are of users.
fn names_of_users(names: &[u8]) -> Vec<u8> {
    let each = names.split_inclusive(|byte| *byte == 0);
    each.filter(|name| xattr::is_of_users(name)).flatten().copied().collect()
}
