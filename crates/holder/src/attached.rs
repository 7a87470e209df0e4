//! A directory of a far volume as the root of a tree of its own.
//!
//! A guest may use one directory, and its kernel needs a root. So each request that names the root
//! is sent with that directory instead, and each reply that names the directory is handed on with
//! the root. The server does not notice.
//!
//! The kernel of a guest checks modes by the user ids of its own machine, which mean nothing on the
//! machine of the files. So each file seems to belong to the user who attached the directory, with
//! the mode bits for what the guest may do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{
    Attr, Bulk, Context, Done, Entry, Error, FileKind, Granted, Handle, InodeId, LeaseHolder,
    LeasedDone, LeasedService, OpenId, Reply, Request, Service, Then, Touched,
};

/// The bit of the owner to read.
const READ: u16 = 0o400;
/// The bit of the owner to execute, or to search.
const EXECUTE: u16 = 0o100;
/// All bits to execute.
const ANY_EXECUTE: u16 = 0o111;

/// A directory of a far volume, as a tree of its own.
pub struct Attached {
    service: Arc<dyn LeasedService>,
    view: View,
    /// The holder of the service below. Owned here, because a service has a weak reference only.
    holder: Mutex<Option<Arc<Renaming>>>,
}

/// The kernel's view of the far volume.
#[derive(Debug, Clone, Copy)]
struct View {
    /// The directory that is the root.
    directory: InodeId,
    /// The user to whom each file seems to belong.
    uid: u32,
    /// The group to which each file seems to belong.
    gid: u32,
}

/// A holder whose recalls name the root if the server names the directory.
struct Renaming {
    holder: Weak<dyn LeaseHolder>,
    view: View,
}

impl Attached {
    /// Returns the tree of a directory, for this user and group.
    #[must_use]
    pub fn new(service: Arc<dyn LeasedService>, directory: InodeId, uid: u32, gid: u32) -> Self {
        let view = View { directory, uid, gid };
        Self { service, view, holder: Mutex::default() }
    }
}

impl View {
    /// Returns the inode that the server knows.
    fn inner(&self, ino: InodeId) -> InodeId {
        if ino == InodeId::ROOT { self.directory } else { ino }
    }

    /// Returns the inode that the kernel knows.
    fn outer(&self, ino: InodeId) -> InodeId {
        if ino == self.directory { InodeId::ROOT } else { ino }
    }

    fn inner_handle(&self, handle: &mut Handle) {
        if handle.ino == InodeId::ROOT {
            *handle = Handle::own(self.directory);
        }
    }

    /// Replaces the root by the directory in a request.
    fn rename_request(&self, request: &mut Request) {
        if let Request::Find { ino } = request {
            *ino = self.inner(*ino);
        }
        request.each_handle_mut(&mut |handle| self.inner_handle(handle));
    }

    /// Replaces the directory by the root in a reply.
    fn rename_reply(&self, reply: &mut Reply) {
        for attr in reply.attrs_mut() {
            self.show(attr);
        }
        match reply {
            Reply::Entry(entry) | Reply::Created { entry, .. } => self.rename_entry(entry),
            Reply::Renamed { replaced: Some(entry), .. } => {
                self.show(&mut entry.attr);
                self.rename_entry(entry);
            }
            Reply::Listed { entries, .. } => {
                for listed in entries {
                    listed.ino = self.outer(listed.ino);
                    listed.entry.iter_mut().for_each(|entry| self.rename_entry(entry));
                }
            }
            Reply::Done
            | Reply::Attr(_)
            | Reply::Opened { .. }
            | Reply::Removed(_)
            | Reply::Renamed { replaced: None, .. }
            | Reply::Data(_)
            | Reply::Bytes(_)
            | Reply::Written { .. }
            | Reply::Offset(_)
            | Reply::Volume(_)
            | Reply::Lock(_)
            | Reply::Found(_)
            | Reply::Tagged(_)
            | Reply::Stepped { .. }
            | Reply::Servers(_) => {}
        }
    }

    fn rename_entry(&self, entry: &mut Entry) {
        if entry.handle.ino == self.directory {
            entry.handle = Handle::own(InodeId::ROOT);
        }
    }

    /// Changes attributes to those of a file of the attaching user, with a guest's mode bits.
    fn show(&self, attr: &mut Attr) {
        attr.ino = self.outer(attr.ino);
        let may_execute = attr.kind == FileKind::Directory || attr.mode & ANY_EXECUTE != 0;
        attr.mode = READ | if may_execute { EXECUTE } else { 0 };
        attr.uid = self.uid;
        attr.gid = self.gid;
        // A guest has no right to extended attributes: its kernel need not ask for them.
        attr.has_xattrs = false;
    }

    fn rename_answer(&self, result: &mut Result<Reply, Error>, granted: &mut Granted) {
        if let Ok(reply) = result {
            self.rename_reply(reply);
        }
        if let Some(changed) = &mut granted.changed {
            self.show(changed);
        }
    }

    /// Returns a callback that renames in a reply before it calls `done`.
    fn renamed(self, done: LeasedDone) -> LeasedDone {
        Box::new(move |mut result, mut granted| {
            self.rename_answer(&mut result, &mut granted);
            done(result, granted);
        })
    }

