//! Random changes in both offices while steps of changes of two sites are lost: what was answered
//! holds, and in the end each name leads to a directory, and each directory has a name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pelago_random::Random;
use pelago_server::Server;
use pelago_wire::{
    Code, Cookie, FileKind, Handle, InodeId, NewMode, RenameFlags, Reply, Request, SessionId,
};

use super::line::Losing;
use super::world::{Offices, ask, berlin_dir, wait_for};
use crate::harness::rig::{entry, name};

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const STEPS: usize = 250;

/// The knowledge of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Absent,
    Dir(Handle),
    File,
    /// A change of it failed, and may be carried out.
    Nothing,
}

/// The names, and the knowledge of programs about them.
struct Storm {
    offices: Offices,
    random: Random,
    names: BTreeMap<(InodeId, usize), Known>,
    dirs: Vec<Handle>,
    /// The name of each directory that is known to exist.
    places: HashMap<InodeId, (InodeId, usize)>,
    /// Names that a directory may still get, although they are free by now.
    awaited: BTreeSet<(InodeId, usize)>,
}

/// Returns whether an error leaves open if the change is carried out.
const fn is_open(code: Code) -> bool {
    matches!(code, Code::Interrupted | Code::TimedOut | Code::AccessDenied | Code::Io)
}

impl Storm {
    fn new(seed: u64) -> Self {
        let offices = Offices::new();
        let random = Random::new(seed);
        let names = BTreeMap::new();
        let places = HashMap::new();
        let awaited = BTreeSet::new();
        Self { offices, random, names, dirs: vec![ROOT], places, awaited }
    }

    fn known(&self, dir: Handle, at: usize) -> Known {
        let known = self.names.get(&(dir.ino, at)).copied().unwrap_or(Known::Absent);
        let is_awaited = known == Known::Absent && self.awaited.contains(&(dir.ino, at));
        if is_awaited { Known::Nothing } else { known }
    }

    fn know(&mut self, dir: Handle, at: usize, known: Known) {
        let place = (dir.ino, at);
        self.places.retain(|_, known| *known != place);
        if let Known::Dir(made) = known {
            self.places.insert(made.ino, place);
        }
        self.names.insert(place, known);
    }

    /// Returns whether nothing is to be finished in either office.
    fn is_finished(offices: &Offices) -> bool {
        let is_done = |server: &Server| server.sites().iter().all(|site| site.unfinished == 0);
        is_done(&offices.first) && is_done(&offices.berlin)
    }

