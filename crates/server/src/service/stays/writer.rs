//! Programs of this site that have files of other sites open, whose bytes are or will be here.

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_data::{MayBlock, OpenKey};
use pelago_store::clock;
use pelago_store::rows::{StayRow, StayState};
use pelago_wire::{
    Code, Context, Done, Error, Handle, InodeId, OpenEffect, OpenFlags, OpenId, Reply, Request,
    SessionId, SetAttr,
};

use super::{Dispatcher, Diverted, Parked, Submission, lost_bytes, of_part, opens_of};
use crate::service::levels::sync_between_sites;
use crate::stays::{FirstChange, Gate, OnTold, RemoteOpen};

/// The bytes of a file and their node here.
#[derive(Debug, Clone, Copy)]
pub(super) struct StayingFile {
    pub(super) file: InodeId,
    pub(super) node: InodeId,
}

impl StayingFile {
    /// Returns the home of the file.
    pub(super) fn home(self) -> u16 {
        self.file.site()
    }
}

impl Dispatcher {
    /// Has a request of a program carried out that concerns a file of another site whose bytes are
    /// here, or may be from now on.
    pub(super) fn divert_to_stay<'a>(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let submission = self.divert_open(context, submission)?;
        if self.parts.sites.stays.is_empty() {
            return ControlFlow::Continue(submission);
        }
        for open in opens_of(context, &submission.request) {
            if let Some(staying) = self.staying(open)
                && !self.is_of_kept(staying, open)
            {
                return self.through_stay(context, staying, open, submission);
            }
        }
        self.begin_stay(context, submission)
    }

    /// Returns whether an open is of a node itself that has a kept version, and of no file.
    fn is_of_kept(&self, staying: StayingFile, open: OpenKey) -> bool {
        let stays = &self.parts.sites.stays;
        !stays.is_used(staying.node) && !stays.has_open(open)
    }

    /// Returns the file of an open, if that is of a node with bytes of a file of another site.
    pub(super) fn staying(&self, open: OpenKey) -> Option<StayingFile> {
        let node = self.parts.opens.inode_of(open).ok()?;
        let file = self.parts.sites.stays.file_of(node)?;
        Some(StayingFile { file, node })
    }

    /// Carries out a request through an open of such a file.
    fn through_stay<'a>(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let is_used = self.parts.sites.stays.is_used(staying.node);
        // The home knows of locks, and these bytes are here.
        let is_guarded = matches!(submission.request.opens(), OpenEffect::UsesGuarded);
        let upstream = self.parts.sites.upstream(staying.home());
        if is_guarded && upstream.is_ok_and(|upstream| upstream.has_lost_lock(open)) {
            return ControlFlow::Break(Some(Err(Code::Io.into())));
        }
        if reports_loss(&submission.request) && self.parts.sites.stays.take_loss(open) {
            return ControlFlow::Break(Some(Err(lost_bytes())));
        }
        let answer = match &submission.request {
            Request::Read { .. } | Request::Seek { .. } if is_used => {
                self.dispatch_local(context, submission)
            }
            Request::Write { .. } | Request::Allocate { .. } => {
                return self.change_stay(context, staying, open, submission);
            }
            Request::CopyRange { from, to, .. } => {
                let [from, to] = [*from, *to].map(|open| OpenKey::of(context, open));
                match self.staying(to).filter(|_| self.has_bytes_here(from)) {
                    Some(copied) if self.has_bytes_here(to) => {
                        return self.change_stay(context, copied, to, submission);
                    }
                    // The kernel reads and writes then.
                    Some(_) | None => Some(Err(Code::CrossHome.into())),
                }
            }
            Request::SetAttr { set, .. } if set.size.is_some() && is_used => {
                return self.cut_stay(context, staying, open, submission);
            }
            Request::SetAttr { set, .. } if set.size.is_some() => {
                return self.begin_stay(context, submission);
            }
            Request::Flush { .. } => {
                self.flush_stay(context, staying, open, submission);
                None
            }
            Request::Fsync { .. } | Request::FsyncAt { .. } => {
                let Submission { request, bulk, later } = submission;
                match sync_between_sites(request) {
                    Ok(request) => {
                        let sync = Submission { request, bulk, later };
                        self.sync_stay(context, staying, open, sync);
                        None
                    }
                    Err(error) => Some(Err(error)),
                }
            }
            Request::Release { .. } => {
                self.release_stay(context, staying, open, submission);
                None
            }
            // Locks, and all else that the home decides.
            _ => return ControlFlow::Continue(submission),
        };
        ControlFlow::Break(answer)
    }

    /// Returns whether the bytes of the file of an open are read and written here.
    fn has_bytes_here(&self, open: OpenKey) -> bool {
        match self.staying(open) {
            Some(staying) => self.parts.sites.stays.is_used(staying.node),
            None => matches!(self.parts.opens.bytes_at(open), Ok(None)),
        }
    }

    /// Changes bytes that are here. The home is told before this is answered, unless this site has
    /// the lease on the bytes.
    fn change_stay<'a>(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let stays = &self.parts.sites.stays;
        match stays.begin_change(staying.node) {
            Gate::Begun(None) => {}
            Gate::Begun(Some(_)) => self.put_stay(staying.node),
            Gate::Gone => return self.begin_stay(context, submission),
            Gate::Closed => {
                let parked = Parked::new(context, submission);
                let this = Arc::clone(self);
                stays.when_open(staying.node, Box::new(move || parked.go_on(&this)));
                return ControlFlow::Break(None);
            }
        }
        let Submission { request, bulk, later } = submission;
        let kills = kills_privileges(context, &request);
        let mut changed_later = || -> Done {
            let this = Arc::clone(self);
            let done = later();
            Box::new(move |result| {
                this.parts.sites.stays.end_change(staying.node, kills);
                match result.is_ok() && !this.may_tell_later(staying, open) {
                    true => this.tell_of_change(staying, open, result, done),
                    false => done(result),
                }
            })
        };
        let here = Submission { request, bulk, later: &mut changed_later };
        let Some(result) = self.dispatch_local(context, here) else {
            return ControlFlow::Break(None);
        };
        stays.end_change(staying.node, kills);
        if result.is_err() || self.may_tell_later(staying, open) {
            return ControlFlow::Break(Some(result));
        }
        self.tell_of_change(staying, open, result, later());
        ControlFlow::Break(None)
    }

    /// Tells the home of a change that was made through an open, and then answers it.
    fn tell_of_change(
        self: &Arc<Self>,
        staying: StayingFile,
        open: OpenKey,
        result: Result<Reply, Error>,
        done: Done,
    ) {
        let this = Arc::clone(self);
        let told = move |told: Result<(), Error>| done(this.heard(staying, open, told).and(result));
        self.tell(staying.node, Box::new(told));
    }

    /// Returns what a program hears that has waited until the home was told: each open reports once
    /// that bytes are lost.
    fn heard(
        &self,
        staying: StayingFile,
        open: OpenKey,
        told: Result<(), Error>,
    ) -> Result<(), Error> {
        let stays = &self.parts.sites.stays;
        match stays.take_loss(open) {
            true => Err(lost_bytes()),
            // Another request of the open has said it.
            false if stays.is_kept(staying.node) => Ok(()),
            false => told,
        }
    }

    /// Returns whether the home of a file need not know yet what is written through an open: nobody
    /// else looks at it without a recall, and the program ends with this process.
    pub(super) fn may_tell_later(&self, staying: StayingFile, open: OpenKey) -> bool {
        let upstream = self.parts.sites.upstream(staying.home());
        // Bytes written with O_SYNC are safe when they are answered: no other writer may pass them
        // over then.
        let is_sync = self.parts.opens.opened(open).is_ok_and(|(_, flags)| flags.sync);
        open.session == SessionId::DIRECT
            && !is_sync
            && upstream.is_ok_and(|upstream| upstream.has_bytes(open.session, open.open))
    }

    /// Truncates or extends bytes that are here. Other attributes are set at the home.
    fn cut_stay<'a>(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let Request::SetAttr { node, set, .. } = &submission.request else {
            return ControlFlow::Continue(submission);
        };
        let node = *node;
        let rest = SetAttr { size: None, ..*set };
        let cut = SetAttr { size: set.size, ..SetAttr::default() };
        let stays = &self.parts.sites.stays;
        match stays.begin_change(staying.node) {
            Gate::Begun(None) => {}
            Gate::Begun(Some(_)) => self.put_stay(staying.node),
            Gate::Gone => return self.begin_stay(context, submission),
            Gate::Closed => {
                let parked = Parked::new(context, submission);
                let this = Arc::clone(self);
                stays.when_open(staying.node, Box::new(move || parked.go_on(&this)));
                return ControlFlow::Break(None);
            }
        }
        let done = (submission.later)();
        let this = Arc::clone(self);
        let context = *context;
        let kills = set.kill_privileges;
        let is_cut: Done = Box::new(move |result| {
            this.parts.sites.stays.end_change(staying.node, kills);
            if let Err(error) = result {
                return done(Err(error));
            }
            let again = Arc::clone(&this);
            let go_on = move |told: Result<(), Error>| match again.heard(staying, open, told) {
                Ok(()) if rest.is_empty() => {
                    let shown = Request::GetAttr { node };
                    again.do_there(&of_part(&context), staying.home(), shown, done);
                }
                Ok(()) => {
                    let rest = Request::SetAttr { node, open: None, set: rest };
                    deliver_again(&again, &context, rest, done);
                }
                Err(error) => done(Err(error)),
            };
            match this.may_tell_later(staying, open) {
                true => go_on(Ok(())),
                false => this.tell(staying.node, Box::new(go_on)),
            }
        });
        let node = Handle::own(staying.node);
        let request = Request::SetAttr { node, open: Some(open.open), set: cut };
        self.do_here(&of_part(&context), request, is_cut);
        ControlFlow::Break(None)
    }

    /// Commits what a program has written, at its close: the home knows it then.
    fn flush_stay(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        submission: Submission<'_>,
    ) {
        let Submission { request, bulk: _, later } = submission;
        let Request::Flush { owner, .. } = request else { return };
        let done = later();
        let this = Arc::clone(self);
        let context = *context;
        let told: OnTold = Box::new(move |told| match this.heard(staying, open, told) {
            // Nothing is to be committed there. But a process loses its locks.
            Ok(()) if owner.is_none() && this.is_committed(staying.node) => {
                done(Ok(Reply::Done));
            }
            Ok(()) => this.do_there(&context, staying.home(), request, done),
            Err(error) => match owner {
                Some(_) => {
                    let ended: Done = Box::new(move |_ended| done(Err(error)));
                    this.do_there(&context, staying.home(), request, ended);
                }
                None => done(Err(error)),
            },
        });
        let this = Arc::clone(self);
        let flushed: Done = Box::new(move |result| match result {
            Ok(_) if this.is_small(staying, open) => this.send_small(&context, staying, open, told),
            Ok(_) => this.tell(staying.node, told),
            Err(error) => told(Err(error)),
        });
        let flush = Request::Flush { open: open.open, owner: None };
        self.do_here(&of_part(&context), flush, flushed);
    }

    /// Returns whether the home of a file needs no FLUSH: it was told of the bytes in a node here,
    /// or has got all of them, with what a FLUSH does.
    fn is_committed(&self, node: InodeId) -> bool {
        let stays = &self.parts.sites.stays;
        stays.row(node).is_none() || stays.is_used(node)
    }

    /// Makes what a program has written safe: the bytes here, and what its home knows of them.
    fn sync_stay(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        submission: Submission<'_>,
    ) {
        let Submission { request, bulk: _, later } = submission;
        let done = later();
        let this = Arc::clone(self);
        let context = *context;
        let there = request.clone();
        let synced: Done = Box::new(move |result| {
            if let Err(error) = result {
                return done(Err(error));
            }
            let again = Arc::clone(&this);
            let told = move |told: Result<(), Error>| match again.heard(staying, open, told) {
                Ok(()) => again.do_there(&context, staying.home(), there, done),
                Err(error) => done(Err(error)),
            };
            this.tell(staying.node, Box::new(told));
        });
        self.do_here(&of_part(&context), request, synced);
    }

    /// Ends an open of such a file, here and at its home.
    fn release_stay(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        submission: Submission<'_>,
    ) {
        let Submission { request, bulk: _, later } = submission;
        let done = later();
        let this = Arc::clone(self);
        let context = *context;
        let may_write = self.parts.opens.opened(open).is_ok_and(|(_, flags)| flags.write);
        self.parts.sites.stays.remove_open(open);
        let told = move |_told: Result<(), Error>| {
            let again = Arc::clone(&this);
            let there = request.clone();
            let released: Done = Box::new(move |_released| {
                if may_write && again.parts.sites.stays.remove_writer(staying.node).is_some() {
                    again.put_stay(staying.node);
                }
                again.do_there(&context, staying.home(), there, done);
            });
            this.do_here(&of_part(&context), request, released);
        };
        match may_write {
            true => self.tell(staying.node, Box::new(told)),
            false => told(Ok(())),
        }
    }

    /// Has the first write to a new or emptied file of another site go to a node of this one.
    fn begin_stay<'a>(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let stays = &self.parts.sites.stays;
        let opens = opens_of(context, &submission.request);
        if let Request::Release { .. } = submission.request {
            for open in opens.into_iter().filter(|open| stays.has_open(*open)) {
                // First: from then on no node is opened for it.
                stays.remove_open(open);
                if self.parts.opens.inode_of(open).is_ok() {
                    // The bytes have gone home since it was opened.
                    self.release_leftover(open);
                }
            }
            return ControlFlow::Continue(submission);
        }
        let changes = match &submission.request {
            Request::Write { .. } | Request::Allocate { .. } | Request::CopyRange { .. } => true,
            Request::SetAttr { set, .. } => set.size.is_some(),
            _ => false,
        };
        if !changes {
            return ControlFlow::Continue(submission);
        }
        // The target of a copy comes last.
        let Some(open) = opens.last().copied() else { return ControlFlow::Continue(submission) };
        let is_write = matches!(submission.request, Request::Write { .. });
        let is_made = match stays.first_change(open, is_write) {
            FirstChange::GoesHome => return ControlFlow::Continue(submission),
            FirstChange::Waits(file) => {
                let parked = Parked::new(context, submission);
                let this = Arc::clone(self);
                stays.when_made(file, Box::new(move || parked.go_on(&this)));
                return ControlFlow::Break(None);
            }
            FirstChange::Stays => true,
            FirstChange::Makes(remote) => {
                let made = self.make_stay(open, remote);
                stays.end_making(remote.file.ino, made == Ok(true));
                match made {
                    Ok(is_made) => is_made,
                    Err(error) => return ControlFlow::Break(Some(Err(error))),
                }
            }
        };
        match self.staying(open).filter(|_| is_made) {
            Some(staying) => self.through_stay(context, staying, open, submission),
            None => ControlFlow::Continue(submission),
        }
    }

    /// Ends an open of a node whose bytes are not used any more.
    fn release_leftover(&self, open: OpenKey) {
        if let Err(error) = self.parts.opens.release(open, MayBlock::Yes) {
            tracing::debug!(?error, "a node that is not used any more stays open");
        }
    }

    /// Makes the node for the bytes of a file, and opens it for all opens of the file. Returns
    /// false, and does nothing, if this site has no lease on the bytes, or keeps none.
    fn make_stay(self: &Arc<Self>, open: OpenKey, remote: RemoteOpen) -> Result<bool, Error> {
        let RemoteOpen { file, empty_since: Some(since), .. } = remote else { return Ok(false) };
        let upstream = self.parts.sites.upstream(file.ino.site())?;
        if self.parts.served.read_only || !upstream.has_bytes(open.session, open.open) {
            return Ok(false);
        }
        // On a full disk it is written at its home, and so it is if this site leaves.
        let Ok(_stays) = self.parts.sites.remains() else { return Ok(false) };
        if self.parts.space.admit().is_err() {
            return Ok(false);
        }
        let row = StayRow { file, state: StayState::New, since, told_size: 0 };
        let node = match self.parts.shard.make_stay(&row, clock::now()) {
            Err(error) if error.code == Code::NoSpace => return Ok(false),
            made => made?,
        };
        self.watch_stays();
        let opens = self.parts.sites.stays.add(node, row);
        if self.parts.sites.stays.row(node).is_some_and(|added| added.since != row.since) {
            self.put_stay(node);
        }
        let mut opened = Ok(());
        for (key, flags) in &opens {
            if self.parts.opens.inode_of(*key).is_ok() {
                // The bytes that the file had before it was emptied.
                self.release_leftover(*key);
            }
            let made = self.parts.opens.open(*key, Handle::own(node), here(*flags), MayBlock::Yes);
            if let Err(error) = made {
                opened = Err(error);
            } else if !self.parts.sites.stays.has_open(*key) {
                // It has ended meanwhile.
                self.release_leftover(*key);
                if flags.write && self.parts.sites.stays.remove_writer(node).is_some() {
                    self.put_stay(node);
                }
            }
        }
        match opened {
            Ok(()) => Ok(true),
            Err(error) => {
                tracing::warn!(?error, "written bytes do not stay here");
                for (key, _) in opens {
                    if self.staying(key).is_some() {
                        self.release_leftover(key);
                    }
                }
                self.end_stay(node);
                Ok(false)
            }
        }
    }
}

