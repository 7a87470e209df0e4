//! Guests: programs that use shared files over a mount of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::{FilePos, Files};
use pelago_keynote::Right;
use pelago_net::Remote;
use pelago_wire::{
    Cookie, Error, FileLock, Handle, Name, NewMode, OpenFlags, OpenId, SetAttr, WriteFlags,
};

use super::{CONTEXT, Plan, Runner, exclusive, random_below};
use crate::grants::Use;
use crate::history::{FilePart, History, Naming};
use crate::shares::{
    self, DEEP, GuestNumber, LOCKED_FILE, NAMED, PUBLIC, SHARED_FILES, STEADY, SharedNode,
    SharedTree, name_in,
};
use crate::turns;

/// Shared files have these numbers among the files of a run.
const FIRST_FILE: usize = 100;

/// Returns the part of a shared file that is written.
pub(crate) const fn part_of(node: SharedNode) -> FilePart {
    FilePart { file: FIRST_FILE + node.0, number: 0 }
}

/// The first number of a name that a guest makes, and the number of names of each.
const FIRST_NAME: usize = 1000;
const MOST_NAMES: usize = 100;

/// Returns the name with a number that a guest makes.
fn guest_name(number: usize) -> String {
    format!("of-guest-{number}")
}

/// Returns the number of a name that a guest makes; `None` for any other.
pub(crate) fn number_of(name: &Name) -> Option<usize> {
    std::str::from_utf8(name.as_bytes()).ok()?.strip_prefix("of-guest-")?.parse().ok()
}

/// A file that a guest has made and has open.
#[derive(Debug, Clone, Copy)]
struct Made {
    number: usize,
    open: OpenId,
    /// False once its name is removed.
    has_name: bool,
}

/// A guest's program.
pub(super) struct GuestProgram {
    runner: Runner,
    guest: GuestNumber,
    tree: SharedTree,
    /// Files that stay open between operations.
    kept: BTreeMap<SharedNode, OpenId>,
    made: Option<Made>,
    /// The number of names so far.
    names: usize,
}

/// Starts the program of a guest. It ends the session in the end: a guest whose right has ended
/// would try to connect for ever.
pub(crate) fn start(
    remote: Arc<Remote>,
    files: Files,
    plan: Plan,
    guest: GuestNumber,
    tree: SharedTree,
    history: &Arc<Mutex<History>>,
) -> JoinHandle<()> {
    let runner = Runner::new(files, plan, history);
    let program = GuestProgram { runner, guest, tree, kept: BTreeMap::new(), made: None, names: 0 };
    let thread = thread::Builder::new().name(format!("guest-{}", guest.0));
    let run = move || {
        program.run();
        remote.end();
    };
    thread.spawn(run).expect("a thread")
}

/// The result of a use, with the part of its time in which it may have been granted.
struct Used<T> {
    what: Use,
    span: Option<(u64, u64)>,
    result: Result<T, Error>,
}

impl GuestProgram {
    fn run(mut self) {
        for _ in 0..self.runner.plan.operations {
            thread::sleep(Duration::from_micros(turns::random(400_000)));
            let node = SHARED_FILES[random_below(SHARED_FILES.len())];
            match turns::random(18) {
                16..=17 => self.look(node),
                0..=2 => self.read(node),
                3..=4 => self.read_kept(node),
                5 => self.write_kept(),
                6..=7 => self.look(node),
                8 => self.look_up(),
                9..=10 => self.write(node),
                11 => self.list(),
                12 => self.lock(),
                13 => self.change_name(),
                14 => self.read_made(),
                _ => self.exceed(),
            }
        }
    }

    fn handle(&self, node: SharedNode) -> Handle {
        self.tree.files[node.0]
    }

    /// Uses a node, and judges the result.
    fn used<T>(
        &self,
        what: &'static str,
        needed: (SharedNode, Option<Right>),
        act: impl FnOnce(&Self) -> Result<T, Error>,
    ) -> Used<T> {
        let (node, right) = needed;
        let begun = self.runner.history.lock().moment();
        let result = act(self);
        let mut history = self.runner.history.lock();
        let ended = history.moment();
        let used = Use { guest: self.guest, node, right, begun, ended };
        let error = result.as_ref().err().copied();
        let span = history.judge(what, used, error);
        drop(history);
        self.runner.tell(format_args!("{what} of {node:?} {begun}-{ended}: {error:?}"));
        Used { what: used, span, result }
    }

