//! Directories that are removed, and whose names are at another site than their rows.
//!
//! The home of the directory leads. It closes the directory if that is empty, has the other site
//! remove the name, and removes the rows. Whoever asks the site of the name is sent on to the home.
//! If the other site does not answer, the directory stays closed until that site says whether the
//! name is gone ([`super::finish`]).

use std::sync::Arc;

use pelago_meta::shard::NameThere;
use pelago_store::clock;
use pelago_store::rows::{IntentChange, IntentRow};
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Error, FileKind, Handle, InodeId, Name, Reply, Request,
    SitePeer,
};

use super::super::execute::Executor;
use super::super::{Dispatcher, ErrorReport, OpResult, Outcome, Submission};
use super::make_dir::is_refusal;
use crate::completion::deliver;
use crate::pool::{Caller, Invocation};
use crate::upstream::Upstream;

/// A directory of this site that is to be removed, with its name at another site.
pub(super) struct NamedDir {
    pub(super) context: Context,
    pub(super) dir: Handle,
    pub(super) at: NameThere,
}

impl Dispatcher {
    /// Removes a directory whose name is here, for a client of this site. If its rows are at
    /// another site, that is asked.
    pub(super) fn remove_dir_by_name(
        self: &Arc<Self>,
        context: &Context,
        dir: Handle,
        name: Name,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let Submission { request, bulk, later } = submission;
        let mut removed_later = || -> Done {
            let this = Arc::clone(self);
            let context = *context;
            let name = name.clone();
            let done = later();
            Box::new(move |result| match result {
                Err(error) if error.code == Code::Elsewhere => {
                    this.remove_at_home(&context, dir, name, done);
                }
                result => done(result),
            })
        };
        let submission = Submission { request, bulk, later: &mut removed_later };
        match self.dispatch_local(context, submission)? {
            Err(error) if error.code == Code::Elsewhere => {
                self.remove_at_home(context, dir, name, later());
                None
            }
            result => Some(result),
        }
    }

    /// Has the home of a directory remove it, whose name is here.
    fn remove_at_home(self: &Arc<Self>, context: &Context, parent: Handle, name: Name, done: Done) {
        let node = match self.parts.shard.step(parent, &name) {
            Ok(stepped) if stepped.attr.is_none() => stepped.node,
            // The name leads to another node by now.
            Ok(_) => return done(Err(Code::Busy.into())),
            Err(error) => return done(Err(error)),
        };
        let upstream = match self.parts.sites.upstream(node.ino.site()) {
            Ok(upstream) => upstream,
            Err(error) => return done(Err(error)),
        };
        let this = Arc::clone(self);
        let parent = parent.ino;
        let ask = Request::RemoveNamedDir { dir: node, parent, name: name.clone() };
        let removed: Done = Box::new(move |result| match result {
            // An earlier attempt, whose answer was lost, has removed it.
            Err(error) if error.code == Code::Stale && !this.leads_to(parent, &name, node.ino) => {
                let attr = Attr { links: 0, ..Attr::empty(node.ino, FileKind::Directory) };
                done(Ok(Reply::Removed(attr)));
            }
            result => done(result),
        });
        upstream.ask(context, ask, Bulk::None, removed);
    }

    fn leads_to(&self, parent: InodeId, name: &Name, node: InodeId) -> bool {
        let found = self.parts.shard.step(Handle::own(parent), name);
        found.is_ok_and(|stepped| stepped.node.ino == node)
    }

    /// Removes a directory whose name is at another site, for a client of this one.
    pub(super) fn remove_dir_there(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        context: Context,
        parent: Handle,
        name: Name,
        done: Done,
    ) {
        let this = Arc::clone(self);
        let step = Request::Step { dir: parent, to: Some(name.clone()) };
        let there = Arc::clone(&upstream);
        let stepped: Done = Box::new(move |result| match result {
            Ok(Reply::Stepped { node, .. }) if node.ino.site() == this.parts.sites.own() => {
                let at = NameThere { parent: parent.ino, name };
                this.remove_named_dir(NamedDir { context, dir: node, at }, done);
            }
            Ok(Reply::Stepped { .. }) => {
                let removed: Done = Box::new(move |result| match result {
                    // The name leads to another directory by now.
                    Err(error) if error.code == Code::Elsewhere => done(Err(Code::Busy.into())),
                    result => done(result),
                });
                let remove = Request::RemoveDir { dir: parent, name };
                there.ask(&context, remove, Bulk::None, removed);
            }
            Ok(_) => done(Err(Code::Bug.into())),
            Err(error) => done(Err(error)),
        });
        upstream.ask(&context, step, Bulk::None, stepped);
    }

