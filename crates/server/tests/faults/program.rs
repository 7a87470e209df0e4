//! A random program that continues when calls fail below it, and checks the server against its
//! replies.

use std::collections::{BTreeMap, BTreeSet};

use pelago_lossfs::Random;
use pelago_server::Step;
use pelago_wire::{
    Code, Entry, Handle, NewMode, OpenFlags, OpenId, RenameFlags, Reply, Request, SetAttr,
    XattrFlags,
};

use super::belief::{Belief, Kept, Tree};
use super::stage::{BOTH, OLD_FILES, READ, Stage, named};
use crate::harness::requests::next_open;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const FOLDERS: [&str; 3] = ["x", "y", "z"];
/// Descriptors of one file, at the most.
const OPENS: usize = 2;
/// Bytes of an extended attribute, which soon fill a memtable.
const XATTR_BYTES: usize = 30_000;

/// A program, and what it believes.
pub(crate) struct Program {
    random: Random,
    pub(crate) belief: Belief,
    open: BTreeMap<u64, Vec<Opened>>,
    folders: BTreeMap<String, Handle>,
    fill: u8,
    /// Once a call has failed, what was answered and not made safe may be lost: the call is a sync
    /// of the table.
    may_lose: bool,
    /// Directories that have lost names, and did not tell.
    owing: BTreeSet<String>,
    /// Directories that have told of a failure.
    told: BTreeSet<String>,
}

/// A descriptor.
struct Opened {
    id: OpenId,
    sync: bool,
    /// It was told of a failure.
    told: bool,
    /// The file has lost something, and it was not told.
    owed: bool,
}

impl Program {
    /// A program over a volume with these files in it. With `may_lose`, the call that fails is one
    /// that may lose what is not safe.
    pub(crate) fn new(seed: u64, old: &Tree, may_lose: bool) -> Self {
        Self {
            random: Random(seed),
            belief: Belief::of(old),
            open: BTreeMap::new(),
            folders: BTreeMap::new(),
            fill: 0,
            may_lose,
            owing: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }

    /// One operation.
    pub(crate) fn step(&mut self, stage: &Stage) -> Kept {
        let path = self.path();
        match self.random.below(36) {
            0..=3 => self.open(stage, &path),
            4..=9 => self.write(stage, &path),
            10..=11 => self.truncate(stage, &path),
            12..=15 => self.fsync(stage, &path),
            16 => self.sync_names(stage, &path),
            17..=18 => self.close(stage, &path),
            19 => self.unlink(stage, &path),
            20..=22 => {
                let to = self.path();
                self.rename(stage, &path, &to)
            }
            23 => self.make_folder(stage),
            24 => self.remove_folder(stage),
            25 => self.publish(stage, &path),
            26..=27 => self.read(stage, &path),
            28..=29 => self.use_old(stage),
            30 => self.list(stage),
            31 => self.set_xattr(stage, &path),
            32 => {
                stage.work();
                Ok(())
            }
            _ => {
                stage.step(Step::Commit);
                Ok(())
            }
        }
    }

    /// A path of a file, in a folder that was made.
    fn path(&mut self) -> String {
        let name = NAMES[self.random.below(4) as usize];
        let count = self.folders.len() as u64;
        match self.folders.keys().nth(self.random.below(count + 2) as usize) {
            Some(folder) => format!("{folder}/{name}"),
            None => name.to_owned(),
        }
    }

    fn dir<'a>(&self, path: &'a str) -> (Handle, &'a str) {
        match path.split_once('/') {
            Some((folder, name)) => (self.folders[folder], name),
            None => (Handle::ROOT, path),
        }
    }

    /// Looks up a path and compares. `Err(())`: the lookup failed, so nothing is known now.
    fn look(&mut self, stage: &Stage, path: &str) -> Kept<Result<Option<Entry>, ()>> {
        let (dir, name) = self.dir(path);
        match stage.lookup(dir, name) {
            Ok(found) => {
                self.found(stage, path, found.as_ref().map(|entry| entry.attr.ino.raw()))?;
                Ok(Ok(found))
            }
            Err(Code::Stale) if path.contains('/') => {
                // The folder itself is gone.
                self.found(stage, path, None)?;
                Ok(Ok(None))
            }
            Err(code) => {
                stage.failed(&format!("a look at {path}"), code)?;
                Ok(Err(()))
            }
        }
    }

