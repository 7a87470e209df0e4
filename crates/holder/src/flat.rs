//! Single files and folders of a far volume as the names of one directory.
//!
//! A guest of a file may not see its directory, and its kernel needs a root. So the root is made
//! here: it has the names that were attached, it can be listed and not be changed, and each name is
//! sought at the server anew. A file is sought by the name that it had when it was shared, because
//! the place of its row is found by that, and then by its number. All other requests go to the
//! server as they are; its replies are changed as those of [`Attached`](super::Attached) are.

use std::sync::{Arc, Weak};
use std::time::Duration;

use pelago_wire::{
    Attr, Bulk, Code, Context, Cookie, DirEntry, Done, Entry, Error, FileKind, Granted, Handle,
    InodeId, LeaseHolder, LeasedDone, LeasedService, Name, OpenId, Reply, Request, Service, Then,
    Time,
};

use super::attached::View;

/// Files and folders of a far volume as the names of one directory.
pub struct Flat {
    inner: Arc<Inner>,
}

/// A name of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatName {
    /// The name that is shown.
    pub shown: Name,
    /// The file or folder.
    pub target: FlatTarget,
}

/// What a name of the directory leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlatTarget {
    /// This folder.
    Folder(InodeId),
    /// This file, which had a name when it was shared.
    File {
        /// Its inode number.
        ino: InodeId,
        /// The directory of the name.
        dir: InodeId,
        /// The name.
        name: Name,
    },
    /// The file that has a name at the time.
    Name {
        /// The directory of the name.
        dir: InodeId,
        /// The name.
        name: Name,
    },
}

/// The state that requests under way share.
struct Inner {
    service: Arc<dyn LeasedService>,
    names: Vec<FlatName>,
    view: View,
    /// The time of the root.
    since: Time,
}

/// The part of a request that the root answers.
enum OfRoot {
    /// Nothing: the server is asked.
    Nothing,
    /// All, with this result.
    All(Result<Reply, Error>),
    /// The target of the name with this index.
    Named(usize),
    /// The names after a position, at most so many.
    List(Cookie, usize),
}

/// A callback that gets a target; `None` if there is none.
type Found = Box<dyn FnOnce(Result<Option<Entry>, Error>) + Send>;

impl Flat {
    /// Returns the directory of these names, in a view whose directory is [`InodeId::ROOT`].
    /// `since`: the time of the directory.
    #[must_use]
    pub fn new(
        service: Arc<dyn LeasedService>,
        names: Vec<FlatName>,
        view: View,
        since: Time,
    ) -> Self {
        Self { inner: Arc::new(Inner { service, names, view, since }) }
    }
}

impl Inner {
    fn root(&self) -> Entry {
        let mut attr = Attr {
            mode: 0o500,
            links: 2,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            btime: self.since,
            ..Attr::empty(InodeId::ROOT, FileKind::Directory)
        };
        self.view.show(&mut attr);
        Entry { handle: Handle::own(InodeId::ROOT), attr }
    }

    fn of_root(&self, request: &mut Request) -> OfRoot {
        let mut names_root = false;
        request.each_handle_mut(&mut |handle| names_root |= handle.ino == InodeId::ROOT);
        let is_root = |dir: &Handle| dir.ino == InodeId::ROOT;
        match request {
            Request::Find { ino } if *ino == InodeId::ROOT => {
                OfRoot::All(Ok(Reply::Entry(self.root())))
            }
            _ if !names_root => OfRoot::Nothing,
            Request::Lookup { dir, name } if is_root(dir) => {
                match self.names.iter().position(|named| named.shown == *name) {
                    Some(index) => OfRoot::Named(index),
                    None => OfRoot::All(Err(Code::NotFound.into())),
                }
            }
            Request::GetAttr { .. } => OfRoot::All(Ok(Reply::Attr(self.root().attr))),
            Request::Parent { .. } => OfRoot::All(Ok(Reply::Entry(self.root()))),
            Request::List { after, entries, .. } => {
                OfRoot::List(*after, usize::try_from(*entries).unwrap_or(usize::MAX))
            }
            Request::GetXattr { .. } => OfRoot::All(Err(Code::NoXattr.into())),
            Request::ListXattr { .. } => OfRoot::All(Ok(Reply::Bytes(Vec::new()))),
            Request::FsyncDir { .. } => OfRoot::All(Ok(Reply::Done)),
            // A server searches below one directory. Each folder in this one can be searched.
            Request::Search { .. } | Request::Tags { .. } => {
                OfRoot::All(Err(Code::NotSupported.into()))
            }
            // It can be read only.
            _ => OfRoot::All(Err(Code::AccessDenied.into())),
        }
    }

