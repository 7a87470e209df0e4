//! OPEN, CREATE and TMPFILE: the server's data path becomes the flags of the kernel's reply.
//!
//! Linux refuses an open that uses pages while the same inode is open by passthrough, and the
//! reverse (`EIO`, Linux 6.9 and later). So the server chooses the data path for an inode, not for
//! an open. For passthrough the descriptor is registered with the kernel first. If the kernel
//! accepts no descriptors at all, the file is closed and opened again without passthrough, as all
//! files are from then on. If only this descriptor was refused, the open fails. Otherwise the inode
//! would be open through pages here, while the server still grants passthrough to its next open,
//! which the kernel would refuse.
//!
//! In a mount under leases an open that only reads (no append, no truncation, no strict atime) uses
//! pages while the attributes of the file are under a lease. All other opens bypass the pages: so
//! the server sees each write at once, and each read returns the bytes that others have written.
//! The holder below reads ahead for them, while it has the lease on the bytes
//! (`holder::read_ahead`).

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pelago_client::{At, Created, Opened};
use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::protocol::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_PASSTHROUGH};
use pelago_fuse::{Errno, Reply, device, reply};
use pelago_wire::{
    Attr, Backing, Context, DataPath, Entry, Error, Handle, InodeId, OpenFlags, OpenId, Touched,
};

use crate::close::Ending;
use crate::late_names::touched_name;
use crate::lifetimes::Sample;
use crate::open_ids::OpenPath;
use crate::page_versions::Pages;
use crate::state::State;
use crate::{attr, flags};

/// An OPEN, CREATE or TMPFILE in progress.
pub(crate) struct Opening<D> {
    pub(crate) state: Arc<State>,
    pub(crate) context: Context,
    pub(crate) wanted: OpenFlags,
    /// The flags of the program's call (`O_DIRECT`, `O_APPEND`).
    pub(crate) program_flags: i32,
    /// Sample of the file, or for CREATE of its name, from before the request to the server.
    pub(crate) sample: Sample,
    pub(crate) reply: D,
}

/// The reply to an OPEN.
pub(crate) struct OpenReply {
    pub(crate) reply: Reply<reply::Opened>,
    /// The thread that waits for it.
    pub(crate) thread: u32,
}

/// The reply to a CREATE or TMPFILE, without its entry.
pub(crate) struct CreateReply {
    pub(crate) reply: Reply<reply::Created>,
    /// The thread that waits for it.
    pub(crate) thread: u32,
    /// The name, if it may be under a lease.
    pub(crate) name: Option<Box<At>>,
    /// The name, if it was made.
    pub(crate) made: Option<At>,
}

/// The reply to a CREATE or TMPFILE, with the entry of the file that was found or created.
struct EntryReply {
    reply: Reply<reply::Created>,
    thread: u32,
    name: Option<Box<At>>,
    made: Option<At>,
    state: Arc<State>,
    sample: Sample,
    entry: Entry,
    may_keep: MayKeep,
}

/// The parts of an entry that the kernel may keep, as far as this mount alone decides it.
#[derive(Clone, Copy)]
pub(crate) struct MayKeep {
    pub(crate) name: bool,
    pub(crate) attr: bool,
}

/// A reply that can say that a file is open: OPEN and CREATE have different forms of it.
pub(crate) trait ReplyTo: Send + 'static {
    /// Registers a descriptor with the kernel.
    fn register(&self, backing: &Backing) -> io::Result<device::Backing>;

    /// Replies that the file is open. Returns whether the kernel has the open from now on: not if
    /// the program was killed.
    fn open(self, opened: reply::Opened) -> bool;

    fn error(self, error: Errno);
}

impl Opening<OpenReply> {
    /// Continues an OPEN with the reply of the server.
    pub(crate) fn opened(self, handle: Handle, opened: Result<Opened, Error>) {
        self.state.used(self.reply.thread, &opened);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return self.reply.reply.error(attr::error(error)),
        };
        // The kernel does not see changes through a mapping of a passthrough file, and would keep
        // the times that it has cached. An ordinary user's open may also have cleared setuid and
        // setgid bits.
        let changes_unseen = self.wanted.read || self.context.uid != 0;
        if self.wanted.write && changes_unseen && matches!(opened.path, DataPath::Passthrough(_)) {
            self.state.forget_attr(opened.attr.ino);
        }
        if self.state.lifetimes.may_have_changed(opened.attr.ino) {
            // The kernel may have installed attributes that it read before the change.
            self.state.forget_attr(opened.attr.ino);
        }
        self.answer(handle, opened);
    }
}

