//! Own files whose bytes are at another site: reads are sent there, and before anything changes the
//! bytes, these are brought home.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_data::{NewPlace, OpenKey};
use pelago_store::content::ContentFile;
use pelago_wire::{
    Attr, Buffer, Bulk, Code, Context, Done, Error, Handle, InodeId, OpenFlags, OpenId, PlaceFlags,
    RenameFlags, Reply, Request, SessionId, Time, Touches, limits,
};

use super::opening::direct;
use super::{Dispatcher, Diverted, Parked, Submission, lost_bytes, of_part, opens_of};
use crate::completion::CancelKey;
use crate::homecomings::{Coming, OnDone, Wanted};
use crate::service::levels::sync_between_sites;
use crate::upstream::Upstream;

/// The time after which a request that needs the bytes at home is answered with `Busy`. They go on
/// coming.
const PATIENCE: Duration = Duration::from_secs(8);

/// The pause before another site is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// What a request needs of bytes that are elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// To read them.
    Read,
    /// To have them here.
    Here,
    /// That nothing is written there any more: the request empties the file.
    Given,
    /// That those that were written are safe.
    Safe,
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
        if let Some(node) = self.replacing_node(&submission.request) {
            self.after_sync_there(context, node, submission);
            return ControlFlow::Break(None);
        }
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
                if let Request::CopyRange { from, .. } = submission.request
                    && open.open == from
                {
                    // The kernel copies: it reads them, and they stay.
                    return ControlFlow::Break(Some(Err(Code::CrossHome.into())));
                }
                match need {
                    Need::Read => self.read_elsewhere(context, open, node, submission),
                    Need::Safe => {
                        let Submission { request, bulk, later } = submission;
                        match sync_between_sites(request) {
                            Ok(request) => {
                                let sync = Submission { request, bulk, later };
                                self.sync_elsewhere(context, open, node, sync);
                            }
                            Err(error) => return ControlFlow::Break(Some(Err(error))),
                        }
                    }
                    Need::Here => self.after_homecoming(context, file, node, submission),
                    Need::Given => self.after_giving_there(context, file, node, submission),
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
            Request::Open { node, flags, .. } if flags.truncate => (*node, Some(Need::Given)),
            Request::Open { node, flags, .. } | Request::Reopen { node, flags, .. } => {
                (*node, flags.write.then_some(Need::Here))
            }
            Request::SetAttr { node, open: None, set } if set.size == Some(0) => {
                (*node, Some(Need::Given))
            }
            Request::SetAttr { node, open: None, set } if set.size.is_some() => {
                (*node, Some(Need::Here))
            }
            _ => return ControlFlow::Continue(submission),
        };
        if file.ino.site() != self.parts.sites.own() {
            return ControlFlow::Continue(submission);
        }
        let Some(node) = self.node_elsewhere(file) else {
            return self.after_writer(context, file.ino, submission);
        };
        let is_open = submission.request.opens().made().is_some();
        let has_bytes = asking == Some(node.site());
        match need {
            // The site that has the bytes goes on writing there.
            Some(Need::Here) if is_open && has_bytes => {}
            Some(Need::Given) if has_bytes => {
                // It writes nothing there any more.
                self.empty_given(Parked::new(context, submission), file, node);
                return ControlFlow::Break(None);
            }
            Some(Need::Given) => {
                self.after_giving_there(context, file, node, submission);
                return ControlFlow::Break(None);
            }
            Some(Need::Here | Need::Read | Need::Safe) => {
                self.after_homecoming(context, file, node, submission);
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

    /// Has another site that has the lease on the bytes of an own file say what it has written, and
    /// then carries out a request that opens or cuts the file: it may have bytes of which this site
    /// has not heard.
    fn after_writer<'a>(
        self: &Arc<Self>,
        context: &Context,
        file: InodeId,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        // After a stop no recall ends a lease.
        if self.leases.writers() == 0 || *self.stopped.read_recursive() {
            return ControlFlow::Continue(submission);
        }
        let written = self.leases.written_by_others(context.session, [file].into_iter());
        if written.is_empty() {
            return ControlFlow::Continue(submission);
        }
        let parked = Parked::new(context, submission);
        let this = Arc::clone(self);
        let told: Done = Box::new(move |told| match told {
            Ok(_) if *this.stopped.read_recursive() => {
                (parked.done)(Err(Code::Unavailable.into()));
            }
            Ok(_) => parked.go_on_here(&this),
            Err(error) => (parked.done)(Err(error)),
        });
        self.answer_after_writers(CancelKey::from(context), written, Ok(Reply::Done), told);
        ControlFlow::Break(None)
    }

    /// Carries out a request for an own file, again if it finds that the bytes are elsewhere.
    fn dispatch_and_repeat(self: &Arc<Self>, file: Handle, parked: Parked) {
        let Parked { context, request, bytes, done } = parked;
        let this = Arc::clone(self);
        let again = request.clone();
        let answered: Done = Box::new(move |result| {
            let is_refused = result.as_ref().is_err_and(|error| error.code == Code::HostDown);
            if !is_refused || this.node_elsewhere(file).is_none() {
                return done(result);
            }
            Parked { context, request: again, bytes, done }.go_on_here(&this);
        });
        self.do_here(&context, request, answered);
    }

    /// Returns the node of another site that has the bytes of an own file.
    fn node_elsewhere(&self, file: Handle) -> Option<InodeId> {
        self.parts.shard.bytes_at(file).ok().flatten()
    }

    /// Carries out a request that empties a file whose bytes are at another site, once nothing is
    /// written there any more.
    fn after_giving_there(
        self: &Arc<Self>,
        context: &Context,
        file: Handle,
        node: InodeId,
        submission: Submission<'_>,
    ) {
        let parked = Parked::new(context, submission);
        let this = Arc::clone(self);
        let then: OnDone = Box::new(move |given| match given {
            Ok(()) => this.empty_given(parked, file, node),
            Err(error) => (parked.done)(Err(error)),
        });
        self.when_home(file, node, Need::Given, then);
    }

    /// Carries out a request that empties a file. Nothing is written any more into the node of
    /// another site that has the bytes. That node goes afterwards.
    fn empty_given(self: &Arc<Self>, parked: Parked, file: Handle, node: InodeId) {
        let Parked { context, request, bytes, done } = parked;
        self.parts.opens.begin_giving(file.ino, node);
        let this = Arc::clone(self);
        let emptied: Done = Box::new(move |result| {
            this.parts.opens.end_giving(file.ino);
            if result.is_ok() && this.node_elsewhere(file) != Some(node) {
                this.drop_when_safe(file, node);
            }
            done(result);
        });
        self.dispatch_and_repeat(file, Parked { context, request, bytes, done: emptied });
    }

    /// Says to the site of a node that its bytes are not needed any more, once that is safe. If it
    /// does not hear of it, it asks.
    fn drop_when_safe(self: &Arc<Self>, file: Handle, node: InodeId) {
        let this = Arc::clone(self);
        let safe = move |safe: Result<(), Error>| {
            let Ok(upstream) = this.parts.sites.upstream(node.site()) else { return };
            if safe.is_ok() {
                let request = Request::DropBytes { node: Handle::own(node), file: file.ino };
                let ended: Done = Box::new(|_dropped| {});
                upstream.ask(&Context::direct(0, 0), request, Bulk::None, ended);
            }
        };
        let durability = &self.parts.durability;
        let invalidations = durability.invalidations();
        durability.when_safe(durability.done(), invalidations, Box::new(safe));
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
        let this = Arc::clone(self);
        self.open_elsewhere(context, open, node, move |opened| match opened {
            Ok(upstream) => this.read_opened(&upstream, open, parked, READ_ATTEMPTS),
            Err(error) => (parked.done)(Err(error)),
        });
    }

    /// Makes the bytes of an own file safe that another site has, and then the file itself.
    fn sync_elsewhere(
        self: &Arc<Self>,
        context: &Context,
        open: OpenKey,
        node: InodeId,
        submission: Submission<'_>,
    ) {
        let parked = Parked::new(context, submission);
        let this = Arc::clone(self);
        self.open_elsewhere(context, open, node, move |opened| {
            let Parked { context, request, done, .. } = parked;
            let upstream = match opened {
                Ok(upstream) => upstream,
                Err(error) => return done(Err(error)),
            };
            let here = request.clone();
            let synced: Done = Box::new(move |result| match result {
                Ok(_) => this.do_here(&context, here, done),
                Err(error) => done(Err(of_lost_node(error))),
            });
            upstream.ask(&of_part(&context), request, Bulk::None, synced);
        });
    }

    /// Returns the node of another site that has the bytes of a file which a rename puts in the
    /// place of another one.
    fn replacing_node(&self, request: &Request) -> Option<InodeId> {
        let Request::Rename { from_dir, from, to_dir, to, flags: RenameFlags::Replace } = request
        else {
            return None;
        };
        let shard = &self.parts.shard;
        // Most renames replace nothing.
        shard.lookup(*to_dir, to).ok()?;
        let source = shard.lookup(*from_dir, from).ok()?;
        self.node_elsewhere(source.handle)
    }

    /// Carries out a rename once the bytes in this node are safe, so that after a loss of power the
    /// name leads to the old bytes or to the new ones.
    fn after_sync_there(
        self: &Arc<Self>,
        context: &Context,
        node: InodeId,
        submission: Submission<'_>,
    ) {
        let Parked { context, request, done, .. } = Parked::new(context, submission);
        let upstream = match self.parts.sites.upstream(node.site()) {
            Ok(upstream) => upstream,
            Err(error) => return done(Err(error)),
        };
        let this = Arc::clone(self);
        let synced: Done = Box::new(move |synced| match synced {
            Ok(_) => this.do_here(&context, request, done),
            Err(error) => done(Err(of_lost_node(error))),
        });
        let sync = |open| Request::Fsync { open, data_only: true };
        upstream.ask_through_open(Handle::own(node), sync, synced);
    }

    /// Opens the node that has the bytes of an own file, under the number of an open of the file,
    /// and calls `then`.
    fn open_elsewhere(
        self: &Arc<Self>,
        context: &Context,
        open: OpenKey,
        node: InodeId,
        then: impl FnOnce(Result<Arc<Upstream>, Error>) + Send + 'static,
    ) {
        let upstream = match self.parts.sites.upstream(node.site()) {
            Ok(upstream) => upstream,
            Err(error) => return then(Err(error)),
        };
        if upstream.has_open(open.session, open.open) {
            return then(Ok(upstream));
        }
        let there = Arc::clone(&upstream);
        let opened: OnDone = Box::new(move |opened| then(opened.map(|()| there)));
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
            this.read_later(there, open, parked, attempts - 1);
        });
        let context = Context { mutation: 0, origin: None, ..context };
        upstream.ask(&context, request, Bulk::None, checked);
    }

    /// Has a read carried out again after a pause.
    fn read_later(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        open: OpenKey,
        parked: Parked,
        attempts: u32,
    ) {
        let parked = Arc::new(Mutex::new(Some(parked)));
        let this = Arc::clone(self);
        let late = Arc::clone(&parked);
        let run = move || {
            thread::sleep(PAUSE);
            if let Some(parked) = late.lock().take() {
                this.read_opened(&upstream, open, parked, attempts);
            }
        };
        let spawned = thread::Builder::new().name("read-again".to_owned()).spawn(run);
        if spawned.is_err()
            && let Some(parked) = parked.lock().take()
        {
            (parked.done)(Err(Code::Busy.into()));
        }
    }

    /// Returns how many bytes a read must bring, by the size that the home knows now.
    fn bytes_wanted(&self, open: OpenKey, request: &Request) -> u64 {
        let Request::Read { offset, size, .. } = request else { return 0 };
        let handle = self.parts.opens.handle_of(open);
        let attr = handle.and_then(|handle| self.parts.shard.attr(handle));
        let left = attr.map_or(0, |attr| attr.size.saturating_sub(*offset));
        left.min(u64::from(*size)).min(limits::IO_BYTES as u64)
    }

    /// Carries a request out once the bytes of the file are here.
    fn after_homecoming(
        self: &Arc<Self>,
        context: &Context,
        file: Handle,
        node: InodeId,
        submission: Submission<'_>,
    ) {
        let parked = Parked::new(context, submission);
        let this = Arc::clone(self);
        let then: OnDone = Box::new(move |home| match home {
            Ok(()) => parked.go_on_here(&this),
            Err(error) => (parked.done)(Err(error)),
        });
        self.when_home(file, node, Need::Here, then);
    }

    /// Calls `then` once the bytes of a file have come home, or were given.
    fn when_home(self: &Arc<Self>, file: Handle, node: InodeId, need: Need, then: OnDone) {
        let until = Instant::now() + PATIENCE;
        let wanted = Wanted { file, node, is_pulled: need == Need::Here };
        if let Coming::Begins = self.parts.sites.homecomings.wait(wanted, until, then) {
            self.begin_homecoming(wanted);
        }
    }

    fn begin_homecoming(self: &Arc<Self>, wanted: Wanted) {
        let this = Arc::clone(self);
        let run = thread::Builder::new().name("homecoming".to_owned());
        let spawned = run.spawn(move || {
            let mut next = Some(wanted);
            while let Some(wanted) = next {
                let file = wanted.file.ino;
                let result = this.bring_home(wanted);
                if let Err(error) = &result {
                    tracing::warn!(%error, %file, "bytes of a file do not come home");
                }
                next = this.parts.sites.homecomings.end(file, result);
            }
        });
        if spawned.is_err() {
            let mut next = Some(wanted);
            while let Some(wanted) = next {
                let busy = Err(Code::Busy.into());
                next = self.parts.sites.homecomings.end(wanted.file.ino, busy);
            }
        }
    }

    /// Brings the bytes of a file home, or has the other site write nothing there any more. Blocks.
    /// If they are not there any more, this does nothing.
    fn bring_home(self: &Arc<Self>, wanted: Wanted) -> Result<(), Error> {
        let Wanted { file, node, is_pulled } = wanted;
        let upstream = self.parts.sites.upstream(node.site())?;
        // If a loss of power made this site forget the place, the other one must still take the
        // bytes for its own.
        self.when_home_is_safe()?;
        let given = match self.ask_for_bytes(&upstream, file.ino, node) {
            Ok(Reply::Attr(given)) => given,
            _ if self.node_elsewhere(file) != Some(node) => return Ok(()),
            Ok(_) => return Err(lost_bytes()),
            Err(error) => return Err(of_lost_node(error)),
        };
        let opens = &self.parts.opens;
        // What the other site could not tell. The bytes may not come, because the line is cut.
        let Attr { size, mtime, .. } = given;
        let flags = PlaceFlags { given: true, ..PlaceFlags::default() };
        let place = NewPlace { node, size, mtime, since: Time::default(), flags };
        let mut result = opens.set_bytes_at(file, &place).map(drop);
        if result.is_ok() && is_pulled {
            let mut fill = |content: &ContentFile| self.pull(&upstream, file, &given, content);
            result = opens.bring_home(file, node, &mut fill);
        }
        match result {
            Ok(()) if is_pulled => self.drop_when_safe(file, node),
            // They are not there any more, or the file is gone.
            Err(error) if matches!(error.code, Code::Exists | Code::Stale) => {}
            result => return result,
        }
        Ok(())
    }

    /// Asks another site for the bytes in a node, again while a change of them is under way there.
    fn ask_for_bytes(
        &self,
        upstream: &Arc<Upstream>,
        file: InodeId,
        node: InodeId,
    ) -> Result<Reply, Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            let give = Request::GiveBytes { node: Handle::own(node), file };
            let given = Arc::clone(upstream).ask_and_wait(give);
            let is_busy = given.as_ref().is_err_and(|error| error.code == Code::Busy);
            if !is_busy || Instant::now() >= until || *self.stopped.read_recursive() {
                return given;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits until all is safe that was done.
    pub(super) fn when_home_is_safe(&self) -> Result<(), Error> {
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
        let open = upstream.own_open();
        let context = Context::direct(0, 0);
        let flags = OpenFlags { no_atime: true, ..OpenFlags::READ };
        let opening = Request::Open { node: Handle::own(node.ino), flags, open };
        Arc::clone(upstream).ask_and_wait(opening).map_err(of_lost_node)?;
        // A disk there that has lost bytes says so now: no program opens the node after this.
        let sync = Request::Fsync { open, data_only: true };
        let synced = Arc::clone(upstream).ask_and_wait(sync);
        let pulled = synced.map_err(of_lost_node);
        let pulled = pulled.and_then(|_| self.pull_opened(upstream, file, open, content));
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
        let mut offset = 0;
        loop {
            let request = Request::Read { open, offset, size: PULLED_BYTES };
            let read = Arc::clone(upstream).ask_and_wait(request);
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

/// The most repetitions of a read that brings too few bytes: for as long as the other site may wait
/// until it can tell of a smaller size.
const READ_ATTEMPTS: u32 = 100;

/// The bytes of one read of those that come home.
const PULLED_BYTES: u32 = 256 << 10;

/// Returns what a request needs of the bytes of an open file.
fn need_of_open(request: &Request) -> Option<Need> {
    match request {
        Request::Read { .. } | Request::Seek { .. } => Some(Need::Read),
        Request::Fsync { .. } | Request::FsyncAt { .. } => Some(Need::Safe),
        Request::SetAttr { set, .. } if set.size == Some(0) => Some(Need::Given),
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
