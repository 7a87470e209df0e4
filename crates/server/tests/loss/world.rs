//! A server whose volume is on a file system that loses what was not synced, and a random program
//! on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_check as check;
use pelago_lossfs::{Lossfs, Model, Random};
use pelago_server::{Options, Server};
use pelago_wire::{
    Code, Cookie, DataPath, FileKind, Handle, Name, NewMode, OpenFlags, OpenId, RenameFlags, Reply,
    Request, SetAttr,
};

use super::history::{History, Instant, Names, Tree};
use crate::harness::requests;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    sync: false,
    kill_privileges: false,
    no_atime: true,
    strict_atime: false,
    passthrough: false,
};
const BOTH: OpenFlags = OpenFlags { write: true, ..READ };

/// A mounted file system: empty, or with the files that a loss of power has left.
pub(crate) struct Disk {
    pub(crate) lossfs: Lossfs,
    folder: tempfile::TempDir,
}

/// A file system with a volume on it that is served.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) lossfs: Lossfs,
    _folder: tempfile::TempDir,
}

impl World {
    /// Serves the volume on this disk, which is made if there is none.
    pub(crate) fn on(disk: Disk, options: Options, when: &str) -> Self {
        let Disk { lossfs, folder } = disk;
        let server = Server::start(&place(lossfs.point()), options)
            .unwrap_or_else(|error| panic!("{when}: {error:?}"));
        Self { server, lossfs, _folder: folder }
    }

    /// Ends it cleanly, and looks it over.
    pub(crate) fn finish(self, when: &str) {
        self.lossfs.control().unwatch();
        self.server.stop().unwrap_or_else(|error| panic!("{when}: {error:?}"));
        let place = place(self.lossfs.point());
        let plan = check::plan(&place).unwrap_or_else(|error| panic!("{when}: {error:?}"));
        assert!(plan.is_whole(), "{when}: {:#?}", plan.findings);
    }
}

/// Where the volume lies in the file system: below folders that it has to make.
pub(crate) fn place(root: &Path) -> PathBuf {
    root.join("some/where")
}

/// Mounts what is there, in a folder of its own. `None`: that cannot be done here.
pub(crate) fn mounted(model: Model) -> Option<Disk> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    match Lossfs::mount(folder.path(), model) {
        Ok(lossfs) => Some(Disk { lossfs, folder }),
        Err(error) => {
            println!("skipped: not here: no FUSE file system can be mounted: {error}");
            None
        }
    }
}

/// How far a program has come; the file system looks at it when it is copied.
#[derive(Clone, Default)]
pub(crate) struct Pace(Arc<(AtomicUsize, AtomicUsize)>);

impl Pace {
    pub(crate) fn now(&self) -> Instant {
        let (begun, answered) = &*self.0;
        let answered = answered.load(Ordering::SeqCst);
        Instant { answered, begun: begun.load(Ordering::SeqCst) }
    }
}

/// An open file.
struct Opened {
    id: OpenId,
    /// Where writes go that the server does not see.
    outside: Option<File>,
}

impl Opened {
    fn new(id: OpenId, path: DataPath) -> Self {
        let outside = match path {
            // The kernel opens it again to write; so do we.
            DataPath::Passthrough(backing) => {
                let path = format!("/proc/self/fd/{}", backing.as_fd().as_raw_fd());
                Some(OpenOptions::new().write(true).open(path).unwrap())
            }
            _ => None,
        };
        Self { id, outside }
    }

    fn write(&self, server: &Server, at: u64, bytes: &[u8]) {
        match &self.outside {
            Some(file) => file.write_all_at(bytes, at).unwrap(),
            None => requests::write(server, self.id, at, bytes).unwrap(),
        }
    }
}

/// A random program, and what it has done.
pub(crate) struct Program {
    random: Random,
    pub(crate) history: History,
    pub(crate) pace: Pace,
    names: Names,
    folders: BTreeSet<String>,
    open: BTreeMap<u64, Opened>,
    /// Opens ask for descriptors of the content files.
    passes: bool,
    bytes: BTreeMap<u64, Vec<u8>>,
    /// Counts the writes; each has bytes of its own.
    fill: u8,
}

