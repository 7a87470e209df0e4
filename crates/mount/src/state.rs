//! What requests share, and the replies that need it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pelago_fuse::ids::NodeId;
use pelago_fuse::init::Capabilities;
use pelago_fuse::reply::{self, Attributes};
use pelago_fuse::{Errno, Notifier, Reply, Session};
use pelago_wire::{Attr, Code, Entry, Error, Handle, InodeId, Name, NameError, limits};

use crate::attr;
use crate::attr_ttl::{AttrTtl, Epoch};
use crate::backings::Backings;
use crate::dir_streams::Streams;
use crate::inodes::Inodes;
use crate::mounting::Atime;
use crate::open_ids::OpenIds;
use crate::passthrough::{NoPassthrough, Passthrough};
use crate::prune;
use crate::stale_pages::StalePages;
use crate::unlinked::Unlinked;
use pelago_client::{At, Files};

/// What whoever mounts wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preferences {
    /// Which reads change the time of the last read.
    pub(crate) atime: Atime,
    /// The bytes lie on this machine: reach them by descriptors, if the kernel takes them.
    pub(crate) passthrough: bool,
    /// Bytes of the table of inodes; beyond them the kernel is asked to forget some.
    pub(crate) inode_table_bytes: u64,
}

impl Default for Preferences {
    fn default() -> Self {
        let inode_table_bytes = limits::INODE_TABLE_BYTES as u64;
        let atime = Atime::default();
        Self { atime, passthrough: false, inode_table_bytes }
    }
}

/// What requests share; replies that come later hold it.
pub(crate) struct State {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) preferences: Preferences,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) attr_ttl: AttrTtl,
    pub(crate) open_ids: OpenIds,
    pub(crate) passthrough: Arc<Passthrough>,
    pub(crate) backings: Backings,
    pub(crate) stale_pages: StalePages,
    /// Where the kernel is told what it does not see; there once the mount serves.
    pub(crate) kernel: OnceLock<Notifier>,
    setgid_is_said: AtomicBool,
    pub(crate) unlinked: Unlinked,
    pub(crate) streams: Streams,
}

impl State {
    pub(crate) fn new(files: Arc<dyn Files>, preferences: Preferences) -> Self {
        Self {
            files,
            preferences,
            inodes: Arc::new(Inodes::new(preferences.inode_table_bytes)),
            attr_ttl: AttrTtl::default(),
            open_ids: OpenIds::default(),
            passthrough: Arc::new(Passthrough::new()),
            backings: Backings::default(),
            stale_pages: StalePages::default(),
            kernel: OnceLock::new(),
            setgid_is_said: AtomicBool::new(false),
            unlinked: Unlinked::default(),
            streams: Streams::default(),
        }
    }

    /// The kernel has agreed, and its requests are about to be read.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn begin(&self, session: &Session) -> io::Result<()> {
        match (self.preferences.passthrough, session.negotiated().passthrough) {
            (true, true) => self.passthrough.try_on(session.device()),
            (true, false) => self.passthrough.refuse(NoPassthrough::NotInKernel),
            (false, _) => {}
        }
        let says = session.negotiated().capabilities.has(Capabilities::SETXATTR_EXT);
        self.setgid_is_said.store(says, Ordering::Relaxed);
        let _only_once = self.kernel.set(session.notifier());
        self.stale_pages.start(session.notifier())
    }

    /// Whether the kernel says which access control lists take the setgid bit of their file.
    pub(crate) fn is_setgid_said(&self) -> bool {
        self.setgid_is_said.load(Ordering::Relaxed)
    }

    pub(crate) fn handle(&self, node: NodeId) -> Handle {
        self.inodes.handle(attr::ino(node))
    }

    /// A result, or where the server does not know the node any more what `gone` says of it.
    pub(crate) fn or_unlinked<T>(
        &self,
        ino: InodeId,
        result: Result<T, Error>,
        known: impl FnOnce(&Unlinked, InodeId) -> Option<T>,
    ) -> Result<T, Error> {
        match result {
            Err(error) if error.code == Code::Stale => known(&self.unlinked, ino).ok_or(error),
            result => result,
        }
    }

    /// Why something failed; where the server does not know the node any more, but the kernel still
    /// refers to it, that is `instead`.
    pub(crate) fn lost(&self, node: NodeId, error: Error, instead: Code) -> Error {
        let is_gone = error.code == Code::Stale && self.unlinked.attr(attr::ino(node)).is_some();
        if is_gone { instead.into() } else { error }
    }

    pub(crate) fn place(&self, dir: NodeId, name: &OsStr) -> Result<At, Errno> {
        match Name::new(name.as_bytes()) {
            Ok(name) => Ok(At::new(self.handle(dir), name)),
            Err(NameError::TooLong) => Err(Errno::NAMETOOLONG),
            Err(NameError::NotAName) => Err(Errno::INVAL),
        }
    }

    /// The kernel gets one more reference to a file, which was just seen where `handle` says.
    pub(crate) fn learn(&self, handle: Handle) {
        if self.inodes.learn(handle)
            && let Some(kernel) = self.kernel.get()
        {
            prune::start(&self.inodes, kernel);
        }
    }

    pub(crate) fn reply_attr(
        &self,
        epoch: Epoch,
        found: Result<Attr, Error>,
        reply: Reply<Attributes>,
    ) {
        match found {
            Ok(found) => {
                let ttl = self.attr_ttl.ttl(&found, epoch);
                reply.ok(&Attributes { ttl, attr: attr::attr(&found) });
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    pub(crate) fn reply_entry(
        &self,
        epoch: Epoch,
        entry: Result<Entry, Error>,
        reply: Reply<reply::Entry>,
    ) {
        match entry {
            Ok(entry) => {
                self.learn(entry.handle);
                let ttl = self.attr_ttl.ttl(&entry.attr, epoch);
                reply.ok(&attr::entry(&entry, ttl));
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }
}
