//! Requests of guests: carried out only if the guest has the right that they need, before and
//! after.
//!
//! This check comes first. All later steps, such as lookups and recalls of leases, cause work for
//! others, which a stranger must not cause.
//!
//! A granted node can move away while a request is carried out, and a secret can be written into it
//! then. So the position of the node is found again before the reply is sent, and the request is
//! repeated if it has changed. A guest changes nothing, so a repetition is harmless.

use std::sync::{Arc, Weak};

use pelago_data::{MayBlock, OpError, OpenKey};
use pelago_keynote::Right;
use pelago_meta::shard::Placement;
use pelago_store::rows::RevocationRow;
use pelago_wire::{
    Bulk, Code, Context, DirEntry, Done, Error, ForGuest, GuestGrant, GuestRefusal, Handle,
    OpenEffect, OpenId, RecordedPeer, Reply, Request, SessionId, VolumeStats,
};

use super::execute::Executor;
use super::{Dispatcher, ErrorReport, OpResult, Outcome, Submission};
use crate::completion::deliver;
use crate::policy::Guest;

mod audited;

/// The number of attempts to carry out a request whose node moves each time.
const ATTEMPTS: u32 = 8;

/// A request of a guest that is being carried out.
#[derive(Clone)]
struct GuestCall {
    dispatcher: Arc<Dispatcher>,
    guest: Arc<Guest>,
    context: Context,
    request: Request,
    /// The number of earlier attempts.
    attempt: u32,
}

/// The rights of which one suffices to see a node.
const ANY: &[Right] = &Right::ALL;
/// The right to read.
const READ: &[Right] = &[Right::Read];

/// The subject of a guest's request that must be granted.
#[derive(Clone, Copy)]
enum Named {
    /// Nothing.
    Nothing,
    /// A node by its handle.
    Node(Handle),
    /// The file of an open.
    Open(OpenId),
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
        // A guest writes nothing, so its requests have no bytes.
        let Submission { request, bulk: _, later } = submission;
        let dispatcher = Arc::clone(self);
        let call = GuestCall { dispatcher, guest, context: *context, request, attempt: 0 };
        call.begin(later)
    }

    /// Begins the session of a guest. It has no row, so the next run does not know it and does not
    /// wait for it.
    pub(super) fn begin_guest(
        &self,
        session: SessionId,
        grant: &GuestGrant,
    ) -> Result<(), GuestRefusal> {
        self.parts.policy.begin(session, grant)?;
        self.parts.opens.begin_session(session, RecordedPeer::Guest(grant.principal));
        self.others.begin(session);
        Ok(())
    }
}

impl GuestCall {
    /// Carries out the request, and repeats it while the node moves.
    fn begin(mut self, later: &mut dyn FnMut() -> Done) -> Option<Result<Reply, Error>> {
        loop {
            let granted = match self.admit() {
                Ok(Admitted::Answered(reply)) => return Some(Ok(reply)),
                Ok(Admitted::Granted(granted)) => granted,
                Err(error) => {
                    self.end_made();
                    return Some(Err(error));
                }
            };
            let mut finish = || -> Done {
                let call = self.clone();
                let granted = granted.clone();
                let done = later();
                Box::new(move |result| call.finish(granted, result, done))
            };
            let result = self.carry_out(&mut finish)?;
            match self.answer(granted.clone(), result) {
                Some(answer) => return Some(answer),
                None => self.attempt += 1,
            }
        }
    }

    /// Answers a request whose result came later; repeats it if the node has moved.
    fn finish(mut self, granted: Granted, result: Result<Reply, Error>, done: Done) {
        if let Some(answer) = self.answer(granted, result) {
            return done(answer);
        }
        self.attempt += 1;
        deliver(done, |later| self.begin(later));
    }

