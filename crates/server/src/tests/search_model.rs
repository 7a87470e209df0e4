//! Random programs and random queries: what an answer must have is read by other requests.
//!
//! A world is a rig with a search index whose worker is stepped by hand, so that the index is
//! ahead, behind or half built. The twin is a plain tree that lookups and reads give, asked by
//! [`Query::matches`], with rights by a function of its own. A seed that fails is in the message.
//!
//! Each of these mistakes was planted once, and found by one of the first 16 seeds:
//!
//! - the files that the feed has, or those that are open, are forgotten
//! - a commit of bytes is not fed
//! - rows that are newer than an index that was kept are not read
//! - a text that the index has in another version is not replaced
//! - files that the asker may not read are compared
//! - candidates are not compared
//! - a page goes on one name too far, or ends too early
//!
//! Others are found by tests of their own in [`super::search`]: what is not safe is committed,
//! texts that wait are forgotten. Neither finds that the feed is cleared before the commit, nor
//! that the rows are older than the index: both need threads that meet within microseconds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_find::{Candidate, Query, has_words, text};
use pelago_random::Random;
use pelago_search::{Again, BuildIndex};
use pelago_store::clock;
use pelago_wire::{
    Code, FileKind, Handle, InodeId, NewMode, OpenId, RenameFlags, Reply, Request, SetAttr,
    SetTime, Time, XattrFlags,
};

use super::search::{SUPERUSER, User, page, work};
use crate::testing::{BOTH, READ, ROOT, Rig, name, next_open};

/// Names of files, by which folders are named too.
const NAMES: [&str; 9] =
    ["a", "b", "reef.txt", "reef.md", "coral", "Coral reef", "x\n", "long-name.tar", "é"];
const WORDS: [&str; 5] = ["coral", "reef", "Wreck", "and", "tide"];
const KEYS: [&str; 2] = ["project", "k"];
const VALUES: [&str; 3] = ["reef", "wreck", ""];
const DAY: i64 = 86_400;

/// Who asks: user, groups; user 0 reads all.
const USERS: [User<'_>; 3] =
    [SUPERUSER, User { uid: 1000, groups: &[77] }, User { uid: 1001, groups: &[77, 78] }];

/// A file of the twin.
#[derive(Debug, Clone)]
struct File {
    ino: InodeId,
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: Time,
    tags: BTreeMap<&'static str, Vec<u8>>,
    bytes: Vec<u8>,
    /// Those in it.
    entries: BTreeMap<String, InodeId>,
}

/// The tree as lookups and reads show it.
struct Twin(BTreeMap<InodeId, File>);

/// A file by a name, to be asked.
struct Named<'a>(&'a File, &'a str);

impl Candidate for Named<'_> {
    fn name(&self) -> &[u8] {
        self.1.as_bytes()
    }

    fn kind(&self) -> FileKind {
        self.0.kind
    }

    fn size(&self) -> u64 {
        self.0.size
    }

    fn mtime(&self) -> Time {
        self.0.mtime
    }

    fn uid(&self) -> u32 {
        self.0.uid
    }

    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        self.0.tags.get(key).map(|value| Cow::Borrowed(&value[..]))
    }

    fn has_text(&self, words: &[String]) -> bool {
        self.0.kind == FileKind::Regular
            && text(&self.0.bytes).is_some_and(|text| has_words(text, words))
    }

    fn uid_of(&self, _: &str) -> Option<u32> {
        None
    }
}

impl File {
    /// Whether a user has these rights, as bits of a mode: the class that the user is in decides.
    fn grants(&self, user: User<'_>, rights: u16) -> bool {
        let User { uid, groups } = user;
        let shift = match () {
            () if uid == 0 => return true,
            () if uid == self.uid => 6,
            () if uid == self.gid || groups.contains(&self.gid) => 3,
            () => 0,
        };
        (self.mode >> shift) & rights == rights
    }

    fn is_shown_to(&self, user: User<'_>) -> bool {
        match self.kind {
            FileKind::Symlink => true,
            FileKind::Directory => self.grants(user, 5),
            _ => self.grants(user, 4),
        }
    }
}

impl Twin {
    /// Reads the tree below a directory by requests.
    fn of(rig: &Rig) -> Self {
        let mut twin = Self(BTreeMap::new());
        twin.read(rig, ROOT);
        twin
    }