impl Opening<CreateReply> {
    /// Continues a CREATE with the new file. The kernel may keep name and attributes: the file is
    /// new and empty, so a mapping cannot change it unseen.
    pub(crate) fn created(mut self, made: Option<At>, created: Created) {
        self.reply.made = made;
        let may_keep = MayKeep { name: true, attr: true };
        self.found(may_keep, created.entry, created.open, created.path);
    }

    /// Continues a CREATE or TMPFILE with a file that was made, or found by its name, and opened.
    pub(crate) fn found(self, may_keep: MayKeep, entry: Entry, open: OpenId, path: DataPath) {
        let Self { state, context, wanted, program_flags, sample, reply } = self;
        let writes_update_attrs = !(flags::is_direct(program_flags) && wanted.write);
        let may_keep = MayKeep { attr: may_keep.attr && writes_update_attrs, ..may_keep };
        let CreateReply { reply, thread, name, made } = reply;
        let shared = Arc::clone(&state);
        let reply =
            EntryReply { reply, thread, name, made, state: shared, sample, entry, may_keep };
        let opening = Opening { state, context, wanted, program_flags, sample, reply };
        opening.answer(entry.handle, Opened { open, attr: entry.attr, path });
    }
}

impl<D: ReplyTo> Opening<D> {
    fn answer(self, handle: Handle, opened: Opened) {
        let Opened { open, attr, path } = opened;
        match path {
            DataPath::Cached if self.state.lifetimes.is_leased() => self.under_lease(open, &attr),
            DataPath::Cached if self.is_without_pages(attr.ino) => {
                self.through_daemon(open, &attr, OpenPath::Direct, FOPEN_DIRECT_IO);
            }
            DataPath::Cached => {
                let pages = self.pages(attr.ino);
                self.through_daemon(open, &attr, OpenPath::Cached, pages);
            }
            DataPath::Direct => {
                self.through_daemon(open, &attr, OpenPath::Direct, FOPEN_DIRECT_IO);
            }
            DataPath::Passthrough(backing) => {
                let register = || self.reply.register(&backing);
                match self.state.backings.acquire(attr.ino, register) {
                    Ok(registered) => {
                        let backing = Some(registered.id());
                        let file = FileId(open.0);
                        // Linux refuses `FOPEN_KEEP_CACHE` beside this flag (`EIO`).
                        let flags = FOPEN_PASSTHROUGH;
                        let opened = reply::Opened { file, flags, backing };
                        self.give(attr.ino, OpenPath::Passthrough, opened);
                    }
                    Err(error) => {
                        if self.state.passthrough.turn_off_if_lasting(&error) {
                            self.open_without(handle, open);
                        } else {
                            self.fail(open, errno(&error));
                        }
                    }
                }
            }
        }
    }

    fn through_daemon(self, open: OpenId, attr: &Attr, path: OpenPath, flags: u32) {
        if flags::is_direct(self.program_flags) && self.wanted.write {
            // Linux does not invalidate cached attributes after an asynchronous direct write, which
            // changes times and bytes: from now on readers through pages must request attributes.
            self.state.forget_attr(attr.ino);
        }
        let opened = reply::Opened { file: FileId(open.0), flags, backing: None };
        self.give(attr.ino, path, opened);
    }

    /// Gives an open to the kernel. If the program was killed, the open is released.
    fn give(self, ino: InodeId, path: OpenPath, opened: reply::Opened) {
        let open = OpenId(opened.file.0);
        self.count(open, ino, path);
        let Self { state, context, wanted, reply, .. } = self;
        if !reply.open(opened) {
            if wanted.truncate {
                state.changed_late(&[Touched::Node(ino), Touched::Bytes(ino)]);
            }
            Ending { open, ino, write: wanted.write }.unwanted(&state, &context);
        }
    }

    /// Replies to an open in a mount under leases: with pages, if it only reads and the attributes
    /// of the file are under a lease. Pages of another version are dropped before the reply.
    fn under_lease(self, open: OpenId, attr: &Attr) {
        let uses_pages = !self.wanted.write
            && !self.wanted.truncate
            && !flags::appends(self.program_flags)
            && self.pages(attr.ino) == FOPEN_KEEP_CACHE;
        let state = Arc::clone(&self.state);
        let attr = *attr;
        let pages = if uses_pages { state.open_pages(&attr) } else { None };
        let Some(pages) = pages else {
            state.page_versions.bypass(attr.ino);
            return self.through_daemon(open, &attr, OpenPath::Direct, FOPEN_DIRECT_IO);
        };
        let flags = if pages == Pages::Unknown { 0 } else { FOPEN_KEEP_CACHE };
        let go = move || self.through_daemon(open, &attr, OpenPath::Cached, flags);
        state.stale_pages.when_clean(attr.ino, go);
    }