    /// Looks where paths lead, once names may have been lost: before they are changed.
    fn look_again(&mut self, stage: &Stage, paths: &[&str]) -> Kept {
        for path in paths.iter().filter(|_| stage.has_failed()) {
            let _known = self.look(stage, path)?;
        }
        Ok(())
    }

    /// A path was found to lead there.
    fn found(&mut self, stage: &Stage, path: &str, found: Option<u64>) -> Kept {
        if !self.belief.may_lead(path, found) {
            return Err(format!("{path} leads to {found:x?}, which the program did not put there"));
        }
        if let Ok(believed) = self.belief.at(path)
            && believed != found
        {
            if !(self.may_lose && stage.has_failed()) {
                return Err(format!("{path} leads to {found:x?} and not to {believed:x?}"));
            }
            // It was answered, and lost again: all who are asked next have to say so.
            let dir = path.split_once('/').map_or("", |(dir, _)| dir);
            if !self.told.contains(dir) {
                self.owing.insert(dir.to_owned());
            }
            // One whose name was safe is somewhere else: its directories were changed, not it.
            believed
                .filter(|ino| !self.belief.is_kept(*ino))
                .into_iter()
                .for_each(|ino| self.owe(ino));
        }
        self.belief.moved(path, found);
        Ok(())
    }

    /// A file has lost something: each descriptor that was not told of a failure has to be.
    fn owe(&mut self, ino: u64) {
        for open in self.open.get_mut(&ino).into_iter().flatten() {
            open.owed |= !open.told;
        }
    }

    /// Compares the bytes of an open file.
    fn reread(&mut self, stage: &Stage, ino: u64, id: OpenId) -> Kept<Result<(), ()>> {
        match stage.read(id) {
            Ok(found) => {
                if self.belief.are_bytes_sure(ino) && self.belief.bytes(ino) != found {
                    if !(self.may_lose && stage.has_failed()) {
                        let believed = self.belief.bytes(ino).len();
                        return Err(format!(
                            "{ino:x} reads as {} other bytes than the {believed} written",
                            found.len()
                        ));
                    }
                    self.owe(ino);
                }
                let adopted = self.belief.adopt(ino, &found);
                adopted.map_err(|why| format!("{ino:x}: {why}"))?;
                Ok(Ok(()))
            }
            Err(code) => {
                stage.failed("a read", code)?;
                Ok(Err(()))
            }
        }
    }

    /// A sync was answered with success.
    fn synced(&mut self, stage: &Stage) -> Kept {
        if stage.has_failed() {
            let used = self.belief.paths().filter(|path| !path.starts_with("old"));
            let paths: Vec<_> = used.cloned().collect();
            for path in paths {
                if path.split_once('/').is_none_or(|(dir, _)| self.folders.contains_key(dir)) {
                    let _known = self.look(stage, &path)?;
                }
            }
        }
        self.belief.names_safe();
        Ok(())
    }

    /// A sync of a file by a descriptor was answered with success.
    fn file_synced(&mut self, stage: &Stage, ino: u64, at: usize) -> Kept {
        let id = self.open[&ino][at].id;
        self.synced(stage)?;
        if stage.has_failed() {
            let _known = self.reread(stage, ino, id)?;
        }
        if self.open[&ino][at].owed {
            return Err(format!("a sync of {ino:x} answers success, and it has lost something"));
        }
        self.belief.bytes_safe(ino);
        Ok(())
    }

    /// Reads the bytes after a change that failed. Until a sync succeeds, they may be those from
    /// before the change or from after it.
    fn reread_after_failure(&mut self, stage: &Stage, ino: u64, id: OpenId) -> Kept {
        let _known = self.reread(stage, ino, id)?;
        self.belief.doubt(ino);
        Ok(())
    }