    fn read(&mut self, rig: &Rig, node: Handle) {
        let attr = rig.attr(node).unwrap();
        let mut file = File {
            ino: attr.ino,
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime: attr.mtime,
            tags: BTreeMap::new(),
            bytes: Vec::new(),
            entries: BTreeMap::new(),
        };
        for key in KEYS {
            let name = format!("user.tag.{key}").into_bytes();
            if let Ok(Reply::Bytes(value)) = rig.call(Request::GetXattr { node, name }) {
                file.tags.insert(key, value);
            }
        }
        let mut below = Vec::new();
        match attr.kind {
            FileKind::Directory => {
                for text in NAMES {
                    let request = Request::Lookup { dir: node, name: name(text) };
                    let Ok(Reply::Entry(entry)) = rig.call(request) else { continue };
                    file.entries.insert(text.to_owned(), entry.attr.ino);
                    below.push(entry.handle);
                }
            }
            FileKind::Regular => {
                let open = rig.open(node, READ).unwrap();
                file.bytes = rig.read(open, 0, 1 << 20).unwrap();
                rig.call(Request::Release { open }).unwrap();
            }
            _ => {}
        }
        self.0.insert(attr.ino, file);
        for node in below {
            if !self.0.contains_key(&node.ino) {
                self.read(rig, node);
            }
        }
    }

    /// Returns what a query must find below a directory: each path, sorted; `None` if the user may
    /// not search there.
    fn answer(
        &self,
        user: User<'_>,
        dir: InodeId,
        query: &Query,
        now: Time,
    ) -> Option<Vec<(String, InodeId)>> {
        let mut found = Vec::new();
        let mut waiting = vec![(dir, String::new())];
        if !self.0[&dir].is_shown_to(user) {
            return None;
        }
        while let Some((dir, path)) = waiting.pop() {
            for (name, ino) in &self.0[&dir].entries {
                let file = &self.0[ino];
                if !file.is_shown_to(user) {
                    continue;
                }
                if query.matches(&Named(file, name), now) {
                    found.push((format!("{path}{name}"), *ino));
                }
                if file.kind == FileKind::Directory {
                    waiting.push((*ino, format!("{path}{name}/")));
                }
            }
        }
        found.sort();
        Some(found)
    }
}

/// A rig with the worker of its index.
struct World {
    rig: Rig,
    worker: Option<BuildIndex>,
    random: Random,
    /// Files that are open for writing.
    open: Vec<OpenId>,
    has_tags: bool,
    /// All bytes are committed: the text of a file is that of its last commit.
    has_texts: bool,
}

fn worker_of(rig: &Rig) -> BuildIndex {
    rig.router.index().names();
    let index = Arc::clone(rig.router.index());
    let shard = Arc::clone(&rig.shard);
    BuildIndex::new(index, shard, Arc::clone(&rig.content), Arc::clone(&rig.durability))
}

impl World {
    fn new(seed: u64) -> Self {
        let rig = Rig::new();
        let mut random = Random::new(seed);
        let has_tags = random.chance(70);
        let worker = Some(worker_of(&rig));
        let world = Self { rig, worker, random, open: Vec::new(), has_tags, has_texts: true };
        world.begin();
        world
    }