impl Program {
    /// `passes`: it writes through descriptors of the content files, where it is given some.
    pub(crate) fn new(seed: u64, passes: bool) -> Self {
        Self {
            passes,
            random: Random(seed),
            history: History::new(),
            pace: Pace::default(),
            names: Names::new(),
            folders: BTreeSet::new(),
            open: BTreeMap::new(),
            bytes: BTreeMap::new(),
            fill: 0,
        }
    }

    /// One operation.
    pub(crate) fn step(&mut self, server: &Server) {
        self.pace.0.0.store(self.history.number(), Ordering::SeqCst);
        let path = self.path();
        match self.random.below(24) {
            0..=3 => self.open(server, &path),
            4..=9 => self.write(server, &path),
            10 => self.truncate(server, &path),
            11..=13 => self.fsync(server, &path),
            14 => self.sync_names(server),
            15..=16 => self.close(server, &path),
            17 => self.unlink(server, &path),
            18..=20 => {
                let to = self.path();
                self.rename(server, &path, &to);
            }
            21..=22 => self.make_folder(server),
            _ => self.remove_folder(server),
        }
        self.history.done(&self.names);
        self.pace.0.1.store(self.history.number() - 1, Ordering::SeqCst);
    }

    /// What it has made.
    pub(crate) fn tree(&self) -> Tree {
        let seen = |ino: &u64| (*ino, self.bytes.get(ino).cloned());
        self.names.iter().map(|(path, ino)| (path.clone(), seen(ino))).collect()
    }

    /// A path of a file, in a folder that is there.
    fn path(&mut self) -> String {
        let name = NAMES[self.random.below(4) as usize];
        let count = self.folders.len() as u64;
        match self.folders.iter().nth(self.random.below(count + 2) as usize) {
            Some(folder) => format!("{folder}/{name}"),
            None => name.to_owned(),
        }
    }

    fn open(&mut self, server: &Server, path: &str) {
        let (dir, name) = find(server, path);
        let Some(ino) = self.names.get(path).copied() else {
            return match self.random.coin() {
                true => self.create(server, path),
                false => self.publish(server, path),
            };
        };
        self.open.entry(ino).or_insert_with(|| {
            let node = requests::lookup(server, dir, name).unwrap().handle;
            let flags = OpenFlags { passthrough: self.passes, ..BOTH };
            let (open, way) = open(server, node, flags).unwrap();
            Opened::new(open, way)
        });
    }

    fn create(&mut self, server: &Server, path: &str) {
        let (dir, name) = find(server, path);
        let flags = OpenFlags { passthrough: self.passes, ..BOTH };
        let name = named(name);
        let mode = NewMode::exactly(0o644);
        let create = |open| Request::Create { dir, name, mode, flags, open };
        let (ino, _, open) = created(server, create);
        self.names.insert(path.to_owned(), ino);
        self.bytes.insert(ino, Vec::new());
        self.history.made(ino);
        self.history.changed(ino, &[]);
        self.open.insert(ino, open);
    }

    /// Makes a file that gets its name once it is whole.
    fn publish(&mut self, server: &Server, path: &str) {
        let (dir, name) = find(server, path);
        let flags = OpenFlags { passthrough: self.passes, ..BOTH };
        let mode = NewMode::exactly(0o644);
        let create = |open| Request::CreateUnnamed { dir, mode, flags, open };
        let (ino, node, open) = created(server, create);
        self.history.made(ino);
        self.fill = self.fill % 250 + 1;
        let bytes = vec![self.fill; 1 + self.random.below(20_000) as usize];
        self.history.changed(ino, &bytes);
        open.write(server, 0, &bytes);
        let syncs_first = self.random.coin();
        let syncs_then = self.random.coin();
        let fsync =
            || requests::call(server, Request::Fsync { open: open.id, data_only: true }, &[]);
        if syncs_first {
            fsync().unwrap();
        }
        requests::call(server, Request::Link { node, dir, name: named(name) }, &[]).unwrap();
        self.names.insert(path.to_owned(), ino);
        if syncs_then {
            fsync().unwrap();
            self.history.names_synced();
        }
        if syncs_first || syncs_then {
            self.history.fsynced(ino);
        }
        self.bytes.insert(ino, bytes);
        self.open.insert(ino, open);
    }

