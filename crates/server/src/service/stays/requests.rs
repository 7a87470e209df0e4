//! The requests by which sites tell each other where the bytes of files are.

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_data::NewPlace;
use pelago_store::rows::StayState;
use pelago_wire::{Code, Context, Done, Error, Handle, InodeId, Reply, Request, Time};

use super::super::execute::Executor;
use super::super::{ErrorReport, OpResult, Outcome};
use super::{Dispatcher, Diverted, Submission, of_part};
use crate::completion::deliver;

impl Dispatcher {
    /// Has a request for bytes that are here carried out once no change of them is under way.
    pub(super) fn divert_giving<'a>(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        if let Request::SetBytes { .. } = submission.request {
            self.watch_stays();
            return self.answer_when_safe(context, submission);
        }
        let Request::GiveBytes { node, .. } = submission.request else {
            return ControlFlow::Continue(submission);
        };
        if self.parts.sites.stays.file_of(node.ino).is_none() {
            return ControlFlow::Continue(submission);
        }
        let Submission { request, bulk: _, later } = submission;
        let done = later();
        let this = Arc::clone(self);
        let context = of_part(context);
        let parked = Arc::new(parking_lot::Mutex::new(Some(done)));
        let late = Arc::clone(&parked);
        let quiet = Box::new(move || {
            let Some(done) = late.lock().take() else { return };
            let opened = Arc::clone(&this);
            let given: Done = Box::new(move |result| {
                if let Some(row) = opened.parts.sites.stays.row(node.ino) {
                    opened.leave_stay(row.file.ino);
                }
                opened.parts.sites.stays.open_gate(node.ino);
                done(result);
            });
            // What is being told must not arrive after the bytes. The answer has the rest.
            let again = Arc::clone(&this);
            this.tell(node.ino, Box::new(move |_told| again.do_here(&context, request, given)));
        });
        if !self.parts.sites.stays.close_gate(node.ino, quiet)
            && let Some(done) = parked.lock().take()
        {
            // It is asked again.
            done(Err(Code::Busy.into()));
        }
        ControlFlow::Break(None)
    }

    /// Carries out a SetBytes. The other site drops bytes when it hears that the file is gone or
    /// has others: it must not hear that before it is safe.
    fn answer_when_safe<'a>(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let Submission { request, bulk, later } = submission;
        let this = Arc::clone(self);
        let done = later();
        let invalidations = self.parts.durability.invalidations();
        let answered: Done = Box::new(move |result| {
            let is_final = |error: &Error| matches!(error.code, Code::Exists | Code::Stale);
            if !result.as_ref().is_err_and(is_final) {
                return done(result);
            }
            let durability = &this.parts.durability;
            let safe = move |safe: Result<(), Error>| done(safe.and(result));
            durability.when_safe(durability.done(), invalidations, Box::new(safe));
        });
        let context = *context;
        deliver(answered, |later| {
            self.dispatch_local(&context, Submission { request, bulk, later })
        });
        ControlFlow::Break(None)
    }
}

impl Executor<'_> {
    /// Returns the number of the site whose server has sent the request.
    fn asking_site(&self) -> Result<u16, Error> {
        let peer = self.parts.sites.of_session(self.context.session);
        peer.map(|peer| peer.site).ok_or_else(|| Code::AccessDenied.into())
    }

    /// Records where the bytes of a file of this site are.
    pub(in crate::service) fn set_bytes(&self, file: Handle, place: &NewPlace) -> OpResult {
        let site = self.asking_site()?;
        if place.node.site() != site || file.ino.site() != self.parts.sites.own() {
            return Err(Error::from(Code::Invalid).into());
        }
        let set = self.parts.opens.set_bytes_at(file, place);
        match set {
            Ok(attr) => Ok(Reply::Attr(attr).into()),
            Err(error)
                if error.code == Code::Stale && self.parts.shard.can_bring_back(file.ino) =>
            {
                Err(Error::from(Code::Busy).into())
            }
            // This folder is older than the file: the bytes are kept where they are.
            Err(error) if error.code == Code::Stale && !self.parts.shard.has_issued(file.ino) => {
                Err(Error::from(Code::Exists).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the bytes in a node to the home of their file.
    pub(in crate::service) fn give_bytes(&self, node: InodeId, file: InodeId) -> OpResult {
        self.expect_bytes_of(node, file)?;
        let stays = &self.parts.sites.stays;
        let is_known = !stays.is_dirty(node);
        stays.give(node).ok_or(Code::Stale)?;
        stays.write_row(node)?;
        let mut attr = self.parts.shard.attr(Handle::own(node))?;
        if is_known {
            // The home may have got another since.
            attr.mtime = Time::default();
        }
        Ok(Outcome::WhenSafe(Reply::Attr(attr), ErrorReport::Untracked))
    }

    /// Removes a node whose bytes are not needed any more.
    pub(in crate::service) fn drop_bytes(&self, node: InodeId, file: InodeId) -> OpResult {
        match self.expect_bytes_of(node, file) {
            Err(error) if error.code == Code::Stale => return Ok(Reply::Done.into()),
            other => other?,
        }
        let row = self.parts.sites.stays.row(node);
        if row.is_some_and(|row| row.state == StayState::Kept) {
            // They are not those of the file.
            return Ok(Reply::Done.into());
        }
        if self.parts.sites.stays.end(node)? {
            (self.parts.notify_orphans)();
        }
        Ok(Reply::Done.into())
    }

    /// Checks that a node has bytes of this file, whose home asks.
    fn expect_bytes_of(&self, node: InodeId, file: InodeId) -> Result<(), Error> {
        if self.asking_site()? != file.site() {
            return Err(Code::AccessDenied.into());
        }
        match self.parts.sites.stays.file_of(node) == Some(file) {
            true => Ok(()),
            false => Err(Code::Stale.into()),
        }
    }
}
