//! Files whose home is one site and whose bytes are at another: the way of requests for them.
//!
//! At the site of the writer ([`writer`]) a program has such a file open at its home, and under the
//! same number the node that has the bytes, which is here. At the home ([`home`]) it is the other
//! way round. So locks and attributes go to the home, bytes to where they are.

mod home;
mod kept;
mod opening;
mod requests;
mod sent;
mod telling;
mod writer;

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_data::OpenKey;
use pelago_wire::{Bulk, Code, Context, Done, Error, Handle, OpenFlags, Reply, Request, RequestId};

use super::{Dispatcher, Submission};
use crate::completion::deliver;
use crate::router::Origin;

/// What has become of a request: its answer, now or later, or the request itself if it is none of
/// these files.
type Diverted<'a> = ControlFlow<Option<Result<Reply, Error>>, Submission<'a>>;

/// A request that is carried out later, with its bytes.
struct Parked {
    context: Context,
    request: Request,
    bytes: Vec<u8>,
    done: Done,
}

impl Parked {
    fn new(context: &Context, submission: Submission<'_>) -> Self {
        let Submission { request, bulk, later } = submission;
        Self { context: *context, request, bytes: bulk.into_bytes(), done: later() }
    }

    /// Carries a request for an own file out, as if it came now.
    fn go_on_here(self, dispatcher: &Arc<Dispatcher>) {
        let Self { context, request, bytes, done } = self;
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
        deliver(done, |later| {
            dispatcher.dispatch_own_file(&context, Submission { request, bulk, later })
        });
    }

    /// Carries the request out, as if it came now.
    fn go_on(self, dispatcher: &Arc<Dispatcher>) {
        let Self { context, request, bytes, done } = self;
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
        deliver(done, |later| {
            dispatcher.dispatch_to_home(&context, Submission { request, bulk, later })
        });
    }
}

impl Dispatcher {
    /// Has a request carried out that concerns a file whose home is one site and whose bytes are at
    /// another. Returns any other one.
    pub(super) fn divert<'a>(
        self: &Arc<Self>,
        context: &Context,
        origin: Origin,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        match origin {
            Origin::Client if !self.may_divert(&submission.request) => {
                ControlFlow::Continue(submission)
            }
            Origin::Client => {
                let submission = self.divert_to_stay(context, submission)?;
                self.divert_from_home(context, None, submission)
            }
            Origin::Site => {
                let submission = self.divert_giving(context, submission)?;
                let site = self.parts.sites.of_session(context.session).map(|peer| peer.site);
                self.divert_from_home(context, site, submission)
            }
        }
    }

    /// Returns whether a request of a program may concern such a file, at little cost: most do not,
    /// and each step that looks closer moves the request. The match has no wildcard, so the
    /// compiler names a new request here.
    fn may_divert(&self, request: &Request) -> bool {
        match request {
            Request::GetAttr { .. }
            | Request::Lookup { .. }
            | Request::Parent { .. }
            | Request::ReadLink { .. }
            | Request::List { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. } => false,
            Request::Open { node, flags, .. } | Request::Reopen { node, flags, .. } => {
                self.open_may_divert(*node, *flags)
            }
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Flush { .. }
            | Request::Fsync { .. }
            | Request::FsyncAt { .. }
            | Request::Allocate { .. }
            | Request::Seek { .. } => {
                !self.parts.sites.stays.is_empty() || self.parts.opens.may_have_bytes_elsewhere()
            }
            Request::Step { .. }
            | Request::AddDir { .. }
            | Request::DropDir { .. }
            | Request::SiteAddress { .. }
            | Request::SiteList { .. }
            | Request::LeaveSite
            | Request::Charter { .. }
            | Request::Revoked { .. }
            | Request::PassRevocation { .. }
            | Request::CharterChanged
            | Request::SetBytes { .. }
            | Request::GiveBytes { .. }
            | Request::DropBytes { .. }
            | Request::Clock
            | Request::Hashes { .. }
            | Request::RenewToken { .. }
            | Request::KeepToken { .. }
            | Request::RemoveNamedDir { .. }
            | Request::RemoveDir { .. }
            | Request::ReclaimLock { .. }
            | Request::MakeDir { .. }
            | Request::Find { .. }
            | Request::SetAttr { .. }
            | Request::Create { .. }
            | Request::CreateUnnamed { .. }
            | Request::MakeNode { .. }
            | Request::Symlink { .. }
            | Request::Link { .. }
            | Request::Unlink { .. }
            | Request::Rename { .. }
            | Request::Release { .. }
            | Request::FsyncDir { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. }
            | Request::StatFs
            | Request::CopyRange { .. }
            | Request::GetLock { .. }
            | Request::SetLock { .. }
            | Request::Search { .. }
            | Request::Tags { .. }
            | Request::Attach { .. }
            | Request::Revoke { .. }
            | Request::Issue { .. }
            | Request::Access { .. }
            | Request::Audited { .. }
            | Request::Servers => true,
        }
    }

    /// Returns whether an open may concern a file whose bytes are at another site: not one to read
    /// an own file with its bytes here, if no other site has written any.
    fn open_may_divert(&self, node: Handle, flags: OpenFlags) -> bool {
        flags.write
            || flags.truncate
            || node.ino.site() != self.parts.sites.own()
            || self.leases.writers() > 0
            || self.parts.shard.bytes_at(node) != Ok(None)
    }

    /// Carries out a request for what has its home here, of a session that sends none for others.
    pub(super) fn dispatch_own_file(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        if self.parts.sites.is_alone() {
            return self.dispatch_local(context, submission);
        }
        match self.divert_from_home(context, None, submission) {
            ControlFlow::Continue(submission) => self.dispatch_local(context, submission),
            ControlFlow::Break(answer) => answer,
        }
    }

    /// Has a request of this site carried out here, and calls `done` with its reply.
    fn do_here(self: &Arc<Self>, context: &Context, request: Request, done: Done) {
        deliver(done, |later| {
            self.dispatch_local(context, Submission { request, bulk: Bulk::None, later })
        });
    }

    /// Has a request of a program carried out at the home of its file, and calls `done` with its
    /// reply.
    fn do_there(self: &Arc<Self>, context: &Context, site: u16, request: Request, done: Done) {
        match self.parts.sites.upstream(site) {
            Ok(upstream) => {
                if let Some(answer) = upstream.answer_stale(context, &request) {
                    return done(answer);
                }
                let may_be_repeated = self.may_be_repeated(context);
                upstream.pass_on(context, request, Bulk::None, may_be_repeated, done);
            }
            Err(error) => done(Err(error)),
        }
    }
}

/// Returns the context of a request that is a part of another one.
const fn of_part(context: &Context) -> Context {
    Context {
        request: RequestId(0),
        mutation: 0,
        acknowledged: 0,
        replayed: None,
        origin: None,
        ..*context
    }
}

/// Returns the opens that a request names, in its session.
fn opens_of(context: &Context, request: &Request) -> Vec<OpenKey> {
    // The subjects have no open of a change of attributes, which a file can be without.
    let of_attributes = match request {
        Request::SetAttr { open, .. } => *open,
        _ => None,
    };
    let opens = request.describe().subjects.each_open().chain(of_attributes);
    opens.map(|open| OpenKey::of(context, open)).collect()
}

/// Returns the error of a file of which bytes are lost.
fn lost_bytes() -> Error {
    Code::Io.into()
}
