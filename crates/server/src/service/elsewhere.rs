//! Requests for nodes whose home is another site: sent there, and answered when the other site has
//! answered.
//!
//! A lookup or a new directory concerns both sites: the name is a row at the home of the directory,
//! the attributes are at the home of the node. It is carried out as requests to one site after the
//! other. If the other site does not answer, the request fails; rows that it has made here stay as
//! a directory without a name, which is harmless.

use std::sync::Arc;

use pelago_meta::shard::{Inherited, NewInode, Stepped};
use pelago_store::clock;
use pelago_wire::xattr::ACL_DEFAULT;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Effect, Entry, Error, Handle, InodeId, Name, NewMode, Reply,
    Request, SessionId,
};

use super::execute::Executor;
use super::{Dispatcher, ErrorReport, OpResult, Outcome, Submission};
use crate::completion::deliver;
use crate::pool::{Caller, Invocation};
use crate::router::{self, Origin, Route, SiteRule};
use crate::upstream::Upstream;

/// A directory that is made here, and gets its name at another site.
struct DirThere {
    upstream: Arc<Upstream>,
    context: Context,
    dir: Handle,
    name: Name,
    mode: NewMode,
}

/// A walk from a directory to the node at a name, or to the directory above for `None`.
#[derive(Clone)]
struct Walk {
    dir: Handle,
    to: Option<Name>,
}

