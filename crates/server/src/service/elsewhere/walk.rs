//! Lookups whose steps are taken at two sites: the name is a row at the home of the directory, the
//! attributes are at the home of the node.

use std::collections::VecDeque;
use std::sync::Arc;

use pelago_meta::shard::Stepped;
use pelago_wire::{Attr, Bulk, Code, Context, Done, Entry, Error, Handle, Name, Reply, Request};

use super::super::execute::Executor;
use super::super::{Dispatcher, OpResult, Submission};
use super::ancestry::is_away;
use crate::completion::deliver;
use crate::router::{SiteRule, site_rule};
use crate::upstream::Upstream;

/// A walk from a directory to the node at a name, or to the directory above for `None`.
#[derive(Clone)]
pub(super) struct Walk {
    pub(super) dir: Handle,
    pub(super) to: Option<Name>,
}

/// The directory above another one, which is sought at other sites.
struct Sought {
    dir: Handle,
    /// The sites that are still to be asked.
    sites: VecDeque<u16>,
    /// The answer if none of them has the name.
    unless: Error,
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
        self.step_up_there(context, walk.dir, done);
    }

    /// Has other sites find the directory above one whose name is not here. The name is at the home
    /// of what is above, and never moves to another site.
    pub(super) fn step_up_there(self: &Arc<Self>, context: &Context, dir: Handle, done: Done) {
        let mut sites = self.parts.sites.joined();
        let last = self.parts.sites.chains.lock().parent(dir.ino).map(|above| above.site());
        sites.sort_by_key(|site| (Some(*site) != last, *site != dir.ino.site()));
        let sought = Sought { dir, sites: sites.into(), unless: Code::Stale.into() };
        self.step_up_at(context, sought, done);
    }

    /// Asks these sites one after another for the directory above, until one has the name.
    fn step_up_at(self: &Arc<Self>, context: &Context, mut sought: Sought, done: Done) {
        let Some(site) = sought.sites.pop_front() else { return done(Err(sought.unless)) };
        let upstream = self.parts.sites.upstream(site);
        let dir = sought.dir;
        let parent = Request::Parent { dir };
        let this = Arc::clone(self);
        let asker = *context;
        let is_last = sought.sites.is_empty();
        let found: Done = Box::new(move |result| match result {
            Err(error) if error.code == Code::Elsewhere => this.step_up_at(&asker, sought, done),
            // The name may be there. Another site may say that it has it.
            Err(error) if (is_away(&error) || is_refused(&error)) && !is_last => {
                this.step_up_at(&asker, Sought { unless: Code::HostDown.into(), ..sought }, done);
            }
            result => done(result),
        });
        let Some(found) = self.recalling(&upstream, context, &parent, found) else { return };
        match upstream {
            Ok(upstream) => self.step_once(&upstream, context, Walk { dir, to: None }, found),
            // It has left.
            Err(error) if error.code == Code::Stale => found(Err(Code::Elsewhere.into())),
            Err(error) => found(Err(error)),
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

    /// Answers a request for another site that is silent from what was known before. Returns `done`
    /// if that does not suffice.
    pub(super) fn answer_stale(
        self: &Arc<Self>,
        upstream: &Result<Arc<Upstream>, Error>,
        context: &Context,
        request: &Request,
        done: Done,
    ) -> Option<Done> {
        let Ok(upstream) = upstream else { return Some(done) };
        let SiteRule::Walk { dir, to } = site_rule(request) else {
            return match upstream.answer_stale(context, request) {
                Some(answer) => {
                    done(answer);
                    None
                }
                None => Some(done),
            };
        };
        let step = Request::Step { dir, to: to.cloned() };
        match upstream.answer_stale(context, &step) {
            Some(Ok(Reply::Stepped { node, attr })) => {
                let attr = attr.map(|attr| Attr { volatile: true, ..attr });
                self.complete_step(context, Stepped { node, attr }, done);
                None
            }
            Some(Err(error)) => {
                done(Err(error));
                None
            }
            Some(Ok(_)) | None => Some(done),
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
        let stepped: Done = Box::new(move |result| match result {
            // That site does not have the name: it is being removed.
            Err(error) if error.code == Code::Elsewhere => done(Err(Code::Stale.into())),
            result => done(result),
        });
        self.step_once(upstream, context, walk, stepped);
    }

    /// Has another site take the step of a walk. Fails with `Elsewhere` if it does not have the
    /// name.
    fn step_once(
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
            Err(error) => done(Err(error)),
        });
        let Walk { dir, to } = walk;
        upstream.ask(context, Request::Step { dir, to }, Bulk::None, stepped);
    }
}

/// Returns whether the error of a step says that a site does not know this one yet.
fn is_refused(error: &Error) -> bool {
    error.code == Code::AccessDenied
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
