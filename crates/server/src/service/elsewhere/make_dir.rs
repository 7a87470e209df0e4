//! Directories that are made here and named at another site.
//!
//! If the other site does not answer, the request fails, and the rows that it has made here stay as
//! a directory without a name, which is harmless.

use std::sync::Arc;

use pelago_meta::shard::{Inherited, NewInode};
use pelago_store::clock;
use pelago_wire::xattr::ACL_DEFAULT;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Entry, Error, Handle, InodeId, Name, NewMode, Reply, Request,
};

use super::super::execute::Executor;
use super::super::{Dispatcher, OpResult};
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
    /// Gives a name to a directory of another site.
    pub(in crate::service) fn add_dir(&self, dir: Handle, name: &Name, made: InodeId) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        if made.site() != peer.site {
            return Err(Code::Invalid.into());
        }
        let now = clock::of_request(self.context);
        self.parts.shard.add_dir(self.context, dir, name, made, now)?;
        Ok(Reply::Done.into())
    }
}
