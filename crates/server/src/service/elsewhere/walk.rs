//! Lookups whose steps are taken at two sites: the name is a row at the home of the directory, the
//! attributes are at the home of the node.

use std::sync::Arc;

use pelago_meta::shard::Stepped;
use pelago_wire::{Attr, Bulk, Code, Context, Done, Entry, Error, Handle, Name, Reply, Request};

use super::super::execute::Executor;
use super::super::{Dispatcher, OpResult, Submission};
use crate::completion::deliver;
use crate::upstream::Upstream;

/// A walk from a directory to the node at a name, or to the directory above for `None`.
#[derive(Clone)]
pub(super) struct Walk {
    pub(super) dir: Handle,
    pub(super) to: Option<Name>,
}

impl Dispatcher {
    /// Carries out here a request that is this walk. If it leads to a node of another site, that
    /// site is asked for the attributes.
    pub(super) fn walk_from_here(
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
            let lookup = Request::Lookup { dir: walk.dir, name: name.clone() };
            let done = self.learning(&lookup, done);
            return match self.parts.shard.step(walk.dir, name) {
                Ok(stepped) => self.complete_step(context, stepped, done),
                Err(error) => done(Err(error)),
            };
        }
        // The name of a directory of this site is at another one.
        let Some(site) = self.parts.sites.joined().first().copied() else {
            return done(Err(Code::Stale.into()));
        };
        let upstream = self.parts.sites.upstream(site);
        let parent = Request::Parent { dir: walk.dir };
        let Some(done) = self.recalling(&upstream, context, &parent, done) else { return };
        match upstream {
            Ok(upstream) => self.step_there(&upstream, context, walk.clone(), done),
            Err(error) => done(Err(error)),
        }
    }

    /// Answers with the node to which a step has led. If its attributes are missing, its home is
    /// asked for them.
    pub(super) fn complete_step(self: &Arc<Self>, context: &Context, stepped: Stepped, done: Done) {
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

    /// Has another site take the step of a walk.
    pub(super) fn step_there(
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
}

impl Executor<'_> {
    /// Looks up a name, or the directory above another one, for the server of another site.
    pub(in crate::service) fn step(&self, dir: Handle, to: Option<&Name>) -> OpResult {
        self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        let shard = &self.parts.shard;
        let Stepped { node, attr } = match to {
            Some(name) => shard.step(dir, name)?,
            None => shard.step_up(dir)?,
        };
        Ok(Reply::Stepped { node, attr }.into())
    }
}
