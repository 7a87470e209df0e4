//! A file on its way to being open: the server's answer becomes the kernel's.
//!
//! The server says how the bytes are reached. Where that is a descriptor, the kernel is given it
//! first. Where it takes none at all, the file is closed and opened once more without, as all are
//! from then on. Where it may take the next one, the open fails: the server does not count an open
//! without as one of this kernel, and would let the next go by a descriptor beside it (`EIO`).

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::protocol::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, FOPEN_PASSTHROUGH};
use pelago_fuse::{Errno, Reply, device, reply};
use pelago_wire::{
    Attr, Backing, Code, Context, DataPath, Entry, Error, FileKind, Handle, InodeId, OpenFlags,
    OpenId,
};

use crate::attr;
use crate::init::TTL;
use crate::open_ids::OpenPath;
use crate::state::State;
use pelago_client::{At, Created, Opened};

/// An OPEN or CREATE on its way.
pub(crate) struct Opening<D> {
    pub(crate) state: Arc<State>,
    pub(crate) context: Context,
    pub(crate) wanted: OpenFlags,
    /// Reads and writes go past the pages (`O_DIRECT`).
    pub(crate) direct: bool,
    pub(crate) reply: D,
}

/// Where the answer to an OPEN goes.
pub(crate) struct OpenReply(pub(crate) Reply<reply::Opened>);

/// Where the answer to a CREATE or TMPFILE goes.
pub(crate) struct CreateReply(pub(crate) Reply<reply::Created>);

/// Where the answer to a CREATE goes, with the file that it has found or made.
struct EntryReply {
    reply: Reply<reply::Created>,
    entry: reply::Entry,
}

/// Where the answer goes: the kernel takes one of two forms.
pub(crate) trait ReplyTo: Send + 'static {
    /// Makes a descriptor known to the kernel.
    fn register(&self, backing: &Backing) -> io::Result<device::Backing>;

    /// The file is open.
    fn open(self, opened: reply::Opened);

    fn error(self, error: Errno);
}

impl Opening<OpenReply> {
    /// The server has answered an OPEN.
    pub(crate) fn opened(self, handle: Handle, opened: Result<Opened, Error>) {
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return self.reply.0.error(attr::error(error)),
        };
        // What a mapping changes the kernel does not see: times that it has kept from before would
        // stay. And the open of an ordinary user has taken setuid and setgid bits away.
        let changes_unseen = self.wanted.read || self.context.uid != 0;
        if self.wanted.write && changes_unseen && matches!(opened.path, DataPath::Passthrough(_)) {
            self.state.forget_attr(opened.attr.ino);
        }
        self.answer(handle, opened);
    }
}

impl Opening<CreateReply> {
    /// The server has made the file that a CREATE asked for. What changes from here on the kernel
    /// sees: writes, whatever path they take, and the commit that follows them. (A mapping changes
    /// nothing before the file has grown.)
    pub(crate) fn created(self, created: Created) {
        self.found(TTL, created.entry, created.open, created.path);
    }

    /// CREATE found the name taken: the kernel believed it free, and somebody was faster.
    pub(crate) fn open_existing(self, place: At) {
        let files = Arc::clone(&self.state.files);
        files.lookup(&self.context, place).then(move |found| {
            let entry = match found {
                Ok(entry) if entry.attr.kind == FileKind::Regular => entry,
                // Unlinked meanwhile, or not a file: on ESTALE the kernel resolves the path again.
                Ok(_) => return self.reply.0.error(Errno::STALE),
                Err(error) if error.code == Code::NotFound => {
                    return self.reply.0.error(Errno::STALE);
                }
                Err(error) => return self.reply.0.error(attr::error(error)),
            };
            let files = Arc::clone(&self.state.files);
            let answer = files.open(&self.context, entry.handle, self.wanted);
            answer.then(move |opened| match opened {
                Ok(Opened { open, attr, path }) => {
                    let ttl = if attr.volatile { Duration::ZERO } else { TTL };
                    self.found(ttl, Entry { handle: entry.handle, attr }, open, path);
                }
                Err(error) => self.reply.0.error(attr::error(error)),
            });
        });
    }

