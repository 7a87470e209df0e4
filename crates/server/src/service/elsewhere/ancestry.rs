//! Paths to own directories while another site is away.
//!
//! What another site answers about its directories is recorded, if it leads to own directories
//! ([`Chains`]). While that site is away, those directories are answered from the record. A name
//! that is not recorded may exist: then the error says that the site is away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pelago_meta::shard::Stepped;
use pelago_store::rows::Access;
use pelago_wire::xattr::ACL_ACCESS;
use pelago_wire::{Bulk, Code, Context, Done, Error, Handle, InodeId, RenameFlags, Reply, Request};

use super::super::Dispatcher;
use crate::chains::{Chains, NameAt, Question};
use crate::pool::{Caller, Invocation};
use crate::upstream::Upstream;

/// The part of a request that concerns the record of directories of other sites.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// The node at a name, which is looked up or made.
    Name(NameAt),
    /// The directory above.
    Above(InodeId),
    Attributes(InodeId),
    /// An extended attribute: the access list, or another one.
    Xattr {
        ino: InodeId,
        is_access: bool,
    },
    /// The names of all extended attributes.
    Xattrs(InodeId),
    /// A name that is removed.
    Removed(NameAt),
    Renamed {
        from: NameAt,
        to: NameAt,
        is_exchange: bool,
    },
}

/// An answer from the record.
#[derive(Debug)]
enum Recalled {
    Reply(Reply),
    Failure(Code),
    /// The walk leads to this directory.
    Step(InodeId),
}

