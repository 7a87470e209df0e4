//! Requests for what has its home at another site: sent there, and answered when that has.

use std::sync::Arc;

use pelago_data::{MayBlock, OpError};
use pelago_meta::shard::{Inherited, NewInode, Stepped};
use pelago_store::clock;
use pelago_wire::xattr::ACL_DEFAULT;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Effect, Entry, Error, Handle, Name, NewMode, Reply, Request,
    SessionId,
};

use super::execute::Executor;
use super::{Dispatcher, ErrorReport, OpResult, Outcome};
use crate::pool::{Caller, Invocation};
use crate::router::{self, AskedBy, Route};
use crate::upstream::Upstream;

/// A directory that is made here, and gets its name at another site.
struct DirThere {
    upstream: Arc<Upstream>,
    context: Context,
    dir: Handle,
    name: Name,
    mode: NewMode,
}

impl Dispatcher {
    /// Carries out a request in a volume of several sites, here or at another one.
    #[cold]
    pub(super) fn ask_among_sites(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let session = context.session;
        if session != SessionId::DIRECT && !self.others.has(session) {
            // It has ended: what it would open there would stay open.
            return Some(Err(Code::Unavailable.into()));
        }
        let sites = &self.parts.sites;
        let by = match sites.of_session(context.session) {
            Some(_) => AskedBy::Site,
            None => AskedBy::Client,
        };
        let home_of = |open| sites.home_of(context.session, open);
        match router::route(sites.own(), by, &request, home_of) {
            Route::Refused(code) => return Some(Err(code.into())),
            Route::There(site) => {
                self.forward(site, context, request, bulk, later());
                return None;
            }
            Route::Here => {}
        }
        // What these find may have its home at the other site; a site asks for that by a step.
        let may_lead_out = matches!(request, Request::Lookup { .. } | Request::Parent { .. });
        match may_lead_out && by == AskedBy::Client {
            true => self.ask_and_follow(context, request, later),
            false => self.ask_as_session(context, request, bulk, later),
        }
    }

    /// Looks a name or a directory above another one up here. If what is found has its home at
    /// another site, that is asked for its attributes.
    fn ask_and_follow(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let asked = request.clone();
        let mut follow_later = || -> Done {
            let this = Arc::clone(self);
            let context = *context;
            let asked = asked.clone();
            let done = later();
            Box::new(move |result| match result {
                Err(error) if error.code == Code::Elsewhere => this.follow(&context, &asked, done),
                result => done(result),
            })
        };
        match self.ask_as_session(context, request, Bulk::None, &mut follow_later)? {
            Err(error) if error.code == Code::Elsewhere => {
                self.follow(context, &asked, later());
                None
            }
            result => Some(result),
        }
    }

    fn follow(self: &Arc<Self>, context: &Context, asked: &Request, done: Done) {
        match asked {
            Request::Lookup { dir, name } => match self.parts.shard.step(*dir, name) {
                Ok(stepped) => self.complete_step(context, stepped, done),
                Err(error) => done(Err(error)),
            },
            // The name of a directory of ours is at another site.
            Request::Parent { dir } => match self.parts.sites.joined().first() {
                Some(site) => {
                    let step = Request::Step { dir: *dir, to: None };
                    self.forward(*site, context, step, Bulk::None, done);
                }
                None => done(Err(Code::Stale.into())),
            },
            _ => done(Err(Code::Bug.into())),
        }
    }