    /// Returns whether an open may use no pages. An append beside other sessions must reach the
    /// server as one request, but Linux divides a write that goes through pages. A read through
    /// pages ends at the size that the kernel has cached, which may be old while another session
    /// writes.
    fn is_without_pages(&self, ino: InodeId) -> bool {
        let lifetimes = &self.state.lifetimes;
        lifetimes.keeps_nothing()
            || lifetimes.changes_now(ino)
            || flags::appends(self.program_flags) && lifetimes.is_shared()
    }

    /// Returns the flag for the pages of a file. Pages stay valid across opens, because all changes
    /// pass this kernel and its page cache, unless an open by passthrough has bypassed it. In a
    /// mount under leases the caller has checked the version.
    fn pages(&self, ino: InodeId) -> u32 {
        if self.wanted.strict_atime && !self.wanted.no_atime {
            // A read that the kernel serves from pages causes no request, and would not update
            // atime.
            return FOPEN_DIRECT_IO;
        }
        if self.state.backings.has_bypassed(ino) { 0 } else { FOPEN_KEEP_CACHE }
    }

    /// Counts an open that the kernel is about to get.
    fn count(&self, open: OpenId, ino: InodeId, path: OpenPath) {
        self.state.open_ids.add(open, path, self.wanted.write);
        if self.wanted.write {
            let can_map = self.wanted.read && path != OpenPath::Passthrough;
            self.state.attr_ttl.write_opened(ino, can_map);
        }
    }

    /// Releases the open and opens the file again without passthrough.
    fn open_without(self, handle: Handle, open: OpenId) {
        let files = self.state.files.clone();
        files.release(&self.context, open).then(move |released| {
            if let Err(error) = released {
                return self.reply.error(attr::error(error));
            }
            let files = self.state.files.clone();
            // The first open has truncated the file.
            let flags = OpenFlags { passthrough: false, truncate: false, ..self.wanted };
            files.open(&self.context, handle, flags).then(move |opened| match opened {
                // Other opens of the file still use passthrough, so this one cannot use pages.
                Ok(Opened { open, path: DataPath::Passthrough(_), .. }) => {
                    self.fail(open, Errno::IO);
                }
                Ok(opened) => self.answer(handle, opened),
                Err(error) => self.reply.error(attr::error(error)),
            });
        });
    }

    /// Releases the open and replies with `why`, or with the error of the release.
    fn fail(self, open: OpenId, why: Errno) {
        let files = self.state.files.clone();
        files.release(&self.context, open).then(move |released| {
            let error = released.err().map_or(why, attr::error);
            self.reply.error(error);
        });
    }
}

impl State {
    /// Invalidates cached attributes of a file. With a negative offset Linux touches no page, so
    /// the notice waits for no lock.
    pub(crate) fn forget_attr(&self, ino: InodeId) {
        let Some(kernel) = self.kernel.get() else { return };
        if let Err(error) = kernel.inval_inode(NodeId(ino.raw()), -1, 0) {
            tracing::debug!(%error, "cached attributes of a file cannot be invalidated");
        }
    }
}

impl ReplyTo for OpenReply {
    fn register(&self, backing: &Backing) -> io::Result<device::Backing> {
        self.reply.open_backing(backing.as_fd())
    }

    fn open(mut self, opened: reply::Opened) -> bool {
        let is_given = self.reply.claim();
        self.reply.ok(&opened);
        is_given
    }

    fn error(self, error: Errno) {
        self.reply.error(error);
    }
}

impl ReplyTo for EntryReply {
    fn register(&self, backing: &Backing) -> io::Result<device::Backing> {
        self.reply.open_backing(backing.as_fd())
    }