    /// A request by a descriptor has failed, and so has told.
    fn told(&mut self, ino: u64, at: usize) {
        let open = &mut self.open.get_mut(&ino).unwrap()[at];
        open.told = true;
        open.owed = false;
        self.belief.doubt(ino);
    }

    /// A descriptor of the file of a path, or of any file.
    fn opened(&mut self, path: &str) -> Option<(u64, usize)> {
        let ino = match self.random.below(3) {
            0 => {
                let open: Vec<u64> =
                    self.open.iter().filter(|(_, open)| !open.is_empty()).map(|it| *it.0).collect();
                *open.get(self.random.below(open.len().max(1) as u64) as usize)?
            }
            _ => self.belief.at(path).ok().flatten()?,
        };
        let count = self.open.get(&ino).map_or(0, Vec::len) as u64;
        if count == 0 {
            return None;
        }
        Some((ino, self.random.below(count) as usize))
    }

    fn open(&mut self, stage: &Stage, path: &str) -> Kept {
        let Ok(found) = self.look(stage, path)? else { return Ok(()) };
        let Some(entry) = found else { return self.create(stage, path) };
        let ino = entry.attr.ino.raw();
        if self.open.get(&ino).map_or(0, Vec::len) >= OPENS {
            return Ok(());
        }
        let sync = self.random.below(5) == 0;
        match stage.open(entry.handle, OpenFlags { sync, ..BOTH }) {
            Ok(id) => {
                let open = self.open.entry(ino).or_default();
                open.push(Opened { id, sync, told: false, owed: false });
                if stage.has_failed() {
                    self.belief.doubt(ino);
                    let _known = self.reread(stage, ino, id)?;
                }
                Ok(())
            }
            Err(code) => stage.failed("an open", code),
        }
    }

    fn create(&mut self, stage: &Stage, path: &str) -> Kept {
        let (dir, name) = self.dir(path);
        match stage.create(dir, name) {
            Ok((entry, id)) => {
                let ino = entry.attr.ino.raw();
                self.made(path, ino)?;
                self.open.insert(ino, vec![Opened { id, sync: false, told: false, owed: false }]);
                Ok(())
            }
            Err(code) => {
                stage.failed("a create", code)?;
                self.made_or_not(stage, path)
            }
        }
    }

    fn made(&mut self, path: &str, ino: u64) -> Kept {
        if self.belief.knows(ino) {
            return Err(format!("the number {ino:x} is given twice"));
        }
        self.belief.made(ino);
        self.belief.moved(path, Some(ino));
        Ok(())
    }

    /// A file may have been made though that failed: then it is new and empty.
    fn made_or_not(&mut self, stage: &Stage, path: &str) -> Kept {
        let (dir, name) = self.dir(path);
        if let Ok(Some(entry)) = stage.lookup(dir, name)
            && !self.belief.knows(entry.attr.ino.raw())
        {
            return self.made(path, entry.attr.ino.raw());
        }
        Ok(())
    }

    fn write(&mut self, stage: &Stage, path: &str) -> Kept {
        let Some((ino, at)) = self.opened(path) else { return Ok(()) };
        let from = self.random.below(3) * self.random.below(6_000);
        let most = [1_000, 20_000, 60_000][self.random.below(3) as usize];
        let size = 1 + self.random.below(most);
        self.fill = self.fill % 250 + 1;
        let bytes = vec![self.fill; size as usize];
        let mut all = self.belief.bytes(ino);
        let start = from as usize;
        let end = (from + size) as usize;
        all.resize(all.len().max(end), 0);
        all[start..end].copy_from_slice(&bytes);
        let Opened { id, sync, .. } = self.open[&ino][at];
        match stage.write(id, from, &bytes) {
            Ok(()) => {
                self.belief.wrote(ino, &all);
                if sync { self.file_synced(stage, ino, at) } else { Ok(()) }
            }
            Err(code) => {
                stage.failed("a write", code)?;
                self.belief.may_have_written(ino, &all);
                self.told(ino, at);
                self.reread_after_failure(stage, ino, id)
            }
        }
    }

