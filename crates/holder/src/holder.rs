//! The driver: answers from what is kept, or asks.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use pelago_wire::{
    Attr, Bulk, Code, Context, DataPath, Done, Entry, Error, FileKind, Granted, InodeId,
    LeasedService, Leases, LocalCache, Name, OpenFlags, OpenId, Reply, Request, Service, Then,
    Touched,
};

use crate::changes::{Changes, Moment};
use crate::clock;
use crate::kept::{Kept, Text};
use crate::open_files::OpenFiles;
use crate::touches::{removed_names, touches};

/// After this time a read updates the time of access, whatever has changed.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// A service that answers from what it keeps under leases.
pub struct Holder {
    pub(crate) service: Arc<dyn LeasedService>,
    /// The cache below, which keeps what it is answered.
    pub(crate) cache: OnceLock<Arc<dyn LocalCache>>,
    /// A leaf lock: nothing is called under it.
    pub(crate) state: Mutex<State>,
    pub(crate) this: Weak<Self>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) kept: Kept,
    pub(crate) changes: Changes,
    pub(crate) opens: OpenFiles,
    /// Own removals of names that are under way, and of which it is not known what they lead to.
    blind_removals: usize,
}

/// A request that was sent.
struct Sent {
    since: Moment,
    /// What it changes.
    touched: Vec<Touched>,
    /// It removes a name of which it is not known what it leads to.
    is_blind: bool,
    tells: Tells,
}

/// What the answer to a request tells.
enum Tells {
    /// Attributes, if there are any in it.
    Attrs,
    /// What a name leads to afterwards.
    Name(InodeId, Name),
    /// That a name does not exist any more.
    Removal(InodeId, Name),
    /// The names of a directory.
    Names(InodeId),
    Text(InodeId, Text),
    /// It opens a file, perhaps for writing; or ends that.
    Open(OpenId, bool),
    Release(OpenId),
    /// As [`Tells::Name`], and the file is open.
    Created(InodeId, Name, OpenId, bool),
}

impl Tells {
    fn of(request: &Request) -> Self {
        match request {
            Request::Lookup { dir, name }
            | Request::MakeDir { dir, name, .. }
            | Request::MakeNode { dir, name, .. }
            | Request::Symlink { dir, name, .. }
            | Request::Link { dir, name, .. } => Self::Name(dir.ino, name.clone()),
            Request::Create { dir, name, open, flags, .. } => {
                Self::Created(dir.ino, name.clone(), *open, flags.write)
            }
            Request::Unlink { dir, name } | Request::RemoveDir { dir, name } => {
                Self::Removal(dir.ino, name.clone())
            }
            Request::List { dir, .. } => Self::Names(dir.ino),
            Request::Open { open, flags, .. }
            | Request::Reopen { open, flags, .. }
            | Request::CreateUnnamed { open, flags, .. } => Self::Open(*open, flags.write),
            Request::Release { open } => Self::Release(*open),
            request => match Text::of(request) {
                Some((ino, text)) => Self::Text(ino, text),
                None => Self::Attrs,
            },
        }
    }
}

impl Holder {
    /// Returns a holder over a service.
    #[must_use]
    pub fn new(service: Arc<dyn LeasedService>) -> Arc<Self> {
        let holder = Arc::new_cyclic(|this| Self {
            service,
            cache: OnceLock::new(),
            state: Mutex::default(),
            this: Weak::clone(this),
        });
        let weak: Weak<Self> = Arc::downgrade(&holder);
        holder.service.set_holder(weak);
        holder
    }

    /// Sets the cache below, which is told of recalls. A second call does nothing.
    pub fn set_cache(&self, cache: Arc<dyn LocalCache>) {
        if self.cache.set(Arc::clone(&cache)).is_ok() {
            cache.set_shared(true);
        }
    }