/// Returns whether a change clears the setuid and setgid bits of its file.
const fn kills_privileges(context: &Context, request: &Request) -> bool {
    if let Request::Write { flags, .. } = request {
        return flags.kill_privileges;
    }
    // The kernel leaves the decision to the server: an allocation, or a copied range.
    context.uid != 0
}

/// Returns whether a request says that bytes are lost which were written before through its open.
/// FLUSH does, too, after it has ended locks.
const fn reports_loss(request: &Request) -> bool {
    matches!(
        request,
        Request::Write { .. }
            | Request::Allocate { .. }
            | Request::CopyRange { .. }
            | Request::Fsync { .. }
            | Request::FsyncAt { .. }
    )
}

/// Returns the flags with which the node of a file is opened here.
pub(super) const fn here(flags: OpenFlags) -> OpenFlags {
    OpenFlags { read: true, truncate: false, passthrough: false, kill_privileges: false, ..flags }
}

/// Has a request carried out as if it came now, and calls `done` with its reply.
fn deliver_again(dispatcher: &Arc<Dispatcher>, context: &Context, request: Request, done: Done) {
    Parked { context: *context, request, bytes: Vec::new(), done }.go_on(dispatcher);
}

/// Returns the first open that a request makes, with its flags.
pub(super) const fn made_open(request: &Request) -> Option<(OpenId, OpenFlags)> {
    request.opens().made()
}