impl Subject {
    /// Returns the subject of a request; `None` for one that neither asks for what is recorded nor
    /// changes it. The match has no wildcard, so the compiler names a new request here.
    fn of(request: &Request) -> Option<Self> {
        let place = |dir: &Handle, name: &_| NameAt { dir: dir.ino, name: Clone::clone(name) };
        Some(match request {
            Request::Lookup { dir, name } | Request::MakeDir { dir, name, .. } => {
                Self::Name(place(dir, name))
            }
            Request::Parent { dir } => Self::Above(dir.ino),
            Request::GetAttr { node } | Request::SetAttr { node, .. } => Self::Attributes(node.ino),
            Request::GetXattr { node, name } => {
                Self::Xattr { ino: node.ino, is_access: name == ACL_ACCESS }
            }
            Request::ListXattr { node } => Self::Xattrs(node.ino),
            Request::RemoveDir { dir, name } => Self::Removed(place(dir, name)),
            Request::Rename { from_dir, from, to_dir, to, flags } => Self::Renamed {
                from: place(from_dir, from),
                to: place(to_dir, to),
                is_exchange: *flags == RenameFlags::Exchange,
            },
            Request::Step { .. }
            | Request::AddDir { .. }
            | Request::DropDir { .. }
            | Request::RemoveNamedDir { .. }
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
            | Request::GetLock { .. }
            | Request::SetLock { .. }
            | Request::ReclaimLock { .. }
            | Request::Find { .. }
            | Request::Create { .. }
            | Request::CreateUnnamed { .. }
            | Request::MakeNode { .. }
            | Request::Symlink { .. }
            | Request::ReadLink { .. }
            | Request::Link { .. }
            | Request::Unlink { .. }
            | Request::Open { .. }
            | Request::Reopen { .. }
            | Request::Flush { .. }
            | Request::Release { .. }
            | Request::Fsync { .. }
            | Request::FsyncAt { .. }
            | Request::FsyncDir { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::List { .. }
            | Request::SetXattr { .. }
            | Request::RemoveXattr { .. }
            | Request::StatFs
            | Request::Allocate { .. }
            | Request::Seek { .. }
            | Request::CopyRange { .. }
            | Request::Search { .. }
            | Request::Tags { .. }
            | Request::Attach { .. }
            | Request::Revoke { .. }
            | Request::Issue { .. }
            | Request::Access { .. }
            | Request::Audited { .. }
            | Request::Clock
            | Request::Hashes { .. }
            | Request::RenewToken { .. }
            | Request::KeepToken { .. }
            | Request::Servers => return None,
        })
    }

    /// Records what a result says.
    fn learn(&self, chains: &mut Chains, result: &Result<Reply, Error>, now: Instant) {
        match (self, result) {
            (Self::Name(place), Ok(Reply::Entry(entry))) => {
                chains.saw_name(place.clone(), &entry.attr, now);
            }
            (Self::Name(place), Err(error)) if error.code == Code::NotFound => {
                chains.saw_no_name(place);
            }
            (Self::Above(ino), Ok(Reply::Entry(above))) => {
                chains.saw_attr(&above.attr, now);
                chains.saw_parent(*ino, above.attr.ino);
            }
            (Self::Attributes(_), Ok(Reply::Attr(attr))) => chains.saw_attr(attr, now),
            (Self::Xattr { ino, is_access: true }, Ok(Reply::Bytes(list))) => {
                chains.saw_access(*ino, Access::List(list.clone()));
            }
            (Self::Xattr { ino, is_access: true }, Err(error)) if error.code == Code::NoXattr => {
                chains.saw_access(*ino, Access::ModeOnly);
            }
            (Self::Removed(place), Ok(_)) => chains.saw_no_name(place),
            (Self::Renamed { from, to, is_exchange }, Ok(_)) => {
                chains.saw_rename(from, to, *is_exchange);
            }
            // All other answers say nothing about directories that lead to own ones.
            (_, Ok(_) | Err(_)) => {}
        }
    }

    /// Returns the answer from the record, if there is one.
    fn recall(&self, chains: &Chains) -> Option<Recalled> {
        let without_xattrs = |ino: &InodeId| chains.attr(*ino).map(|attr| !attr.has_xattrs);
        match self {
            Self::Name(place) => chains.child(place.dir, &place.name).map(Recalled::Step),
            Self::Above(ino) => chains.parent(*ino).map(Recalled::Step),
            Self::Attributes(ino) => {
                chains.attr(*ino).map(|attr| Recalled::Reply(Reply::Attr(attr)))
            }
            Self::Xattr { ino, is_access } => match (is_access, chains.access(*ino)?) {
                (true, Access::ModeOnly) => Some(Recalled::Failure(Code::NoXattr)),
                (true, Access::List(list)) => Some(Recalled::Reply(Reply::Bytes(list.clone()))),
                (true, Access::Unknown) => None,
                (false, _) => without_xattrs(ino)?.then_some(Recalled::Failure(Code::NoXattr)),
            },
            Self::Xattrs(ino) => {
                without_xattrs(ino)?.then(|| Recalled::Reply(Reply::Bytes(Vec::new())))
            }
            Self::Removed(_) | Self::Renamed { .. } => None,
        }
    }
}

impl Dispatcher {
    /// Prepares a request to another site. Returns the callback for its result: it records what
    /// that says about directories that lead to own ones, and answers from the record if the site
    /// is away. Returns `None` if the request is answered already, because the site has been silent
    /// for long.
    pub(super) fn recalling(
        self: &Arc<Self>,
        upstream: &Result<Arc<Upstream>, Error>,
        context: &Context,
        request: &Request,
        done: Done,
    ) -> Option<Done> {
        let Some(subject) = Subject::of(request) else { return Some(done) };
        let is_change = matches!(request, Request::MakeDir { .. } | Request::SetAttr { .. });
        let is_silent = match upstream {
            Ok(upstream) => upstream.is_silent(),
            Err(error) => is_away(error),
        };
        // A lease may outlast the silence, and what is cached under it is newer than the record.
        let is_cached = || match upstream {
            Ok(upstream) => upstream.cached(context, request).is_some(),
            Err(_) => false,
        };
        if is_silent && !is_change && !is_cached() {
            let recalled = subject.recall(&self.parts.sites.chains.lock());
            if let Some(recalled) = recalled {
                upstream.iter().for_each(|upstream| upstream.answers_from_record());
                self.answer_recalled(context, recalled, done);
                return None;
            }
        }
        let this = Arc::clone(self);
        let context = *context;
        let of_site = upstream.as_ref().ok().map(Arc::downgrade);
        Some(Box::new(move |result| {
            this.learn(&subject, &result);
            let recalled = match &result {
                Err(error) if is_away(error) && !is_change => {
                    subject.recall(&this.parts.sites.chains.lock())
                }
                Ok(_) | Err(_) => None,
            };
            match recalled {
                Some(recalled) => {
                    let upstream = of_site.and_then(|upstream| upstream.upgrade());
                    upstream.iter().for_each(|upstream| upstream.answers_from_record());
                    this.answer_recalled(&context, recalled, done);
                }
                None => done(result),
            }
        }))
    }