    /// The file of a path, where it is open.
    fn opened(&self, path: &str) -> Option<(u64, OpenId)> {
        let ino = *self.names.get(path)?;
        Some((ino, self.open.get(&ino)?.id))
    }

    fn write(&mut self, server: &Server, path: &str) {
        let Some((ino, _)) = self.opened(path) else { return };
        let at = self.random.below(3) * self.random.below(6_000);
        let most = [1_000, 20_000, 60_000][self.random.below(3) as usize];
        let size = 1 + self.random.below(most);
        self.fill = self.fill % 250 + 1;
        let bytes = vec![self.fill; size as usize];
        // A write that is cut in two is torn there.
        let all = self.bytes.get_mut(&ino).unwrap();
        let from = at as usize;
        let to = (at + size) as usize;
        all.resize(all.len().max(to), 0);
        all[from..to].copy_from_slice(&bytes);
        self.history.changed(ino, all);
        self.open[&ino].write(server, at, &bytes);
    }

    /// How many files are open that are written past the server.
    pub(crate) fn outside(&self) -> usize {
        self.open.values().filter(|open| open.outside.is_some()).count()
    }

    fn truncate(&mut self, server: &Server, path: &str) {
        let Some((ino, open)) = self.opened(path) else { return };
        let size = self.random.below(2) * self.random.below(10_000);
        let (dir, name) = find(server, path);
        let node = requests::lookup(server, dir, name).unwrap().handle;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let all = self.bytes.get_mut(&ino).unwrap();
        all.resize(size as usize, 0);
        self.history.changed(ino, all);
        let request = Request::SetAttr { node, open: Some(open), set };
        requests::call(server, request, &[]).unwrap();
    }

    fn fsync(&mut self, server: &Server, path: &str) {
        let Some((ino, open)) = self.opened(path) else { return };
        let data_only = self.random.coin();
        requests::call(server, Request::Fsync { open, data_only }, &[]).unwrap();
        self.history.fsynced(ino);
        self.history.names_synced();
    }

    fn sync_names(&mut self, server: &Server) {
        requests::call(server, Request::FsyncDir { dir: Handle::ROOT, since: None }, &[]).unwrap();
        self.history.names_synced();
    }

    fn close(&mut self, server: &Server, path: &str) {
        let Some((ino, open)) = self.opened(path) else { return };
        self.open.remove(&ino);
        requests::close(server, open).unwrap();
    }

    fn unlink(&mut self, server: &Server, path: &str) {
        let Some(ino) = self.names.remove(path) else { return };
        let (dir, name) = find(server, path);
        requests::unlink(server, dir, name).unwrap();
        self.gone(server, ino);
    }

    fn rename(&mut self, server: &Server, path: &str, to: &str) {
        let Some(ino) = self.names.get(path).copied() else { return };
        if path == to {
            return;
        }
        let (from_dir, from) = find(server, path);
        let (to_dir, to_name) = find(server, to);
        let request = Request::Rename {
            from_dir,
            from: named(from),
            to_dir,
            to: named(to_name),
            flags: RenameFlags::Replace,
        };
        requests::call(server, request, &[]).unwrap();
        self.names.remove(path);
        if let Some(old) = self.names.insert(to.to_owned(), ino) {
            self.history.moved_over(ino);
            self.gone(server, old);
        }
    }

    fn make_folder(&mut self, server: &Server) {
        let name = ["x", "y", "z"][self.random.below(3) as usize];
        if self.folders.contains(name) {
            return;
        }
        let mode = NewMode::exactly(0o755);
        let request = Request::MakeDir { dir: Handle::ROOT, name: named(name), mode };
        let Reply::Entry(entry) = requests::call(server, request, &[]).unwrap() else {
            panic!("a new directory answers `Entry`");
        };
        self.folders.insert(name.to_owned());
        self.names.insert(name.to_owned(), entry.attr.ino.raw());
        self.history.made(entry.attr.ino.raw());
    }

