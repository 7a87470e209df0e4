//! Opens of files of other sites, and changes of their attributes: before them the home is told, or
//! the bytes are given to it; after them the node that has the bytes here is opened, too.

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_data::OpenKey;
use pelago_wire::{
    Attr, Code, Context, DataPath, Done, Error, Handle, InodeId, OpenFlags, Reply, Request,
    SessionId, SetAttr, SetTime,
};

use super::writer::{here, made_open};
use super::{Dispatcher, Diverted, Parked, Submission, of_part};
use crate::stays::RemoteOpen;

/// An open of a file of another site, which its home has made.
#[derive(Clone, Copy)]
struct OpenThere {
    context: Context,
    open: OpenKey,
    flags: OpenFlags,
    /// The file, as its program knows it; `None` for a new one.
    file: Option<Handle>,
    /// The file is empty, because it is new or was emptied.
    is_empty: bool,
}

impl Dispatcher {
    /// Has the open of a file of another site, or a change of its attributes, carried out with what
    /// it means for bytes that are here.
    pub(super) fn divert_open<'a>(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'a>,
    ) -> Diverted<'a> {
        let own = self.parts.sites.own();
        let request = &submission.request;
        let Some(subject) = request.describe().subjects.each_inode().next() else {
            return ControlFlow::Continue(submission);
        };
        let home = subject.site();
        if home == own || subject.is_of_mount() {
            return ControlFlow::Continue(submission);
        }
        match request {
            Request::Open { flags, .. } if flags.truncate => {
                let flags = *flags;
                self.after_giving(context, subject, submission, move |this, parked| {
                    this.open_there(parked, home, flags, true);
                })
            }
            Request::Create { flags, .. } => {
                let flags = *flags;
                self.open_there(Parked::new(context, submission), home, flags, true);
            }
            Request::Open { .. } | Request::Reopen { .. } | Request::CreateUnnamed { .. } => {
                let Some((_, flags)) = made_open(request) else {
                    return ControlFlow::Continue(submission);
                };
                self.open_there(Parked::new(context, submission), home, flags, false);
            }
            Request::SetAttr { open: None, set, .. } if set.size.is_some() => {
                if !self.parts.sites.stays.concerns(subject) {
                    return ControlFlow::Continue(submission);
                }
                // So a kernel empties a file that a program opens with O_TRUNC, after the open.
                self.after_giving(context, subject, submission, move |this, parked| {
                    this.set_size_there(parked, home);
                });
            }
            Request::SetAttr { set, .. }
                if set.size.is_none() && self.parts.sites.stays.concerns(subject) =>
            {
                self.set_after_telling(context, subject, submission);
            }
            _ => return ControlFlow::Continue(submission),
        }
        ControlFlow::Break(None)
    }

    /// Sends a parked request to the home of its file.
    fn pass_parked(self: &Arc<Self>, parked: Parked, home: u16) {
        let Parked { context, request, done, .. } = parked;
        match self.admit_there(home, &context, &request) {
            Ok(_) => self.do_there(&context, home, request, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Has the size of a file set at its home. None of its bytes are here.
    fn set_size_there(self: &Arc<Self>, parked: Parked, home: u16) {
        let Parked { context, request, bytes, done } = parked;
        let file = request.describe().subjects.each_inode().next();
        let went_home = self.parts.sites.stays.went_home();
        let this = Arc::clone(self);
        let noted: Done = Box::new(move |result| {
            match (&result, file) {
                (Ok(Reply::Attr(attr)), _) => {
                    if let Some(node) = this.parts.sites.stays.note_size(attr, went_home) {
                        this.put_stay(node);
                    }
                }
                (_, Some(file)) => this.leave_stay(file),
                (_, None) => {}
            }
            done(result);
        });
        self.pass_parked(Parked { context, request, bytes, done: noted }, home);
    }

    /// Tells the home of a file what was written, and then sets attributes there.
    fn set_after_telling(
        self: &Arc<Self>,
        context: &Context,
        file: InodeId,
        submission: Submission<'_>,
    ) {
        let Parked { context, request, bytes, done } = Parked::new(context, submission);
        let sets_mtime = matches!(&request, Request::SetAttr { set, .. } if set.mtime.is_some());
        let this = Arc::clone(self);
        let noted: Done = Box::new(move |result| {
            if let Ok(Reply::Attr(attr)) = &result {
                this.note_set(attr, sets_mtime);
            }
            done(result);
        });
        let parked = Parked { context, request, bytes, done: noted };
        let Some(node) = self.parts.sites.stays.node_of(file) else {
            return self.pass_parked(parked, file.site());
        };
        let this = Arc::clone(self);
        let told = move |told: Result<(), Error>| match told {
            Ok(()) => this.pass_parked(parked, file.site()),
            Err(error) => (parked.done)(Err(error)),
        };
        self.tell(node, Box::new(told));
    }

    /// Records attributes of a file that a program here has set at its home.
    fn note_set(self: &Arc<Self>, attr: &Attr, sets_mtime: bool) {
        let stays = &self.parts.sites.stays;
        if let Some(node) = stays.note_set(attr) {
            self.put_stay(node);
        }
        if let Some(node) = stays.node_of(attr.ino).filter(|_| sets_mtime) {
            // The home gets the time of the node with the bytes.
            let set = SetAttr { mtime: Some(SetTime::To(attr.mtime)), ..SetAttr::default() };
            let request = Request::SetAttr { node: Handle::own(node), open: None, set };
            self.do_here(&Context::direct(0, 0), request, Box::new(|_set| {}));
        }
    }

    /// Calls `then` once nothing is written here any more into the bytes of a file, which its home
    /// is about to change. If the home does not know all of them, and cannot be told, the request
    /// fails: after it they would be given to a home that has never heard of them.
    fn after_giving(
        self: &Arc<Self>,
        context: &Context,
        file: InodeId,
        submission: Submission<'_>,
        then: impl FnOnce(&Arc<Self>, Parked) + Send + 'static,
    ) {
        let parked = Parked::new(context, submission);
        if let Err(error) = self.admit_there(file.site(), &parked.context, &parked.request) {
            return (parked.done)(Err(error));
        }
        let this = Arc::clone(self);
        let made = move || this.give_and_go_on(file, parked, then);
        self.parts.sites.stays.when_made(file, Box::new(made));
    }

    fn give_and_go_on(
        self: &Arc<Self>,
        file: InodeId,
        parked: Parked,
        then: impl FnOnce(&Arc<Self>, Parked) + Send + 'static,
    ) {
        let stays = &self.parts.sites.stays;
        let Some(node) = stays.node_of(file) else { return then(self, parked) };
        let this = Arc::clone(self);
        let parked = Arc::new(parking_lot::Mutex::new(Some((parked, then))));
        let late = Arc::clone(&parked);
        let quiet = Box::new(move || {
            let Some((parked, then)) = late.lock().take() else { return };
            let again = Arc::clone(&this);
            // First, so that it cannot arrive after the file was emptied.
            let told = move |told: Result<(), Error>| {
                let stays = &again.parts.sites.stays;
                if let Err(error) = told
                    && stays.is_used(node)
                {
                    stays.open_gate(node);
                    return (parked.done)(Err(error));
                }
                if stays.give(node).is_some() {
                    again.put_stay(node);
                }
                if let Request::SetAttr { .. } = parked.request {
                    // It says which size the lease is for, before what has waited goes on.
                    then(&again, parked);
                    return stays.open_gate(node);
                }
                again.leave_stay(file);
                stays.open_gate(node);
                then(&again, parked);
            };
            this.tell(node, Box::new(told));
        });
        if !stays.close_gate(node, quiet)
            && let Some((parked, _)) = parked.lock().take()
        {
            let this = Arc::clone(self);
            stays.when_open(node, Box::new(move || parked.go_on(&this)));
        }
    }

    /// Opens a file at its home, and then the node that has its bytes here.
    fn open_there(self: &Arc<Self>, parked: Parked, home: u16, flags: OpenFlags, is_empty: bool) {
        let Parked { context, request, done, .. } = parked;
        let upstream = match self.admit_there(home, &context, &request) {
            Ok(upstream) => upstream,
            Err(error) => return done(Err(error)),
        };
        let Some((open, _)) = made_open(&request) else { return done(Err(Code::Bug.into())) };
        let open = OpenKey::of(&context, open);
        let file = match &request {
            Request::Open { node, .. } | Request::Reopen { node, .. } => Some(*node),
            _ => None,
        };
        let there = OpenThere { context, open, flags, file, is_empty };
        let this = Arc::clone(self);
        let opened: Done = Box::new(move |result| match result {
            Ok(reply) => this.opened_there(there, reply, done),
            Err(error) => done(Err(error)),
        });
        let opened = self.ends_open_there(&upstream, context.session, &request, opened);
        self.do_there(&context, home, request, opened);
    }

    /// Records an open that the home of a file has made, and opens the node that has its bytes.
    fn opened_there(self: &Arc<Self>, there: OpenThere, reply: Reply, done: Done) {
        let OpenThere { context, open, flags, file, is_empty } = there;
        let (file, attr): (Handle, Attr) = match &reply {
            Reply::Created { entry, .. } => (entry.handle, entry.attr),
            Reply::Opened { attr, .. } => (file.unwrap_or_else(|| Handle::own(attr.ino)), *attr),
            _ => return done(Ok(reply)),
        };
        let is_own_mount = context.session == SessionId::DIRECT;
        let remote = RemoteOpen { file, flags, is_own_mount, empty_since: None, has_lost: false };
        let empty_since = (is_empty && attr.size == 0).then_some(attr.mtime);
        let Some(node) = self.parts.sites.stays.add_open(open, remote, empty_since) else {
            return done(Ok(reply));
        };
        if flags.write && self.parts.sites.stays.add_writer(node).is_some() {
            self.put_stay(node);
        }
        let this = Arc::clone(self);
        let opened: Done = Box::new(move |result| match result {
            Ok(_) => done(Ok(direct(reply))),
            Err(error) => {
                // The bytes have gone home meanwhile, or cannot be read here.
                let stays = &this.parts.sites.stays;
                if flags.write && stays.remove_writer(node).is_some() {
                    this.put_stay(node);
                }
                match stays.is_used(node) {
                    true => {
                        stays.remove_open(open);
                        let release = Request::Release { open: open.open };
                        let ended: Done = Box::new(move |_ended| done(Err(error)));
                        this.do_there(&of_part(&context), file.ino.site(), release, ended);
                    }
                    false => done(Ok(direct(reply))),
                }
            }
        });
        let node = Handle::own(node);
        let request = Request::Open { node, flags: here(flags), open: open.open };
        self.do_here(&of_part(&context), request, opened);
    }
}

/// Returns the reply to an open whose bytes no kernel keeps.
pub(super) fn direct(mut reply: Reply) -> Reply {
    if let Reply::Created { path, .. } | Reply::Opened { path, .. } = &mut reply {
        *path = DataPath::Direct;
    }
    reply
}
