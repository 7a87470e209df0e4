//! Directories that are removed, and whose names are at another site than their rows.
//!
//! The home of the directory leads. It closes the directory if that is empty, has the other site
//! remove the name, and removes the rows. A request to the site of the name is sent on to the home.
//! If the other site does not answer, the directory stays closed until that site says whether the
//! name is gone ([`super::finish`]).

use std::sync::Arc;

use pelago_meta::reply_cache::RequestKey;
use pelago_meta::shard::NameThere;
use pelago_store::clock;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Error, FileKind, Handle, InodeId, Name, Reply, Request,
};

use super::super::execute::Executor;
use super::super::{Dispatcher, ErrorReport, OpResult, Outcome, Parts, Submission};
use super::step::{is_refusal, not_cancelled, when_safe_for_site};
use crate::completion::deliver;
use crate::pool::{Caller, Invocation};
use crate::upstream::Upstream;

/// A directory of this site that is to be removed, with its name at another site.
pub(super) struct NamedDir {
    pub(super) context: Context,
    pub(super) dir: Handle,
    pub(super) at: NameThere,
    /// An earlier run of this server may have been asked the same.
    pub(super) may_be_repeated: bool,
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
        // Before the request waits for other sessions of the last run: its own one may have come
        // back when that is over, and then no request of it counts as repeated.
        if self.may_be_repeated(context) && !self.has_reply(context) {
            // An earlier run may have had its home remove it, and the name may lead to another
            // directory by now.
            return Some(Err(Code::Io.into()));
        }
        let mut removed_later = || -> Done {
            let this = Arc::clone(self);
            let context = *context;
            let name = name.clone();
            let done = later();
            Box::new(move |result| this.go_on_at_home(&context, dir, name, result, done))
        };
        let submission = Submission { request, bulk, later: &mut removed_later };
        let result = self.dispatch_local(context, submission)?;
        self.go_on_at_home(context, dir, name, result, later());
        None
    }

    /// Returns whether the reply to a request is stored here.
    fn has_reply(&self, context: &Context) -> bool {
        let key = RequestKey::of(context);
        key.is_some_and(|key| matches!(self.parts.shard.cached_reply(&key), Ok(Some(_))))
    }

    /// Answers the removal of a directory whose name is here, or has its home carry it out.
    fn go_on_at_home(
        self: &Arc<Self>,
        context: &Context,
        dir: Handle,
        name: Name,
        result: Result<Reply, Error>,
        done: Done,
    ) {
        match result {
            Err(Error { code: Code::Elsewhere }) => self.remove_at_home(context, dir, name, done),
            result => done(result),
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
        let this = Arc::clone(self);
        let asker = *context;
        let drop = Request::DropDir { dir: parent, name: name.clone(), removed: node.ino };
        let ask = Request::RemoveNamedDir { dir: node, parent: parent.ino, name };
        let removed: Done = Box::new(move |result| match result {
            // Its home has no such directory, and is the one to know: the name leads nowhere, or
            // another request has removed both meanwhile.
            Err(Error { code: Code::Stale }) => {
                let attr = Attr { links: 0, ..Attr::empty(node.ino, FileKind::Directory) };
                let dropped: Done =
                    Box::new(move |result| done(result.map(|_| Reply::Removed(attr))));
                deliver(dropped, |later| {
                    let submission = Submission { request: drop, bulk: Bulk::None, later };
                    this.dispatch_local(&asker, submission)
                });
            }
            result => done(result),
        });
        match self.parts.sites.upstream(node.ino.site()) {
            Ok(upstream) => upstream.ask(context, ask, Bulk::None, removed),
            Err(_) if self.parts.sites.is_gone(node.ino.site()) => removed(Err(Code::Stale.into())),
            Err(error) => removed(Err(error)),
        }
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
        if self.may_be_repeated(&context) {
            // Only what is known there to be done is answered: it is not carried out anew.
            let remove = Request::RemoveDir { dir: parent, name };
            return upstream.pass_on(&context, remove, Bulk::None, true, done);
        }
        let this = Arc::clone(self);
        let step = Request::Step { dir: parent, to: Some(name.clone()) };
        let there = Arc::clone(&upstream);
        let stepped: Done = Box::new(move |result| match result {
            Ok(Reply::Stepped { node, .. }) if node.ino.site() == this.parts.sites.own() => {
                let at = NameThere { parent: parent.ino, name };
                // A request that may be repeated is not sent to the site of the name.
                let named = NamedDir { context, dir: node, at, may_be_repeated: false };
                this.remove_named_dir(named, done);
            }
            Ok(Reply::Stepped { node, .. }) if node.ino.site() != parent.ino.site() => {
                this.remove_at_third(context, node, NameThere { parent: parent.ino, name }, done);
            }
            Ok(Reply::Stepped { .. }) => {
                let removed: Done = Box::new(move |result| match result {
                    // The name leads to another directory by now.
                    Err(error) if error.code == Code::Elsewhere => done(Err(Code::Busy.into())),
                    result => done(result),
                });
                let remove = Request::RemoveDir { dir: parent, name };
                there.pass_on(&context, remove, Bulk::None, false, removed);
            }
            Ok(_) => done(Err(Code::Bug.into())),
            Err(error) => done(Err(error)),
        });
        upstream.ask(&context, step, Bulk::None, stepped);
    }

    /// Has the home of a directory remove it, whose name is at another site, for a client of this
    /// one, which is neither of both.
    fn remove_at_third(&self, context: Context, dir: Handle, at: NameThere, done: Done) {
        let NameThere { parent, name } = at;
        match self.parts.sites.upstream(dir.ino.site()) {
            Ok(home) => {
                let ask = Request::RemoveNamedDir { dir, parent, name };
                home.ask(&context, ask, Bulk::None, done);
            }
            Err(error) => done(Err(error)),
        }
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
            // The last run may have begun the removal, and this one has finished it.
            Err(Error { code: Code::Stale }) if named.may_be_repeated => {
                done(Err(Code::Io.into()));
            }
            // There is no such directory: the name leads nowhere.
            Err(Error { code: Code::Stale }) => this.drop_stale_name(named, done),
            Err(error) => {
                if error.code == Code::Io {
                    // It may be closed all the same.
                    this.finish_later(named.dir.ino, named.at.parent.site());
                }
                done(Err(error));
            }
        });
        deliver(closed, |later| {
            let submission = Submission { request: close, bulk: Bulk::None, later };
            self.dispatch_local(&context, submission)
        });
    }

    /// Has the other site remove a name that leads to no directory of this one.
    fn drop_stale_name(self: &Arc<Self>, named: NamedDir, done: Done) {
        let NamedDir { context, dir, at: NameThere { parent, name }, .. } = named;
        let asking = self.parts.sites.of_session(context.session).map(|peer| peer.site);
        if asking == Some(parent.site()) {
            // It has the name itself, and removes it after this answer.
            return done(Err(Code::Stale.into()));
        }
        let upstream = match self.parts.sites.upstream(parent.site()) {
            Ok(upstream) => upstream,
            Err(error) => return done(Err(error)),
        };
        let ask = Request::DropDir { dir: Handle::own(parent), name, removed: dir.ino };
        let attr = Attr { links: 0, ..Attr::empty(dir.ino, FileKind::Directory) };
        let dropped: Done = Box::new(move |result| done(result.map(|_| Reply::Removed(attr))));
        upstream.ask(&context, ask, Bulk::None, dropped);
    }

    /// Has the other site remove the name of a closed directory, and then removes the directory; or
    /// opens it again if it keeps its name.
    fn drop_name(self: &Arc<Self>, named: NamedDir, done: Done) {
        let this = Arc::clone(self);
        let NamedDir { context, dir, at, .. } = named;
        let ino = dir.ino;
        let site = at.parent.site();
        let upstream = match self.parts.sites.upstream(site) {
            Ok(upstream) => upstream,
            Err(error) => return self.open_again(ino, site, error, done),
        };
        let NameThere { parent, name } = at;
        let ask = Request::DropDir { dir: Handle::own(parent), name, removed: ino };
        let dropped: Done = Box::new(move |result| match result {
            Ok(_) => this.remove_nameless(ino, Ok(()), done),
            Err(error) if is_refusal(error.code) => this.open_again(ino, site, error, done),
            Err(error) => {
                // The name may be gone.
                this.finish_later(ino, site);
                done(Err(error));
            }
        });
        upstream.ask(&not_cancelled(&context), ask, Bulk::None, dropped);
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
            let Parts { shard, notify_orphans, durability, .. } = &this.parts;
            let invalidations = durability.invalidations();
            let removed = shard.remove_nameless_dir(dir, clock::now());
            match &removed {
                Ok(_) => this.leases.dir_removed(dir),
                Err(error) => {
                    tracing::warn!(%error, ino = %dir, "a directory stays without a name");
                }
            }
            notify_orphans();
            let Err(refusal) = answer else { return done(removed.map(Reply::Removed)) };
            // A loss of power would bring the directory back, and it would get its name after all.
            let is_gone = removed.is_ok();
            let answer = move |safe: Result<(), Error>| match safe {
                Ok(()) if is_gone => done(Err(refusal)),
                Ok(()) | Err(_) => done(Err(Code::Io.into())),
            };
            durability.when_safe(durability.done(), invalidations, Box::new(answer));
        });
    }

    /// Opens a closed directory again, which keeps its name, and answers with this error.
    fn open_again(self: &Arc<Self>, dir: InodeId, site: u16, answer: Error, done: Done) {
        let this = Arc::clone(self);
        self.in_pool(move |invocation| {
            if invocation == Invocation::Cancelled {
                return done(Err(answer));
            }
            let opened = Arc::clone(&this);
            this.open_when_safe(dir, move |is_open| {
                if !is_open {
                    opened.finish_later(dir, site);
                }
                done(Err(answer));
            });
        });
    }

    /// Deletes the record of a removal, opens the directory once that is safe, and calls `then`
    /// with whether it is open.
    pub(super) fn open_when_safe(
        self: &Arc<Self>,
        dir: InodeId,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let Parts { shard, durability, .. } = &self.parts;
        let invalidations = durability.invalidations();
        if let Err(error) = shard.forget_intent(dir) {
            tracing::warn!(%error, ino = %dir, "a directory stays closed");
            return then(false);
        }
        let this = Arc::clone(self);
        let opened = move |safe: Result<(), Error>| {
            if safe.is_ok() {
                this.parts.shard.open_dir(dir);
            }
            then(safe.is_ok());
        };
        durability.when_safe(durability.done(), invalidations, Box::new(opened));
    }

    /// Has a job that may wait for the disk run on a thread of the pool.
    pub(in crate::service) fn in_pool(&self, job: impl FnOnce(Invocation) + Send + 'static) {
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
        Ok(Outcome::WhenSafe(Reply::Removed(attr), ErrorReport::Undecided))
    }

    /// Removes the name of a directory that another site is removing.
    pub(in crate::service) fn drop_dir(
        &self,
        dir: Handle,
        name: &Name,
        removed: InodeId,
    ) -> OpResult {
        let Self { parts, context, .. } = self;
        // In a volume of several sites, the router admits the servers of other sites alone, and
        // this server itself.
        if parts.sites.is_alone() {
            return Err(Error::from(Code::AccessDenied).into());
        }
        let peer = parts.sites.of_session(context.session);
        if peer.is_some_and(|peer| removed.site() != peer.site) {
            return Err(Error::from(Code::Invalid).into());
        }
        let has_earlier =
            peer.is_some_and(|peer| parts.sites.has_earlier_session(context.session, peer));
        let now = clock::of_request(context);
        when_safe_for_site(has_earlier, parts.shard.drop_dir(context, dir, name, removed, now))
    }
}
