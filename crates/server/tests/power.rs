//! A loss of power: a prefix of the rows is left, and of each content file the synced bytes, or the
//! written bytes, or neither name nor bytes if it was never synced. In each case the volume can be
//! served, is whole, and keeps the promises of `docs/semantics.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelago_check::{self as check, Plan};
use pelago_server::{Options, Parts, Passthrough, Server};
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Code, Cookie, Handle, OpenFlags, OpenId, RenameFlags, Reply, Request, SetAttr, SetTime,
    ShardId, Time,
};

use crate::harness::program::Random;
use crate::harness::requests;
use crate::harness::rig::{by_hand, name};

const ROOT: Handle = Handle::ROOT;
const VOLUME: VolumeId = VolumeId([9; 16]);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const BOTH: OpenFlags = OpenFlags {
    read: true,
    write: true,
    append: false,
    truncate: false,
    sync: false,
    kill_privileges: false,
    no_atime: false,
    strict_atime: false,
    passthrough: false,
};

type Folder = BTreeMap<PathBuf, Vec<u8>>;

/// A server, and what the test knows of its files.
struct World {
    passthrough: Passthrough,
    table: FakeTable,
    folder: tempfile::TempDir,
    server: Server,
    /// Content files with the bytes that are certainly on the disk.
    synced: Folder,
    names: BTreeMap<&'static str, u64>,
    files: BTreeMap<u64, File>,
    /// Names that changed since everything was safe.
    loose: BTreeSet<&'static str>,
    /// Bytes that a name led to when it was renamed over.
    replaced: BTreeMap<&'static str, Vec<u8>>,
}

#[derive(Default)]
struct File {
    open: Option<OpenId>,
    bytes: Vec<u8>,
    /// The bytes are those of the last fsync.
    kept: bool,
    /// Bytes of it were in the table once.
    stored: bool,
}

/// What is left of the content files.
#[derive(Debug, Clone, Copy)]
enum Left {
    Synced,
    Written,
    Some(u64),
}

impl World {
    fn new() -> Self {
        Self::with(Passthrough::Auto)
    }

    fn with(passthrough: Passthrough) -> Self {
        let table = FakeTable::new();
        let folder = tempfile::tempdir().unwrap();
        let server = serve_so(&table, folder.path(), passthrough);
        Self {
            passthrough,
            table,
            folder,
            server,
            synced: Folder::new(),
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            loose: BTreeSet::new(),
            replaced: BTreeMap::new(),
        }
    }

    fn step(&mut self, random: &mut Random) {
        let text = NAMES[random.below(4) as usize];
        match random.below(18) {
            0..=2 => self.open(text),
            3..=7 => self.write(text, random),
            8 => self.truncate(text, random),
            9..=10 => self.fsync(text),
            11 => self.sync_names(),
            12..=13 => self.close(text),
            14 => self.unlink(text),
            15..=16 => self.rename(text, NAMES[random.below(4) as usize]),
            _ => self.set_time(text, random),
        }
    }

    fn open(&mut self, text: &'static str) {
        let Some(ino) = self.names.get(text) else {
            let (entry, open) = requests::create(&self.server, ROOT, text).unwrap();
            self.names.insert(text, entry.attr.ino.raw());
            let file = File { open: Some(open), ..File::default() };
            self.files.insert(entry.attr.ino.raw(), file);
            self.loose.insert(text);
            self.replaced.remove(text);
            return;
        };
        let file = self.files.get_mut(ino).unwrap();
        if file.open.is_none() {
            let node = requests::lookup(&self.server, ROOT, text).unwrap().handle;
            file.open = Some(open(&self.server, node).unwrap());
        }
    }

    /// The file of a name, where it is open.
    fn opened(&mut self, text: &str) -> Option<(u64, OpenId)> {
        let ino = *self.names.get(text)?;
        Some((ino, self.files[&ino].open?))
    }