    fn open(self, opened: reply::Opened) -> bool {
        let Self { mut reply, thread, name, made, state, sample, entry, may_keep } = self;
        if !reply.claim() {
            if let Some(made) = &made {
                state.changed_late(&[touched_name(made), Touched::Node(entry.attr.ino)]);
            }
            if made.is_none() && entry.attr.links == 0 {
                // The kernel never had the file without a name, and forgets nothing.
                state.forget_unlinked(entry.attr.ino);
            }
            return false;
        }
        state.learn(entry.handle);
        state.keep_entry(thread, &entry);
        let keeps_attr = may_keep.attr && state.entry_holds(&entry.attr);
        let guard = state.reply_guard();
        let ttl = |may_keep, ttl| if may_keep { ttl } else { Duration::ZERO };
        let name_ttl = ttl(may_keep.name, guard.name_at(&sample, name.as_deref()));
        let attr_ttl = ttl(keeps_attr, guard.created_attr(&entry, &sample));
        let entry = attr::entry(&entry, name_ttl, attr_ttl);
        reply.ok(&reply::Created { entry, opened });
        true
    }

    fn error(self, error: Errno) {
        self.reply.error(error);
    }
}

/// Returns the errno of a refused registration.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc::{Sender, channel};

    use parking_lot::Mutex;
    use pelago_client::Files;
    use pelago_wire::{Bulk, Code, Done, FileKind, LeaseTimes, Name, Request, Service};

    use super::*;
    use crate::init::TTL;
    use crate::options::Keeps;
    use crate::state::Preferences;

    const FLAGS: OpenFlags = OpenFlags {
        read: true,
        write: true,
        append: false,
        truncate: true,
        sync: false,
        kill_privileges: false,
        no_atime: false,
        strict_atime: false,
        passthrough: true,
    };

    /// A server that records requests, and opens files without passthrough.
    #[derive(Default)]
    struct Server(Mutex<Vec<Recorded>>);

    #[derive(Debug, PartialEq)]
    enum Recorded {
        Open { open: OpenId, passthrough: bool, truncate: bool },
        Release(OpenId),
    }

    impl Service for Server {
        fn ask(
            &self,
            _context: &Context,
            request: Request,
            _bulk: Bulk<'_>,
            _later: &mut dyn FnMut() -> Done,
        ) -> Option<Result<pelago_wire::Reply, Error>> {
            let mut requests = self.0.lock();
            Some(match request {
                Request::Open { flags: OpenFlags { passthrough, truncate, .. }, open, .. } => {
                    requests.push(Recorded::Open { open, passthrough, truncate });
                    Ok(pelago_wire::Reply::Opened { attr: attr(), path: DataPath::Cached })
                }
                Request::Release { open } => {
                    requests.push(Recorded::Release(open));
                    Ok(pelago_wire::Reply::Done)
                }
                _ => Err(Code::Bug.into()),
            })
        }
    }

    /// The reply of a kernel that refuses descriptors.
    struct Refusing {
        why: i32,
        answer: Sender<Result<OpenId, i32>>,
    }

    impl ReplyTo for Refusing {
        fn register(&self, _backing: &Backing) -> io::Result<device::Backing> {
            Err(io::Error::from_raw_os_error(self.why))
        }

        fn open(self, opened: reply::Opened) -> bool {
            assert!(opened.backing.is_none());
            self.answer.send(Ok(OpenId(opened.file.0))).unwrap();
            true
        }

        fn error(self, error: Errno) {
            self.answer.send(Err(error.raw_os_error())).unwrap();
        }
    }

    fn attr() -> Attr {
        Attr::empty(InodeId::from_raw(9), FileKind::Regular)
    }

    /// Opens a file whose descriptor the kernel refuses with `why`. Returns what the program gets,
    /// and the requests to the server.
    fn refused(why: Errno) -> (Result<OpenId, i32>, Vec<Recorded>) {
        let server = Arc::new(Server::default());
        let files = Files::new(Arc::clone(&server) as Arc<dyn Service>);
        let state = Arc::new(State::new(files, Preferences::default()));
        let (answer, answered) = channel();
        let reply = Refusing { why: why.raw_os_error(), answer };
        let context = Context::direct(0, 0);
        let wanted = FLAGS;
        let program_flags = 0;
        let sample = state.sample(attr().ino);
        let opening =
            Opening { state: Arc::clone(&state), context, wanted, program_flags, sample, reply };
        let path = DataPath::Passthrough(Backing::new(File::open("/dev/null").unwrap().into()));
        opening.answer(Handle::own(attr().ino), Opened { open: OpenId(7), attr: attr(), path });
        let requests = std::mem::take(&mut *server.0.lock());
        assert_eq!(state.open_ids.take().len(), usize::from(requests.len() == 2));
        (answered.recv().unwrap(), requests)
    }

    #[test]
    fn a_kernel_without_passthrough_gets_the_file_opened_without_it() {
        let (answer, requests) = refused(Errno::LOOP);
        let open = answer.unwrap();
        let again = Recorded::Open { open, passthrough: false, truncate: false };
        assert_eq!(requests, [Recorded::Release(OpenId(7)), again]);
    }

    struct Leases;

    impl LeaseTimes for Leases {
        fn attr_left(&self, ino: InodeId) -> Duration {
            if ino == attr().ino { TTL } else { Duration::ZERO }
        }

        fn attr_holds(&self, attr: &Attr) -> Duration {
            self.attr_left(attr.ino)
        }

        fn name_left(&self, _dir: InodeId, _name: &Name) -> Duration {
            Duration::ZERO
        }
    }

    /// The reply to a program that was killed.
    struct Gone;

    impl ReplyTo for Gone {
        fn register(&self, _backing: &Backing) -> io::Result<device::Backing> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn open(self, _opened: reply::Opened) -> bool {
            false
        }

        fn error(self, error: Errno) {
            panic!("{error:?}");
        }
    }

    #[test]
    fn an_open_that_comes_after_its_program_was_killed_is_released() {
        let server = Arc::new(Server::default());
        let service = Arc::clone(&server) as Arc<dyn Service>;
        let state = Arc::new(State::new(Files::new(service), Preferences::default()));
        let ino = InodeId::from_raw(9);
        let open = OpenId(7);
        let attr = Attr::empty(ino, FileKind::Regular);
        let opening = Opening {
            sample: state.sample(ino),
            state: Arc::clone(&state),
            context: Context::direct(0, 0),
            wanted: FLAGS,
            program_flags: 0,
            reply: Gone,
        };
        opening.answer(Handle::own(ino), Opened { open, attr, path: DataPath::Cached });
        assert_eq!(*server.0.lock(), [Recorded::Release(open)]);
        assert_eq!(state.open_ids.take(), []);
    }

    /// The reply of a kernel that reports the flags of an open.
    struct Flags(Sender<u32>);

    impl ReplyTo for Flags {
        fn register(&self, _backing: &Backing) -> io::Result<device::Backing> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn open(self, opened: reply::Opened) -> bool {
            self.0.send(opened.flags).unwrap();
            true
        }

        fn error(self, error: Errno) {
            panic!("{error:?}");
        }
    }

    #[test]
    fn under_a_lease_an_open_that_only_reads_uses_pages_and_keeps_those_of_its_version() {
        let server = Arc::new(Server::default());
        let keeps = Keeps::Leased(Arc::new(Leases));
        let preferences = Preferences { keeps, ..Preferences::default() };
        let state = Arc::new(State::new(Files::new(server as Arc<dyn Service>), preferences));
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let open = |wanted, program_flags, attr: Attr| {
            let (answer, answered) = channel();
            let state = Arc::clone(&state);
            let context = Context::direct(0, 0);
            let sample = state.sample(attr.ino);
            let reply = Flags(answer);
            let opening = Opening { state, context, wanted, program_flags, sample, reply };
            let opened = Opened { open: OpenId(7), attr, path: DataPath::Cached };
            opening.answer(Handle::own(attr.ino), opened);
            answered.recv().unwrap()
        };
        let changed = Attr { ctime: attr().ctime.next(), ..attr() };
        assert_eq!(open(read, 0, attr()), 0, "the kernel drops what it may have");
        assert_eq!(open(read, 0, attr()), FOPEN_KEEP_CACHE);
        assert_eq!(open(read, 0, changed), FOPEN_KEEP_CACHE, "they were dropped before");
        assert!(state.page_versions.are_used(attr().ino));
        let append = rustix::fs::OFlags::APPEND.bits().cast_signed();
        let others = [
            (OpenFlags { write: true, ..read }, 0, attr()),
            (OpenFlags { truncate: true, ..read }, 0, attr()),
            (OpenFlags { strict_atime: true, ..read }, 0, attr()),
            (read, append, attr()),
            (read, 0, Attr { volatile: true, ..attr() }),
            (read, 0, Attr { ino: InodeId::from_raw(10), ..attr() }),
        ];
        for (wanted, program_flags, attr) in others {
            assert_eq!(open(wanted, program_flags, attr), FOPEN_DIRECT_IO, "{wanted:?} {attr:?}");
        }
    }

    #[test]
    fn a_single_refused_descriptor_fails_the_open() {
        let nomem = Errno::NOMEM;
        let (answer, requests) = refused(nomem);
        let told = Err(nomem.raw_os_error());
        assert_eq!((answer, requests), (told, vec![Recorded::Release(OpenId(7))]));
    }
}
