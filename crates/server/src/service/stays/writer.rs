//! Programs of this site that have files of other sites open, whose bytes are or will be here.

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_data::{MayBlock, OpenKey};
use pelago_store::clock;
use pelago_store::rows::{StayRow, StayState};
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, InodeId, OpenFlags, OpenId, Reply, Request,
    SessionId, SetAttr, WriteFlags, limits,
};

use super::{Dispatcher, Diverted, Parked, Submission, of_part, opens_of};
use crate::stays::{Gate, OnTold, RemoteOpen};

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
        let answer = match &submission.request {
            Request::Read { .. } | Request::Seek { .. } if is_used => {
                self.dispatch_local(context, submission)
            }
            Request::Write { .. } | Request::Allocate { .. } => {
                return self.change_stay(context, staying, open, submission);
            }
            Request::CopyRange { .. } => {
                let opens = opens_of(context, &submission.request);
                let are_here = |open: &OpenKey| self.parts.opens.inode_of(*open).is_ok();
                match is_used && opens.iter().all(are_here) {
                    true => return self.change_stay(context, staying, open, submission),
                    // The kernel reads and writes then.
                    false => Some(Err(Code::CrossHome.into())),
                }
            }
            Request::SetAttr { set, .. } if set.size.is_some() && is_used => {
                return self.cut_stay(context, staying, open, submission);
            }
            Request::Flush { .. } => {
                self.flush_stay(context, staying, open, submission);
                None
            }
            Request::Fsync { .. } => {
                self.sync_stay(context, staying, submission);
                None
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
            Gate::Begun => {}
            Gate::Gone => return ControlFlow::Continue(submission),
            Gate::Closed => {
                let parked = Parked::new(context, submission);
                let this = Arc::clone(self);
                stays.when_open(staying.node, Box::new(move || parked.go_on(&this)));
                return ControlFlow::Break(None);
            }
        }
        let Submission { request, bulk, later } = submission;
        let mut changed_later = || -> Done {
            let this = Arc::clone(self);
            let done = later();
            Box::new(move |result| {
                this.parts.sites.stays.end_change(staying.node);
                match result.is_ok() && !this.may_tell_later(staying, open) {
                    true => this.tell(staying.file, Box::new(move |told| done(told.and(result)))),
                    false => done(result),
                }
            })
        };
        let here = Submission { request, bulk, later: &mut changed_later };
        let Some(result) = self.dispatch_local(context, here) else {
            return ControlFlow::Break(None);
        };
        stays.end_change(staying.node);
        if result.is_err() || self.may_tell_later(staying, open) {
            return ControlFlow::Break(Some(result));
        }
        let done = later();
        self.tell(staying.file, Box::new(move |told| done(told.and(result))));
        ControlFlow::Break(None)
    }

    /// Returns whether the home of a file need not know yet what is written through an open: nobody
    /// else looks at it without a recall, and the program ends with this process.
    fn may_tell_later(&self, staying: StayingFile, open: OpenKey) -> bool {
        let upstream = self.parts.sites.upstream(staying.home());
        open.session == SessionId::DIRECT
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
            Gate::Begun => {}
            Gate::Gone => return ControlFlow::Continue(submission),
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
        let is_cut: Done = Box::new(move |result| {
            this.parts.sites.stays.end_change(staying.node);
            if let Err(error) = result {
                return done(Err(error));
            }
            let again = Arc::clone(&this);
            let go_on = move |told: Result<(), Error>| match told {
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
                false => this.tell(staying.file, Box::new(go_on)),
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
        let told: OnTold = Box::new(move |told| match told {
            // Nothing is to be committed there. But a process loses its locks.
            Ok(()) if owner.is_none() && this.parts.sites.stays.is_used(staying.node) => {
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
            Ok(_) => this.tell(staying.file, told),
            Err(error) => told(Err(error)),
        });
        let flush = Request::Flush { open: open.open, owner: None };
        self.do_here(&of_part(&context), flush, flushed);
    }

    /// Returns whether all that was written fits into one request, so that nothing is gained if it
    /// stays here.
    fn is_small(&self, staying: StayingFile, open: OpenKey) -> bool {
        let row = self.parts.sites.stays.row(staying.node);
        let is_new = row.is_some_and(|row| row.state == StayState::New);
        let attr = self.parts.shard.attr(Handle::own(staying.node));
        let is_small = attr.is_ok_and(|attr| attr.size <= limits::STAY_LEAST_BYTES as u64);
        is_new && is_small && self.may_tell_later(staying, open)
    }

    /// Sends the bytes of a small file to its home, which has all of it then.
    fn send_small(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
        open: OpenKey,
        then: OnTold,
    ) {
        let this = Arc::clone(self);
        let context = of_part(context);
        let then = Arc::new(parking_lot::Mutex::new(Some(then)));
        let late = Arc::clone(&then);
        let quiet = Box::new(move || {
            let Some(then) = late.lock().take() else { return };
            let size = limits::STAY_LEAST_BYTES as u32;
            let read = this.parts.opens.read(open, 0, size, MayBlock::Yes, None);
            let bytes = match read {
                Ok(bytes) => bytes.into_bytes(),
                Err(_) => {
                    this.parts.sites.stays.open_gate(staying.node);
                    return this.tell(staying.file, then);
                }
            };
            let upstream = match this.parts.sites.upstream(staying.home()) {
                Ok(upstream) => upstream,
                Err(error) => {
                    this.parts.sites.stays.open_gate(staying.node);
                    return then(Err(error));
                }
            };
            let again = Arc::clone(&this);
            let sent: Done = Box::new(move |result| match result {
                Ok(_) => {
                    again.end_stay(staying.node);
                    then(Ok(()));
                }
                Err(error) => {
                    again.parts.sites.stays.open_gate(staying.node);
                    then(Err(error));
                }
            });
            if bytes.is_empty() {
                return sent(Ok(Reply::Done));
            }
            let write = Request::Write { open: open.open, offset: 0, flags: WriteFlags::NONE };
            upstream.ask(&context, write, Bulk::Owned(bytes), sent);
        });
        if !self.parts.sites.stays.close_gate(staying.node, quiet)
            && let Some(then) = then.lock().take()
        {
            // They are being given to the home, or sent.
            self.tell(staying.file, then);
        }
    }

    /// Makes what a program has written safe: the bytes here, and what its home knows of them.
    fn sync_stay(
        self: &Arc<Self>,
        context: &Context,
        staying: StayingFile,
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
            let told = move |told: Result<(), Error>| match told {
                Ok(()) => again.do_there(&context, staying.home(), there, done),
                Err(error) => done(Err(error)),
            };
            this.tell(staying.file, Box::new(told));
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
                if may_write && let Some(row) = again.parts.sites.stays.remove_writer(staying.node)
                {
                    again.put_stay(staying.node, &row);
                }
                again.do_there(&context, staying.home(), there, done);
            });
            this.do_here(&of_part(&context), request, released);
        };
        match may_write {
            true => self.tell(staying.file, Box::new(told)),
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
                if self.parts.opens.inode_of(open).is_ok() {
                    // The bytes have gone home since it was opened.
                    self.release_leftover(open);
                }
                stays.remove_open(open);
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
        if let Request::Write { .. } = submission.request
            && let Some(open) = opens.first().copied()
            && let Some(remote) = stays.empty_open(open)
        {
            match self.make_stay(open, remote) {
                Ok(true) => {
                    if let Some(staying) = self.staying(open) {
                        return self.through_stay(context, staying, open, submission);
                    }
                }
                Ok(false) => {}
                Err(error) => return ControlFlow::Break(Some(Err(error))),
            }
        }
        opens.iter().for_each(|open| stays.note_written_there(*open));
        ControlFlow::Continue(submission)
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
        if !self.parts.sites.new_bytes_stay {
            return Ok(false);
        }
        let upstream = self.parts.sites.upstream(file.ino.site())?;
        if self.parts.served.read_only || !upstream.has_bytes(open.session, open.open) {
            return Ok(false);
        }
        self.parts.space.admit()?;
        let row = StayRow { file, state: StayState::New, since, told_size: 0 };
        let node = self.parts.shard.make_stay(&row, clock::now())?;
        self.watch_stays();
        let opens = self.parts.sites.stays.add(node, row);
        let mut opened = Ok(());
        for (key, flags) in &opens {
            let made = self.parts.opens.open(*key, Handle::own(node), here(*flags), MayBlock::Yes);
            if let Err(error) = made {
                opened = Err(error);
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
