//! Requests for nodes whose home is another site: sent there, and answered when the other site has
//! answered.
//!
//! A lookup or a new directory concerns both sites. It is carried out as requests to one site after
//! the other.

mod ancestry;
mod finish;
mod make_dir;
mod remove_dir;
mod step;
mod walk;
mod whereabouts;

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_data::OpenKey;
use pelago_meta::shard::NameThere;
use pelago_store::clock;
use pelago_wire::{
    Bulk, Code, Context, Done, Effect, Error, Handle, OpenId, Reply, Request, SessionId, SiteToken,
};

use self::make_dir::DirThere;
use self::remove_dir::NamedDir;
use self::walk::Walk;
use super::execute::Executor;
use super::{Dispatcher, ErrorReport, OpResult, Outcome, Submission};
use crate::router::{self, Origin, Route, SiteRule};
use crate::upstream::Upstream;

impl Dispatcher {
    /// Carries out a request in a volume of several sites, at the home of what it names.
    #[cold]
    pub(super) fn dispatch_to_home(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let session = context.session;
        let sites = &self.parts.sites;
        let origin = match sites.of_session(session) {
            Some(_) => Origin::Site,
            None => Origin::Client,
        };
        // After the question whose it is: the end of a session forgets that last.
        if session != SessionId::DIRECT && !self.others.has(session) {
            // It has ended, and an open that it made there would stay open.
            return Some(Err(Code::Unavailable.into()));
        }
        let submission = match self.divert(context, origin, submission) {
            ControlFlow::Continue(submission) => submission,
            ControlFlow::Break(answer) => return answer,
        };
        // Not for each request: it would be moved once more.
        let mut submission = submission;
        if matches!(submission.request, Request::GetXattr { .. }) {
            submission = match self.divert_whereabouts(context, origin, submission) {
                ControlFlow::Continue(submission) => submission,
                ControlFlow::Break(answer) => return answer,
            };
        }
        let home_of = |open| self.home_of_open(context.session, open);
        match router::route(sites.own(), origin, &submission.request, home_of) {
            Route::Refused(code) => return Some(Err(code.into())),
            Route::There(site) => {
                let Submission { request, bulk, later } = submission;
                self.dispatch_remote(site, context, request, bulk, later());
                return None;
            }
            Route::Here => {}
        }
        match router::site_rule(&submission.request) {
            // Another site takes its next step by itself.
            SiteRule::Walk { dir, to } if origin == Origin::Client => {
                let walk = Walk { dir, to: to.cloned() };
                self.walk_from_here(context, walk, submission)
            }
            SiteRule::RemoveDir { dir, name } if origin == Origin::Client => {
                let name = name.clone();
                self.remove_dir_by_name(context, dir, name, submission)
            }
            SiteRule::RemoveNamedDir { dir, parent, name } => {
                let at = NameThere { parent, name: name.clone() };
                let removed = Request::RemoveDir { dir: Handle::own(parent), name: name.clone() };
                let done = self.learning(&removed, (submission.later)());
                match parent.site() != sites.own() {
                    true => {
                        let may_be_repeated = self.may_be_repeated(context);
                        let named = NamedDir { context: *context, dir, at, may_be_repeated };
                        self.remove_named_dir(named, done);
                    }
                    false => done(Err(Code::Invalid.into())),
                }
                None
            }
            SiteRule::Walk { .. }
            | SiteRule::RemoveDir { .. }
            | SiteRule::FromSite
            | SiteRule::ReclaimLock(_)
            | SiteRule::MakeDir { .. }
            | SiteRule::AtHome => self.dispatch_local(context, submission),
        }
    }

    /// Returns the home of the file of an open, if it is another site. Under the number of an open
    /// of an own file a node of another site may be open, which has the bytes.
    fn home_of_open(&self, session: SessionId, open: OpenId) -> Option<u16> {
        let there = self.parts.sites.home_of(session, open)?;
        let key = OpenKey { session, open };
        let is_own =
            !self.parts.sites.stays.has_open(key) && self.parts.opens.inode_of(key).is_ok();
        (!is_own).then_some(there)
    }