    /// Answers a request from what is kept.
    fn answer(&self, context: &Context, request: &Request) -> Option<Result<Reply, Error>> {
        match request {
            Request::Lookup { .. }
            | Request::GetAttr { .. }
            | Request::ReadLink { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::Open { .. } => {
                if self.service.lease_left().is_zero() {
                    return None;
                }
                self.state.lock().answer(context, request)
            }
            Request::Flush { open, .. } => {
                self.state.lock().opens.is_here(*open).then_some(Ok(Reply::Done))
            }
            Request::Release { open } => {
                let mut state = self.state.lock();
                let is_local = state.opens.is_here(*open) || state.opens.failure(*open).is_some();
                if is_local {
                    state.opens.remove(*open);
                }
                is_local.then_some(Ok(Reply::Done))
            }
            _ => None,
        }
    }

    /// Asks the service. What the request changes is not kept meanwhile.
    fn forward(
        self: &Arc<Self>,
        context: &Context,
        (request, sent): (Request, Sent),
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let holder = Arc::clone(self);
        let answered = move |mut result: Result<Reply, Error>, granted| {
            holder.state.lock().answered(sent, &mut result, granted);
            done(result);
        };
        self.service.ask_leased(context, request, bulk, Box::new(answered));
    }
}

impl State {
    fn answer(&mut self, context: &Context, request: &Request) -> Option<Result<Reply, Error>> {
        let Self { kept, changes, .. } = &*self;
        match request {
            Request::Lookup { dir, name } => {
                if changes.is_name_changing(dir.ino, name) {
                    return None;
                }
                if kept.name(dir.ino, name)?.is_none() {
                    return Some(Err(Code::NotFound.into()));
                }
                let entry = kept.entry(dir.ino, name)?;
                (!changes.is_node_changing(entry.attr.ino)).then_some(Ok(Reply::Entry(entry)))
            }
            Request::GetAttr { node } => {
                let attr = kept.attr(node.ino)?;
                (!changes.is_node_changing(node.ino)).then_some(Ok(Reply::Attr(attr)))
            }
            Request::Open { node, flags, open } if opens_here(*flags) => {
                if self.blind_removals > 0 {
                    return None;
                }
                let attr = kept.attr(node.ino)?;
                if attr.kind != FileKind::Regular || changes.is_node_changing(node.ino) {
                    return None;
                }
                self.opens.add_here(*open, *node, *flags, (context.uid, context.gid));
                Some(Ok(Reply::Opened { attr, path: DataPath::Cached }))
            }
            request => {
                let (ino, text) = Text::of(request)?;
                let value = kept.text(ino, &text)?;
                let reply = value.map(Reply::Bytes).map_err(Error::new);
                (!changes.is_node_changing(ino)).then_some(reply)
            }
        }
    }

    /// Returns the opens that the server must know before it gets a request: one that the request
    /// names, and those of files that it changes and that may lose their name.
    fn unreported(&self, request: &Request, sent: &Sent) -> Vec<OpenId> {
        if sent.is_blind {
            return self.opens.unreported(None);
        }
        let named = request.describe().subjects;
        let named = named.each_open().filter(|open| self.opens.is_unreported(*open));
        let of_changed = sent.touched.iter().flat_map(|touched| match touched {
            Touched::Node(ino) => self.opens.unreported(Some(*ino)),
            _ => Vec::new(),
        });
        named.chain(of_changed).collect()
    }

    /// A request is about to be sent: what it changes is not kept from now on.
    fn send(&mut self, request: &Request) -> Sent {
        if let Request::Read { open, .. } = request
            && let Some(ino) = self.opens.inode_of(*open)
        {
            self.note_read(ino);
        }
        let since = self.changes.now();
        let touched = touches(request, &self.kept, |open| self.opens.written_inode(open));
        let is_unknown = |(dir, name): (InodeId, &Name)| self.kept.name(dir, name).is_none();
        let is_blind = removed_names(request).into_iter().any(is_unknown);
        self.blind_removals += usize::from(is_blind);
        self.changes.begin(&touched);
        self.kept.drop_touched(&touched);
        Sent { since, touched, is_blind, tells: Tells::of(request) }
    }

    /// Returns why the server does not have an open that a request names.
    fn failure(&self, request: &Request) -> Option<Code> {
        request.describe().subjects.each_open().find_map(|open| self.opens.failure(open))
    }