    /// Decides whether the request is carried out.
    ///
    /// # Errors
    /// `AccessDenied` for a request that no guest may make on a granted node; `Stale` for a node
    /// that is not granted, which looks as one that does not exist.
    fn admit(&self) -> Result<Admitted, Error> {
        let Self { dispatcher, guest, context, request, attempt } = self;
        if *attempt >= ATTEMPTS {
            return Err(Code::Busy.into());
        }
        if !dispatcher.parts.policy.admits(guest) {
            // Its programs shall get the error of a share that has ended.
            if dispatcher.parts.policy.may_close()
                && let Some(connections) = dispatcher.connections()
            {
                connections.end_guests();
            }
            return Err(Code::Stale.into());
        }
        if context.replayed.is_some() {
            // It claims that an earlier run has answered it. But no run knows a guest of an earlier
            // run.
            return Err(Code::AccessDenied.into());
        }
        let rule = request.for_guest();
        let (named, rights) = match rule {
            ForGuest::Node(node)
            | ForGuest::Parent(node)
            | ForGuest::NoXattr(node)
            | ForGuest::NoXattrs(node)
            | ForGuest::CommittedDir(node) => (Named::Node(node), ANY),
            ForGuest::Read(node) => (Named::Node(node), READ),
            ForGuest::ReadOpen(open) => (Named::Open(open), READ),
            ForGuest::Own | ForGuest::Committed | ForGuest::Space | ForGuest::Revoke => {
                (Named::Nothing, ANY)
            }
            ForGuest::Never => {
                let error = self.refuse();
                self.note_denied(&[], error);
                return Err(error);
            }
        };
        let found = self.find(named, rights);
        let position = found.inspect_err(|error| self.note_denied(rights, *error))?;
        self.note_use(rights, position.as_ref());
        match rule {
            ForGuest::NoXattr(_) => Err(Code::NoXattr.into()),
            ForGuest::NoXattrs(_) => Ok(Admitted::Answered(Reply::Bytes(Vec::new()))),
            ForGuest::Committed | ForGuest::CommittedDir(_) => Ok(Admitted::Answered(Reply::Done)),
            ForGuest::Node(_)
            | ForGuest::Read(_)
            | ForGuest::Parent(_)
            | ForGuest::ReadOpen(_)
            | ForGuest::Own
            | ForGuest::Space
            | ForGuest::Revoke
            | ForGuest::Never => Ok(Admitted::Granted(Granted { named, rights, position })),
        }
    }

    /// Returns the error for a request that no guest may make: `AccessDenied` if all its subjects
    /// are granted, else the error that an unknown node gives.
    fn refuse(&self) -> Error {
        let subjects = self.request.describe().subjects;
        let nodes = subjects.each_inode().map(|ino| Named::Node(Handle::own(ino)));
        let opens = subjects.each_open().map(Named::Open);
        let refused = nodes.chain(opens).try_for_each(|named| self.find(named, ANY).map(drop));
        refused.err().unwrap_or_else(|| Code::AccessDenied.into())
    }

    /// Returns the present position of the subject of the request, if the guest has one of these
    /// rights to it; `None` if the request has no subject.
    ///
    /// # Errors
    /// `AccessDenied` if the guest has other rights to it; `Stale` if none, as for a node that does
    /// not exist; `BadOpen`; `Busy` if directories move all the time.
    fn find(&self, named: Named, rights: &'static [Right]) -> Result<Option<Placement>, Error> {
        let Self { dispatcher, context, .. } = self;
        let parts = &dispatcher.parts;
        let is_open = matches!(named, Named::Open(_));
        let node = match named {
            Named::Nothing => return Ok(None),
            Named::Node(node) => node,
            Named::Open(open) => {
                parts.opens.handle_of(OpenKey { session: context.session, open })?
            }
        };
        for _ in 0..ATTEMPTS {
            let position = parts.shard.placement(node, is_open)?;
            match self.has_right(&position, rights) {
                // A directory has moved meanwhile.
                Err(error) if error.code == Code::Busy => {}
                Err(error) => return Err(error),
                Ok(true) => return Ok(Some(position)),
                Ok(false) if self.has_right(&position, ANY)? => {
                    return Err(Code::AccessDenied.into());
                }
                Ok(false) => return Err(Code::Stale.into()),
            }
        }
        Err(Code::Busy.into())
    }

    /// Returns whether the guest has one of these rights in one of the directories of a node.
    fn has_right(&self, position: &Placement, rights: &[Right]) -> Result<bool, Error> {
        let Self { dispatcher, guest, .. } = self;
        let parts = &dispatcher.parts;
        for dir in &position.dirs {
            if parts.policy.grants(guest, &parts.shard, position, *dir, rights)? {
                return Ok(true);
            }
        }
        Ok(false)
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
        dispatcher.dispatch_local(context, Submission { request, bulk: Bulk::None, later })
    }

