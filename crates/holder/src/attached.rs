//! A directory of a far volume as the root of a tree of its own.
//!
//! A guest may use one directory, and its kernel needs a root. So each request that names the root
//! is sent with that directory instead, and each reply that names the directory is handed on with
//! the root. The server does not notice.
//!
//! The kernel of a guest checks modes by the user ids of its own machine, which mean nothing on the
//! machine of the files. So each file seems to belong to the user who attached the directory; the
//! server sends the bits of the owner for what the guest may do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{
    Attr, Bulk, Code, Context, Done, Entry, Error, Granted, Handle, InodeId, LeaseHolder,
    LeasedDone, LeasedService, OpenId, Reply, Request, Service, SetAttr, Then, Touched,
};

/// The bits of the owner.
const OWNER: u16 = 0o700;

/// A directory of a far volume, as a tree of its own.
pub struct Attached {
    service: Arc<dyn LeasedService>,
    view: View,
    /// The holder of the service below. Owned here, because a service has a weak reference only.
    holder: Mutex<Option<Arc<Renaming>>>,
}

/// A guest's view of the far volume: the directory that is its root, and the owner that its kernel
/// is shown.
#[derive(Debug, Clone, Copy)]
pub struct View {
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
    /// Returns the tree that a view has.
    #[must_use]
    pub fn new(service: Arc<dyn LeasedService>, view: View) -> Self {
        Self { service, view, holder: Mutex::default() }
    }
}

impl View {
    /// Returns the view in which this directory is the root, for this user and group. For a tree
    /// whose root is made by the client the directory is [`InodeId::ROOT`].
    #[must_use]
    pub const fn new(directory: InodeId, uid: u32, gid: u32) -> Self {
        Self { directory, uid, gid }
    }

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

    /// Replaces the root by the directory in a request, and leaves out a change to the owner that
    /// is shown: programs that copy files make it.
    ///
    /// # Errors
    /// `NotPermitted` for another owner.
    fn rename_request(&self, request: &mut Request) -> Result<(), Error> {
        if let Request::SetAttr { node, set, .. } = request {
            let is_other = set.uid.is_some_and(|uid| uid != self.uid)
                || set.gid.is_some_and(|gid| gid != self.gid);
            if is_other {
                return Err(Code::NotPermitted.into());
            }
            let names_owner = set.uid.take().is_some() | set.gid.take().is_some();
            let rest = SetAttr { kill_privileges: false, ..*set };
            if names_owner && rest.is_empty() {
                *request = Request::GetAttr { node: *node };
            }
        }
        if let Request::Find { ino } = request {
            *ino = self.inner(*ino);
        }
        request.each_handle_mut(&mut |handle| self.inner_handle(handle));
        Ok(())
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
            | Reply::Issued(_)
            | Reply::Access(_)
            | Reply::Audited(_)
            | Reply::Stepped { .. }
            | Reply::Charter { .. }
            | Reply::Revoked { .. }
            | Reply::Unreached { .. }
            | Reply::Clock { .. }
            | Reply::Hashes(_)
            | Reply::Token(_)
            | Reply::Servers(_) => {}
        }
    }

    fn rename_entry(&self, entry: &mut Entry) {
        if entry.handle.ino == self.directory {
            entry.handle = Handle::own(InodeId::ROOT);
        }
    }

    /// Changes attributes to those of a file of the attaching user.
    pub fn show(&self, attr: &mut Attr) {
        attr.ino = self.outer(attr.ino);
        attr.mode &= OWNER;
        attr.uid = self.uid;
        attr.gid = self.gid;
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
    pub(crate) fn renamed(self, done: LeasedDone) -> LeasedDone {
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
        if let Err(error) = view.rename_request(&mut request) {
            return Some(Err(error));
        }
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
        match self.view.rename_request(&mut request) {
            Ok(()) => self.service.ask_leased(context, request, bulk, self.view.renamed(done)),
            Err(error) => done(Err(error), Granted::default()),
        }
    }

    fn ask_first(&self, context: &Context, mut request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        match self.view.rename_request(&mut request) {
            Ok(()) => self.service.ask_first(context, request, bulk, self.view.renamed(done)),
            Err(error) => done(Err(error), Granted::default()),
        }
    }

    fn lease_left(&self) -> Duration {
        self.service.lease_left()
    }

    fn has_lost_lock(&self, open: OpenId) -> bool {
        self.service.has_lost_lock(open)
    }

    fn when_settled(&self, then: Then) {
        self.service.when_settled(then);
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

    fn everything_recalled(&self, then: Then) {
        match self.holder.upgrade() {
            Some(holder) => holder.everything_recalled(then),
            None => then(),
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
    use pelago_wire::FileKind;

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
        view().rename_request(&mut request).unwrap();
        assert_eq!(request, Request::GetAttr { node: Handle::own(DIRECTORY) });
        let mut request = Request::Find { ino: InodeId::ROOT };
        view().rename_request(&mut request).unwrap();
        assert_eq!(request, Request::Find { ino: DIRECTORY });
        let other = Handle::own(InodeId::from_raw(0x2b));
        let mut request = Request::Parent { dir: other };
        view().rename_request(&mut request).unwrap();
        assert_eq!(request, Request::Parent { dir: other });
    }

    #[test]
    fn the_directory_is_the_root_in_answers() {
        let attr = attr(DIRECTORY, FileKind::Directory, 0o7555);
        let mut reply = Reply::Entry(Entry { handle: Handle::own(DIRECTORY), attr });
        view().rename_reply(&mut reply);
        let Reply::Entry(Entry { handle, attr }) = reply else { panic!("{reply:?}") };
        assert_eq!(handle, Handle::own(InodeId::ROOT));
        assert_eq!((attr.ino, attr.mode), (InodeId::ROOT, 0o500));
    }

    #[test]
    fn everything_belongs_to_the_attaching_user() {
        let ino = InodeId::from_raw(0x2b);
        for (mode, shown) in [(0, 0), (0o644, 0o600), (0o4711, 0o700), (0o500, 0o500)] {
            let mut attr = attr(ino, FileKind::Regular, mode);
            view().show(&mut attr);
            let shown = Attr { mode: shown, uid: 1000, gid: 100, ..attr };
            assert_eq!(attr, shown, "{mode:o}");
        }
    }

    /// `tar` and `cp -p` set the owner that they have seen.
    #[test]
    fn the_owner_that_is_shown_can_be_set_and_no_other() {
        let node = Handle::own(InodeId::from_raw(0x2b));
        let owner = SetAttr { uid: Some(1000), gid: Some(100), ..SetAttr::default() };
        let ask = |set| {
            let mut request = Request::SetAttr { node, open: None, set };
            view().rename_request(&mut request).map(|()| request).map_err(|error| error.code)
        };
        assert_eq!(ask(owner), Ok(Request::GetAttr { node }));
        assert_eq!(ask(SetAttr { kill_privileges: true, ..owner }), Ok(Request::GetAttr { node }));
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let with_mode = SetAttr { mode: Some(0o600), ..owner };
        assert_eq!(ask(with_mode), Ok(Request::SetAttr { node, open: None, set: mode }));
        for other in
            [SetAttr { uid: Some(0), ..owner }, SetAttr { gid: Some(0), ..SetAttr::default() }]
        {
            assert_eq!(ask(other), Err(Code::NotPermitted));
        }
    }

    #[test]
    fn a_recall_of_the_directory_is_one_of_the_root() {
        let node = view().rename_touched(&Touched::Node(DIRECTORY));
        assert_eq!(node, Touched::Node(InodeId::ROOT));
    }
}
