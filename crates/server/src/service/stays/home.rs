//! Own files whose bytes are at another site: reads are sent there, and before anything changes the
//! bytes, these are brought home.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pelago_data::OpenKey;
use pelago_store::content::ContentFile;
use pelago_wire::{
    Attr, Buffer, Bulk, Code, Context, Done, Error, Handle, InodeId, OpenFlags, OpenId, Reply,
    Request, SessionId, Touches, limits,
};

use super::opening::direct;
use super::{Dispatcher, Diverted, Parked, Submission, lost_bytes, of_part, opens_of};
use crate::homecomings::{Coming, OnDone};
use crate::upstream::Upstream;

/// The time after which a request that needs the bytes at home is answered with `Busy`. They go on
/// coming.
const PATIENCE: Duration = Duration::from_secs(8);

/// What a request needs of bytes that are elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// To read them.
    Read,
    /// To have them here.
    Here,
    /// That there are none any more.
    Empty,
}

impl Dispatcher {
    /// Has a request carried out that needs the bytes of an own file, if these are at another site.
    /// `asking`: the site whose server has sent it.
    pub(super) fn divert_from_home<'a>(
        self: &Arc<Self>,
        context: &Context,
        asking: Option<u16>,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let submission = self.divert_by_node(context, asking, submission)?;
        if let Request::Release { open } = submission.request {
            let key = OpenKey::of(context, open);
            if !self.parts.sites.stays.has_open(key) && self.parts.opens.inode_of(key).is_ok() {
                self.release_node(context.session, open);
            }
            return ControlFlow::Continue(submission);
        }
        let Some(need) = need_of_open(&submission.request) else {
            return ControlFlow::Continue(submission);
        };
        if !self.parts.opens.may_have_bytes_elsewhere() {
            return ControlFlow::Continue(submission);
        }
        for open in opens_of(context, &submission.request) {
            if self.parts.sites.stays.has_open(open) {
                continue;
            }
            // If it is no open here, the request itself says what is wrong.
            let Ok(file) = self.parts.opens.handle_of(open) else { continue };
            if let Ok(Some(node)) = self.parts.opens.bytes_at(open) {
                match need {
                    Need::Read => self.read_elsewhere(context, open, node, submission),
                    Need::Here | Need::Empty => {
                        self.after_homecoming(context, file, node, need, submission);
                    }
                }
                return ControlFlow::Break(None);
            }
        }
        ControlFlow::Continue(submission)
    }

    /// Does that for a request that names the file by its handle.
    fn divert_by_node<'a>(
        self: &Arc<Self>,
        context: &Context,
        asking: Option<u16>,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let (file, need) = match &submission.request {
            Request::Open { node, flags, .. } if flags.truncate => (*node, Some(Need::Empty)),
            Request::Open { node, flags, .. } | Request::Reopen { node, flags, .. } => {
                (*node, flags.write.then_some(Need::Here))
            }
            Request::SetAttr { node, open: None, set } if set.size == Some(0) => {
                (*node, Some(Need::Empty))
            }
            Request::SetAttr { node, open: None, set } if set.size.is_some() => {
                (*node, Some(Need::Here))
            }
            _ => return ControlFlow::Continue(submission),
        };
        if file.ino.site() != self.parts.sites.own() {
            return ControlFlow::Continue(submission);
        }
        let stored = self.parts.shard.stored_node(file).ok();
        let Some(node) = stored.and_then(|stored| stored.rnode.bytes_at) else {
            return ControlFlow::Continue(submission);
        };
        let is_open = submission.request.opens().made().is_some();
        match need {
            // The site that has the bytes goes on writing there.
            Some(Need::Here) if is_open && asking == Some(node.site()) => {}
            Some(need) => {
                self.after_homecoming(context, file, node, need, submission);
                return ControlFlow::Break(None);
            }
            None => {}
        }
        // No kernel keeps pages of bytes that change elsewhere.
        let Submission { request, bulk, later } = submission;
        let mut direct_later = || -> Done {
            let done = later();
            Box::new(move |result| done(result.map(direct)))
        };
        let here = Submission { request, bulk, later: &mut direct_later };
        let answer = self.dispatch_local(context, here);
        ControlFlow::Break(answer.map(|result| result.map(direct)))
    }

    /// Ends the open of a node that was made for reads of an own file.
    fn release_node(self: &Arc<Self>, session: SessionId, open: OpenId) {
        let Some(site) = self.parts.sites.home_of(session, open) else { return };
        let Ok(upstream) = self.parts.sites.upstream(site) else { return };
        let context = Context { session, ..Context::direct(0, 0) };
        let request = Request::Release { open };
        upstream.ask(&context, request, Bulk::None, Box::new(|_released| {}));
    }

    /// Has a read carried out at the site that has the bytes, through an open of their node.
    fn read_elsewhere(
        self: &Arc<Self>,
        context: &Context,
        open: OpenKey,
        node: InodeId,
        submission: Submission<'_>,
    ) {
        let parked = Parked::new(context, submission);
        let upstream = match self.parts.sites.upstream(node.site()) {
            Ok(upstream) => upstream,
            Err(error) => return (parked.done)(Err(error)),
        };
        if upstream.has_open(open.session, open.open) {
            return self.read_opened(&upstream, open, parked, READ_ATTEMPTS);
        }
        let this = Arc::clone(self);
        let there = Arc::clone(&upstream);
        let opened: OnDone = Box::new(move |opened| match opened {
            Ok(()) => this.read_opened(&there, open, parked, READ_ATTEMPTS),
            Err(error) => (parked.done)(Err(error)),
        });
        if !self.parts.sites.homecomings.begin_opening(open, opened) {
            return;
        }
        let this = Arc::clone(self);
        let answered: Done = Box::new(move |result| {
            let opened = result.map(drop).map_err(of_lost_node);
            this.parts.sites.homecomings.end_opening(open, opened);
        });
        let flags = OpenFlags { no_atime: true, ..OpenFlags::READ };
        let request = Request::Open { node: Handle::own(node), flags, open: open.open };
        upstream.ask(&of_part(context), request, Bulk::None, answered);
    }

    /// Has a read carried out through an open of the node. If it brings fewer bytes than the file
    /// has, it is repeated: the other site may be about to tell of a smaller size. After that they
    /// are lost: a program would take what is missing for zeros, or for the end of the file.
    fn read_opened(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        open: OpenKey,
        parked: Parked,
        attempts: u32,
    ) {
        let Parked { context, request, done, .. } = parked;
        let this = Arc::clone(self);
        let there = Arc::clone(upstream);
        let again = request.clone();
        let before = self.bytes_wanted(open, &request);
        let checked: Done = Box::new(move |result| {
            let result = result.map_err(of_lost_node);
            let Ok(Reply::Data(data)) = result else { return done(result) };
            let now = this.bytes_wanted(open, &again);
            let read = data.as_bytes().len() as u64;
            if read > now {
                // The other site is about to tell of more: no program sees it before its size.
                let mut bytes = data.into_bytes();
                bytes.truncate(usize::try_from(now).unwrap_or(usize::MAX));
                return done(Ok(Reply::Data(Buffer::new(bytes))));
            }
            if read >= before.min(now) {
                return done(Ok(Reply::Data(data)));
            }
            if attempts == 0 {
                return done(Err(lost_bytes()));
            }
            let parked = Parked { context, request: again, bytes: Vec::new(), done };
            this.read_opened(&there, open, parked, attempts - 1);
        });
        let context = Context { mutation: 0, origin: None, ..context };
        upstream.ask(&context, request, Bulk::None, checked);
    }

    /// Returns how many bytes a read must bring, by the size that the home knows now.
    fn bytes_wanted(&self, open: OpenKey, request: &Request) -> u64 {
        let Request::Read { offset, size, .. } = request else { return 0 };
        let handle = self.parts.opens.handle_of(open);
        let attr = handle.and_then(|handle| self.parts.shard.attr(handle));
        let left = attr.map_or(0, |attr| attr.size.saturating_sub(*offset));
        left.min(u64::from(*size)).min(limits::IO_BYTES as u64)
    }

    /// Carries a request out once the bytes of the file are here, or the file is empty.
    fn after_homecoming(
        self: &Arc<Self>,
        context: &Context,
        file: Handle,
        node: InodeId,
        need: Need,
        submission: Submission<'_>,
    ) {
        let parked = Parked::new(context, submission);
        let this = Arc::clone(self);
        let then: OnDone = Box::new(move |home| match home {
            Ok(()) => parked.go_on_here(&this),
            Err(error) => (parked.done)(Err(error)),
        });
        let until = Instant::now() + PATIENCE;
        match self.parts.sites.homecomings.wait(file.ino, until, then) {
            Ok(Coming::UnderWay) => {}
            Ok(Coming::Begins) => self.begin_homecoming(file, node, need),
            Err(then) => then(Err(Code::Busy.into())),
        }
    }

    fn begin_homecoming(self: &Arc<Self>, file: Handle, node: InodeId, need: Need) {
        let this = Arc::clone(self);
        let run = thread::Builder::new().name("homecoming".to_owned());
        let spawned = run.spawn(move || {
            let result = this.bring_home(file, node, need);
            if let Err(error) = &result {
                tracing::warn!(%error, file = %file.ino, "bytes of a file do not come home");
            }
            this.parts.sites.homecomings.end(file.ino, result);
        });
        if spawned.is_err() {
            self.parts.sites.homecomings.end(file.ino, Err(Code::Busy.into()));
        }
    }

    /// Brings the bytes of a file home, or empties it. Blocks.
    fn bring_home(self: &Arc<Self>, file: Handle, node: InodeId, need: Need) -> Result<(), Error> {
        let upstream = self.parts.sites.upstream(node.site())?;
        let give = Request::GiveBytes { node: Handle::own(node), file: file.ino };
        let given = wait(|done| upstream.ask(&Context::direct(0, 0), give, Bulk::None, done));
        let Reply::Attr(given) = given.map_err(of_lost_node)? else {
            return Err(lost_bytes());
        };
        let opens = &self.parts.opens;
        match need {
            Need::Empty => opens.empty_home(file, node)?,
            Need::Read | Need::Here => {
                let mut fill = |content: &ContentFile| self.pull(&upstream, file, &given, content);
                opens.bring_home(file, node, &mut fill)?;
            }
        }
        self.when_home_is_safe()?;
        let dropped = Request::DropBytes { node: Handle::own(node), file: file.ino };
        // The other site asks later if it has not heard of it.
        upstream.ask(&Context::direct(0, 0), dropped, Bulk::None, Box::new(|_dropped| {}));
        Ok(())
    }

    /// Waits until all is safe that was done.
    fn when_home_is_safe(&self) -> Result<(), Error> {
        let (sender, safe) = mpsc::channel();
        let durability = &self.parts.durability;
        let answer = move |result: Result<(), Error>| {
            let _waits_no_more = sender.send(result);
        };
        let invalidations = durability.invalidations();
        durability.when_safe(durability.done(), invalidations, Box::new(answer));
        safe.recv().map_err(|_| Error::from(Code::Unavailable))?
    }

    /// Reads all bytes of a node of another site, which has these attributes, and writes them into
    /// a content file.
    fn pull(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        file: Handle,
        node: &Attr,
        content: &ContentFile,
    ) -> Result<(), Error> {
        // No client has such a number.
        let open = OpenId(u64::MAX - file.ino.counter());
        let context = Context::direct(0, 0);
        let flags = OpenFlags { no_atime: true, ..OpenFlags::READ };
        let opening = Request::Open { node: Handle::own(node.ino), flags, open };
        wait(|done| upstream.ask(&context, opening, Bulk::None, done)).map_err(of_lost_node)?;
        let pulled = self.pull_opened(upstream, file, open, content);
        let release = Request::Release { open };
        upstream.ask(&context, release, Bulk::None, Box::new(|_released| {}));
        // Nothing is written there any more.
        match pulled? == node.size {
            true => Ok(()),
            false => Err(lost_bytes()),
        }
    }

    /// Returns the number of bytes.
    fn pull_opened(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        file: Handle,
        open: OpenId,
        content: &ContentFile,
    ) -> Result<u64, Error> {
        let context = Context::direct(0, 0);
        let mut offset = 0;
        loop {
            let request = Request::Read { open, offset, size: PULLED_BYTES };
            let read = wait(|done| upstream.ask(&context, request, Bulk::None, done));
            let Reply::Data(data) = read.map_err(of_lost_node)? else {
                return Err(Code::Io.into());
            };
            let bytes = data.as_bytes();
            if bytes.is_empty() {
                return Ok(offset);
            }
            self.parts.space.admit()?;
            let written = content.write_at(bytes, offset);
            written.map_err(|error| pelago_store::report::content_failed(&error))?;
            offset += bytes.len() as u64;
            self.parts.sites.homecomings.give_up(file.ino, Instant::now());
        }
    }
}