    fn truncate(&mut self, stage: &Stage, path: &str) -> Kept {
        let Some((ino, at)) = self.opened(path) else { return Ok(()) };
        let size = self.random.below(2) * self.random.below(10_000);
        let Ok(Some(entry)) = self.look(stage, path)? else { return Ok(()) };
        if entry.attr.ino.raw() != ino {
            return Ok(());
        }
        let mut all = self.belief.bytes(ino);
        all.resize(size as usize, 0);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let id = self.open[&ino][at].id;
        let request = Request::SetAttr { node: entry.handle, open: Some(id), set };
        match stage.call(request, &[]) {
            Ok(_) => {
                self.belief.wrote(ino, &all);
                Ok(())
            }
            Err(code) => {
                stage.failed("a cut", code)?;
                self.belief.may_have_written(ino, &all);
                self.told(ino, at);
                self.reread_after_failure(stage, ino, id)
            }
        }
    }

    fn fsync(&mut self, stage: &Stage, path: &str) -> Kept {
        let Some((ino, at)) = self.opened(path) else { return Ok(()) };
        let open = self.open[&ino][at].id;
        let data_only = self.random.coin();
        match stage.call(Request::Fsync { open, data_only }, &[]) {
            Ok(_) => self.file_synced(stage, ino, at),
            Err(code) => {
                stage.failed("an fsync", code)?;
                self.told(ino, at);
                Ok(())
            }
        }
    }

    fn sync_names(&mut self, stage: &Stage, path: &str) -> Kept {
        let folder = path.split_once('/').map_or("", |(folder, _)| folder).to_owned();
        let (dir, _) = self.dir(path);
        match stage.call(Request::FsyncDir { dir, since: None }, &[]) {
            Ok(_) => {
                self.synced(stage)?;
                match self.owing.contains(&folder) {
                    true => Err(format!("a sync of `{folder}` succeeds, and names are lost")),
                    false => Ok(()),
                }
            }
            Err(code) => {
                stage.failed("a sync of names", code)?;
                self.owing.remove(&folder);
                self.told.insert(folder);
                Ok(())
            }
        }
    }

    fn close(&mut self, stage: &Stage, path: &str) -> Kept {
        let Some((ino, at)) = self.opened(path) else { return Ok(()) };
        self.close_one(stage, ino, at)
    }

    fn close_one(&mut self, stage: &Stage, ino: u64, at: usize) -> Kept {
        let open = self.open.get_mut(&ino).unwrap().remove(at);
        match stage.close(open.id) {
            Ok(()) if open.owed => {
                Err(format!("{ino:x} was closed without a word, and has lost something"))
            }
            Ok(()) => Ok(()),
            Err(code) => {
                stage.failed("a close", code)?;
                self.belief.doubt(ino);
                Ok(())
            }
        }
    }

    fn unlink(&mut self, stage: &Stage, path: &str) -> Kept {
        self.look_again(stage, &[path])?;
        let Ok(Some(ino)) = self.belief.at(path) else { return Ok(()) };
        let (dir, name) = self.dir(path);
        self.belief.tried_to_remove(ino);
        match stage.call(Request::Unlink { dir, name: named(name) }, &[]) {
            Ok(_) => {
                self.belief.moved(path, None);
                self.gone(stage, ino)
            }
            Err(code) => {
                stage.failed("an unlink", code)?;
                self.belief.may_have_moved(path, None);
                self.look(stage, path).map(drop)
            }
        }
    }

