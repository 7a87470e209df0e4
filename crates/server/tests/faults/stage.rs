//! A stepped server whose volume is on a file system that fails calls, and the volume that every
//! program begins with.

use std::path::PathBuf;
use std::sync::{OnceLock, mpsc};

use pelago_check::{self as check, CheckError, Plan};
use pelago_lossfs::{Counting, Lossfs, Model, Random, Survival};
use pelago_server::{Options, Passthrough, Server, StartError, Step};
use pelago_wire::{
    Bulk, Code, Context, Cookie, Done, Entry, FileKind, Handle, Name, NewMode, OpenFlags, OpenId,
    Reply, Request, WriteFlags,
};
use rustix::thread::gettid;

use super::belief::{Kept, Tree};
use crate::harness::requests::next_open;
use crate::harness::rig::by_hand;

/// Bytes for all caches, so few that the table writes sorted runs after 1.4 MB of rows.
const MEMORY_BYTES: u64 = 16 << 20;
/// Group commits after which a request must have its answer.
const MOST_COMMITS: usize = 20;
/// Files of the volume that every program begins with; their rows are in a sorted run.
pub(crate) const OLD_FILES: usize = 500;

pub(crate) const READ: OpenFlags = OpenFlags { no_atime: true, ..OpenFlags::READ };
pub(crate) const BOTH: OpenFlags = OpenFlags { write: true, ..READ };

/// A volume that is mounted and served.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) lossfs: Lossfs,
    folder: tempfile::TempDir,
    /// What happens is printed.
    pub(crate) is_told: bool,
}

/// A file system that is mounted.
pub(crate) struct FaultyDisk {
    pub(crate) lossfs: Lossfs,
    folder: tempfile::TempDir,
}

impl FaultyDisk {
    /// Mounts what there is. `None`: that cannot be done here.
    pub(crate) fn mount(model: Model) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        match Lossfs::mount(folder.path(), model) {
            Ok(lossfs) => Some(Self { lossfs, folder }),
            Err(error) => {
                println!("skipped: not here: no FUSE file system can be mounted: {error}");
                None
            }
        }
    }

    /// Where the volume lies: below folders that it has to make.
    pub(crate) fn place(&self) -> PathBuf {
        self.folder.path().join("some/where")
    }

    /// Counts calls from now on; those of this thread are ours.
    pub(crate) fn count(&self) {
        count(&self.lossfs);
    }

    /// Serves the volume.
    pub(crate) fn serve(self) -> Result<Stage, Box<(StartError, Self)>> {
        match Server::start(&self.place(), options()) {
            Ok(server) => {
                Ok(Stage { server, lossfs: self.lossfs, folder: self.folder, is_told: false })
            }
            Err(error) => Err(Box::new((error, self))),
        }
    }

    pub(crate) fn check(&self) -> Result<Plan, CheckError> {
        check::plan(&self.place())
    }
}

fn count(lossfs: &Lossfs) {
    let thread = gettid().as_raw_nonzero().get().cast_unsigned();
    // The engine reads its journal right after us, and takes some errors for its end.
    let counting = Counting { sorter: class_of, threads: vec![thread], cached: &["journal"] };
    lossfs.control().count(counting);
}

fn options() -> Options {
    Options {
        memory_bytes: MEMORY_BYTES,
        passthrough: Passthrough::Never,
        workers: true,
        stepped: true,
        ..by_hand()
    }
}

/// The class of a file of the volume.
fn class_of(path: &str) -> &'static str {
    let Some(path) = path.strip_prefix("/some/where/") else { return "volume" };
    match path.split('/').next().unwrap_or_default() {
        "content" if path.matches('/').count() == 2 => "content",
        "content" => "folder",
        "table" if path.ends_with(".jnl") => "journal",
        "table" if path.contains("/flushed") => "record",
        "table" => "table",
        "format" | "format.copy" | "format.new" => "format",
        "reserve" => "reserve",
        _ => "volume",
    }
}