    fn read_value(&self, open: OpenId, node: SharedNode) -> Result<u64, Error> {
        let offset = part_of(node).offset();
        let bytes = self.runner.files.read(&CONTEXT, open, offset, FilePart::BYTES).wait()?;
        let value = bytes.as_bytes().try_into().map_or(0, u64::from_le_bytes);
        self.runner.tell(format_args!("guest {} read {value}", self.guest.0));
        Ok(value)
    }

    fn has_room(&self, node: SharedNode) -> bool {
        self.runner.history.lock().has_room(part_of(node), 12)
    }

    /// Opens a file and reads it.
    fn read(&self, node: SharedNode) {
        if !self.has_room(node) {
            return;
        }
        let used = self.used("guest reads", (node, Some(Right::Read)), |this| {
            let files = &this.runner.files;
            let opened = files.open(&CONTEXT, this.handle(node), OpenFlags::READ).wait()?;
            let read = this.read_value(opened.open, node);
            // A right may end between the two.
            let _closed = this.runner.close(opened.open);
            read
        });
        if let (Ok(value), Some((begun, ended))) = (used.result, used.span) {
            let mut history = self.runner.history.lock();
            history.read_between(part_of(node), begun, ended, value);
        }
    }

    /// Opens a file that stays open. One is open to write too: of it guests cache nothing then.
    fn open_kept(&mut self, node: SharedNode) {
        let open =
            |this: &Self, flags| this.runner.files.open(&CONTEXT, this.handle(node), flags).wait();
        let used = |right, flags| {
            self.used("guest opens", (node, Some(right)), |this| open(this, flags)).result
        };
        let opened = match node {
            // Its mount opens a file to read by itself: a kernel has looked at the mode before.
            PUBLIC => open(self, OpenFlags::READ),
            NAMED => used(Right::Write, OpenFlags::READ_WRITE),
            _ => used(Right::Read, OpenFlags::READ),
        };
        if let Ok(opened) = opened {
            self.kept.insert(node, opened.open);
        }
    }

    /// Reads a file that stays open.
    fn read_kept(&mut self, node: SharedNode) {
        let Some(open) = self.kept.get(&node).copied() else { return self.open_kept(node) };
        let needed = (node, Some(Right::Read));
        let used =
            self.used("guest reads of open files", needed, |this| this.read_value(open, node));
        match (used.result, used.span) {
            (Ok(value), Some((_, until))) => {
                self.runner.history.lock().read_by_open(part_of(node), until, value);
            }
            (Ok(_), None) => {}
            (Err(_), _) => {
                self.kept.remove(&node);
                // It may have ended with the right.
                let _closed = self.runner.close(open);
            }
        }
    }

    /// Writes a value to a file that stays open.
    fn write_kept(&mut self) {
        let node = NAMED;
        let Some(open) = self.kept.get(&node).copied() else { return self.open_kept(node) };
        if !self.has_room(node) {
            return;
        }
        let value = self.runner.value();
        let is_written = self.write_value("guest writes to open files", node, value, |this| {
            let written = this.write_by(open, node, value);
            written.and_then(|()| this.runner.files.fsync(&CONTEXT, open, false).wait())
        });
        if !is_written {
            self.kept.remove(&node);
            let _closed = self.runner.close(open);
        }
    }

    /// Reads the attributes of a file twice: the second time its mount may have cached them.
    fn look(&self, node: SharedNode) {
        for _ in 0..2 {
            self.used("guest looks", (node, None), |this| {
                this.runner.files.get_attr(&CONTEXT, this.handle(node)).wait()
            });
            // A right may end between the two.
            thread::sleep(Duration::from_micros(turns::random(300_000)));
        }
    }

    /// Lists the directory that moves.
    fn list(&self) {
        self.used("guest listings", (DEEP, Some(Right::Read)), |this| {
            let after = Cookie::AFTER_DOT_DOT;
            let files = &this.runner.files;
            files.list(&CONTEXT, this.tree.moving, after, None, 100, true).wait()
        });
    }