    fn rename(&mut self, stage: &Stage, path: &str, to: &str) -> Kept {
        if path == to {
            return Ok(());
        }
        self.look_again(stage, &[path, to])?;
        let (Ok(Some(ino)), Ok(old)) = (self.belief.at(path), self.belief.at(to)) else {
            return Ok(());
        };
        let (from_dir, from) = self.dir(path);
        let (to_dir, to_name) = self.dir(to);
        let from = named(from);
        let flags = RenameFlags::Replace;
        let request = Request::Rename { from_dir, from, to_dir, to: named(to_name), flags };
        old.into_iter().for_each(|old| self.belief.tried_to_remove(old));
        match stage.call(request, &[]) {
            Ok(_) => {
                self.belief.moved(path, None);
                self.belief.moved(to, Some(ino));
                let Some(old) = old else { return Ok(()) };
                self.belief.moved_over(ino, to);
                self.gone(stage, old)
            }
            Err(code) => {
                stage.failed("a rename", code)?;
                self.belief.may_have_moved(path, None);
                self.belief.may_have_moved(to, Some(ino));
                let _known = self.look(stage, path)?;
                self.look(stage, to).map(drop)
            }
        }
    }

    /// A file without a name is closed.
    fn gone(&mut self, stage: &Stage, ino: u64) -> Kept {
        while self.open.get(&ino).is_some_and(|open| !open.is_empty()) {
            self.close_one(stage, ino, 0)?;
        }
        Ok(())
    }

    fn make_folder(&mut self, stage: &Stage) -> Kept {
        let name = FOLDERS[self.random.below(3) as usize];
        if self.folders.contains_key(name) || self.belief.at(name) != Ok(None) {
            return Ok(());
        }
        let mode = NewMode::exactly(0o755);
        let request = Request::MakeDir { dir: Handle::ROOT, name: named(name), mode };
        match stage.call(request, &[]) {
            Ok(Reply::Entry(entry)) => {
                self.folders.insert(name.to_owned(), entry.handle);
                self.belief.moved(name, Some(entry.attr.ino.raw()));
                Ok(())
            }
            Ok(other) => panic!("{other:?}"),
            Err(code) => {
                stage.failed("a mkdir", code)?;
                // The name may exist or not; no other operation has used it.
                if let Ok(Some(entry)) = stage.lookup(Handle::ROOT, name) {
                    self.belief.moved(name, Some(entry.attr.ino.raw()));
                    self.folders.insert(name.to_owned(), entry.handle);
                }
                Ok(())
            }
        }
    }

    fn remove_folder(&mut self, stage: &Stage) -> Kept {
        let is_empty = |folder: &&String| {
            let below = format!("{folder}/");
            let mut inside = self.belief.paths().filter(|path| path.starts_with(&below));
            inside.all(|path| self.belief.at(path) == Ok(None))
        };
        let Some(name) = self.folders.keys().find(is_empty).cloned() else { return Ok(()) };
        let Ok(Some(ino)) = self.belief.at(&name) else { return Ok(()) };
        self.belief.tried_to_remove(ino);
        let request = Request::RemoveDir { dir: Handle::ROOT, name: named(&name) };
        match stage.call(request, &[]) {
            Ok(_) => {
                self.folders.remove(&name);
                self.belief.moved(&name, None);
                Ok(())
            }
            Err(code) => {
                stage.failed("an rmdir", code)?;
                self.belief.may_have_moved(&name, None);
                if let Ok(None) = self.look(stage, &name)? {
                    self.folders.remove(&name);
                }
                Ok(())
            }
        }
    }

    /// Makes a file that gets its name once it is whole.
    fn publish(&mut self, stage: &Stage, path: &str) -> Kept {
        self.look_again(stage, &[path])?;
        if self.belief.at(path) != Ok(None) {
            return Ok(());
        }
        let (dir, name) = self.dir(path);
        let mode = NewMode::exactly(0o644);
        let id = next_open();
        let request = Request::CreateUnnamed { dir, mode, flags: BOTH, open: id };
        let entry = match stage.call(request, &[]) {
            Ok(Reply::Created { entry, .. }) => entry,
            Ok(other) => panic!("{other:?}"),
            Err(code) => return stage.failed("a unnamed create", code),
        };
        let ino = entry.attr.ino.raw();
        if self.belief.knows(ino) {
            return Err(format!("the number {ino:x} is given twice"));
        }
        self.belief.made(ino);
        self.open.insert(ino, vec![Opened { id, sync: false, told: false, owed: false }]);
        self.fill = self.fill % 250 + 1;
        let bytes = vec![self.fill; 1 + self.random.below(20_000) as usize];
        match stage.write(id, 0, &bytes) {
            Ok(()) => self.belief.wrote(ino, &bytes),
            Err(code) => {
                stage.failed("a write", code)?;
                self.belief.may_have_written(ino, &bytes);
                self.told(ino, 0);
                self.reread_after_failure(stage, ino, id)?;
            }
        }
        let request = Request::Link { node: entry.handle, dir, name: named(name) };
        match stage.call(request, &[]) {
            Ok(_) => {
                self.belief.moved(path, Some(ino));
                Ok(())
            }
            Err(code) => {
                stage.failed("a link", code)?;
                self.belief.may_have_moved(path, Some(ino));
                if self.look(stage, path)? != Ok(Some(entry)) {
                    self.gone(stage, ino)?;
                }
                Ok(())
            }
        }
    }

