//! Queries through the mount: hidden names in every directory, which no server has.
//!
//! `.pelago-find` is a file: a query is written to it, and the answer is read. `.find/QUERY` is a
//! folder: it has a symbolic link to each file that the query finds. A name is looked up at the
//! server first, so a real file of such a name wins, and other names cost only a comparison.
//!
//! A search finds only files that its user may read. The kernel shares its cache of names among all
//! users, so names of files that were found have no lifetime there: each look-up comes here, with
//! its caller. Decision 23 says which lifetimes follow.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pelago_client::Files;
use pelago_fuse::ids::{FileId, NodeId};
use pelago_fuse::listing::{Dirent, Listing};
use pelago_fuse::operation::{Read, Readdir, Write};
use pelago_fuse::protocol::{FOPEN_DIRECT_IO, FOPEN_STREAM};
use pelago_fuse::reply::{self, Attributes, Statx};
use pelago_fuse::{Errno, FileType, Header, Notifier, Reply};
use pelago_wire::{Attr, Entry, Handle, InodeId, Name, NameError};

pub(crate) use self::hidden::{Hidden, HiddenName};

use self::asker::Rights;
use self::controls::Controls;
use self::links::{AFTER_DOTS, Link, Links};
use self::nodes::{Folder, Node, Nodes};
use self::searches::Searches;
use self::sweep::Sweeps;
use crate::{attr, clock};

mod asker;
mod controls;
mod conversation;
mod hidden;
mod links;
mod nodes;
mod query_name;
mod question;
mod records;
mod searches;
mod sweep;

/// Lifetime in the kernel of names and attributes that are the same for all users.
const TTL: Duration = Duration::from_secs(1);
/// The offset after `.`.
const AFTER_DOT: u64 = 1;

/// The hidden files of a mount.
#[derive(Debug)]
pub(crate) struct Find {
    files: Files,
    nodes: Arc<Nodes>,
    /// Set once the mount serves.
    sweeps: OnceLock<Arc<Sweeps>>,
    controls: Controls,
    searches: Arc<Searches>,
}

impl Find {
    pub(crate) fn new(files: Files) -> Self {
        Self {
            files,
            nodes: Arc::default(),
            sweeps: OnceLock::new(),
            controls: Controls::default(),
            searches: Arc::default(),
        }
    }

    /// Prepares for the first request.
    pub(crate) fn begin(&self, kernel: Notifier) {
        let _only_once = self.sweeps.set(Arc::new(Sweeps::new(kernel)));
    }

    /// Looks up a hidden name that no file has.
    ///
    /// # Errors
    /// `ENFILE` if the kernel knows too many hidden files.
    pub(crate) fn enter(&self, name: HiddenName, user: u32) -> Result<reply::Entry, Errno> {
        self.entry(Node::Hidden(name), user, TTL)
    }

    /// Forgets the node of a hidden name to which a real file was renamed.
    pub(crate) fn replaced(&self, name: HiddenName) {
        self.nodes.replaced(name);
    }

    /// Returns how many hidden files and folders the kernel knows.
    pub(crate) fn count(&self) -> usize {
        self.nodes.count()
    }

    pub(crate) fn forget(&self, node: NodeId, lookups: u64) {
        self.nodes.forget(attr::ino(node), lookups);
        self.searches.expire();
    }

    pub(crate) fn lookup(
        self: &Arc<Self>,
        header: &Header,
        name: &OsStr,
        mut reply: Reply<reply::Entry>,
    ) {
        let name = match Name::new(name.as_bytes()) {
            Ok(name) => name,
            Err(NameError::TooLong) => return reply.error(Errno::NAMETOOLONG),
            // The kernel looks for the parent of a file handle (NFS), which it has forgotten.
            Err(NameError::NotAName) => return reply.error(Errno::STALE),
        };
        let parent = attr::ino(header.node);
        let user = header.uid;
        match self.node(parent).as_deref() {
            Ok(Node::Hidden(HiddenName { dir, what: Hidden::Queries })) => {
                let found = folder_in(parent, *dir, &name).map(Node::Folder);
                respond(found.and_then(|folder| self.entry(folder, user, TTL)), reply);
            }
            Ok(Node::Folder(folder)) => {
                let find = Arc::clone(self);
                let within = folder.clone();
                self.links(header, folder, move |links| {
                    if !reply.claim() {
                        return;
                    }
                    let node = links
                        .and_then(|links| node_in(parent, &within, &links, &name, &find.searches));
                    respond(node.and_then(|node| find.entry(node, user, Duration::ZERO)), reply);
                });
            }
            Ok(_) => reply.error(Errno::NOTDIR),
            Err(error) => reply.error(*error),
        }
    }