    fn step(&mut self) {
        if Self::is_finished(&self.offices) {
            self.awaited.clear();
        }
        *self.offices.losing.lock() = match self.random.below(8) {
            0 => Losing::Requests,
            1 => Losing::Answers,
            2 => Losing::AnswersBy(Code::AccessDenied),
            _ => Losing::Nothing,
        };
        let dir = self.dirs[self.random.index(self.dirs.len())];
        let at = self.random.index(NAMES.len());
        match self.random.below(5) {
            0 | 1 => self.make_dir(dir, at),
            2 => self.remove_dir(dir, at),
            3 => self.make_file(dir, at),
            _ => self.rename(dir, at),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Reply, Code> {
        let server = match self.random.below(2) {
            0 => &self.offices.first,
            _ => &self.offices.berlin,
        };
        ask(server, DIRECT, request)
    }

    /// A directory that may have been removed, or that is closed, has nothing for sure.
    fn may_be_gone(&self, dir: Handle) -> bool {
        dir != ROOT && !self.places.contains_key(&dir.ino)
    }

    fn make_dir(&mut self, dir: Handle, at: usize) {
        let mode = NewMode::exactly(0o755);
        let made = self.ask(Request::MakeDir { dir, name: name(NAMES[at]), mode });
        match (made, self.known(dir, at)) {
            (Ok(reply), Known::Absent | Known::Nothing) => {
                let made = entry(reply).unwrap().handle;
                self.dirs.push(made);
                self.know(dir, at, Known::Dir(made));
            }
            (Err(Code::Exists), Known::Dir(_) | Known::File | Known::Nothing) => {}
            (Err(Code::NotFound | Code::Stale), _) if self.may_be_gone(dir) => {}
            (Err(code), Known::Absent | Known::Nothing) if is_open(code) => {
                self.know(dir, at, Known::Nothing);
                self.awaited.insert((dir.ino, at));
            }
            (Err(code), _) if is_open(code) => drop(self.awaited.insert((dir.ino, at))),
            other => panic!("mkdir {dir:?} {at}: {other:?}"),
        }
    }

    fn make_file(&mut self, dir: Handle, at: usize) {
        let mode = NewMode::exactly(0o644);
        let kind = FileKind::Regular;
        let made = self.ask(Request::MakeNode { dir, name: name(NAMES[at]), mode, kind, rdev: 0 });
        match (made, self.known(dir, at)) {
            (Ok(_), Known::Absent | Known::Nothing) => self.know(dir, at, Known::File),
            (Err(Code::Exists), Known::Dir(_) | Known::File | Known::Nothing) => {}
            (Err(Code::NotFound | Code::Stale), _) if self.may_be_gone(dir) => {}
            other => panic!("mknod {dir:?} {at}: {other:?}"),
        }
    }

    fn remove_dir(&mut self, dir: Handle, at: usize) {
        let removed = self.ask(Request::RemoveDir { dir, name: name(NAMES[at]) });
        let known = self.known(dir, at);
        match (removed, known) {
            (Ok(_), Known::Dir(_) | Known::Nothing) => self.know(dir, at, Known::Absent),
            (Err(Code::NotEmpty), Known::Dir(_) | Known::Nothing) => {}
            (Err(Code::NotDirectory), Known::File | Known::Nothing) => {}
            (Err(Code::NotFound), Known::Absent | Known::Nothing) => {}
            // It is being made, or removed.
            (Err(Code::Busy), Known::Nothing) => {}
            (Err(Code::NotFound | Code::Stale), _) if self.may_be_gone(dir) => {}
            (Err(code), Known::Dir(_) | Known::Nothing) if is_open(code) => {
                self.know(dir, at, Known::Nothing);
            }
            other => panic!("rmdir {dir:?} {at}: {other:?}"),
        }
    }

    /// Renames what is known to be there to a name that is known to be free.
    fn rename(&mut self, dir: Handle, at: usize) {
        let to = self.random.index(NAMES.len());
        let known = self.known(dir, at);
        let is_there = matches!(known, Known::Dir(_) | Known::File);
        if !is_there || self.known(dir, to) != Known::Absent || self.may_be_gone(dir) {
            return;
        }
        let request = Request::Rename {
            from_dir: dir,
            from: name(NAMES[at]),
            to_dir: dir,
            to: name(NAMES[to]),
            flags: RenameFlags::NoReplace,
        };
        self.ask(request).unwrap();
        self.know(dir, at, Known::Absent);
        self.know(dir, to, known);
    }

    /// Checks the end: nothing is under way any more.
    fn finish(self) {
        let Self { offices, names, places, awaited, .. } = self;
        *offices.losing.lock() = Losing::Nothing;
        wait_for("all is finished", || Self::is_finished(&offices));
        for ((dir, at), known) in names {
            let is_known = dir == ROOT.ino || places.contains_key(&dir);
            let has_entry = matches!(known, Known::Dir(_) | Known::File);
            if !is_known && !has_entry {
                continue;
            }
            // What has an entry that was answered exists, whatever is not known of its name.
            for server in [&offices.first, &offices.berlin] {
                let lookup = Request::Lookup { dir: Handle::own(dir), name: name(NAMES[at]) };
                let found = ask(server, DIRECT, lookup).map(|reply| entry(reply).unwrap());
                match (found, known) {
                    (Ok(found), Known::Dir(made)) => assert_eq!(found.handle.ino, made.ino),
                    (Ok(found), Known::File) => assert_eq!(found.attr.kind, FileKind::Regular),
                    (Err(Code::NotFound), Known::Absent | Known::Nothing)
                    | (Ok(_), Known::Nothing) => {}
                    (Ok(_), Known::Absent) if awaited.contains(&(dir, at)) => {}
                    other => panic!("{dir} {at}: {other:?}"),
                }
            }
        }
        let named = named_elsewhere(&offices.first);
        assert_eq!(named, named_elsewhere(&offices.berlin));
        let Offices { first, berlin, folder, .. } = offices;
        for server in [&first, &berlin] {
            server.stop().unwrap();
        }
        drop((first, berlin));
        for (site, dir) in [(0, folder.path().join("first")), (1, berlin_dir(&folder))] {
            let plan = pelago_check::plan(&dir).unwrap();
            assert_eq!(plan.damage, 0, "{:?}", plan.findings);
            assert_eq!(plan.checked.named_elsewhere, named[site], "directories of site {site}");
        }
    }
}

/// Walks the whole tree. Returns the number of directories of each site whose names are at the
/// other one.
fn named_elsewhere(server: &Server) -> [u64; 2] {
    let mut counts = [0; 2];
    let mut left = vec![ROOT];
    while let Some(dir) = left.pop() {
        let after = Cookie::AFTER_DOT_DOT;
        let list = Request::List { dir, after, behind: None, entries: 100, attributes: false };
        let Reply::Listed { entries, end } = ask(server, DIRECT, list).unwrap() else { panic!() };
        assert!(end);
        for listed in entries {
            let lookup = Request::Lookup { dir, name: listed.name };
            let found = entry(ask(server, DIRECT, lookup).unwrap()).unwrap();
            if found.attr.kind == FileKind::Directory {
                let site = found.handle.ino.site();
                counts[usize::from(site)] += u64::from(site != dir.ino.site());
                left.push(found.handle);
            }
        }
    }
    counts
}

#[test]
fn what_was_answered_holds_and_no_name_or_directory_is_left_alone() {
    for seed in 0..6 {
        let mut storm = Storm::new(seed);
        for _ in 0..STEPS {
            storm.step();
        }
        storm.finish();
    }
}