    /// Returns the answer to a request that was carried out; `None` if its node has moved
    /// meanwhile.
    fn answer(
        &self,
        granted: Granted,
        result: Result<Reply, Error>,
    ) -> Option<Result<Reply, Error>> {
        let Self { dispatcher, guest, request, .. } = self;
        if request.for_guest() == ForGuest::Revoke {
            // It may have taken back what the guest itself came with.
            return Some(result);
        }
        if !dispatcher.parts.policy.admits(guest) {
            return Some(Err(Code::Stale.into()));
        }
        if result.is_err() {
            self.end_made();
        }
        let mut result = result;
        // An error is information too: that there is no such name.
        match self.find(granted.named, granted.rights) {
            Ok(after) if after == granted.position => result = self.without_others(result),
            Ok(_) => return None,
            Err(error) => {
                self.note_denied(granted.rights, error);
                if result.is_ok() {
                    self.end_open();
                }
                result = Err(error);
            }
        }
        if let Ok(Reply::Volume(stats)) = &mut result {
            // The number of files in the volume is not granted to a guest.
            *stats = VolumeStats { files: 0, free_files: 0, ..*stats };
        }
        Some(result)
    }

    /// Returns the result of a request, without a node that was found and is not granted. It may
    /// have moved after it was found, or its attributes may have been read again, after a writer on
    /// another machine has sent bytes that it had held back.
    fn without_others(&self, result: Result<Reply, Error>) -> Result<Reply, Error> {
        if let Ok(Reply::Listed { entries, end }) = result {
            return Ok(Reply::Listed { entries: self.granted_entries(entries), end });
        }
        let Ok(Reply::Entry(entry)) = &result else { return result };
        match (self.find(Named::Node(entry.handle), ANY), &self.request) {
            (Ok(_), _) => result,
            (Err(error), _) if error.code == Code::Busy => Err(error),
            (Err(_), Request::Parent { dir }) => {
                self.dispatcher.parts.shard.entry(*dir).map(Reply::Entry)
            }
            (Err(_), _) => Err(Code::NotFound.into()),
        }
    }

    /// Returns the entries of a listing. The right to read a directory is one to all names in it.
    /// If more than the directories above decides, their attributes are left out, which the kernel
    /// then looks up one by one: a listing must not cost a decision for each of its entries.
    fn granted_entries(&self, mut entries: Vec<DirEntry>) -> Vec<DirEntry> {
        if !self.dispatcher.parts.policy.grants_all_below(&self.guest) {
            entries.iter_mut().for_each(|listed| listed.entry = None);
        }
        entries
    }

    /// Releases the open that an earlier attempt has made, if any.
    fn end_made(&self) {
        if self.attempt > 0 {
            self.end_open();
        }
    }

    /// Releases the open that the request has made, because the guest gets an error.
    fn end_open(&self) {
        let Self { dispatcher, context, request, .. } = self;
        let Some((open, _)) = request.opens().made() else { return };
        // No program waits for the release, and nothing was written.
        let request = Request::Release { open };
        let later = &mut || -> Done { Box::new(|_| {}) };
        let _later =
            dispatcher.dispatch_local(context, Submission { request, bulk: Bulk::None, later });
    }
}

/// The decision on a request of a guest.
enum Admitted {
    /// It is answered without being carried out.
    Answered(Reply),
    /// It is carried out.
    Granted(Granted),
}

/// A granted subject, and its position before the request is carried out.
#[derive(Clone)]
struct Granted {
    named: Named,
    /// The rights of which one is needed.
    rights: &'static [Right],
    /// `None` if the request has no subject.
    position: Option<Placement>,
}

impl Executor<'_> {
    /// Revokes a credential. When this returns, the revocation is in force, and the guests with
    /// this credential have no session; the reply is sent when the revocation is safe.
    pub(super) fn revoke(&self, sentence: &[u8], chain: &[Vec<u8>]) -> OpResult {
        let parts = self.parts;
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let guest = parts.policy.guest(self.context.session);
        let revoked = parts.policy.read_revocation(sentence, chain, guest.as_deref())?;
        parts.policy.announce_revocations()?;
        let row = RevocationRow { end: 0, sentence };
        parts.shard.revoke(revoked.credential, &row, revoked.is_of_root)?;
        parts.policy.revoke(&revoked);
        if let Some(connections) = self.connections.get().and_then(Weak::upgrade) {
            connections.end_guests();
        }
        Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Untracked))
    }
}