    /// The bytes of a file changed.
    fn changed(&mut self, ino: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let file = self.files.get_mut(&ino).unwrap();
        change(&mut file.bytes);
        file.kept = false;
        // What the table had was made safe before it was moved.
        let path = path_of(ino);
        let stored = file.stored;
        if let Ok(bytes) = fs::read(self.folder.path().join(&path))
            && stored
        {
            self.synced.entry(path).or_insert(bytes);
        }
        let led = self.names.iter().find(|(_, led)| **led == ino).map(|(text, _)| *text);
        led.map(|text| self.replaced.remove(text));
    }

    fn write(&mut self, text: &str, random: &mut Random) {
        let Some((ino, open)) = self.opened(text) else { return };
        let at = random.below(3) * random.below(5_000);
        let most = [1_000, 20_000][random.below(2) as usize];
        let size = 1 + random.below(most);
        let bytes = vec![random.next() as u8; size as usize];
        requests::write(&self.server, open, at, &bytes).unwrap();
        self.changed(ino, |all| {
            let from = at as usize;
            let to = (at + size) as usize;
            all.resize(all.len().max(to), 0);
            all[from..to].copy_from_slice(&bytes);
        });
    }

    fn truncate(&mut self, text: &str, random: &mut Random) {
        let Some((ino, open)) = self.opened(text) else { return };
        let size = random.below(2) * random.below(10_000);
        let node = requests::lookup(&self.server, ROOT, text).unwrap().handle;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let request = Request::SetAttr { node, open: Some(open), set };
        requests::call(&self.server, request, &[]).unwrap();
        self.changed(ino, |all| all.resize(size as usize, 0));
    }

    fn fsync(&mut self, text: &str) {
        let Some((ino, open)) = self.opened(text) else { return };
        requests::call(&self.server, Request::Fsync { open, data_only: false }, &[]).unwrap();
        self.content_synced(ino);
        self.files.get_mut(&ino).unwrap().kept = true;
        self.rows_safe();
    }

    fn sync_names(&mut self) {
        requests::call(&self.server, Request::FsyncDir { dir: ROOT, since: None }, &[]).unwrap();
        self.rows_safe();
    }

    fn content_synced(&mut self, ino: u64) {
        let path = path_of(ino);
        if let Ok(bytes) = fs::read(self.folder.path().join(&path)) {
            self.synced.insert(path, bytes);
        }
    }

    fn rows_safe(&mut self) {
        self.loose.clear();
        for file in self.files.values_mut().filter(|file| !file.bytes.is_empty()) {
            file.stored = true;
        }
    }

    fn close(&mut self, text: &str) {
        let Some((ino, open)) = self.opened(text) else { return };
        requests::close(&self.server, open).unwrap();
        let file = self.files.get_mut(&ino).unwrap();
        file.open = None;
        file.stored |= !file.bytes.is_empty();
    }

    fn unlink(&mut self, text: &'static str) {
        let Some(ino) = self.names.remove(text) else { return };
        requests::unlink(&self.server, ROOT, text).unwrap();
        self.loose.insert(text);
        self.replaced.remove(text);
        self.gone(ino);
    }

    /// A file without a name is closed.
    fn gone(&mut self, ino: u64) {
        if let Some(open) = self.files.remove(&ino).unwrap().open {
            requests::close(&self.server, open).unwrap();
        }
    }

    fn rename(&mut self, text: &'static str, to: &'static str) {
        if text == to || !self.names.contains_key(text) {
            return;
        }
        let flags = RenameFlags::Replace;
        let request =
            Request::Rename { from_dir: ROOT, from: name(text), to_dir: ROOT, to: name(to), flags };
        requests::call(&self.server, request, &[]).unwrap();
        let ino = self.names.remove(text).unwrap();
        let old = self.names.insert(to, ino);
        let was_safe = !self.loose.contains(to);
        self.loose.extend([text, to]);
        self.replaced.remove(text);
        self.replaced.remove(to);
        let Some(old) = old else { return };
        // The new bytes were made safe before.
        self.content_synced(ino);
        if self.files[&old].kept && was_safe {
            self.replaced.insert(to, self.files[&old].bytes.clone());
        }
        self.gone(old);
    }