    /// Finds the target of a name.
    fn find(self: Arc<Self>, context: Context, index: usize, found: Found) {
        let Some(FlatName { target, .. }) = self.names.get(index) else { return found(Ok(None)) };
        match target {
            FlatTarget::Folder(ino) => self.find_number(context, *ino, found),
            FlatTarget::Name { dir, name } => self.look_up(context, *dir, name, found),
            FlatTarget::File { ino, dir, name } => {
                let ino = *ino;
                let next = Arc::clone(&self);
                let by_name: Found = Box::new(move |result| match result {
                    Ok(Some(entry)) if entry.handle.ino == ino => found(Ok(Some(entry))),
                    // It has another name now.
                    Ok(_) => next.find_number(context, ino, found),
                    Err(error) => found(Err(error)),
                });
                self.look_up(context, *dir, name, by_name);
            }
        }
    }

    fn look_up(&self, context: Context, dir: InodeId, name: &Name, found: Found) {
        let request = Request::Lookup { dir: Handle::own(dir), name: name.clone() };
        self.ask(context, request, found);
    }

    fn find_number(&self, context: Context, ino: InodeId, found: Found) {
        self.ask(context, Request::GetAttr { node: Handle::own(ino) }, found);
    }

    /// Asks for a node, which is shown to the kernel.
    fn ask(&self, context: Context, request: Request, found: Found) {
        let view = self.view;
        let done: LeasedDone = Box::new(move |result, _| {
            let mut entry = match result {
                Ok(Reply::Entry(entry)) => entry,
                // A file without a name is found by who has it open, and is no more to be opened.
                Ok(Reply::Attr(attr)) if attr.links == 0 => return found(Ok(None)),
                Ok(Reply::Attr(attr)) => Entry { handle: Handle::own(attr.ino), attr },
                Err(error) if matches!(error.code, Code::Stale | Code::NotFound) => {
                    return found(Ok(None));
                }
                Err(error) => return found(Err(error)),
                Ok(_) => return found(Err(Code::Io.into())),
            };
            view.show(&mut entry.attr);
            found(Ok(Some(entry)));
        });
        self.service.ask_leased(&context, request, Bulk::None, done);
    }

    /// Lists the names from an index on that lead somewhere.
    fn list(self: Arc<Self>, context: Context, listing: Listing, done: LeasedDone) {
        let Listing { from, most, mut entries } = listing;
        if from >= self.names.len() || entries.len() >= most {
            let end = from >= self.names.len();
            return done(Ok(Reply::Listed { entries, end }), Granted::default());
        }
        let next = Arc::clone(&self);
        let found: Found = Box::new(move |result| {
            match result {
                Ok(entry) => entries.extend(entry.and_then(|entry| next.listed(from, entry))),
                Err(error) => return done(Err(error), Granted::default()),
            }
            next.list(context, Listing { from: from + 1, most, entries }, done);
        });
        self.find(context, from, found);
    }

    fn listed(&self, index: usize, entry: Entry) -> Option<DirEntry> {
        let name = self.names.get(index)?.shown.clone();
        let Entry { handle: Handle { ino, .. }, attr: Attr { kind, .. } } = entry;
        Some(DirEntry { name, ino, kind, cookie: position_after(index), entry: Some(entry) })
    }
}

/// The names of a listing so far.
struct Listing {
    /// The index of the next name.
    from: usize,
    /// The number of entries that are wanted.
    most: usize,
    entries: Vec<DirEntry>,
}

/// Returns the position after the name with this index.
fn position_after(index: usize) -> Cookie {
    Cookie(Cookie::AFTER_DOT_DOT.0 + 1 + index as u64)
}

/// Returns the index of the first name after a position.
fn index_after(position: Cookie) -> usize {
    usize::try_from(position.0.saturating_sub(Cookie::AFTER_DOT_DOT.0)).unwrap_or(usize::MAX)
}