    /// Answers with what a step has led to; its home is asked for the attributes if they are
    /// missing.
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
        let ask = Request::GetAttr { node };
        match node.ino.site() == self.parts.sites.own() {
            true => {
                let mut with_attr = Some(with_attr);
                let mut later = || with_attr.take().expect("a service asks for one callback");
                let now = self.ask_as_session(context, ask, Bulk::None, &mut later);
                if let (Some(result), Some(with_attr)) = (now, with_attr) {
                    with_attr(result);
                }
            }
            false => self.forward(node.ino.site(), context, ask, Bulk::None, with_attr),
        }
    }

    /// Sends a request to another site.
    fn forward(
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
        match request {
            Request::Lookup { dir, name } => {
                self.step_there(&upstream, context, Request::Step { dir, to: Some(name) }, done);
            }
            Request::Parent { dir } => match self.parts.shard.step_up(dir) {
                Ok(stepped) => self.complete_step(context, stepped, done),
                Err(error) if error.code == Code::Elsewhere => {
                    self.step_there(&upstream, context, Request::Step { dir, to: None }, done);
                }
                Err(error) => done(Err(error)),
            },
            step @ Request::Step { .. } => self.step_there(&upstream, context, step, done),
            Request::MakeDir { dir, name, mode } => {
                let made = DirThere { upstream, context: *context, dir, name, mode };
                self.make_dir_there(made, done);
            }
            request => {
                let done = self.ends_open_there(&upstream, context.session, &request, done);
                upstream.ask(context, request, bulk, done);
            }
        }
    }

    /// Returns a callback that ends the open which a request has made at another site, if its
    /// session has ended meanwhile.
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
                // It is not known whether the other site has done it: it is asked once, or never.
                return Err(Code::Io.into());
            }
        }
        self.parts.sites.upstream(site)
    }

    fn step_there(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        context: &Context,
        step: Request,
        done: Done,
    ) {
        let this = Arc::clone(self);
        let asked_by = *context;
        let stepped: Done = Box::new(move |result| match result {
            Ok(Reply::Stepped { node, attr }) => {
                let attr = attr.map(|attr| Attr { volatile: true, ..attr });
                this.complete_step(&asked_by, Stepped { node, attr }, done);
            }
            Ok(_) => done(Err(Code::Bug.into())),
            // Neither site has the name: it is being removed.
            Err(error) if error.code == Code::Elsewhere => done(Err(Code::Stale.into())),
            Err(error) => done(Err(error)),
        });
        upstream.ask(context, step, Bulk::None, stepped);
    }

    /// Makes a directory whose name will be at another site. Its rows are safe here before the name
    /// is asked for: a crash leaves a directory without a name, and never a name without a
    /// directory.
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

    fn name_there(self: &Arc<Self>, made: DirThere, entry: Entry, done: Done) {
        let this = Arc::clone(self);
        let DirThere { upstream, context, dir, name, .. } = made;
        let ask = Request::AddDir { dir, name, made: entry.attr.ino };
        let named: Done = Box::new(move |result| {
            let Err(error) = result else { return done(Ok(Reply::Entry(entry))) };
            // Only what the other site itself says of a name that it has not made. After any other
            // error it may have the name, which must not lead nowhere.
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
    /// Looks a name, or the directory above one, up for the server of another site.
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
    pub(super) fn add_dir(&self, dir: Handle, name: &Name, made: pelago_wire::InodeId) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        if made.site() != peer.site {
            return Err(Code::Invalid.into());
        }
        let now = clock::of_request(self.context);
        self.parts.shard.add_dir(self.context, dir, name, made, now)?;
        Ok(Reply::Done.into())
    }

    /// Notes where the server of another site can be reached.
    pub(super) fn site_address(&self, address: &[u8]) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        self.parts.sites.set_address(peer, address)?;
        Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Untracked))
    }

    /// Returns the servers of the shared store, as they are there now: one may have joined just
    /// before the client, which must know it if this one is lost.
    pub(super) fn servers(&self) -> OpResult {
        let ownership = self.parts.ownership.as_ref().ok_or(Code::NotSupported)?;
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let read = ownership.read_addresses().map_err(|error| {
            tracing::warn!(%error, "cannot read the servers of the store");
            Code::Unavailable
        })?;
        Ok(Outcome::Reply(Reply::Servers(read)))
    }
}