    /// Removes a directory of this site whose name is at another one: closes it, and goes on once
    /// that is safe.
    pub(super) fn remove_named_dir(self: &Arc<Self>, named: NamedDir, done: Done) {
        let this = Arc::clone(self);
        let context = named.context;
        let NamedDir { dir, ref at, .. } = named;
        let close = Request::RemoveNamedDir { dir, parent: at.parent, name: at.name.clone() };
        let closed: Done = Box::new(move |result| match result {
            Ok(_) => this.drop_name(named, done),
            Err(error) => done(Err(error)),
        });
        deliver(closed, |later| {
            let submission = Submission { request: close, bulk: Bulk::None, later };
            self.dispatch_local(&context, submission)
        });
    }

    /// Has the other site remove the name of a closed directory, and then removes the directory; or
    /// opens it again if it keeps its name.
    fn drop_name(self: &Arc<Self>, named: NamedDir, done: Done) {
        let this = Arc::clone(self);
        let NamedDir { context, dir, at } = named;
        let ino = dir.ino;
        let upstream = match self.parts.sites.upstream(at.parent.site()) {
            Ok(upstream) => upstream,
            Err(error) => return self.open_again(ino, error, done),
        };
        let NameThere { parent, name } = at;
        let ask = Request::DropDir { dir: Handle::own(parent), name: name.clone(), removed: ino };
        let dropped: Done = Box::new(move |result| match result {
            Ok(_) => this.remove_nameless(ino, Ok(()), done),
            Err(error) if is_refusal(error.code) => this.open_again(ino, error, done),
            Err(error) => {
                // The name may be gone.
                let row = IntentRow { change: IntentChange::Remove, parent, name };
                this.finish_later(ino, row);
                done(Err(error));
            }
        });
        upstream.ask(&context, ask, Bulk::None, dropped);
    }

    /// Removes a directory of this site that has no name at any site, and answers: with this error,
    /// or that it is removed.
    pub(super) fn remove_nameless(
        self: &Arc<Self>,
        dir: InodeId,
        answer: Result<(), Error>,
        done: Done,
    ) {
        let this = Arc::clone(self);
        self.in_pool(move |invocation| {
            if invocation == Invocation::Cancelled {
                return done(Err(Code::Unavailable.into()));
            }
            let removed = this.parts.shard.remove_nameless_dir(dir, clock::now());
            if let Err(error) = &removed {
                tracing::warn!(%error, ino = %dir, "a directory stays without a name");
            }
            (this.parts.notify_orphans)();
            done(answer.and_then(|()| removed.map(Reply::Removed)));
        });
    }

    /// Opens a closed directory again, which keeps its name, and answers with this error.
    fn open_again(self: &Arc<Self>, dir: InodeId, answer: Error, done: Done) {
        let this = Arc::clone(self);
        self.in_pool(move |invocation| {
            if invocation == Invocation::Run
                && let Err(error) = this.parts.shard.open_dir_again(dir)
            {
                tracing::warn!(%error, ino = %dir, "a directory stays closed until the next start");
            }
            done(Err(answer));
        });
    }

    /// Has a job that may wait for the disk run on a thread of the pool.
    pub(super) fn in_pool(&self, job: impl FnOnce(Invocation) + Send + 'static) {
        self.parts.pool.submit(Caller::from(&Context::direct(0, 0)), Box::new(job));
    }
}

impl Executor<'_> {
    /// Closes a directory that is to lose its name at another site.
    pub(in crate::service) fn close_dir(
        &self,
        dir: Handle,
        parent: InodeId,
        name: &Name,
    ) -> OpResult {
        // In a volume of several sites, the router admits the servers of other sites alone.
        if self.parts.sites.is_alone() {
            return Err(Error::from(Code::AccessDenied).into());
        }
        let at = NameThere { parent, name: name.clone() };
        let attr = self.parts.shard.close_dir(dir, &at, clock::of_request(self.context))?;
        Ok(Outcome::WhenSafe(Reply::Removed(attr), ErrorReport::Untracked))
    }

    /// Removes the name of a directory that another site is removing.
    pub(in crate::service) fn drop_dir(
        &self,
        dir: Handle,
        name: &Name,
        removed: InodeId,
    ) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        if removed.site() != peer.site {
            return Err(Error::from(Code::Invalid).into());
        }
        let now = clock::of_request(self.context);
        let dropped = self.parts.shard.drop_dir(self.context, dir, name, removed, now);
        self.when_safe_for_site(peer, dropped)
    }

    /// Answers a site's request for its part of a change once that is safe. The site acts on an
    /// error as on one that lasts, so there is none while an earlier session of it may still carry
    /// the same request out.
    pub(super) fn when_safe_for_site(&self, peer: SitePeer, done: Result<(), Error>) -> OpResult {
        match done {
            Ok(()) => Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Untracked)),
            Err(_) if self.parts.sites.has_earlier_session(self.context.session, peer) => {
                Err(Error::from(Code::Busy).into())
            }
            Err(error) => Err(error.into()),
        }
    }
}