impl Dispatcher {
    /// Carries out a request in a volume of several sites, at the home of what it names.
    #[cold]
    pub(super) fn dispatch_to_home(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let session = context.session;
        if session != SessionId::DIRECT && !self.others.has(session) {
            // It has ended, and an open that it made there would stay open.
            return Some(Err(Code::Unavailable.into()));
        }
        let sites = &self.parts.sites;
        let origin = match sites.of_session(context.session) {
            Some(_) => Origin::Site,
            None => Origin::Client,
        };
        let home_of = |open| sites.home_of(context.session, open);
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
            SiteRule::Walk { .. }
            | SiteRule::FromSite
            | SiteRule::Lock(_)
            | SiteRule::MakeDir { .. }
            | SiteRule::AtHome => self.dispatch_local(context, submission),
        }
    }

    /// Carries out here a request that is this walk. If it leads to a node of another site, that
    /// site is asked for the attributes.
    fn walk_from_here(
        self: &Arc<Self>,
        context: &Context,
        walk: Walk,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let Submission { request, bulk, later } = submission;
        let mut follow_later = || -> Done {
            let this = Arc::clone(self);
            let context = *context;
            let walk = walk.clone();
            let done = later();
            Box::new(move |result| match result {
                Err(error) if error.code == Code::Elsewhere => this.follow(&context, &walk, done),
                result => done(result),
            })
        };
        let submission = Submission { request, bulk, later: &mut follow_later };
        match self.dispatch_local(context, submission)? {
            Err(error) if error.code == Code::Elsewhere => {
                self.follow(context, &walk, later());
                None
            }
            result => Some(result),
        }
    }

    /// Continues a walk that leads out of this site.
    fn follow(self: &Arc<Self>, context: &Context, walk: &Walk, done: Done) {
        if let Some(name) = &walk.to {
            return match self.parts.shard.step(walk.dir, name) {
                Ok(stepped) => self.complete_step(context, stepped, done),
                Err(error) => done(Err(error)),
            };
        }
        // The name of a directory of this site is at another one.
        let Some(site) = self.parts.sites.joined().first().copied() else {
            return done(Err(Code::Stale.into()));
        };
        match self.parts.sites.upstream(site) {
            Ok(upstream) => self.step_there(&upstream, context, walk.clone(), done),
            Err(error) => done(Err(error)),
        }
    }

    /// Answers with the node to which a step has led. If its attributes are missing, its home is
    /// asked for them.
    fn complete_step(self: &Arc<Self>, context: &Context, stepped: Stepped, done: Done) {
        let Stepped { node, attr } = stepped;
        if let Some(attr) = attr {
            return done(Ok(Reply::Entry(Entry { handle: node, attr })));
        }
        let with_attr: Done = Box::new(move |result| {
            done(match result {
                Ok(Reply::Attr(attr)) => Ok(Reply::Entry(Entry { handle: node, attr })),
                Ok(_) => Err(Code::Bug.into()),
                Err(error) => Err(error),
            });
        });
        let request = Request::GetAttr { node };
        let bulk = Bulk::None;
        match node.ino.site() == self.parts.sites.own() {
            true => deliver(with_attr, |later| {
                self.dispatch_local(context, Submission { request, bulk, later })
            }),
            false => self.dispatch_remote(node.ino.site(), context, request, bulk, with_attr),
        }
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
        let upstream = match self.admit_there(site, context, &request) {
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
                    self.step_there(&upstream, context, Walk { dir, to: None }, done);
                }
                Err(error) => done(Err(error)),
            },
            SiteRule::MakeDir { dir, name, mode } => {
                let name = name.clone();
                let made = DirThere { upstream, context: *context, dir, name, mode };
                self.make_dir_there(made, done);
            }
            // The router never sends the first two to another site.
            SiteRule::FromSite | SiteRule::Lock(_) | SiteRule::AtHome => {
                let done = self.ends_open_there(&upstream, context.session, &request, done);
                upstream.ask(context, request, bulk, done);
            }
        }
    }

    /// Returns a callback that calls `done`, and ends the open that a request has made at another
    /// site if its session has ended meanwhile.
    fn ends_open_there(
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
    /// `ReadOnly`; `Io` for a change that an earlier run may have sent already; as
    /// [`Sites::upstream`](crate::sites::Sites::upstream).
    fn admit_there(
        &self,
        site: u16,
        context: &Context,
        request: &Request,
    ) -> Result<Arc<Upstream>, Error> {
        if let Effect::Change { .. } = request.describe().effect {
            if self.parts.served.read_only {
                return Err(Code::ReadOnly.into());
            }
            let epoch = self.parts.shard.epoch();
            let may_be_repeated = context.session != SessionId::DIRECT
                && context.session.epoch() < epoch
                && !self.parts.sites.has_come_back(context.session, epoch);
            if context.replayed.is_some() || may_be_repeated {
                // The other site may have carried it out: it is sent once, or never.
                return Err(Code::Io.into());
            }
        }
        self.parts.sites.upstream(site)
    }

    /// Has another site take the step of a walk.
    fn step_there(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        context: &Context,
        walk: Walk,
        done: Done,
    ) {
        let this = Arc::clone(self);
        let asker = *context;
        let stepped: Done = Box::new(move |result| match result {
            Ok(Reply::Stepped { node, attr }) => {
                let attr = attr.map(|attr| Attr { volatile: true, ..attr });
                this.complete_step(&asker, Stepped { node, attr }, done);
            }
            Ok(_) => done(Err(Code::Bug.into())),
            // Neither site has the name: it is being removed.
            Err(error) if error.code == Code::Elsewhere => done(Err(Code::Stale.into())),
            Err(error) => done(Err(error)),
        });
        let Walk { dir, to } = walk;
        upstream.ask(context, Request::Step { dir, to }, Bulk::None, stepped);
    }

    /// Makes a directory whose name will be at another site. Its rows are safe here before that
    /// site is asked to add the name: a crash leaves a directory without a name, and never a name
    /// without a directory.
    fn make_dir_there(self: &Arc<Self>, made: DirThere, done: Done) {
        let this = Arc::clone(self);
        let upstream = Arc::clone(&made.upstream);
        let ask = Request::GetAttr { node: made.dir };
        let context = made.context;
        let parent: Done = Box::new(move |result| match result {
            Ok(Reply::Attr(parent)) => this.inherit_there(made, parent, done),
            Ok(_) => done(Err(Code::Bug.into())),
            Err(error) => done(Err(error)),
        });
        upstream.ask(&context, ask, Bulk::None, parent);
    }

    /// Reads the default ACL that the directory inherits, and goes on.
    fn inherit_there(self: &Arc<Self>, made: DirThere, parent: Attr, done: Done) {
        let this = Arc::clone(self);
        let upstream = Arc::clone(&made.upstream);
        let ask = Request::GetXattr { node: made.dir, name: ACL_DEFAULT.to_vec() };
        let context = made.context;
        let list: Done = Box::new(move |result| {
            let default_acl = match result {
                Ok(Reply::Bytes(bytes)) => Some(bytes),
                Err(error) if error.code == Code::NoXattr => None,
                Ok(_) => return done(Err(Code::Bug.into())),
                Err(error) => return done(Err(error)),
            };
            this.make_and_name(made, Inherited { parent, default_acl }, done);
        });
        upstream.ask(&context, ask, Bulk::None, list);
    }

    /// Makes the directory here, and has it named once it is safe.
    fn make_and_name(self: &Arc<Self>, made: DirThere, inherited: Inherited, done: Done) {
        let this = Arc::clone(self);
        let caller = Caller::from(&made.context);
        let job = move |invocation| match invocation {
            Invocation::Run => {
                let durability = &this.parts.durability;
                let invalidations = durability.invalidations();
                let new = NewInode::directory(made.mode);
                let shard = &this.parts.shard;
                let entry = this.parts.space.admit().and_then(|()| {
                    shard.make_nameless_dir(&made.context, new, &inherited, clock::now())
                });
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => return done(Err(error)),
                };
                let named = Arc::clone(&this);
                let when_safe = move |safe: Result<(), Error>| match safe {
                    Ok(()) => named.name_there(made, entry, done),
                    Err(error) => done(Err(error)),
                };
                durability.when_safe(durability.done(), invalidations, Box::new(when_safe));
            }
            Invocation::Cancelled => done(Err(Code::Unavailable.into())),
        };
        self.parts.pool.submit(caller, Box::new(job));
    }

    /// Has the other site add the name, and answers. The directory is discarded if that site says
    /// that it has not added the name.
    fn name_there(self: &Arc<Self>, made: DirThere, entry: Entry, done: Done) {
        let this = Arc::clone(self);
        let DirThere { upstream, context, dir, name, .. } = made;
        let ask = Request::AddDir { dir, name, made: entry.attr.ino };
        let named: Done = Box::new(move |result| {
            let Err(error) = result else { return done(Ok(Reply::Entry(entry))) };
            // These errors come from the other site itself, which has not added the name. After any
            // other error it may have the name, which must not lead nowhere.
            let has_no_name = matches!(
                error.code,
                Code::Exists
                    | Code::NotDirectory
                    | Code::Stale
                    | Code::Invalid
                    | Code::NoSpace
                    | Code::ReadOnly
            );
            if has_no_name
                && let Err(error) =
                    this.parts.shard.discard_nameless_dir(entry.handle, clock::now())
            {
                tracing::info!(%error, ino = %entry.attr.ino, "a directory stays without a name");
            }
            done(Err(error));
        });
        upstream.ask(&context, ask, Bulk::None, named);
    }
}

impl Executor<'_> {
    /// Looks up a name, or the directory above another one, for the server of another site.
    pub(super) fn step(&self, dir: Handle, to: Option<&Name>) -> OpResult {
        self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        let shard = &self.parts.shard;
        let Stepped { node, attr } = match to {
            Some(name) => shard.step(dir, name)?,
            None => shard.step_up(dir)?,
        };
        Ok(Reply::Stepped { node, attr }.into())
    }

    /// Gives a name to a directory of another site.
    pub(super) fn add_dir(&self, dir: Handle, name: &Name, made: InodeId) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        if made.site() != peer.site {
            return Err(Code::Invalid.into());
        }
        let now = clock::of_request(self.context);
        self.parts.shard.add_dir(self.context, dir, name, made, now)?;
        Ok(Reply::Done.into())
    }

    /// Records the address of the server of another site.
    pub(super) fn site_address(&self, address: &[u8]) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        self.parts.sites.set_address(peer, address)?;
        Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Untracked))
    }
}