    fn found(self, ttl: Duration, entry: Entry, open: OpenId, path: DataPath) {
        let Self { state, context, wanted, direct, reply } = self;
        state.learn(entry.handle);
        let attr_ttl = if direct && wanted.write { Duration::ZERO } else { ttl };
        let found = reply::Entry { entry_ttl: ttl, ..attr::entry(&entry, attr_ttl) };
        let reply = EntryReply { reply: reply.0, entry: found };
        let opening = Opening { state, context, wanted, direct, reply };
        opening.answer(entry.handle, Opened { open, attr: entry.attr, path });
    }
}

impl<D: ReplyTo> Opening<D> {
    fn answer(self, handle: Handle, opened: Opened) {
        let Opened { open, attr, path } = opened;
        match path {
            DataPath::Cached => {
                let pages = self.pages(attr.ino);
                self.by_requests(open, &attr, pages);
            }
            DataPath::Direct => self.by_requests(open, &attr, FOPEN_DIRECT_IO),
            DataPath::Passthrough(backing) => {
                let register = || self.reply.register(&backing);
                match self.state.backings.acquire(attr.ino, register) {
                    Ok(registered) => {
                        self.count(open, attr.ino, OpenPath::Passthrough);
                        self.reply.open(reply::Opened {
                            file: FileId(open.0),
                            flags: FOPEN_PASSTHROUGH | no_flush(self.wanted),
                            backing: Some(registered.id()),
                        });
                    }
                    Err(error) => {
                        if self.state.passthrough.ends_with(&error) {
                            self.open_without(handle, open);
                        } else {
                            self.give_up(open, errno(&error));
                        }
                    }
                }
            }
        }
    }

    fn by_requests(self, open: OpenId, attr: &Attr, flags: u32) {
        self.count(open, attr.ino, OpenPath::Daemon);
        if self.direct && self.wanted.write {
            // An asynchronous direct write changes times and bytes, and the kernel keeps what it
            // has: whoever reads through pages has to ask from now on.
            self.state.forget_attr(attr.ino);
        }
        let flags = flags | no_flush(self.wanted);
        self.reply.open(reply::Opened { file: FileId(open.0), flags, backing: None });
    }

    /// The pages of a file stay when it is opened again: all its changes go through this kernel,
    /// and through its pages unless they were written past them.
    fn pages(&self, ino: InodeId) -> u32 {
        if self.wanted.strict_atime && !self.wanted.no_atime {
            // What the kernel answers from pages is not seen here.
            return FOPEN_DIRECT_IO;
        }
        if self.state.backings.has_bypassed(ino) { 0 } else { FOPEN_KEEP_CACHE }
    }

    fn count(&self, open: OpenId, ino: InodeId, path: OpenPath) {
        self.state.open_ids.add(open, path);
        if self.wanted.write {
            self.state.attr_ttl.write_opened(ino);
        }
    }

    /// Closes the file and opens it by requests.
    fn open_without(self, handle: Handle, open: OpenId) {
        let files = Arc::clone(&self.state.files);
        files.release(&self.context, open).then(move |released| {
            if let Err(error) = released {
                return self.reply.error(attr::error(error));
            }
            let files = Arc::clone(&self.state.files);
            let flags = OpenFlags { passthrough: false, truncate: false, ..self.wanted };
            files.open(&self.context, handle, flags).then(move |opened| match opened {
                // Others have it open by a descriptor that the kernel took, and now it takes none.
                Ok(Opened { open, path: DataPath::Passthrough(_), .. }) => {
                    self.give_up(open, Errno::IO);
                }
                Ok(opened) => self.answer(handle, opened),
                Err(error) => self.reply.error(attr::error(error)),
            });
        });
    }

    /// Closes the file, and says why it cannot be open.
    fn give_up(self, open: OpenId, why: Errno) {
        let files = Arc::clone(&self.state.files);
        files.release(&self.context, open).then(move |released| {
            let error = released.err().map_or(why, attr::error);
            self.reply.error(error);
        });
    }
}

impl State {
    /// Makes the kernel ask for attributes again. Takes no lock that anything waits under.
    fn forget_attr(&self, ino: InodeId) {
        let Some(kernel) = self.kernel.get() else { return };
        if let Err(error) = kernel.inval_inode(NodeId(ino.raw()), -1, 0) {
            tracing::debug!(%error, "the kernel keeps attributes of a file");
        }
    }
}

impl ReplyTo for OpenReply {
    fn register(&self, backing: &Backing) -> io::Result<device::Backing> {
        self.0.open_backing(backing.as_fd())
    }

    fn open(self, opened: reply::Opened) {
        self.0.ok(&opened);
    }