    /// Returns a callback that records what the result of a request says, and passes it on.
    pub(super) fn learning(self: &Arc<Self>, request: &Request, done: Done) -> Done {
        let Some(subject) = Subject::of(request) else { return done };
        let this = Arc::clone(self);
        Box::new(move |result| {
            this.learn(&subject, &result);
            done(result);
        })
    }

    fn answer_recalled(self: &Arc<Self>, context: &Context, recalled: Recalled, done: Done) {
        match recalled {
            Recalled::Reply(reply) => done(Ok(reply)),
            Recalled::Failure(code) => done(Err(code.into())),
            Recalled::Step(ino) => {
                let attr = self.parts.sites.chains.lock().attr(ino);
                self.complete_step(context, Stepped { node: Handle::own(ino), attr }, done);
            }
        }
    }

    /// Records what a result says. Has changed rows written, and asks for what is missing.
    fn learn(self: &Arc<Self>, subject: &Subject, result: &Result<Reply, Error>) {
        let now = Instant::now();
        let mut chains = self.parts.sites.chains.lock();
        subject.learn(&mut chains, result, now);
        let questions = chains.take_questions(now);
        let has_changes = chains.has_changes();
        drop(chains);
        if has_changes {
            self.write_chains();
        }
        for question in questions {
            let (ino, request) = match question {
                Question::Attributes(ino) => (ino, Request::GetAttr { node: Handle::own(ino) }),
                Question::AccessList(ino) => {
                    let name = ACL_ACCESS.to_vec();
                    (ino, Request::GetXattr { node: Handle::own(ino), name })
                }
            };
            // What the answer says is recorded; no program waits for it.
            let done: Done = Box::new(|_| {});
            let context = Context::direct(0, 0);
            self.dispatch_remote(ino.site(), &context, request, Bulk::None, done);
        }
    }

    /// Has the rows that have changed written, by one job at a time.
    fn write_chains(self: &Arc<Self>) {
        let sites = &self.parts.sites;
        if self.parts.served.read_only || sites.writes_chains.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        let job = move |invocation| {
            if invocation == Invocation::Run {
                this.write_changed_chains();
            }
        };
        self.parts.pool.submit(Caller::from(&Context::direct(0, 0)), Box::new(job));
    }

    /// Writes the rows that have changed until none is left.
    fn write_changed_chains(&self) {
        let sites = &self.parts.sites;
        loop {
            let changes = sites.chains.lock().take_changes(Instant::now());
            let written = match changes.is_empty() {
                true => Ok(()),
                false => self.parts.shard.put_ancestry(&changes),
            };
            if let Err(error) = written {
                tracing::debug!(%error, "what was seen of another site is not written");
                sites.chains.lock().put_back(&changes);
                sites.writes_chains.store(false, Ordering::Release);
                // The next change tries again.
                return;
            }
            sites.writes_chains.store(false, Ordering::Release);
            // A change that came after the last look has found this job.
            let is_done = !sites.chains.lock().has_changes();
            if is_done || sites.writes_chains.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

/// Returns whether an error says that a site cannot be reached.
pub(super) fn is_away(error: &Error) -> bool {
    matches!(error.code, Code::HostDown | Code::TimedOut)
}