    fn set_time(&mut self, text: &str, random: &mut Random) {
        if !self.names.contains_key(text) {
            return;
        }
        let node = requests::lookup(&self.server, ROOT, text).unwrap().handle;
        let time = Time { seconds: random.below(1 << 30) as i64, nanos: 5 };
        let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
        requests::call(&self.server, Request::SetAttr { node, open: None, set }, &[]).unwrap();
    }

    fn live_and_fail(&mut self, seed: u64) {
        let mut random = Random(seed);
        for step in 0..60 {
            self.step(&mut random);
            if step % 6 != 5 {
                continue;
            }
            let all = self.table.unsafe_batches();
            for keep in [0, random.below(all as u64 + 1) as usize, all] {
                for left in [Left::Synced, Left::Written, Left::Some(random.next())] {
                    let when = format!("seed {seed}, step {step}, {keep} of {all}, {left:?}");
                    self.fail(keep, left, &when);
                }
            }
        }
    }

    /// Cuts the power, with `keep` unsafe batches and `left` of the content files on the disk.
    fn fail(&self, keep: usize, left: Left, when: &str) {
        let table = self.table.fork_crashed(keep);
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random(if let Left::Some(seed) = left { seed } else { 0 });
        for (path, written) in read_all(self.folder.path()) {
            let synced = match left {
                Left::Synced => true,
                Left::Written => false,
                Left::Some(_) => random.below(2) == 0,
            };
            let bytes = if synced { self.synced.get(&path) } else { Some(&written) };
            if let Some(bytes) = bytes {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }
        let server = serve_so(&table, folder.path(), self.passthrough);
        let seen = see(&server, when);
        for (text, ino) in &self.names {
            let file = &self.files[ino];
            if file.kept && !self.loose.contains(text) {
                let found = seen.get(*text).unwrap_or_else(|| panic!("{when}: {text} is lost"));
                assert!(*found == file.bytes, "{when}: {text} was fsynced, {} bytes", found.len());
            }
            if let Some(old) = self.replaced.get(text) {
                let found = seen.get(*text).unwrap_or_else(|| panic!("{when}: {text} is lost"));
                assert!(found == old || *found == file.bytes, "{when}: {text} was renamed over");
            }
        }
        server.stop().unwrap();
        let plan = check_on(&table, folder.path());
        assert!(plan.is_whole(), "{when}: {:#?}", plan.findings);
    }
}

fn serve(table: &FakeTable, folder: &Path) -> Server {
    serve_so(table, folder, Passthrough::Auto)
}

fn serve_so(table: &FakeTable, folder: &Path, passthrough: Passthrough) -> Server {
    let parts = Parts {
        shard: ShardId::FIRST,
        table: Arc::new(table.clone()),
        content: Arc::new(ContentStore::open(folder).unwrap()),
        volume: VOLUME,
        hasher: NameHasher::new(11),
    };
    Server::start_on(parts, Options { passthrough, ..by_hand() }).unwrap()
}

fn check_on(table: &FakeTable, folder: &Path) -> Plan {
    let content = ContentStore::open(folder).unwrap();
    let hasher = NameHasher::new(11);
    let parts = check::Parts {
        has_sites: false,
        shard: ShardId::FIRST,
        table,
        content: &content,
        volume: VOLUME,
        hasher,
        tags_are_complete: true,
        index: None,
    };
    check::plan_on(parts).unwrap()
}

fn open(server: &Server, node: Handle) -> Result<OpenId, Code> {
    let open = requests::next_open();
    match requests::call(server, Request::Open { node, flags: BOTH, open }, &[])? {
        Reply::Opened { .. } => Ok(open),
        other => panic!("{other:?}"),
    }
}

/// All names with their bytes; each can be read, and is as long as it says.
fn see(server: &Server, when: &str) -> BTreeMap<String, Vec<u8>> {
    let list = Request::List {
        dir: ROOT,
        after: Cookie::START,
        behind: None,
        entries: 100,
        attributes: true,
    };
    let Reply::Listed { entries, .. } = requests::call(server, list, &[]).unwrap() else {
        panic!("a listing answers `Listed`");
    };
    let mut seen = BTreeMap::new();
    for listed in entries {
        let text = listed.name.to_string();
        let Some(entry) = listed.entry else { continue };
        let open = open(server, entry.handle).unwrap_or_else(|code| panic!("{when}: {code:?}"));
        let read = Request::Read { open, offset: 0, size: 1 << 20 };
        let Reply::Data(data) = requests::call(server, read, &[])
            .unwrap_or_else(|code| panic!("{when}: {text} cannot be read: {code:?}"))
        else {
            panic!("a read answers `Data`");
        };
        let bytes = data.as_bytes().to_vec();
        requests::close(server, open).unwrap();
        // Only now: if bytes became safe before their `writing` row, the first open finds out.
        let size = requests::lookup(server, ROOT, &text).unwrap().attr.size;
        assert_eq!(bytes.len() as u64, size, "{when}: {text} is as long as it says");
        seen.insert(text, bytes);
    }
    seen
}

fn path_of(ino: u64) -> PathBuf {
    PathBuf::from(format!("{:02x}/{ino:016x}.00000001", ino & 0xff))
}

fn read_all(root: &Path) -> Folder {
    let mut files = Folder::new();
    for folder in fs::read_dir(root).unwrap() {
        let folder = folder.unwrap().path();
        for file in fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            files.insert(path.strip_prefix(root).unwrap().into(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn what_was_fsynced_survives_and_the_rest_is_whole() {
    for seed in 0..12 {
        World::new().live_and_fail(seed);
    }
}

/// The same where each file has its content file from birth.
#[test]
fn what_began_in_a_content_file_survives_too() {
    for seed in 20..26 {
        World::with(Passthrough::Always).live_and_fail(seed);
    }
}

/// The bytes of a file that is opened again for writing become safe before its `writing` row does.
/// Only the content file shows then that the attributes are old; the first open measures it.
#[test]
fn bytes_may_be_safe_before_the_writing_row_that_announces_them() {
    for (size, write_at) in [(0, None), (5_000, None), (10_000, Some(0)), (10_090, Some(9_990))] {
        let mut world = World::new();
        world.open("a");
        let (_, open_id) = world.opened("a").unwrap();
        requests::write(&world.server, open_id, 0, &[1; 10_000]).unwrap();
        world.fsync("a");
        world.close("a");
        world.sync_names();
        world.open("a");
        let (_, open_id) = world.opened("a").unwrap();
        let node = requests::lookup(&world.server, ROOT, "a").unwrap().handle;
        if let Some(at) = write_at {
            requests::write(&world.server, open_id, at, &[2; 100]).unwrap();
        } else {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            let request = Request::SetAttr { node, open: Some(open_id), set };
            requests::call(&world.server, request, &[]).unwrap();
        }
        let table = world.table.fork_crashed(0);
        let server = serve(&table, world.folder.path());
        let opened = open(&server, node).unwrap();
        let read = Request::Read { open: opened, offset: 0, size: 1 << 20 };
        let Ok(Reply::Data(data)) = requests::call(&server, read, &[]) else {
            panic!("it can be read");
        };
        let found = requests::lookup(&server, ROOT, "a").unwrap().attr.size;
        assert_eq!((data.as_bytes().len() as u64, found), (size, size));
        requests::close(&server, opened).unwrap();
        server.stop().unwrap();
        let plan = check_on(&table, world.folder.path());
        assert!(plan.is_whole(), "{size} bytes: {:#?}", plan.findings);
    }
}
