//! Mutations that the server of another site passes on for its clients: each is carried out once,
//! although that server may have started again in between.

use std::sync::Arc;

use pelago_wire::{Bulk, Code, Context, Done, Error, Origin, Reply};

use super::{Dispatcher, Submission};
use crate::completion::deliver;
use crate::origins::{self, Passed, RequestKind};

impl Dispatcher {
    /// Carries out a mutation that the server of another site passes on, unless it was carried out
    /// before.
    pub(super) fn dispatch_for_origin(
        self: &Arc<Self>,
        origin: Origin,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let shard = &self.parts.shard;
        let has_stored_reply = match origin.may_be_repeated {
            true => origins::has_stored_reply(shard, &origin),
            false => Ok(false),
        };
        let has_stored_reply = match has_stored_reply {
            Ok(has) => has,
            Err(error) => return Some(Err(error)),
        };
        let kind = RequestKind::of(&submission.request);
        let mut unused = Some(submission);
        let origins = &self.parts.sites.origins;
        let passed = origins
            .begin(&origin, kind, has_stored_reply, || self.twin(origin, context, unused.take()));
        let submission = unused.take()?;
        match passed {
            Passed::New => self.dispatch_once(origin, kind, context, submission),
            Passed::Done(reply) => Some(Ok(reply)),
            // Its submission is kept until its twin is over.
            Passed::Waits => None,
            Passed::Unknown => Some(Err(Code::Io.into())),
        }
    }

    /// Carries out a mutation, and records its reply before it is answered.
    fn dispatch_once(
        self: &Arc<Self>,
        origin: Origin,
        kind: RequestKind,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let Submission { request, bulk, later } = submission;
        let epoch = self.parts.shard.epoch();
        let mut ended_later = || -> Done {
            let this = Arc::clone(self);
            let done = later();
            Box::new(move |result| {
                this.end_for_origin(&origin, kind, epoch, &result);
                done(result);
            })
        };
        let submission = Submission { request, bulk, later: &mut ended_later };
        let result = self.dispatch_to_home(context, submission)?;
        self.end_for_origin(&origin, kind, epoch, &result);
        Some(result)
    }

    /// Records the end of a mutation that was begun in this epoch, and carries out its twins: they
    /// find its reply, or do what it did not.
    fn end_for_origin(
        &self,
        origin: &Origin,
        kind: RequestKind,
        epoch: u32,
        result: &Result<Reply, Error>,
    ) {
        let is_kept = self.parts.shard.epoch() == epoch;
        let reply = result.as_ref().ok().filter(|_| is_kept);
        for twin in self.parts.sites.origins.end(&self.parts.shard, origin, kind, reply) {
            twin();
        }
    }

    /// Returns the function that carries out a mutation after its twin.
    fn twin(
        self: &Arc<Self>,
        origin: Origin,
        context: &Context,
        submission: Option<Submission<'_>>,
    ) -> Box<dyn FnOnce() + Send> {
        let Some(Submission { request, bulk, later }) = submission else { return Box::new(|| ()) };
        let this = Arc::clone(self);
        let context = *context;
        let bytes = bulk.into_bytes();
        let done = later();
        Box::new(move || {
            let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
            deliver(done, |later| {
                let submission = Submission { request, bulk, later };
                this.dispatch_for_origin(origin, &context, submission)
            });
        })
    }
}