    /// Returns why a request is not sent after all, if an open that it names was reported in vain.
    fn failed_before(&mut self, request: &Request, sent: &Sent) -> Option<Code> {
        let code = self.failure(request)?;
        self.blind_removals -= usize::from(sent.is_blind);
        self.changes.end(&sent.touched);
        if let Request::Release { open } = request {
            self.opens.remove(*open);
        }
        Some(code)
    }

    /// A read may update the time of access, as `relatime` has it.
    fn note_read(&mut self, ino: InodeId) {
        let is_due = |attr: &Attr| {
            attr.atime <= attr.mtime
                || attr.atime <= attr.ctime
                || clock::seconds().saturating_sub(attr.atime.seconds) >= DAY_SECONDS
        };
        if self.kept.attr(ino).as_ref().is_some_and(is_due) {
            self.kept.drop_attr(ino);
        }
    }

    /// Keeps what an answer tells, as far as it may be kept; attributes that are not become
    /// volatile, so that no cache below keeps them.
    fn answered(&mut self, sent: Sent, result: &mut Result<Reply, Error>, granted: Granted) {
        let Sent { since, touched, is_blind, tells } = sent;
        self.blind_removals -= usize::from(is_blind);
        let Granted { leases, dir, may_be_done } = granted;
        let own = |ino: InodeId| {
            let is_it = |touched: &&Touched| **touched == Touched::Node(ino);
            u32::try_from(touched.iter().filter(is_it).count()).unwrap_or(u32::MAX)
        };
        let mut kept = Vec::new();
        for attr in attrs_of(result) {
            let holds = || self.changes.node_holds(attr.ino, since, own(attr.ino));
            if leases.node && !attr.volatile && holds() {
                kept.push(*attr);
            } else {
                attr.volatile = true;
            }
        }
        kept.extend(dir.filter(|dir| {
            leases.dir && !dir.volatile && self.changes.node_holds(dir.ino, since, own(dir.ino))
        }));
        let names = self.told_names(&tells, &touched, (since, leases), result);
        let text = self.told_text(&tells, (since, leases), result);
        // If it may still be carried out, what it touches is not kept again.
        if !may_be_done {
            self.changes.end(&touched);
        }
        let gone = gone_nodes(result);
        self.changes.begin(&gone);
        self.changes.end(&gone);
        self.kept.drop_touched(&gone);
        kept.into_iter().for_each(|attr| self.kept.keep_attr(attr));
        for (dir, name, node) in names {
            self.kept.keep_name(dir, name, node);
        }
        if let Some((ino, text, value)) = text {
            self.kept.keep_text(ino, text, value);
        }
        self.note_opens(&tells, result);
    }

    fn told_names(
        &self,
        tells: &Tells,
        touched: &[Touched],
        (since, leases): (Moment, Leases),
        result: &Result<Reply, Error>,
    ) -> Vec<(InodeId, Name, Option<pelago_wire::Handle>)> {
        if !leases.names {
            return Vec::new();
        }
        let holds = |dir: InodeId, name: &Name| {
            let it = Touched::Name { dir, name: name.clone() };
            let own = touched.iter().filter(|touched| **touched == it).count();
            let own = u32::try_from(own).unwrap_or(u32::MAX);
            self.changes.name_holds(dir, name, since, own)
        };
        let told = match (tells, result) {
            (
                Tells::Name(dir, name) | Tells::Created(dir, name, ..),
                Ok(Reply::Entry(entry) | Reply::Created { entry, .. }),
            ) => vec![(*dir, name.clone(), Some(entry.handle))],
            (Tells::Name(dir, name), Err(Error { code: Code::NotFound, .. }))
                if touched.is_empty() =>
            {
                vec![(*dir, name.clone(), None)]
            }
            (Tells::Removal(dir, name), Ok(Reply::Removed(_))) => vec![(*dir, name.clone(), None)],
            (Tells::Names(dir), Ok(Reply::Listed { entries, .. })) => {
                let with_handles =
                    entries.iter().filter_map(|entry| Some((entry, entry.entry.as_ref()?)));
                with_handles
                    .map(|(entry, found)| (*dir, entry.name.clone(), Some(found.handle)))
                    .collect()
            }
            _ => Vec::new(),
        };
        told.into_iter().filter(|(dir, name, _)| holds(*dir, name)).collect()
    }