    /// Looks up the file in the directory that moves.
    fn look_up(&self) {
        self.used("guest lookups", (DEEP, None), |this| {
            let at = name_in(this.tree.moving, "deep");
            this.runner.files.lookup(&CONTEXT, at).wait()
        });
    }

    /// Has a lock for a moment. The owner holds it while the file moves out.
    fn lock(&self) {
        let owner = self.runner.owner();
        let lock = exclusive(0, FileLock::TO_END);
        let needed = (DEEP, Some(Right::Write));
        let opened = self.used("guest opens", needed, |this| {
            this.runner.files.open(&CONTEXT, this.handle(DEEP), OpenFlags::READ_WRITE).wait()
        });
        let Ok(opened) = opened.result else { return };
        let used = self.used("guest locks", needed, |this| {
            this.runner.files.set_lock(&CONTEXT, opened.open, owner, lock, true).wait()
        });
        if used.result.is_ok() {
            self.runner.history.lock().guest_locked(LOCKED_FILE, used.what);
        }
        let files = &self.runner.files;
        // A right may have ended.
        let _unlocked = files.flush(&CONTEXT, opened.open, Some(owner)).wait();
        let _closed = files.release(&CONTEXT, opened.open).wait();
    }

    /// Makes a name in the directory that moves, and keeps the file open, or removes the name.
    fn change_name(&mut self) {
        let losses = self.runner.history.lock().power_losses;
        match self.made {
            Some(made) if made.has_name => self.remove_name(made, losses),
            _ => self.make_name(losses),
        }
    }

    fn make_name(&mut self, losses: u64) {
        if let Some(made) = self.made.take() {
            let _closed = self.runner.close(made.open);
        }
        if self.names == MOST_NAMES {
            return;
        }
        let number = FIRST_NAME + self.guest.0 * MOST_NAMES + self.names;
        self.names += 1;
        self.runner.history.lock().begin_guest_name(number);
        let used = self.used("guest creates", (DEEP, Some(Right::Create)), |this| {
            let at = name_in(this.tree.moving, &guest_name(number));
            let mode = NewMode::exactly(0o600);
            this.runner.files.create(&CONTEXT, at, mode, OpenFlags::READ_WRITE).wait()
        });
        let act = used.result.as_ref().ok().map(|made| Naming::Create(made.entry.handle.ino.raw()));
        self.note_name(number, &used, act, losses);
        if let Ok(created) = used.result {
            self.made = Some(Made { number, open: created.open, has_name: true });
        }
    }

    fn remove_name(&mut self, made: Made, losses: u64) {
        self.runner.history.lock().begin_guest_name(made.number);
        let used = self.used("guest unlinks", (DEEP, Some(Right::Delete)), |this| {
            let at = name_in(this.tree.moving, &guest_name(made.number));
            this.runner.files.unlink(&CONTEXT, at).wait()
        });
        let act = used.result.is_ok().then_some(Naming::Unlink);
        self.note_name(made.number, &used, act, losses);
        // It keeps its directory as long as it is open.
        self.made = Some(Made { has_name: false, ..made });
        self.read_made();
    }

    /// Records what was done to a name; without an act it was refused. The power has failed
    /// `losses` times before.
    fn note_name<T>(&self, number: usize, used: &Used<T>, act: Option<Naming>, losses: u64) {
        let mut history = self.runner.history.lock();
        history.end_guest_name(number);
        let is_certain = history.power_losses == losses;
        match (act, used.span) {
            (Some(act), Some((begun, ended))) if is_certain => {
                history.guest_named(number, begun, ended, act);
            }
            (None, _) if history.grants.may_be_granted(used.what).is_none() => {}
            _ => history.lose_guest_name(number),
        }
    }

    /// Reads the file that it has made, which may have no name any more.
    fn read_made(&mut self) {
        let Some(Made { open, .. }) = self.made else { return self.change_name() };
        let used = self.used("guest reads of made files", (DEEP, Some(Right::Read)), |this| {
            this.runner.files.read(&CONTEXT, open, 0, FilePart::BYTES).wait()
        });
        if used.result.is_err() {
            self.made = None;
            let _closed = self.runner.close(open);
        }
    }