    pub(crate) fn get_attr(&self, header: &Header, reply: Reply<Attributes>) {
        match self.attr(header.node) {
            Ok(attr) => reply.ok(&Attributes { ttl: TTL, attr: attr::attr(&attr) }),
            Err(error) => reply.error(error),
        }
    }

    pub(crate) fn statx(&self, header: &Header, reply: Reply<Statx>) {
        match self.attr(header.node) {
            Ok(attr) => {
                let birth = attr::timestamp(attr.btime);
                reply.ok(&Statx { ttl: TTL, attr: attr::attr(&attr), birth });
            }
            Err(error) => reply.error(error),
        }
    }

    pub(crate) fn readlink(&self, header: &Header, reply: Reply<[u8]>) {
        match self.node(attr::ino(header.node)).as_deref() {
            Ok(Node::Link { target, .. }) => reply.ok(target),
            Ok(_) => reply.error(Errno::INVAL),
            Err(error) => reply.error(*error),
        }
    }

    pub(crate) fn open(&self, header: &Header, reply: Reply<reply::Opened>) {
        let node = self.node(attr::ino(header.node));
        let Ok(Node::Hidden(HiddenName { dir, what: Hidden::Control })) = node.as_deref() else {
            return reply.error(Errno::STALE);
        };
        match Rights::of(header) {
            Ok(rights) => reply.ok(&reply::Opened {
                file: self.controls.open(*dir, rights),
                flags: FOPEN_DIRECT_IO | FOPEN_STREAM,
                backing: None,
            }),
            Err(error) => reply.error(error),
        }
    }

    pub(crate) fn read(&self, request: Read, reply: Reply<[u8]>) {
        let Some(control) = self.controls.get(request.file) else {
            return reply.error(Errno::BADF);
        };
        control.read(&self.files, request.size as usize, move |bytes| match bytes {
            Ok(bytes) => reply.ok(&bytes),
            Err(error) => reply.error(error),
        });
    }

    pub(crate) fn write(&self, request: &Write<'_>, reply: Reply<reply::Written>) {
        let control = self.controls.get(request.file).ok_or(Errno::BADF);
        match control.and_then(|control| control.write(request.data)) {
            Ok(()) => {
                let written = u32::try_from(request.data.len()).unwrap_or(u32::MAX);
                reply.ok(&reply::Written(written));
            }
            Err(error) => reply.error(error),
        }
    }

    pub(crate) fn release(&self, file: FileId, reply: Reply<()>) {
        self.controls.close(file);
        reply.ok(&());
    }

    pub(crate) fn readdir(
        &self,
        header: &Header,
        request: Readdir,
        listing: Listing,
        reply: Reply<Listing>,
    ) {
        let number = attr::ino(header.node);
        let listing = match self.node(number).as_deref() {
            Ok(Node::Hidden(HiddenName { dir, .. })) => with_dots(listing, request, number, *dir).0,
            Ok(Node::Folder(folder)) => {
                let (mut listing, has_room) = with_dots(listing, request, number, folder.parent);
                if has_room {
                    let offset = request.offset.max(AFTER_DOTS);
                    return self.links(header, folder, move |links| match links {
                        Ok(links) => {
                            fill(&mut listing, links.behind(offset));
                            reply.ok(&listing);
                        }
                        Err(error) => reply.error(error),
                    });
                }
                listing
            }
            Ok(_) => return reply.error(Errno::NOTDIR),
            Err(error) => return reply.error(*error),
        };
        reply.ok(&listing);
    }