    fn told_text(
        &self,
        tells: &Tells,
        (since, leases): (Moment, Leases),
        result: &Result<Reply, Error>,
    ) -> Option<(InodeId, Text, Result<Vec<u8>, Code>)> {
        let Tells::Text(ino, text) = tells else { return None };
        let value = match result {
            Ok(Reply::Bytes(bytes)) => Ok(bytes.clone()),
            Err(Error { code: Code::NoXattr, .. }) => Err(Code::NoXattr),
            _ => return None,
        };
        let holds = leases.node && self.changes.node_holds(*ino, since, 0);
        holds.then(|| (*ino, text.clone(), value))
    }

    fn note_opens(&mut self, tells: &Tells, result: &Result<Reply, Error>) {
        match (tells, result) {
            (
                Tells::Open(open, writes) | Tells::Created(_, _, open, writes),
                Ok(Reply::Created { entry: Entry { attr, .. }, .. } | Reply::Opened { attr, .. }),
            ) => self.opens.add_at_server(*open, attr.ino, *writes),
            (Tells::Release(open), _) => self.opens.remove(*open),
            _ => {}
        }
    }
}

/// Returns whether an open needs nothing of the server yet.
const fn opens_here(flags: OpenFlags) -> bool {
    flags.read && !flags.write && !flags.truncate && !flags.append && !flags.strict_atime
}

/// Returns the attributes in an answer.
fn attrs_of(result: &mut Result<Reply, Error>) -> Vec<&mut Attr> {
    match result {
        Ok(Reply::Entry(entry) | Reply::Created { entry, .. }) => vec![&mut entry.attr],
        Ok(Reply::Attr(attr) | Reply::Opened { attr, .. } | Reply::Removed(attr)) => vec![attr],
        Ok(Reply::Listed { entries, .. }) => {
            let with_attrs = entries.iter_mut().filter_map(|entry| entry.entry.as_mut());
            with_attrs.map(|entry| &mut entry.attr).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the nodes that a change has turned out to touch.
fn gone_nodes(result: &Result<Reply, Error>) -> Vec<Touched> {
    match result {
        Ok(Reply::Removed(attr)) => vec![Touched::Node(attr.ino)],
        Ok(Reply::Renamed { moved, replaced }) => {
            let replaced = replaced.map(|replaced| Touched::Node(replaced.attr.ino));
            [Some(Touched::Node(moved.ino)), replaced].into_iter().flatten().collect()
        }
        _ => Vec::new(),
    }
}

impl Service for Holder {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let Some(this) = self.this.upgrade() else { return Some(Err(Code::Unavailable.into())) };
        if let Some(answer) = self.answer(context, &request) {
            return Some(answer);
        }
        let (sent, unreported) = {
            let mut state = self.state.lock();
            if let Some(code) = state.failure(&request) {
                return Some(Err(code.into()));
            }
            let sent = state.send(&request);
            let unreported = state.unreported(&request, &sent);
            (sent, unreported)
        };
        let done = later();
        if unreported.is_empty() {
            this.forward(context, (request, sent), bulk, done);
            return None;
        }
        let (holder, context) = (Arc::clone(&this), *context);
        let bytes = bulk.into_bytes();
        let go: Then = Box::new(move || {
            let failed = holder.state.lock().failed_before(&request, &sent);
            if let Some(code) = failed {
                return done(Err(code.into()));
            }
            let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
            holder.forward(&context, (request, sent), bulk, done);
        });
        this.report_all(&unreported, go);
        None
    }

    fn cancel(&self, context: &Context) {
        self.service.cancel(context);
    }

    fn losses(&self) -> u64 {
        self.service.losses()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}