    fn error(self, error: Errno) {
        self.0.error(error);
    }
}

impl ReplyTo for EntryReply {
    fn register(&self, backing: &Backing) -> io::Result<device::Backing> {
        self.reply.open_backing(backing.as_fd())
    }

    fn open(self, opened: reply::Opened) {
        let Self { reply, entry } = self;
        reply.ok(&reply::Created { entry, opened });
    }

    fn error(self, error: Errno) {
        self.reply.error(error);
    }
}

/// The kernel's number for why it did not take a descriptor.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Only a descriptor that can write has anything to say when it is closed.
const fn no_flush(wanted: OpenFlags) -> u32 {
    if wanted.write { 0 } else { FOPEN_NOFLUSH }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc::{Sender, channel};

    use parking_lot::Mutex;
    use pelago_wire::{Bulk, Done, Request, Service};

    use super::*;
    use crate::state::Preferences;
    use pelago_client::ServiceFiles;

    const ASKED: OpenFlags = OpenFlags {
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

    /// OpenIds by a descriptor where that is asked for, and notes what it is asked.
    #[derive(Default)]
    struct Server(Mutex<Vec<Asked>>);

    #[derive(Debug, PartialEq)]
    enum Asked {
        Open { passthrough: bool, truncate: bool },
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
            let mut asked = self.0.lock();
            Some(match request {
                Request::Open { flags: OpenFlags { passthrough, truncate, .. }, .. } => {
                    asked.push(Asked::Open { passthrough, truncate });
                    Ok(pelago_wire::Reply::Opened {
                        open: OpenId(8),
                        attr: attr(),
                        path: DataPath::Cached,
                    })
                }
                Request::Release { open } => {
                    asked.push(Asked::Release(open));
                    Ok(pelago_wire::Reply::Done)
                }
                _ => Err(Code::Bug.into()),
            })
        }
    }

    /// A kernel that does not take descriptors.
    struct Refusing {
        why: i32,
        answer: Sender<Result<OpenId, i32>>,
    }

    impl ReplyTo for Refusing {
        fn register(&self, _backing: &Backing) -> io::Result<device::Backing> {
            Err(io::Error::from_raw_os_error(self.why))
        }

        fn open(self, opened: reply::Opened) {
            assert!(opened.backing.is_none());
            self.answer.send(Ok(OpenId(opened.file.0))).unwrap();
        }

        fn error(self, error: Errno) {
            self.answer.send(Err(error.raw_os_error())).unwrap();
        }
    }

    fn attr() -> Attr {
        Attr::empty(InodeId::from_raw(9), FileKind::Regular)
    }

    /// What a program is told whose file has a descriptor that the kernel does not take, and what
    /// the server is asked meanwhile.
    fn refused(why: Errno) -> (Result<OpenId, i32>, Vec<Asked>) {
        let server = Arc::new(Server::default());
        let files = ServiceFiles::new(Arc::clone(&server) as Arc<dyn Service>);
        let state = Arc::new(State::new(Arc::new(files), Preferences::default()));
        let (answer, answered) = channel();
        let reply = Refusing { why: why.raw_os_error(), answer };
        let context = Context::direct(0, 0);
        let (wanted, direct) = (ASKED, false);
        let opening = Opening { state: Arc::clone(&state), context, wanted, direct, reply };
        let path = DataPath::Passthrough(Backing::new(File::open("/dev/null").unwrap().into()));
        opening.answer(Handle::own(attr().ino), Opened { open: OpenId(7), attr: attr(), path });
        let asked = std::mem::take(&mut *server.0.lock());
        assert_eq!(state.open_ids.take().len(), usize::from(asked.len() == 2));
        (answered.recv().unwrap(), asked)
    }

    #[test]
    fn where_the_kernel_takes_no_descriptors_the_file_is_opened_without() {
        let (answer, asked) = refused(Errno::LOOP);
        let again = Asked::Open { passthrough: false, truncate: false };
        assert_eq!((answer, asked), (Ok(OpenId(8)), vec![Asked::Release(OpenId(7)), again]));
    }

    #[test]
    fn where_the_kernel_may_take_the_next_one_the_file_is_not_open() {
        let nomem = Errno::NOMEM;
        let (answer, asked) = refused(nomem);
        let told = Err(nomem.raw_os_error());
        assert_eq!((answer, asked), (told, vec![Asked::Release(OpenId(7))]));
    }
}