impl Stage {
    /// Carries out a request, with as many group commits as it waits for.
    pub(crate) fn call(&self, request: Request, bytes: &[u8]) -> Result<Reply, Code> {
        let (told, tells) = mpsc::channel();
        let what = format!("{request:?}");
        let mut later = || -> Done {
            let told = told.clone();
            Box::new(move |reply| told.send(reply).unwrap())
        };
        let context = Context::direct(10, 20);
        let bulk = Bulk::Borrowed(bytes);
        if let Some(now) = self.server.service().ask(&context, request, bulk, &mut later) {
            later()(now);
        }
        for _ in 0..MOST_COMMITS {
            if let Ok(answer) = tells.try_recv() {
                if self.is_told {
                    let error = answer.as_ref().err().map(|error| error.code);
                    let failed = self.lossfs.control().injected();
                    println!("  {what:.180} -> {error:?} ({failed} failed)");
                }
                return answer.map_err(|error| error.code);
            }
            self.step(Step::Commit);
        }
        panic!("never answered: {what}");
    }

    /// Does what a thread would do; what fails is tried again by a later step.
    pub(crate) fn step(&self, step: Step) {
        let done = self.server.step(step);
        if self.is_told {
            println!("  {step:?} -> {done:?} ({} failed)", self.lossfs.control().injected());
        }
    }

