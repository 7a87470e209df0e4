//! Guests: programs that use shared files over a mount of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::{FilePos, Files};
use pelago_net::Remote;
use pelago_wire::{Cookie, Error, Handle, OpenFlags, OpenId, WriteFlags};

use super::{CONTEXT, Plan, Runner, random_below};
use crate::grants::{GuestNumber, SharedNode, Use};
use crate::history::{FilePart, History};
use crate::shares::{DEEP, SHARED_FILES, SharedTree};
use crate::turns;

/// Shared files have these numbers among the files of a run.
const FIRST_FILE: usize = 100;

/// Returns the part of a shared file that is written.
pub(crate) const fn part_of(node: SharedNode) -> FilePart {
    FilePart { file: FIRST_FILE + node.0, number: 0 }
}

/// A guest's program.
pub(super) struct GuestProgram {
    runner: Runner,
    guest: GuestNumber,
    tree: SharedTree,
    /// Files that stay open between operations.
    kept: BTreeMap<SharedNode, OpenId>,
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
    let program = GuestProgram { runner, guest, tree, kept: BTreeMap::new() };
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
            match turns::random(8) {
                0 | 1 => self.read(node),
                2 | 3 => self.read_kept(node),
                4 | 5 => self.look(node),
                6 => self.write(node),
                _ => self.list(),
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
        node: SharedNode,
        act: impl FnOnce(&Self) -> Result<T, Error>,
    ) -> Used<T> {
        let begun = self.runner.history.lock().moment();
        let result = act(self);
        let mut history = self.runner.history.lock();
        let ended = history.moment();
        let used = Use { guest: self.guest, node, begun, ended };
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
        let used = self.used("guest reads", node, |this| {
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

    /// Reads a file that stays open.
    fn read_kept(&mut self, node: SharedNode) {
        let Some(open) = self.kept.get(&node).copied() else {
            let used = self.used("guest opens", node, |this| {
                let files = &this.runner.files;
                files.open(&CONTEXT, this.handle(node), OpenFlags::READ).wait()
            });
            if let Ok(opened) = used.result {
                self.kept.insert(node, opened.open);
            }
            return;
        };
        let used = self.used("guest reads of open files", node, |this| this.read_value(open, node));
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

    /// Reads the attributes of a file.
    fn look(&self, node: SharedNode) {
        self.used("guest looks", node, |this| {
            this.runner.files.get_attr(&CONTEXT, this.handle(node)).wait()
        });
    }

    /// Lists the directory that moves.
    fn list(&self) {
        self.used("guest listings", DEEP, |this| {
            let after = Cookie::AFTER_DOT_DOT;
            let files = &this.runner.files;
            files.list(&CONTEXT, this.tree.moving, after, None, 100, true).wait()
        });
    }

    /// Writes a value to a file.
    fn write(&mut self, node: SharedNode) {
        if !self.has_room(node) {
            return;
        }
        let part = part_of(node);
        let value = self.runner.value();
        self.runner.history.lock().begin_write(part, value);
        let used = self.used("guest writes", node, |this| {
            let files = &this.runner.files;
            let opened = files.open(&CONTEXT, this.handle(node), OpenFlags::READ_WRITE).wait()?;
            let to = FilePos { open: opened.open, offset: part.offset() };
            let bytes = value.to_le_bytes();
            let written = files.write(&CONTEXT, to, &bytes, WriteFlags::NONE).wait();
            this.runner.tell(format_args!("guest {} writes {value}: {written:?}", this.guest.0));
            let synced = written.and_then(|_| files.fsync(&CONTEXT, opened.open, false).wait());
            // A right may end between the two.
            let _closed = this.runner.close(opened.open);
            synced
        });
        let mut history = self.runner.history.lock();
        match (used.result, used.span) {
            (Ok(()), Some((begun, ended))) => {
                history.end_write_between(part, value, begun, ended);
                history.closed(value);
            }
            (Ok(()), None) => {}
            (Err(_), _) => history.refused_write(part, value, used.what),
        }
    }
}
