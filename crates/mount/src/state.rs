//! The state that all requests of a mount share, and the replies that depend on it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use pelago_client::{At, Files};
use pelago_fuse::ids::NodeId;
use pelago_fuse::init::Capabilities;
use pelago_fuse::reply::{self, Attributes, Statx};
use pelago_fuse::{Errno, Header, Notifier, Reply, Session};
use pelago_wire::{
    Attr, Code, Context, Entry, Error, FileKind, Handle, InodeId, Name, NameError, RequestId,
    SetAttr, SetTime, Touched, limits,
};

use crate::attr_ttl::AttrTtl;
use crate::backings::Backings;
use crate::dir_attrs::DirAttrs;
use crate::dir_streams::Streams;
use crate::entry_attrs::EntryAttrs;
use crate::find::{Find, HiddenName};
use crate::held_inodes::HeldInodes;
use crate::inodes::Inodes;
use crate::late_names::{LateNames, touched_name};
use crate::lifetimes::{Lifetimes, ReplyGuard, Sample};
use crate::locks::Locks;
use crate::moves::SeenNames;
use crate::open_ids::OpenIds;
use crate::options::{Atime, Keeps};
use crate::page_versions::PageVersions;
use crate::passthrough::{NoPassthrough, Passthrough};
use crate::retries::Retries;
use crate::stale_pages::StalePages;
use crate::unlinked::Unlinked;
use crate::{attr, prune};

/// Options of a mount that its requests need.
#[derive(Debug, Clone)]
pub(crate) struct Preferences {
    /// Reads that update atime.
    pub(crate) atime: Atime,
    /// True if passthrough is wanted, if the kernel accepts it; the bytes must be on this machine.
    pub(crate) passthrough: bool,
    /// Limit of the inode table in bytes, beyond which the kernel is asked to forget inodes.
    pub(crate) inode_table_bytes: u64,
    /// Replies that the kernel may keep.
    pub(crate) keeps: Keeps,
}

impl Default for Preferences {
    fn default() -> Self {
        let inode_table_bytes = limits::INODE_TABLE_BYTES as u64;
        let atime = Atime::default();
        Self { atime, passthrough: false, inode_table_bytes, keeps: Keeps::default() }
    }
}

/// The extended attribute with the label of a file, if the kernel has SELinux.
const SELINUX_LABEL: &[u8] = b"security.selinux";

/// The state that requests share. A reply that comes later holds it.
pub(crate) struct State {
    pub(crate) files: Files,
    pub(crate) preferences: Preferences,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) attr_ttl: AttrTtl,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) open_ids: OpenIds,
    pub(crate) locks: Locks,
    pub(crate) passthrough: Arc<Passthrough>,
    pub(crate) backings: Backings,
    pub(crate) stale_pages: StalePages,
    /// Sends notices; set once the mount serves.
    pub(crate) kernel: OnceLock<Notifier>,
    /// Invalidates all names, or returns false because that notice is not possible; set once the
    /// mount serves.
    pub(crate) invalidate_all_names: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// SETXATTR has flags (7.33, Linux 5.13).
    has_setxattr_ext: AtomicBool,
    /// The kernel has SELinux, whose labels are extended attributes.
    has_selinux: bool,
    pub(crate) unlinked: Unlinked,
    pub(crate) held_inodes: HeldInodes,
    pub(crate) entry_attrs: EntryAttrs,
    pub(crate) dir_attrs: Arc<DirAttrs>,
    pub(crate) streams: Streams,
    pub(crate) find: Arc<Find>,
    pub(crate) page_versions: PageVersions,
    pub(crate) late_names: LateNames,
    pub(crate) retries: Retries,
    pub(crate) seen_names: SeenNames,
}

impl State {
    pub(crate) fn new(files: Files, preferences: Preferences) -> Self {
        Self {
            find: Arc::new(Find::new(files.clone())),
            files,
            inodes: Arc::new(Inodes::new(preferences.inode_table_bytes)),
            attr_ttl: AttrTtl::default(),
            lifetimes: Lifetimes::new(preferences.keeps.clone()),
            preferences,
            open_ids: OpenIds::default(),
            locks: Locks::default(),
            passthrough: Arc::new(Passthrough::new()),
            backings: Backings::default(),
            stale_pages: StalePages::default(),
            kernel: OnceLock::new(),
            invalidate_all_names: OnceLock::new(),
            has_setxattr_ext: AtomicBool::new(false),
            has_selinux: has_selinux(),
            unlinked: Unlinked::default(),
            held_inodes: HeldInodes::default(),
            entry_attrs: EntryAttrs::default(),
            dir_attrs: Arc::default(),
            streams: Streams::default(),
            page_versions: PageVersions::default(),
            late_names: LateNames::default(),
            retries: Retries::default(),
            seen_names: SeenNames::default(),
        }
    }