    /// Carries out a request at another site.
    fn dispatch_remote(
        self: &Arc<Self>,
        site: u16,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let upstream = self.admit_there(site, context, &request);
        // Nothing is learned from it.
        let Some(done) = self.answer_stale(&upstream, context, &request, done) else { return };
        let Some(done) = self.recalling(&upstream, context, &request, done) else { return };
        let upstream = match upstream {
            Ok(upstream) => upstream,
            Err(error) => return done(Err(error)),
        };
        match router::site_rule(&request) {
            SiteRule::Walk { dir, to: Some(name) } => {
                let walk = Walk { dir, to: Some(name.clone()) };
                self.step_there(&upstream, context, walk, done);
            }
            // The directory above may be of this site, although the directory is not.
            SiteRule::Walk { dir, to: None } => match self.parts.shard.step_up(dir) {
                Ok(stepped) => self.complete_step(context, stepped, done),
                Err(error) if error.code == Code::Elsewhere => {
                    self.step_up_there(context, dir, done);
                }
                Err(error) => done(Err(error)),
            },
            SiteRule::MakeDir { dir, name, mode } => {
                let name = name.clone();
                let made = DirThere { upstream, context: *context, dir, name, mode };
                match self.may_be_repeated(context) {
                    true => self.make_dir_again(made, done),
                    false => self.make_dir_there(made, done),
                }
            }
            SiteRule::RemoveDir { dir, name } => {
                let name = name.clone();
                self.remove_dir_there(upstream, *context, dir, name, done);
            }
            // The router sends only the last one to another site.
            SiteRule::FromSite
            | SiteRule::RemoveNamedDir { .. }
            | SiteRule::ReclaimLock(_)
            | SiteRule::AtHome => {
                let done = self.ends_open_there(&upstream, context.session, &request, done);
                let may_be_repeated = self.may_be_repeated(context);
                upstream.pass_on(context, request, bulk, may_be_repeated, done);
            }
        }
    }

    /// Returns a callback that calls `done`, and ends the open that a request has made at another
    /// site if its session has ended meanwhile.
    pub(super) fn ends_open_there(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        session: SessionId,
        request: &Request,
        done: Done,
    ) -> Done {
        if session == SessionId::DIRECT || request.opens().made().is_none() {
            return done;
        }
        let this = Arc::clone(self);
        let upstream = Arc::clone(upstream);
        Box::new(move |result| {
            if !this.others.has(session) {
                upstream.end_session(session);
            }
            done(result);
        })
    }

    /// Decides whether a request is sent to another site.
    ///
    /// # Errors
    /// `ReadOnly`; `Io` for a change that was answered, and may be lost; as
    /// [`Sites::upstream`](crate::sites::Sites::upstream).
    pub(super) fn admit_there(
        &self,
        site: u16,
        context: &Context,
        request: &Request,
    ) -> Result<Arc<Upstream>, Error> {
        if let Effect::Change { .. } = request.describe().effect {
            if self.parts.served.read_only {
                return Err(Code::ReadOnly.into());
            }
            if context.replayed.is_some() {
                return Err(Code::Io.into());
            }
        }
        self.parts.sites.upstream(site)
    }

    /// Returns whether a client may have sent a change to an earlier run already.
    pub(super) fn may_be_repeated(&self, context: &Context) -> bool {
        let epoch = self.parts.shard.epoch();
        let is_of_earlier_run = context.session != SessionId::DIRECT
            && context.session.epoch() < epoch
            && !self.parts.sites.has_come_back(context.session, epoch);
        context.replayed.is_some() || is_of_earlier_run
    }
}

impl Executor<'_> {
    /// Records the address of the server of another site.
    pub(super) fn site_address(&self, address: &[u8]) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        self.parts.sites.set_address(peer, address)?;
        Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Untracked))
    }

    /// Tells another site's server the time here, and the version of this program.
    pub(super) fn clock(&self) -> OpResult {
        if self.parts.sites.of_session(self.context.session).is_none() {
            return Err(Error::from(Code::AccessDenied).into());
        }
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Reply::Clock { now: clock::now(), program }.into())
    }

    /// Gives a site's server its next token.
    pub(super) fn renew_token(&self, token: &SiteToken) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        let given = self.parts.sites.give_token(peer.site, *token)?;
        Ok(Outcome::WhenSafe(Reply::Token(given), ErrorReport::Untracked))
    }

    /// Records that a token is safe at the site of this session. A loss of power may lose that:
    /// then the one before is taken too.
    pub(super) fn keep_token(&self, token: &SiteToken) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        self.parts.sites.keep_token(peer.site, *token)?;
        Ok(Reply::Done.into())
    }

    /// Takes over the list of the sites.
    pub(super) fn site_list(&self, text: &[u8]) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        self.parts.sites.take_list(peer, text)?;
        Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Untracked))
    }

    /// Records that the site of this session leaves the volume.
    pub(super) fn leave_site(&self) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        self.parts.sites.site_leaves(peer)?;
        Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Undecided))
    }
}