    fn begin(&self) {
        if self.has_tags {
            self.rig.shard.set_tags_complete();
        }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.index(of.len())]
    }

    /// Returns a directory and a name in it.
    fn place(&mut self) -> (Handle, String) {
        let mut dir = ROOT;
        while self.random.chance(60) {
            let text = self.pick(&NAMES[..3]);
            let request = Request::Lookup { dir, name: name(text) };
            match self.rig.call(request) {
                Ok(Reply::Entry(entry)) if entry.attr.kind == FileKind::Directory => {
                    dir = entry.handle;
                }
                _ => break,
            }
        }
        (dir, self.pick(&NAMES).to_owned())
    }

    /// Returns a file that exists, now and then the root.
    fn node(&mut self) -> Option<Handle> {
        for _ in 0..4 {
            let (dir, text) = self.place();
            let found = self.rig.call(Request::Lookup { dir, name: name(&text) });
            if let Ok(Reply::Entry(entry)) = found {
                return Some(entry.handle);
            }
        }
        None
    }

    /// Returns some words, rarely many.
    fn words(&mut self) -> Vec<u8> {
        let count = if self.random.chance(10) { 2000 } else { self.random.below(6) };
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend(self.pick(&WORDS).as_bytes());
            bytes.push(b' ');
        }
        if self.random.chance(5) {
            bytes.push(0);
        }
        bytes
    }

    /// Changes something. Some of these fail, as they would for a program.
    fn change(&mut self) {
        match self.random.below(16) {
            0..=2 => self.create(),
            3 => {
                let (dir, text) = self.place();
                let mode = NewMode::exactly(self.pick(&[0o755, 0o750, 0o700, 0o711]));
                drop(self.rig.call(Request::MakeDir { dir, name: name(&text), mode }));
            }
            4 => self.write_open(),
            5 => {
                if !self.open.is_empty() {
                    let at = self.random.index(self.open.len());
                    self.rig.close(self.open.swap_remove(at));
                }
            }
            6 => {
                if let Some(node) = self.node() {
                    let size = self.pick(&[0, 3, 5000, 20_000]);
                    let set = SetAttr { size: Some(size), ..SetAttr::default() };
                    self.rig.set(node, None, set).ok();
                }
            }
            7 => {
                if let Some(node) = self.node() {
                    let set = SetAttr {
                        mode: Some(self.pick(&[0o755, 0o644, 0o640, 0o600, 0o711, 0o044])),
                        uid: Some(self.pick(&[0, 1000, 1001])),
                        gid: Some(self.pick(&[20, 77, 78, 1000])),
                        ..SetAttr::default()
                    };
                    self.rig.set(node, None, set).ok();
                }
            }
            8 => {
                if let Some(node) = self.node() {
                    let ago = self.pick(&[3, 10, 400]) * DAY;
                    let seconds = clock::now().seconds - ago;
                    let mtime = Some(SetTime::To(Time { seconds, nanos: 7 }));
                    self.rig.set(node, None, SetAttr { mtime, ..SetAttr::default() }).ok();
                }
            }
            9 | 10 => self.tag(),
            11 | 12 => self.rename(),
            13 => {
                if let Some(node) = self.node() {
                    let (dir, text) = self.place();
                    drop(self.rig.call(Request::Link { node, dir, name: name(&text) }));
                }
            }
            14 => {
                let (dir, text) = self.place();
                drop(self.rig.call(Request::Unlink { dir, name: name(&text) }));
            }
            _ => {
                let (dir, text) = self.place();
                drop(self.rig.call(Request::RemoveDir { dir, name: name(&text) }));
            }
        }
    }

    fn create(&mut self) {
        let (dir, text) = self.place();
        let name = name(&text);
        if self.random.chance(10) {
            let target = b"a".to_vec();
            drop(self.rig.call(Request::Symlink { dir, name, target }));
            return;
        }
        let mode = NewMode::exactly(self.pick(&[0o644, 0o600, 0o640]));
        let open = next_open();
        let request = Request::Create { dir, name, mode, flags: BOTH, open };
        if self.rig.call(request).is_err() {
            return;
        }
        let bytes = self.words();
        self.rig.write(open, 0, &bytes).ok();
        match self.random.chance(30) {
            true => self.open.push(open),
            false => self.rig.close(open),
        }
    }

    fn write_open(&mut self) {
        if self.open.len() < 3
            && let Some(node) = self.node()
            && let Ok(open) = self.rig.open(node, BOTH)
        {
            self.open.push(open);
        }
        if self.open.is_empty() {
            return;
        }
        let at = self.random.index(self.open.len());
        let bytes = self.words();
        let open = self.open[at];
        let written = match self.random.chance(50) {
            true => self.rig.append(open, &bytes),
            false => self.rig.write(open, self.random.below(9000), &bytes),
        };
        written.ok();
    }

    fn tag(&mut self) {
        let Some(node) = self.node() else { return };
        let name = format!("user.tag.{}", self.pick(&KEYS)).into_bytes();
        let request = match self.random.chance(25) {
            true => Request::RemoveXattr { node, name },
            false => Request::SetXattr {
                node,
                name,
                value: self.pick(&VALUES).as_bytes().to_vec(),
                flags: XattrFlags::Any,
                kill_setgid: false,
            },
        };
        drop(self.rig.call(request));
    }

    fn rename(&mut self) {
        let (from_dir, from) = self.place();
        let (to_dir, to) = self.place();
        let flags = self.pick(&[RenameFlags::Replace, RenameFlags::Exchange]);
        let from = name(&from);
        let to = name(&to);
        drop(self.rig.call(Request::Rename { from_dir, from, to_dir, to, flags }));
    }

    /// Lets the worker of the index do one piece of work.
    fn step_index(&mut self) {
        if self.random.chance(80) {
            self.rig.commit.run().unwrap();
        }
        // If what it has read is not safe, it begins again at its last commit; a damaged index is
        // removed.
        let Some(worker) = self.worker.as_mut() else { return };
        let done = match self.random.chance(80) {
            true => work(&self.rig, worker),
            false => worker.work(),
        };
        if let Err(error) = done {
            assert!(matches!(error.code, Code::Busy | Code::Io), "{error:?}");
        }
    }

    fn catch_up(&mut self) {
        for _ in 0..10_000 {
            let done = work(&self.rig, self.worker.as_mut().unwrap());
            if done.is_ok_and(|done| done.again != Again::Soon) {
                assert!(self.rig.router.index().texts().is_some(), "the index is complete");
                return;
            }
        }
        panic!("the index is never complete");
    }

    /// Ends the server, and starts the next one from what is left.
    fn crash(&mut self) {
        if self.random.chance(50) {
            // The index is not to have what is not safe.
            for _ in 0..4 {
                self.change();
                self.worker.as_mut().unwrap().work().ok();
            }
        }
        let unsafe_kept = match self.random.below(4) {
            0 => 0,
            1 => self.random.index(self.rig.table.unsafe_batches() + 1),
            _ => usize::MAX,
        };
        self.worker = None;
        self.rig.router.index().set_open(None, false, false);
        self.open.clear();
        self.rig = self.rig.after_crash(unsafe_kept);
        let folder = self.rig.folder().join("index");
        match self.random.below(8) {
            0 => drop(fs::remove_dir_all(&folder)),
            1 => drop(fs::remove_dir_all(folder.join(self.pick(&["names", "texts"])))),
            2 | 3 => self.damage(&folder),
            _ => {}
        }
        self.begin();
        self.worker = Some(worker_of(&self.rig));
    }

    /// Damages some file of the index.
    fn damage(&mut self, folder: &Path) {
        let mut files: Vec<PathBuf> = Vec::new();
        for half in ["names", "texts"] {
            let Ok(read) = fs::read_dir(folder.join(half)) else { continue };
            files.extend(read.map(|entry| entry.unwrap().path()));
        }
        files.sort();
        if files.is_empty() {
            return;
        }
        let file = &files[self.random.index(files.len())];
        let mut bytes = fs::read(file).unwrap();
        let at = self.random.index(bytes.len());
        match self.random.below(3) {
            0 => fs::remove_file(file).unwrap(),
            1 => fs::write(file, &bytes[..at]).unwrap(),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.random.below(8);
                }
                fs::write(file, bytes).unwrap();
            }
        }
    }

    fn term(&mut self) -> String {
        let compared = ["<", "<=", "=", ">=", ">"];
        let kinds = if self.has_texts { 12 } else { 8 };
        match self.random.below(kinds) {
            0 => format!("name=\"{}\"", self.pick(&NAMES)),
            1 => {
                let patterns =
                    ["*reef*", "reef.*", "*.md", "?", "*", "[a-c]*", "*oral*", "*ong-*r"];
                format!("name~{}", self.pick(&patterns))
            }
            2 => {
                let size = self.pick(&["0", "3", "12", "1K", "5000", "9K", "20000"]);
                format!("size{}{size}", self.pick(&compared))
            }
            3 => {
                let age = self.pick(&["2d", "5d", "8w", "1h", "2y"]);
                format!("mtime{}{age}", self.pick(&["<", "<=", ">=", ">"]))
            }
            4 => format!("kind={}", self.pick(&["file", "dir", "link"])),
            5 => format!("owner={}", self.pick(&["0", "10", "1000", "1001"])),
            6 => format!("tag:{}", self.pick(&KEYS)),
            7 => format!("{}=\"{}\"", self.pick(&KEYS), self.pick(&VALUES)),
            _ => match self.random.chance(70) {
                true => format!("text:{}", self.pick(&WORDS)),
                false => format!("text:\"{} {}\"", self.pick(&WORDS), self.pick(&WORDS)),
            },
        }
    }

    fn query(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.term();
        }
        match self.random.below(6) {
            0 => format!("({} or {})", self.query(depth - 1), self.query(depth - 1)),
            1 | 2 => format!("({} {})", self.query(depth - 1), self.query(depth - 1)),
            3 => format!("not ({})", self.query(depth - 1)),
            _ => self.term(),
        }
    }

    /// Asks a query of all users, and compares the answers with the twin.
    fn compare(&mut self, about: &str) {
        self.has_texts = self.open.is_empty() || self.random.chance(50);
        if self.has_texts && !self.open.is_empty() {
            self.rig.commit.run().unwrap();
        }
        let twin = Twin::of(&self.rig);
        let dirs: Vec<InodeId> = twin
            .0
            .values()
            .filter(|file| file.kind == FileKind::Directory)
            .map(|file| file.ino)
            .collect();
        for _ in 0..6 {
            let text = self.query(3);
            let query = Query::parse(text.as_bytes()).unwrap();
            let dir = if self.random.chance(60) { InodeId::ROOT } else { self.pick(&dirs) };
            let hits = 1 + self.random.below(50) as u32;
            for user in USERS {
                let now = clock::now();
                let wanted = twin.answer(user, dir, &query, now);
                let found = self.all_pages(user, Handle::own(dir), &text, hits);
                let about = format!("{about}: {text:?} of {user:?} below {dir:?}");
                match (found, wanted) {
                    (Ok(found), Some(wanted)) => assert_eq!(found, wanted, "{about}"),
                    (Err(Code::AccessDenied), None) => {}
                    (found, wanted) => panic!("{about}: {found:?} for {wanted:?}"),
                }
            }
        }
    }

    fn all_pages(
        &self,
        user: User<'_>,
        dir: Handle,
        query: &str,
        hits: u32,
    ) -> Result<Vec<(String, InodeId)>, Code> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = page(&self.rig, user, dir, query, hits, after)?;
            assert!(page.hits.len() <= hits as usize && page.as_of <= clock::now());
            let hits = page.hits.into_iter();
            found.extend(hits.map(|hit| (String::from_utf8(hit.path).unwrap(), hit.ino)));
            match page.after {
                Some(place) => after = Some(place),
                None => break,
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Runs one program with its crashes and queries.
fn run(seed: u64) {
    let mut world = World::new(seed);
    for round in 0..14 {
        for _ in 0..12 {
            world.change();
            if world.random.chance(25) {
                world.step_index();
            }
        }
        match world.random.below(5) {
            0 => world.crash(),
            1 => world.catch_up(),
            _ => {}
        }
        for _ in 0..world.random.below(4) {
            world.step_index();
        }
        world.compare(&format!("seed {seed}, round {round}"));
    }
    world.catch_up();
    world.compare(&format!("seed {seed}, at the end"));
}

/// Runs seeds from `PELAGO_SEARCH_SEED` on, as many as `PELAGO_SEARCH_RUNS` says.
#[test]
fn answers_are_those_of_the_twin() {
    let number = |key| std::env::var(key).ok().and_then(|text| text.parse().ok());
    let first = number("PELAGO_SEARCH_SEED").unwrap_or(0_u64);
    (first..first + number("PELAGO_SEARCH_RUNS").unwrap_or(2)).for_each(run);
}

/// While files move, and the index follows them, each answer has all of them.
#[test]
fn answers_beside_changes_have_all_files() {
    const MOVING: usize = 8;
    let rig = Rig::new();
    for number in 0..20 {
        rig.file(&format!("filler{number}"), b"nothing");
    }
    for number in 0..MOVING {
        rig.file(&format!("m{number}"), &[b"coral ".repeat(3), vec![b'x'; 759]].concat());
    }
    let make = Request::MakeDir { dir: ROOT, name: name("d"), mode: NewMode::exactly(0o755) };
    let Ok(Reply::Entry(dir)) = rig.call(make) else { panic!("no directory") };
    let mut worker = worker_of(&rig);
    while rig.router.index().texts().is_none() {
        work(&rig, &mut worker).unwrap();
    }
    let ends = AtomicBool::new(false);
    let is_running = || !ends.load(Ordering::Relaxed);
    thread::scope(|threads| {
        threads.spawn(|| {
            while is_running() {
                rig.commit.run().unwrap()
            }
        });
        threads.spawn(|| {
            while is_running() {
                worker.work().ok();
            }
        });
        threads.spawn(|| {
            let mut from = ROOT;
            let mut to = dir.handle;
            while is_running() {
                for number in 0..MOVING {
                    let moved = name(&format!("m{number}"));
                    let flags = RenameFlags::NoReplace;
                    let from = (from, moved.clone());
                    let to = (to, moved);
                    let from_dir = from.0;
                    let from = from.1;
                    let to_dir = to.0;
                    let to = to.1;
                    rig.call(Request::Rename { from_dir, from, to_dir, to, flags }).unwrap();
                }
                std::mem::swap(&mut from, &mut to);
            }
        });
        let began = Instant::now();
        let mut indexed = 0;
        let mut wrong = None;
        while began.elapsed() < Duration::from_secs(2) {
            for query in ["size=777", "text:coral", "name~m* size>1"] {
                let found = page(&rig, USERS[0], ROOT, query, 100, None).unwrap();
                indexed += usize::from(rig.router.index().texts().is_some());
                if found.hits.len() != MOVING && rig.router.index().texts().is_some() {
                    wrong = wrong.or(Some((query, found)));
                }
            }
        }
        ends.store(true, Ordering::Relaxed);
        assert!(wrong.is_none(), "{wrong:?}");
        assert!(indexed > 0, "the index was never complete");
    });
}