    /// Whether a call has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lossfs.control().injected() > 0
    }

    /// Proves that an operation has a reason to fail.
    pub(crate) fn failed(&self, what: &str, code: Code) -> Kept {
        match self.has_failed() {
            true => Ok(()),
            false => Err(format!("{what} failed before any call had: {code:?}")),
        }
    }

    pub(crate) fn lookup(&self, dir: Handle, text: &str) -> Result<Option<Entry>, Code> {
        match self.call(Request::Lookup { dir, name: named(text) }, &[]) {
            Ok(Reply::Entry(entry)) => Ok(Some(entry)),
            Ok(other) => panic!("{other:?}"),
            Err(Code::NotFound) => Ok(None),
            Err(code) => Err(code),
        }
    }

    pub(crate) fn open(&self, node: Handle, flags: OpenFlags) -> Result<OpenId, Code> {
        let open = next_open();
        match self.call(Request::Open { node, flags, open }, &[])? {
            Reply::Opened { .. } => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn create(&self, dir: Handle, text: &str) -> Result<(Entry, OpenId), Code> {
        let name = named(text);
        let mode = NewMode::exactly(0o644);
        let open = next_open();
        match self.call(Request::Create { dir, name, mode, flags: BOTH, open }, &[])? {
            Reply::Created { entry, .. } => Ok((entry, open)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&self, open: OpenId) -> Result<Vec<u8>, Code> {
        match self.call(Request::Read { open, offset: 0, size: 1 << 20 }, &[])? {
            Reply::Data(data) => Ok(data.as_bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Writes all bytes, or answers why not.
    pub(crate) fn write(&self, open: OpenId, at: u64, bytes: &[u8]) -> Result<(), Code> {
        let request = Request::Write { open, offset: at, flags: WriteFlags::NONE };
        match self.call(request, bytes)? {
            Reply::Written { bytes: written, .. } if written == bytes.len() as u64 => Ok(()),
            Reply::Written { .. } => Err(Code::NoSpace),
            other => panic!("{other:?}"),
        }
    }

    /// Closes a file; what went wrong is told by the flush.
    pub(crate) fn close(&self, open: OpenId) -> Result<(), Code> {
        let flushed = self.call(Request::Flush { open, owner: None }, &[]);
        let released = self.call(Request::Release { open }, &[]);
        flushed.and(released).map(drop)
    }

    /// All files with their bytes, all directories without.
    pub(crate) fn see(&self) -> Result<Tree, Code> {
        let mut tree = Tree::new();
        self.walk(Handle::ROOT, "", &mut tree)?;
        Ok(tree)
    }

    /// The names in a directory.
    pub(crate) fn list(&self, dir: Handle) -> Result<Vec<(String, Entry)>, Code> {
        let mut names = Vec::new();
        let mut after = Cookie::START;
        loop {
            let list = Request::List { dir, after, behind: None, entries: 100, attributes: true };
            let Reply::Listed { entries, end } = self.call(list, &[])? else {
                panic!("a listing answers `Listed`");
            };
            for listed in entries {
                after = listed.cookie;
                names.extend(listed.entry.map(|entry| (listed.name.to_string(), entry)));
            }
            if end {
                return Ok(names);
            }
        }
    }

    fn walk(&self, dir: Handle, below: &str, tree: &mut Tree) -> Result<(), Code> {
        for (name, entry) in self.list(dir)? {
            let path = format!("{below}{name}");
            let ino = entry.attr.ino.raw();
            if entry.attr.kind == FileKind::Directory {
                self.walk(entry.handle, &format!("{path}/"), tree)?;
                tree.insert(path, (ino, None));
                continue;
            }
            let open = self.open(entry.handle, READ)?;
            let bytes = self.read(open);
            let closed = self.close(open);
            tree.insert(path, (ino, Some(bytes?)));
            closed?;
        }
        Ok(())
    }

    /// Lets all workers work.
    pub(crate) fn work(&self) {
        for name in ["writeback", "orphans", "recount", "space"] {
            self.step(Step::Work(name));
        }
    }

    /// Ends the server as a crash would, and releases the disk.
    pub(crate) fn abandon(self) {
        let _left = self.lossfs.control().cut(Survival::Nothing);
        drop(self.server);
    }

    /// Counts calls from now on; those of this thread are ours.
    pub(crate) fn count(&self) {
        count(&self.lossfs);
    }

    /// Ends it, and answers whether cleanly; only a call that failed may keep it from that.
    pub(crate) fn end(self) -> Kept<(FaultyDisk, bool)> {
        let stopped = self.server.stop();
        drop(self.server);
        let is_clean = stopped.is_ok();
        if let (Err(error), 0) = (stopped, self.lossfs.control().injected()) {
            return Err(format!("it cannot be stopped: {error:?}"));
        }
        Ok((FaultyDisk { lossfs: self.lossfs, folder: self.folder }, is_clean))
    }

    /// Ends it cleanly.
    pub(crate) fn stop(self) -> Kept<FaultyDisk> {
        let stopped = self.server.stop();
        drop(self.server);
        stopped.map_err(|error| format!("it cannot be stopped: {error:?}"))?;
        Ok(FaultyDisk { lossfs: self.lossfs, folder: self.folder })
    }
}

/// A volume with [`OLD_FILES`] small files and a few large ones in `old`, stopped cleanly, and what
/// is in it. `None`: nothing can be mounted here.
pub(crate) fn old_volume() -> Option<&'static (Model, Tree)> {
    static OLD: OnceLock<Option<(Model, Tree)>> = OnceLock::new();
    OLD.get_or_init(make_old_volume).as_ref()
}

fn make_old_volume() -> Option<(Model, Tree)> {
    let stage = FaultyDisk::mount(Model::new())?.serve().map_err(|failed| failed.0).unwrap();
    let mode = NewMode::exactly(0o755);
    let request = Request::MakeDir { dir: Handle::ROOT, name: named("old"), mode };
    let Ok(Reply::Entry(dir)) = stage.call(request, &[]) else { panic!("no directory") };
    let mut random = Random(1);
    for number in 0..OLD_FILES {
        let (_, open) = stage.create(dir.handle, &format!("{number}")).unwrap();
        let size = if number % 50 == 0 { 30_000 } else { 3_000 };
        let bytes: Vec<u8> = (0..size).map(|_| random.draw() as u8).collect();
        stage.write(open, 0, &bytes).unwrap();
        stage.close(open).unwrap();
    }
    stage.server.step(Step::Commit).unwrap();
    let tree = stage.see().unwrap();
    let disk = stage.stop().unwrap();
    Some((disk.lossfs.control().model(), tree))
}

pub(crate) fn named(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}
