//! Directories that are made here and named at another site.
//!
//! If the other site does not answer, the request fails, and the name is added later
//! ([`super::finish`]) or, if it cannot be, the directory removed.

use std::sync::Arc;

use pelago_meta::reply_cache::RequestKey;
use pelago_meta::shard::{Inherited, NameThere, NewInode};
use pelago_store::clock;
use pelago_wire::xattr::ACL_DEFAULT;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Entry, Error, Handle, InodeId, Name, NewMode, Reply, Request,
};

use super::super::execute::Executor;
use super::super::{Dispatcher, OpResult};
use super::step::{is_refusal, not_cancelled, when_safe_for_site};
use crate::pool::{Caller, Invocation};
use crate::upstream::Upstream;

/// A directory that is made here, and gets its name at another site.
pub(super) struct DirThere {
    pub(super) upstream: Arc<Upstream>,
    pub(super) context: Context,
    pub(super) dir: Handle,
    pub(super) name: Name,
    pub(super) mode: NewMode,
}

impl Dispatcher {
    /// Makes a directory whose name will be at another site. Its rows are safe here before that
    /// site is asked to add the name: a crash leaves a directory without a name, and never a name
    /// without a directory.
    pub(super) fn make_dir_there(self: &Arc<Self>, made: DirThere, done: Done) {
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

    /// Makes a directory whose name will be at another site, for a client that repeats the request:
    /// an earlier run may have made it.
    pub(super) fn make_dir_again(self: &Arc<Self>, made: DirThere, done: Done) {
        let shard = &self.parts.shard;
        let stored = RequestKey::of(&made.context).map(|key| shard.cached_reply(&key)).transpose();
        let entry = match stored {
            // Its rows were not safe, so the other site was not asked.
            Ok(None | Some(None)) => return self.make_dir_there(made, done),
            Ok(Some(Some(Reply::Entry(entry)))) => entry,
            Ok(Some(Some(_))) => return done(Err(Code::Bug.into())),
            Err(error) => return done(Err(error)),
        };
        // What waits must not keep this server alive.
        let this = Arc::downgrade(self);
        let finished = move |is_finished: bool| {
            let this = this.upgrade().filter(|_| is_finished);
            done(match this.map(|this| this.attr_of(entry.handle)) {
                None => Err(Code::TimedOut.into()),
                Some(Ok(attr)) => Ok(Reply::Entry(Entry { attr, ..entry })),
                // It got no name, or has lost it since.
                Some(Err(_)) => Err(Code::Io.into()),
            });
        };
        self.when_finished(entry.attr.ino, Box::new(finished));
    }

    /// Returns the attributes of an own directory, for an answer about the past.
    fn attr_of(&self, dir: Handle) -> Result<Attr, Error> {
        let attr = self.parts.shard.attr(dir)?;
        Ok(Attr { volatile: true, ..attr })
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
                let stays = this.parts.sites.remains();
                let stays = stays.and_then(|stays| this.parts.space.admit().map(|()| stays));
                let entry = stays.and_then(|_stays| {
                    let place = made.place();
                    shard.make_nameless_dir(&made.context, new, &inherited, &place, clock::now())
                });
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => return done(Err(error)),
                };
                let named = Arc::clone(&this);
                let when_safe = move |safe: Result<(), Error>| match safe {
                    Ok(()) => named.name_there(made, entry, done),
                    Err(error) => {
                        // The rows may be there all the same.
                        named.finish_later(entry.attr.ino, made.dir.ino.site());
                        done(Err(error));
                    }
                };
                durability.when_safe(durability.done(), invalidations, Box::new(when_safe));
            }
            Invocation::Cancelled => done(Err(Code::Unavailable.into())),
        };
        self.parts.pool.submit(caller, Box::new(job));
    }

    /// Has the other site add the name, and answers. The directory is removed if that site says
    /// that it has not added the name.
    fn name_there(self: &Arc<Self>, made: DirThere, entry: Entry, done: Done) {
        let this = Arc::clone(self);
        let DirThere { upstream, context, dir, name, .. } = made;
        let ino = entry.attr.ino;
        let ask = Request::AddDir { dir, name, made: ino };
        let named: Done = Box::new(move |result| match result {
            // Before the answer: the directory may be removed after it.
            Ok(_) => this.end_making(ino, move || done(Ok(Reply::Entry(entry)))),
            Err(error) if is_refusal(error.code) => this.remove_nameless(ino, Err(error), done),
            Err(error) => {
                // It may have the name, which must not lead nowhere.
                this.finish_later(ino, dir.ino.site());
                done(Err(error));
            }
        });
        upstream.ask(&not_cancelled(&context), ask, Bulk::None, named);
    }
}

impl DirThere {
    /// Returns the place of its name.
    fn place(&self) -> NameThere {
        NameThere { parent: self.dir.ino, name: self.name.clone() }
    }
}

impl Executor<'_> {
    /// Gives a name to a directory of another site.
    pub(in crate::service) fn add_dir(&self, dir: Handle, name: &Name, made: InodeId) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        if made.site() != peer.site {
            return Err(Code::Invalid.into());
        }
        let now = clock::of_request(self.context);
        let has_earlier = self.parts.sites.has_earlier_session(self.context.session, peer);
        when_safe_for_site(
            has_earlier,
            self.parts.shard.add_dir(self.context, dir, name, made, now),
        )
    }
}