    fn rename_touched(&self, touched: &Touched) -> Touched {
        match touched {
            Touched::Node(ino) => Touched::Node(self.outer(*ino)),
            Touched::Bytes(ino) => Touched::Bytes(self.outer(*ino)),
            Touched::Name { dir, name } => {
                Touched::Name { dir: self.outer(*dir), name: name.clone() }
            }
        }
    }
}

impl Service for Attached {
    fn ask(
        &self,
        context: &Context,
        mut request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let view = self.view;
        view.rename_request(&mut request);
        let mut later = || -> Done {
            let done = later();
            Box::new(move |mut result| {
                view.rename_answer(&mut result, &mut Granted::default());
                done(result);
            })
        };
        let mut result = self.service.ask(context, request, bulk, &mut later)?;
        view.rename_answer(&mut result, &mut Granted::default());
        Some(result)
    }

    fn cancel(&self, context: &Context) {
        self.service.cancel(context);
    }

    fn forsake(&self, context: &Context) {
        self.service.forsake(context);
    }

    fn forgotten(&self, removed: InodeId) {
        self.service.forgotten(removed);
    }

    fn losses(&self) -> u64 {
        self.service.losses()
    }

    fn silence(&self) -> Option<Duration> {
        self.service.silence()
    }
}

impl LeasedService for Attached {
    fn ask_leased(
        &self,
        context: &Context,
        mut request: Request,
        bulk: Bulk<'_>,
        done: LeasedDone,
    ) {
        self.view.rename_request(&mut request);
        self.service.ask_leased(context, request, bulk, self.view.renamed(done));
    }

    fn ask_first(&self, context: &Context, mut request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.view.rename_request(&mut request);
        self.service.ask_first(context, request, bulk, self.view.renamed(done));
    }

    fn lease_left(&self) -> Duration {
        self.service.lease_left()
    }

    fn has_lost_lock(&self, open: OpenId) -> bool {
        self.service.has_lost_lock(open)
    }

    fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        let renaming = Arc::new(Renaming { holder, view: self.view });
        let weak: Weak<Renaming> = Arc::downgrade(&renaming);
        let mut present = self.holder.lock();
        if present.is_none() {
            *present = Some(renaming);
            drop(present);
            self.service.set_holder(weak);
        }
    }
}

impl LeaseHolder for Renaming {
    fn recalled(&self, touched: Arc<[Touched]>, then: Then) {
        match self.holder.upgrade() {
            Some(holder) => {
                let touched = touched.iter().map(|each| self.view.rename_touched(each)).collect();
                holder.recalled(touched, then);
            }
            None => then(),
        }
    }

    fn lost(&self) {
        if let Some(holder) = self.holder.upgrade() {
            holder.lost();
        }
    }

    fn flush(&self, then: Then) {
        match self.holder.upgrade() {
            Some(holder) => holder.flush(then),
            None => then(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: InodeId = InodeId::from_raw(0x2a);

    fn view() -> View {
        View { directory: DIRECTORY, uid: 1000, gid: 100 }
    }

    fn attr(ino: InodeId, kind: FileKind, mode: u16) -> Attr {
        Attr { mode, uid: 7, gid: 8, has_xattrs: true, ..Attr::empty(ino, kind) }
    }

    #[test]
    fn the_root_is_the_directory_in_requests() {
        let mut request = Request::GetAttr { node: Handle::own(InodeId::ROOT) };
        view().rename_request(&mut request);
        assert_eq!(request, Request::GetAttr { node: Handle::own(DIRECTORY) });
        let mut request = Request::Find { ino: InodeId::ROOT };
        view().rename_request(&mut request);
        assert_eq!(request, Request::Find { ino: DIRECTORY });
        let other = Handle::own(InodeId::from_raw(0x2b));
        let mut request = Request::Parent { dir: other };
        view().rename_request(&mut request);
        assert_eq!(request, Request::Parent { dir: other });
    }

    #[test]
    fn the_directory_is_the_root_in_answers() {
        let attr = attr(DIRECTORY, FileKind::Directory, 0o7000);
        let mut reply = Reply::Entry(Entry { handle: Handle::own(DIRECTORY), attr });
        view().rename_reply(&mut reply);
        let Reply::Entry(Entry { handle, attr }) = reply else { panic!("{reply:?}") };
        assert_eq!(handle, Handle::own(InodeId::ROOT));
        assert_eq!((attr.ino, attr.mode), (InodeId::ROOT, 0o500));
    }

    #[test]
    fn everything_belongs_to_the_attaching_user_and_can_be_read() {
        let ino = InodeId::from_raw(0x2b);
        for (mode, shown) in [(0, 0o400), (0o644, 0o400), (0o4711, 0o500), (0o001, 0o500)] {
            let mut attr = attr(ino, FileKind::Regular, mode);
            view().show(&mut attr);
            let shown = Attr { mode: shown, uid: 1000, gid: 100, has_xattrs: false, ..attr };
            assert_eq!(attr, shown, "{mode:o}");
        }
    }

    #[test]
    fn a_recall_of_the_directory_is_one_of_the_root() {
        let node = view().rename_touched(&Touched::Node(DIRECTORY));
        assert_eq!(node, Touched::Node(InodeId::ROOT));
    }
}