impl Service for Flat {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let done = later();
        self.ask_leased(context, request, bulk, Box::new(|result, _| done(result)));
        None
    }

    fn cancel(&self, context: &Context) {
        self.inner.service.cancel(context);
    }

    fn forsake(&self, context: &Context) {
        self.inner.service.forsake(context);
    }

    fn forgotten(&self, removed: InodeId) {
        self.inner.service.forgotten(removed);
    }

    fn losses(&self) -> u64 {
        self.inner.service.losses()
    }

    fn silence(&self) -> Option<Duration> {
        self.inner.service.silence()
    }
}

impl LeasedService for Flat {
    fn ask_leased(
        &self,
        context: &Context,
        mut request: Request,
        bulk: Bulk<'_>,
        done: LeasedDone,
    ) {
        let inner = Arc::clone(&self.inner);
        match inner.of_root(&mut request) {
            OfRoot::Nothing => {
                // A folder of the root is the parent of nothing that its guest may see.
                let done = match request {
                    Request::Parent { dir } => inner.below_root(dir.ino, done),
                    _ => done,
                };
                inner.service.ask_leased(context, request, bulk, inner.view.renamed(done));
            }
            OfRoot::All(result) => done(result, Granted::default()),
            OfRoot::Named(index) => {
                let found: Found = Box::new(|result| {
                    let reply = result.and_then(|entry| entry.ok_or_else(|| Code::NotFound.into()));
                    done(reply.map(Reply::Entry), Granted::default());
                });
                inner.find(*context, index, found);
            }
            OfRoot::List(after, most) => {
                let from = index_after(after);
                inner.list(*context, Listing { from, most, entries: Vec::new() }, done);
            }
        }
    }

    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.inner.service.ask_first(context, request, bulk, self.inner.view.renamed(done));
    }

    fn lease_left(&self) -> Duration {
        self.inner.service.lease_left()
    }

    fn has_lost_lock(&self, open: OpenId) -> bool {
        self.inner.service.has_lost_lock(open)
    }

    fn when_settled(&self, then: Then) {
        self.inner.service.when_settled(then);
    }

    fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        // Things have the numbers of the server here.
        self.inner.service.set_holder(holder);
    }
}