    /// Ends the wait of a request. Returns whether it waited here.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        self.searches.interrupt(unique)
    }

    /// Calls `then` with the links of a folder that the caller of a request may see.
    fn links(
        &self,
        header: &Header,
        folder: &Folder,
        then: impl FnOnce(Result<Arc<Links>, Errno>) + Send + 'static,
    ) {
        let number = attr::ino(header.node);
        match Rights::of(header) {
            Ok(rights) => {
                self.searches.ask(&self.files, number, folder, rights, header.unique, then);
            }
            Err(error) => then(Err(error)),
        }
    }

    /// Returns the entry of a node, whose name holds for `ttl`, and counts one lookup of it by this
    /// user.
    fn entry(&self, node: Node, user: u32, ttl: Duration) -> Result<reply::Entry, Errno> {
        let shown = match &node {
            Node::Link { shown, .. } => Some(shown.raw()),
            Node::Hidden(_) | Node::Folder(_) => None,
        };
        if self.nodes.is_half_full(user)
            && let Some(sweeps) = self.sweeps.get()
        {
            sweeps.start(&self.nodes);
        }
        let attr = self.nodes.look_up(node, user, clock::now())?;
        let mut entry = attr::entry(&Entry { handle: Handle::own(attr.ino), attr }, ttl, TTL);
        entry.attr.ino = shown.unwrap_or(entry.attr.ino);
        Ok(entry)
    }

    fn node(&self, number: InodeId) -> Result<Arc<Node>, Errno> {
        self.nodes.get(number).ok_or(Errno::STALE)
    }

    fn attr(&self, node: NodeId) -> Result<Attr, Errno> {
        self.nodes.attr(attr::ino(node)).ok_or(Errno::STALE)
    }
}

/// Returns the folder of a query in `.find`.
fn folder_in(parent: InodeId, dir: InodeId, name: &Name) -> Result<Folder, Errno> {
    let query = query_name::parse(name.as_bytes()).ok_or(Errno::NOENT)?.to_bytes().into();
    Ok(Folder { dir, parent, name: name.as_bytes().into(), query, depth: 1 })
}

/// Returns the node of a name in the folder of a query: the link to a file that was found, else the
/// folder of one more query.
fn node_in(
    number: InodeId,
    folder: &Folder,
    links: &Links,
    name: &Name,
    searches: &Searches,
) -> Result<Node, Errno> {
    if let Some(link) = links.get(name.as_bytes(), &searches.hasher) {
        let name = link.name.clone();
        let shown = link.shown_ino();
        let target = link.target.clone();
        return Ok(Node::Link { folder: number, name, shown, target });
    }
    let inner = query_name::parse(name.as_bytes()).ok_or(Errno::NOENT)?;
    let query = query_name::both(&folder.query, &inner).ok_or(Errno::NOENT)?.to_bytes().into();
    let dir = folder.dir;
    let depth = folder.depth + 1;
    Ok(Node::Folder(Folder { dir, parent: number, name: name.as_bytes().into(), query, depth }))
}

fn respond(found: Result<reply::Entry, Errno>, reply: Reply<reply::Entry>) {
    match found {
        Ok(entry) => reply.ok(&entry),
        Err(error) => reply.error(error),
    }
}

/// Adds `.` and `..`, if the listing begins before them. Returns whether there is room for more.
fn with_dots(
    mut listing: Listing,
    request: Readdir,
    own: InodeId,
    parent: InodeId,
) -> (Listing, bool) {
    let dots = [(own, AFTER_DOT, &b"."[..]), (parent, AFTER_DOTS, b"..")];
    for (ino, offset, name) in dots {
        let dirent = Dirent { ino: ino.raw(), offset, file_type: FileType::Directory, name };
        if offset > request.offset && !listing.add(dirent, None) {
            return (listing, false);
        }
    }
    (listing, true)
}

/// Adds links without attributes: the kernel would cache those for other users.
fn fill(listing: &mut Listing, links: &[Link]) {
    for link in links {
        let ino = link.shown_ino().raw();
        let offset = link.offset;
        let name = &*link.name;
        if !listing.add(Dirent { ino, offset, file_type: FileType::Symlink, name }, None) {
            return;
        }
    }
}