    /// Tries something that it may never do.
    fn exceed(&self) {
        let SharedTree { public, inside, .. } = self.tree;
        let of_public = |right| (PUBLIC, Some(right));
        match turns::random(6) {
            0 => {
                self.used("guest creates", of_public(Right::Create), |this| {
                    let at = name_in(public, "made");
                    let mode = NewMode::exactly(0o600);
                    this.runner.files.create(&CONTEXT, at, mode, OpenFlags::WRITE).wait()
                });
            }
            1 => {
                self.used("guest unlinks", of_public(Right::Delete), |this| {
                    this.runner.files.unlink(&CONTEXT, name_in(public, shares::SPARE)).wait()
                });
            }
            2 => self.never("a link of a public file", |this| {
                let at = name_in(inside, &format!("gained-{}", this.guest.0));
                this.runner.files.link(&CONTEXT, this.handle(PUBLIC), at).wait().map(drop)
            }),
            3 => self.never("a change of the owner", |this| {
                let set = SetAttr { uid: Some(0), ..SetAttr::default() };
                let node = this.handle(STEADY);
                this.runner.files.set_attr(&CONTEXT, node, None, set).wait().map(drop)
            }),
            4 => self.never("a search by a number", |this| {
                this.runner.files.find(&CONTEXT, this.handle(STEADY).ino).wait().map(drop)
            }),
            _ => {
                let needed = of_public(Right::Write);
                self.used("guest opens", needed, |this| {
                    let files = &this.runner.files;
                    let opened = files.open(&CONTEXT, this.handle(PUBLIC), OpenFlags::WRITE);
                    this.runner.close(opened.wait()?.open)
                });
            }
        }
    }

    /// Tries something that no right suffices for.
    fn never(&self, what: &'static str, act: impl FnOnce(&Self) -> Result<(), Error>) {
        let result = act(self);
        self.runner.tell(format_args!("{what}: {result:?}"));
        let mut history = self.runner.history.lock();
        history.count("guest refusals");
        if result.is_ok() {
            history.wrong.push(format!("guest {} has made {what}", self.guest.0));
        }
    }

    /// Writes a value to a file.
    fn write(&mut self, node: SharedNode) {
        if !self.has_room(node) {
            return;
        }
        let value = self.runner.value();
        self.write_value("guest writes", node, value, |this| {
            let files = &this.runner.files;
            let opened = files.open(&CONTEXT, this.handle(node), OpenFlags::WRITE).wait()?;
            let written = this.write_by(opened.open, node, value);
            let synced = written.and_then(|()| files.fsync(&CONTEXT, opened.open, false).wait());
            // A right may end between the two.
            let _closed = this.runner.close(opened.open);
            synced
        });
    }

    fn write_by(&self, open: OpenId, node: SharedNode, value: u64) -> Result<(), Error> {
        let to = FilePos { open, offset: part_of(node).offset() };
        let bytes = value.to_le_bytes();
        let written = self.runner.files.write(&CONTEXT, to, &bytes, WriteFlags::NONE).wait();
        self.runner.tell(format_args!("guest {} writes {value}: {written:?}", self.guest.0));
        written.map(drop)
    }

    /// Has a value written to a file, and judges the result. Returns whether that was written.
    fn write_value(
        &self,
        what: &'static str,
        node: SharedNode,
        value: u64,
        write: impl FnOnce(&Self) -> Result<(), Error>,
    ) -> bool {
        let part = part_of(node);
        self.runner.history.lock().begin_write(part, value);
        let used = self.used(what, (node, Some(Right::Write)), write);
        let mut history = self.runner.history.lock();
        match (used.result, used.span) {
            (Ok(()), Some((begun, ended))) => {
                history.end_write_between(part, value, begun, ended);
                history.closed(value);
                history.written_by_guests.insert(node);
                true
            }
            (Ok(()), None) => true,
            (Err(_), _) => {
                history.refused_write(part, value, used.what);
                false
            }
        }
    }
}