impl Inner {
    /// Returns a callback that makes the root the parent of a folder that is its own parent, as the
    /// server says of one whose parent is not granted.
    fn below_root(self: &Arc<Self>, dir: InodeId, done: LeasedDone) -> LeasedDone {
        let inner = Arc::clone(self);
        Box::new(move |result, granted| match result {
            Ok(Reply::Entry(entry)) if entry.handle.ino == dir => {
                done(Ok(Reply::Entry(inner.root())), granted);
            }
            result => done(result, granted),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;
    use pelago_wire::{Asker, Search};

    use super::*;

    const DIR: InodeId = InodeId::from_raw(0x20);
    const FOLDER: InodeId = InodeId::from_raw(0x21);

    /// A server of a few files, and the requests that it got.
    #[derive(Default)]
    struct Server {
        /// Names in [`DIR`].
        names: Mutex<BTreeMap<&'static str, u64>>,
        /// The numbers that are granted.
        numbers: Mutex<BTreeMap<u64, FileKind>>,
        refusal: Mutex<Option<Code>>,
        /// The number that has lost its last name.
        unnamed: Mutex<Option<u64>>,
        asked: Mutex<Vec<Request>>,
    }

    fn attr(ino: InodeId, kind: FileKind) -> Attr {
        Attr { mode: 0o644, uid: 7, gid: 8, ..Attr::empty(ino, kind) }
    }

    fn named(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    impl Server {
        fn answer(&self, request: &Request) -> Result<Reply, Error> {
            self.asked.lock().push(request.clone());
            if let Some(code) = *self.refusal.lock() {
                return Err(code.into());
            }
            match request {
                Request::Lookup { dir, name } if dir.ino == DIR => {
                    let names = self.names.lock();
                    let text = name.to_string();
                    let ino = names.get(text.as_str()).ok_or(Code::Stale)?;
                    let ino = InodeId::from_raw(*ino);
                    let handle = Handle { ino, dir: DIR, hash: pelago_wire::NameHash(1) };
                    Ok(Reply::Entry(Entry { handle, attr: attr(ino, FileKind::Regular) }))
                }
                Request::GetAttr { node } | Request::Parent { dir: node } => {
                    let numbers = self.numbers.lock();
                    let kind = *numbers.get(&node.ino.raw()).ok_or(Code::Stale)?;
                    let is_unnamed = *self.unnamed.lock() == Some(node.ino.raw());
                    let links = u32::from(!is_unnamed);
                    let attr = Attr { links, ..attr(node.ino, kind) };
                    match request {
                        Request::GetAttr { .. } => Ok(Reply::Attr(attr)),
                        _ => Ok(Reply::Entry(Entry { handle: *node, attr })),
                    }
                }
                _ => Err(Code::Stale.into()),
            }
        }
    }

    impl Service for Server {
        fn ask(
            &self,
            _: &Context,
            request: Request,
            _: Bulk<'_>,
            _: &mut dyn FnMut() -> Done,
        ) -> Option<Result<Reply, Error>> {
            Some(self.answer(&request))
        }
    }

    impl LeasedService for Server {
        fn ask_leased(&self, _: &Context, request: Request, _: Bulk<'_>, done: LeasedDone) {
            done(self.answer(&request), Granted::default());
        }

        fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
            self.ask_leased(context, request, bulk, done);
        }

        fn lease_left(&self) -> Duration {
            Duration::ZERO
        }

        fn has_lost_lock(&self, _: OpenId) -> bool {
            false
        }

        fn when_settled(&self, then: Then) {
            then();
        }

        fn set_holder(&self, _: Weak<dyn LeaseHolder>) {}
    }

    /// A directory with a file, a name and a folder.
    fn flat() -> (Arc<Server>, Flat) {
        let server = Arc::new(Server::default());
        server.names.lock().extend([("report", 0x2a), ("plan", 0x2b)]);
        let kinds = [(0x2a, FileKind::Regular), (FOLDER.raw(), FileKind::Directory)];
        server.numbers.lock().extend(kinds);
        let file =
            FlatTarget::File { ino: InodeId::from_raw(0x2a), dir: DIR, name: named("report") };
        let names = vec![
            FlatName { shown: named("report"), target: file },
            FlatName {
                shown: named("shown"),
                target: FlatTarget::Name { dir: DIR, name: named("plan") },
            },
            FlatName { shown: named("docs"), target: FlatTarget::Folder(FOLDER) },
        ];
        let since = Time { seconds: 5, nanos: 0 };
        let flat =
            Flat::new(Arc::clone(&server) as _, names, View::new(InodeId::ROOT, 1000, 100), since);
        (server, flat)
    }

    fn ask(flat: &Flat, request: Request) -> Result<Reply, Code> {
        let answer: Arc<Mutex<Option<Result<Reply, Error>>>> = Arc::default();
        let to = Arc::clone(&answer);
        let done: LeasedDone = Box::new(move |result, _| *to.lock() = Some(result));
        flat.ask_leased(&Context::direct(0, 0), request, Bulk::None, done);
        let answer = answer.lock().take();
        answer.expect("an answer").map_err(|error| error.code)
    }

    const ROOT: Handle = Handle::own(InodeId::ROOT);

    fn look_up(flat: &Flat, text: &str) -> Result<InodeId, Code> {
        match ask(flat, Request::Lookup { dir: ROOT, name: named(text) })? {
            Reply::Entry(Entry { handle, attr }) => {
                assert_eq!((attr.uid, attr.gid, attr.ino), (1000, 100, handle.ino));
                Ok(handle.ino)
            }
            other => panic!("{other:?}"),
        }
    }

    fn listed(flat: &Flat, after: Cookie, entries: u32) -> (Vec<(String, Cookie)>, bool) {
        let request = Request::List { dir: ROOT, after, behind: None, entries, attributes: true };
        match ask(flat, request).unwrap() {
            Reply::Listed { entries, end } => {
                (entries.into_iter().map(|one| (one.name.to_string(), one.cookie)).collect(), end)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_name_leads_to_its_file_or_folder() {
        let (server, flat) = flat();
        assert_eq!(look_up(&flat, "report"), Ok(InodeId::from_raw(0x2a)));
        assert_eq!(look_up(&flat, "shown"), Ok(InodeId::from_raw(0x2b)));
        assert_eq!(look_up(&flat, "docs"), Ok(FOLDER));
        assert_eq!(look_up(&flat, "plan"), Err(Code::NotFound));
        server.names.lock().insert("plan", 0x2c);
        assert_eq!(look_up(&flat, "shown"), Ok(InodeId::from_raw(0x2c)), "it was replaced");
    }

    #[test]
    fn a_file_that_was_renamed_is_found_by_its_number_and_no_other_file_is() {
        let (server, flat) = flat();
        server.names.lock().remove("report");
        assert_eq!(look_up(&flat, "report"), Ok(InodeId::from_raw(0x2a)));
        server.names.lock().insert("report", 0x30);
        assert_eq!(look_up(&flat, "report"), Ok(InodeId::from_raw(0x2a)), "another has its name");
        *server.unnamed.lock() = Some(0x2a);
        assert_eq!(look_up(&flat, "report"), Err(Code::NotFound), "it is open and has no name");
        *server.unnamed.lock() = None;
        server.numbers.lock().remove(&0x2a);
        assert_eq!(look_up(&flat, "report"), Err(Code::NotFound));
        let names: Vec<String> =
            listed(&flat, Cookie::START, 100).0.into_iter().map(|one| one.0).collect();
        assert_eq!(names, ["shown", "docs"]);
    }

    #[test]
    fn a_listing_continues_at_each_position() {
        let (_server, flat) = flat();
        let all = listed(&flat, Cookie::START, 100);
        let names: Vec<&str> = all.0.iter().map(|one| one.0.as_str()).collect();
        assert_eq!((names, all.1), (vec!["report", "shown", "docs"], true));
        for (at, one) in all.0.iter().enumerate() {
            assert_eq!(listed(&flat, one.1, 100).0, all.0[at + 1..]);
        }
        let first = listed(&flat, Cookie::AFTER_DOT_DOT, 2);
        assert_eq!((first.0.as_slice(), first.1), (&all.0[..2], false));
        assert_eq!(listed(&flat, Cookie(u64::MAX), 100), (vec![], true));
    }

    #[test]
    fn the_root_is_a_directory_that_is_never_changed_and_never_asked_for() {
        let (server, flat) = flat();
        let Ok(Reply::Attr(root)) = ask(&flat, Request::GetAttr { node: ROOT }) else {
            panic!("the root has attributes")
        };
        assert_eq!((root.ino, root.kind, root.mode), (InodeId::ROOT, FileKind::Directory, 0o500));
        let Ok(Reply::Entry(entry)) = ask(&flat, Request::Parent { dir: ROOT }) else {
            panic!("the root is its own parent")
        };
        assert_eq!(entry.handle, ROOT);
        let name = named("report");
        for refused in [
            Request::Unlink { dir: ROOT, name: name.clone() },
            Request::RemoveDir { dir: ROOT, name: name.clone() },
            Request::Link { node: Handle::own(FOLDER), dir: ROOT, name: name.clone() },
            Request::Symlink { dir: ROOT, name, target: b"x".to_vec() },
        ] {
            assert_eq!(ask(&flat, refused).err(), Some(Code::AccessDenied));
        }
        let asker = Asker::default();
        let search = Search { query: b"name=a".to_vec(), hits: 1, after: None, asker };
        let found = ask(&flat, Request::Search { dir: ROOT, search });
        assert_eq!(found.err(), Some(Code::NotSupported));
        let xattrs = ask(&flat, Request::ListXattr { node: ROOT });
        assert!(matches!(xattrs, Ok(Reply::Bytes(names)) if names.is_empty()));
        let acl = Request::GetXattr { node: ROOT, name: b"system.posix_acl_access".to_vec() };
        assert_eq!(ask(&flat, acl).err(), Some(Code::NoXattr));
        assert!(server.asked.lock().is_empty());
        let Ok(Reply::Entry(entry)) = ask(&flat, Request::Parent { dir: Handle::own(FOLDER) })
        else {
            panic!("a folder has a parent")
        };
        assert_eq!(entry.handle, ROOT, "the root is above its folders");
    }

    #[test]
    fn a_guest_whose_share_has_ended_gets_that_error() {
        let (server, flat) = flat();
        *server.refusal.lock() = Some(Code::AccessDenied);
        assert_eq!(look_up(&flat, "report"), Err(Code::AccessDenied));
        let list = Request::List {
            dir: ROOT,
            after: Cookie::START,
            behind: None,
            entries: 9,
            attributes: false,
        };
        assert_eq!(ask(&flat, list).err(), Some(Code::AccessDenied));
    }
}