    fn read(&mut self, stage: &Stage, path: &str) -> Kept {
        let Some((ino, at)) = self.opened(path) else { return Ok(()) };
        self.reread(stage, ino, self.open[&ino][at].id).map(drop)
    }

    /// Reads, changes or removes one of the files that were there before.
    fn use_old(&mut self, stage: &Stage) -> Kept {
        let Ok(Some(folder)) = self.look(stage, "old")? else { return Ok(()) };
        self.folders.insert("old".to_owned(), folder.handle);
        let large = self.random.below(4) == 0;
        let number = self.random.below(OLD_FILES as u64);
        let path = format!("old/{}", if large { number / 50 * 50 } else { number });
        let change = self.random.below(4);
        let done = self.use_one(stage, &path, change);
        self.folders.remove("old");
        done
    }

    fn use_one(&mut self, stage: &Stage, path: &str, change: u64) -> Kept {
        let Ok(Some(entry)) = self.look(stage, path)? else { return Ok(()) };
        let ino = entry.attr.ino.raw();
        let flags = if change == 0 { BOTH } else { READ };
        let id = match stage.open(entry.handle, flags) {
            Ok(id) => id,
            Err(code) => return stage.failed("an open", code),
        };
        self.open.insert(ino, vec![Opened { id, sync: false, told: false, owed: false }]);
        let _known = self.reread(stage, ino, id)?;
        match change {
            0 => self.write(stage, path)?,
            1 => self.fsync(stage, path)?,
            _ => {}
        }
        self.close_one(stage, ino, 0)
    }

    fn list(&mut self, stage: &Stage) -> Kept {
        let folder = self.folders.iter().next().map(|(name, handle)| (name.clone(), *handle));
        let (below, dir) = match folder {
            Some((name, handle)) if self.random.coin() => (format!("{name}/"), handle),
            _ => (String::new(), Handle::ROOT),
        };
        let names = match stage.list(dir) {
            Ok(names) => names,
            Err(code) => return stage.failed("a listing", code),
        };
        let found: BTreeMap<String, u64> =
            names.into_iter().map(|(name, entry)| (name, entry.attr.ino.raw())).collect();
        let inside =
            |path: &&String| path.strip_prefix(&below).is_some_and(|rest| !rest.contains('/'));
        let paths: Vec<_> = self.belief.paths().filter(inside).cloned().collect();
        for path in paths {
            let name = &path[below.len()..];
            self.found(stage, &path, found.get(name).copied())?;
        }
        Ok(())
    }

    fn set_xattr(&mut self, stage: &Stage, path: &str) -> Kept {
        let Ok(Some(entry)) = self.look(stage, path)? else { return Ok(()) };
        let mut random = Random(self.random.draw());
        let value = (0..XATTR_BYTES).map(|_| random.draw() as u8).collect();
        let name = b"user.large".to_vec();
        let flags = XattrFlags::Any;
        let request =
            Request::SetXattr { node: entry.handle, name, value, flags, kill_setgid: false };
        match stage.call(request, &[]) {
            Ok(_) => Ok(()),
            Err(code) => stage.failed("a setxattr", code),
        }
    }
}