    fn remove_folder(&mut self, server: &Server) {
        let is_empty = |folder: &&String| {
            !self.names.keys().any(|path| path.starts_with(&format!("{folder}/")))
        };
        let Some(name) = self.folders.iter().find(is_empty).cloned() else { return };
        let request = Request::RemoveDir { dir: Handle::ROOT, name: named(&name) };
        requests::call(server, request, &[]).unwrap();
        self.folders.remove(&name);
        self.names.remove(&name);
    }

    /// A file without a name is closed.
    fn gone(&mut self, server: &Server, ino: u64) {
        self.bytes.remove(&ino);
        if let Some(open) = self.open.remove(&ino) {
            let id = open.id;
            drop(open);
            requests::close(server, id).unwrap();
        }
    }
}

/// All there is. Each file can be read, and is as long as it says.
pub(crate) fn see(server: &Server, when: &str) -> Tree {
    let mut tree = Tree::new();
    walk(server, Handle::ROOT, "", &mut tree, when);
    tree
}

fn walk(server: &Server, dir: Handle, below: &str, tree: &mut Tree, when: &str) {
    let list =
        Request::List { dir, after: Cookie::START, behind: None, entries: 100, attributes: true };
    let Reply::Listed { entries, .. } = requests::call(server, list, &[]).unwrap() else {
        panic!("a listing answers `Listed`");
    };
    for listed in entries {
        let Some(entry) = listed.entry else { continue };
        let path = format!("{below}{}", listed.name);
        let ino = entry.attr.ino.raw();
        if entry.attr.kind == FileKind::Directory {
            walk(server, entry.handle, &format!("{path}/"), tree, when);
            tree.insert(path, (ino, None));
            continue;
        }
        let (open, _) = open(server, entry.handle, READ)
            .unwrap_or_else(|code| panic!("{when}: {path} cannot be opened: {code:?}"));
        let read = Request::Read { open, offset: 0, size: 1 << 20 };
        let Reply::Data(data) = requests::call(server, read, &[])
            .unwrap_or_else(|code| panic!("{when}: {path} cannot be read: {code:?}"))
        else {
            panic!("a read answers `Data`");
        };
        let bytes = data.as_bytes().to_vec();
        requests::close(server, open).unwrap();
        assert_eq!(bytes.len() as u64, entry.attr.size, "{when}: {path} is as long as it says");
        tree.insert(path, (ino, Some(bytes)));
    }
}

/// What a request has made: its number, its handle, and the open file.
fn created(server: &Server, request: impl FnOnce(OpenId) -> Request) -> (u64, Handle, Opened) {
    let open = requests::next_open();
    match requests::call(server, request(open), &[]) {
        Ok(Reply::Created { entry, path }) => {
            (entry.attr.ino.raw(), entry.handle, Opened::new(open, path))
        }
        other => panic!("a new file answers `Created`, not {other:?}"),
    }
}

fn open(server: &Server, node: Handle, flags: OpenFlags) -> Result<(OpenId, DataPath), Code> {
    let open = requests::next_open();
    match requests::call(server, Request::Open { node, flags, open }, &[])? {
        Reply::Opened { path, .. } => Ok((open, path)),
        other => panic!("{other:?}"),
    }
}

/// Opens a file to read and to write it.
pub(crate) fn open_to_write(server: &Server, node: Handle) -> OpenId {
    open(server, node, BOTH).unwrap().0
}

fn named(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// The directory of a path, and the name in it.
fn find<'a>(server: &Server, path: &'a str) -> (Handle, &'a str) {
    match path.split_once('/') {
        Some((folder, name)) => {
            (requests::lookup(server, Handle::ROOT, folder).unwrap().handle, name)
        }
        None => (Handle::ROOT, path),
    }
}