/// How often a read is repeated that brings too few bytes.
const READ_ATTEMPTS: u32 = 3;

/// The bytes of one read of those that come home.
const PULLED_BYTES: u32 = 256 << 10;

/// Returns what a request needs of the bytes of an open file.
fn need_of_open(request: &Request) -> Option<Need> {
    match request {
        Request::Read { .. } | Request::Seek { .. } => Some(Need::Read),
        Request::SetAttr { set, .. } if set.size == Some(0) => Some(Need::Empty),
        Request::SetAttr { set, .. } => set.size.map(|_| Need::Here),
        _ => match request.touches() {
            Touches::Bytes(_) => Some(Need::Here),
            Touches::Nothing
            | Touches::Node(_)
            | Touches::Contents(_)
            | Touches::Release(_)
            | Touches::NewName { .. }
            | Touches::OldName(_)
            | Touches::Move { .. } => None,
        },
    }
}

/// Returns the error for a file of this site, if that of its node at the other one says that the
/// node is gone.
fn of_lost_node(error: Error) -> Error {
    match error.code {
        Code::Stale | Code::BadOpen => lost_bytes(),
        _ => error,
    }
}

/// Has `ask` send a request, and waits for its reply.
fn wait(ask: impl FnOnce(Done)) -> Result<Reply, Error> {
    let (sender, answer) = mpsc::channel();
    ask(Box::new(move |result| {
        let _waits_no_more = sender.send(result);
    }));
    answer.recv().map_err(|_| Error::from(Code::Unavailable))?
}