    /// Prepares for the first request, after the negotiation.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn begin(&self, session: &Session) -> io::Result<()> {
        match (self.preferences.passthrough, session.negotiated().passthrough) {
            (true, true) => self.passthrough.try_on(session.device()),
            (true, false) => self.passthrough.refuse(NoPassthrough::NotInKernel),
            (false, _) => {}
        }
        let says = session.negotiated().capabilities.has(Capabilities::SETXATTR_EXT);
        self.has_setxattr_ext.store(says, Ordering::Relaxed);
        let _only_once = self.kernel.set(session.notifier());
        self.find.begin(session.notifier());
        self.stale_pages.start(session.notifier())
    }

    /// Returns whether SETXATTR says if an access control list clears the setgid bit of its file.
    /// Linux before 5.13 does not say so: then the rights of the caller must be read from `/proc`.
    pub(crate) fn knows_setgid(&self) -> bool {
        self.has_setxattr_ext.load(Ordering::Relaxed)
    }

    /// Returns the error of an extended attribute that a file does not have. `ls -l` requests the
    /// label of each file, until `EOPNOTSUPP` says that this device has none.
    pub(crate) fn absent_xattr(&self, name: &[u8]) -> Code {
        match name == SELINUX_LABEL && !self.has_selinux {
            true => Code::NotSupported,
            false => Code::NoXattr,
        }
    }

    pub(crate) fn handle(&self, node: NodeId) -> Handle {
        self.inodes.handle(attr::ino(node))
    }

    /// Returns a result; if the server has forgotten the node, the result that `known` returns.
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

    /// Returns `error`, or `instead` if the server has forgotten the node but the kernel still
    /// refers to it.
    pub(crate) fn unless_unlinked(&self, node: NodeId, error: Error, instead: Code) -> Error {
        let is_unlinked =
            error.code == Code::Stale && self.unlinked.attr(attr::ino(node)).is_some();
        if is_unlinked { instead.into() } else { error }
    }

    pub(crate) fn at(&self, dir: NodeId, name: &OsStr) -> Result<At, Errno> {
        match Name::new(name.as_bytes()) {
            Ok(name) => Ok(At::new(self.handle(dir), name)),
            Err(NameError::TooLong) => Err(Errno::NAMETOOLONG),
            Err(NameError::NotAName) => Err(Errno::INVAL),
        }
    }

    /// Counts one more reference of the kernel to a file, whose row was just seen at the place in
    /// `handle`. Returns whether it was last seen under another name.
    pub(crate) fn learn(&self, handle: Handle) -> bool {
        let learned = self.inodes.learn(handle);
        if learned.must_sweep
            && let Some(kernel) = self.kernel.get()
        {
            prune::start(&self.inodes, kernel);
        }
        learned.has_moved
    }

    /// Counts one more reference of the kernel to an inode that was looked up, or made. `name` is
    /// the key of its name, if other sessions exist. Returns whether others have moved the inode to
    /// it.
    pub(crate) fn learn_at(&self, entry: &Entry, name: Option<u64>) -> bool {
        let has_moved = self.learn(entry.handle);
        let Some(name) = name else { return false };
        if entry.handle.is_under_a_name() {
            return has_moved;
        }
        let was_elsewhere = self.seen_names.see(entry.attr.ino, name);
        let has_one_name = entry.attr.kind == FileKind::Directory || entry.attr.links == 1;
        has_moved || was_elsewhere && has_one_name
    }

    /// Returns the context of a request to the server. Drops the attributes that are held for the
    /// thread: its next request is another one.
    pub(crate) fn context(&self, header: &Header) -> Context {
        if !self.lifetimes.keeps_everything() {
            self.entry_attrs.forget(header.pid);
        }
        let context = Context::direct(header.uid, header.gid);
        Context { request: RequestId(header.unique), ..context }
    }

    /// Holds the attributes of an entry for the thread that gets it, if the kernel may keep none of
    /// them.
    pub(crate) fn keep_entry(&self, thread: u32, entry: &Entry) {
        if self.lifetimes.keeps_nothing_of(entry.attr.ino) {
            self.entry_attrs.keep(thread, entry);
        }
    }

    /// Returns the attributes that a thread requests, if its last request has brought them, or a
    /// change of that directory a moment ago.
    pub(crate) fn known_attr(&self, header: &Header) -> Option<Attr> {
        let node = attr::ino(header.node);
        if !self.lifetimes.keeps_nothing_of(node) || self.page_versions.are_used(node) {
            return None;
        }
        // Attributes that a look-up has brought stay for the next request of the call.
        let is_looked_up = self.entry_attrs.is_about(header.pid, node);
        let of_dir = if is_looked_up { None } else { self.dir_attrs.get(node) };
        let known = of_dir.or_else(|| self.entry_attrs.take(header.pid, node));
        // They get no lifetime: a lease that begins now is on newer attributes.
        known.map(|attr| Attr { volatile: true, ..attr })
    }

    /// Samples a node, before its attributes or its names are requested.
    pub(crate) fn sample(&self, ino: InodeId) -> Sample {
        self.lifetimes.sample(self.attr_ttl.epoch(), ino)
    }

    /// Samples a name, before it is looked up or made.
    pub(crate) fn sample_name(&self, at: &At) -> Sample {
        self.lifetimes.sample_name(self.attr_ttl.epoch(), at)
    }

    /// Returns the guard under which a reply decides its lifetimes and is written.
    pub(crate) fn reply_guard(&self) -> ReplyGuard<'_> {
        self.lifetimes.reply_guard(&self.attr_ttl)
    }

    pub(crate) fn reply_attr(
        &self,
        sample: &Sample,
        found: Result<Attr, Error>,
        mut reply: Reply<Attributes>,
    ) {
        match found {
            Ok(found) if !reply.claim() => self.not_delivered(found.ino),
            Ok(found) => {
                let guard = self.reply_guard();
                let ttl = guard.attr(&found, sample);
                reply.ok(&Attributes { ttl, attr: attr::attr(&found) });
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    pub(crate) fn reply_statx(
        &self,
        sample: &Sample,
        found: Result<Attr, Error>,
        mut reply: Reply<Statx>,
    ) {
        match found {
            Ok(found) if !reply.claim() => self.not_delivered(found.ino),
            Ok(found) => {
                let guard = self.reply_guard();
                let ttl = guard.attr(&found, sample);
                let birth = attr::timestamp(found.btime);
                reply.ok(&Statx { ttl, attr: attr::attr(&found), birth });
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    /// Calls `go` once the kernel has written back the stores in mappings of a file, if its mtime
    /// is to be set: Linux writes them at `munmap` or `close`, and such a write would set mtime
    /// again.
    pub(crate) fn when_stores_are_written(
        &self,
        ino: InodeId,
        set: &SetAttr,
        go: impl FnOnce() + Send + 'static,
    ) {
        // Linux writes no page of a file while it waits for the reply to a new size: dropping
        // pages, and so writing them, would be a deadlock.
        let sets_time = matches!(set.mtime, Some(SetTime::To(_))) && set.size.is_none();
        if !sets_time || !self.attr_ttl.may_have_stores(ino) {
            return go();
        }
        self.stale_pages.add(ino, 0, u64::MAX);
        self.stale_pages.when_clean(ino, go);
    }

    /// Replies with the attributes after SETATTR.
    pub(crate) fn reply_changed(
        self: &Arc<Self>,
        sample: &Sample,
        changed: Result<Attr, Error>,
        mut reply: Reply<Attributes>,
    ) {
        match changed {
            Ok(Attr { ino, .. }) if !reply.claim() => {
                self.changed_late(&[Touched::Node(ino), Touched::Bytes(ino)]);
            }
            Ok(changed) => {
                self.sent_changed(&changed);
                let guard = self.reply_guard();
                let ttl = guard.unversioned_attr(&changed, sample);
                reply.ok(&Attributes { ttl, attr: attr::attr(&changed) });
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    /// Replies that a name does not exist, or with the node of a hidden name, which this user looks
    /// up.
    pub(crate) fn reply_absent(
        &self,
        sample: &Sample,
        at: Option<&At>,
        hidden: Option<(HiddenName, u32)>,
        mut reply: Reply<reply::Entry>,
    ) {
        if !reply.claim() {
            return;
        }
        if let Some((hidden, user)) = hidden {
            return match self.find.enter(hidden, user) {
                Ok(entry) => reply.ok(&entry),
                Err(error) => reply.error(error),
            };
        }
        let guard = self.reply_guard();
        reply.ok(&attr::absent(guard.name_at(sample, at)));
    }

    /// Replies with an entry that was found; `at` is the result of [`Lifetimes::leased_name`].
    pub(crate) fn reply_entry(
        &self,
        sample: &Sample,
        at: Option<&At>,
        entry: Result<Entry, Error>,
        reply: Reply<reply::Entry>,
    ) {
        let ttl = |guard: &ReplyGuard<'_>, entry: &Entry| guard.found_attr(entry, sample);
        self.reply_entry_for(sample, at, ttl, entry, reply);
    }

    /// Replies with the entry of a name that was made; see [`State::reply_entry`].
    pub(crate) fn reply_made(
        self: &Arc<Self>,
        sample: &Sample,
        at: &At,
        made: Result<Entry, Error>,
        mut reply: Reply<reply::Entry>,
    ) {
        if let Ok(made) = &made
            && !reply.claim()
        {
            return self.changed_late(&[touched_name(at), Touched::Node(made.attr.ino)]);
        }
        let at = self.lifetimes.is_leased().then_some(at);
        let ttl =
            |guard: &ReplyGuard<'_>, entry: &Entry| guard.unversioned_attr(&entry.attr, sample);
        self.reply_entry_for(sample, at, ttl, made, reply);
    }

    /// Replies with an entry that was found by its name; see [`State::reply_entry`]. If others have
    /// moved the file to this name, the reply to a rename is `ESTALE`, after which it begins again.
    pub(crate) fn reply_found(
        &self,
        thread: u32,
        sample: &Sample,
        at: Option<&At>,
        found: Entry,
        mut reply: Reply<reply::Entry>,
    ) {
        // The kernel counts no lookup that ended with an error.
        if !reply.claim() {
            return;
        }
        let name = sample.name_key();
        let has_moved = self.learn_at(&found, name);
        if let Some(why) = self.why_stale(thread, name, has_moved, found.attr.kind) {
            self.inodes.forget(found.handle.ino, 1);
            self.begins_again(thread, why);
            return reply.error(Errno::STALE);
        }
        self.keep_entry(thread, &found);
        let name = |guard: &ReplyGuard<'_>| guard.found_name(sample, at, &found);
        let attr = |guard: &ReplyGuard<'_>| guard.found_attr(&found, sample);
        self.reply_learned(name, attr, &found, reply);
    }

    /// Replies with an entry whose attributes hold for `attr_ttl`.
    fn reply_entry_for(
        &self,
        sample: &Sample,
        at: Option<&At>,
        attr_ttl: impl FnOnce(&ReplyGuard<'_>, &Entry) -> Duration,
        entry: Result<Entry, Error>,
        mut reply: Reply<reply::Entry>,
    ) {
        match entry {
            // The kernel counts no lookup that ended with an error.
            Ok(_) if !reply.claim() => {}
            Ok(entry) => {
                self.learn_at(&entry, sample.name_key());
                let name = |guard: &ReplyGuard<'_>| guard.name_at(sample, at);
                let attr = |guard: &ReplyGuard<'_>| attr_ttl(guard, &entry);
                self.reply_learned(name, attr, &entry, reply);
            }
            Err(error) => reply.error(attr::error(error)),
        }
    }

    /// Replies with an entry, whose name and attributes have these lifetimes, once the kernel's
    /// reference to it is counted.
    fn reply_learned(
        &self,
        name_ttl: impl FnOnce(&ReplyGuard<'_>) -> Duration,
        attr_ttl: impl FnOnce(&ReplyGuard<'_>) -> Duration,
        entry: &Entry,
        reply: Reply<reply::Entry>,
    ) {
        let holds = self.entry_holds(&entry.attr);
        let guard = self.reply_guard();
        let ttl = if holds { attr_ttl(&guard) } else { Duration::ZERO };
        reply.ok(&attr::entry(entry, name_ttl(&guard), ttl));
    }
}

/// Returns whether SELinux is on: only then the kernel registers the file system `selinuxfs`.
fn has_selinux() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().any(|word| word == "selinuxfs"))
}
