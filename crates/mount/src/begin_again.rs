//! Requests of system calls that began again after `ESTALE`, and the look-ups that hold what they
//! find for the calling thread; see [`Retries`].
//!
//! [`Retries`]: crate::retries::Retries

use std::sync::Arc;
use std::time::Instant;

use pelago_client::At;
use pelago_fuse::{Reply, reply};
use pelago_wire::{Code, Context, Entry, Error, FileKind, InodeId, OpenFlags};

use crate::attr;
use crate::find::HiddenName;
use crate::lifetimes::Sample;
use crate::moves::may_rename;
use crate::open_ids::OpenPath;
use crate::process::Process;
use crate::retries::Why;
use crate::state::State;
use crate::unlinked::Retained;

impl State {
    /// Records the result of a request by which a thread uses an inode: `ESTALE` makes the kernel
    /// begin the call again, and any other result ends a call that had begun again.
    pub(crate) fn used<T>(&self, thread: u32, result: &Result<T, Error>) {
        match result {
            Err(error) if error.code == Code::Stale => self.begins_again(thread, Why::Gone),
            _ => self.ends_retry(thread),
        }
    }

    /// Records the result of a request for attributes, after which the call may go on to use the
    /// inode: only `ESTALE` counts.
    pub(crate) fn looked<T>(&self, thread: u32, result: &Result<T, Error>) {
        if let Err(error) = result
            && error.code == Code::Stale
        {
            self.begins_again(thread, Why::Gone);
        }
    }

    /// Returns the reason to answer `ESTALE` to a thread that has found an inode by the name of
    /// this key; `None` if the reply is the inode. The reason is that others `have_moved` the inode
    /// and the thread is in a rename: if both names lead to one inode the kernel answers 0 without
    /// a request, and the rename would do nothing.
    pub(crate) fn why_stale(
        &self,
        thread: u32,
        name: Option<u64>,
        have_moved: bool,
        kind: FileKind,
    ) -> Option<Why> {
        let name = name?;
        match self.retries.why(thread) {
            // The kernel begins a call again once only: a second `ESTALE` reaches the program.
            Some(Why::Moved(moved)) => {
                if moved == name {
                    self.ends_retry(thread);
                }
                None
            }
            Some(Why::Gone) | None => {
                let begins = have_moved && may_rename(Process::of_thread(thread), kind);
                begins.then_some(Why::Moved(name))
            }
        }
    }

    /// Records that a thread is about to be answered `ESTALE`.
    pub(crate) fn begins_again(&self, thread: u32, why: Why) {
        for what in self.retries.begin(thread, why) {
            self.release_retained(Some(what));
        }
    }

    /// Releases what is held for a thread, whose call no longer needs it.
    pub(crate) fn ends_retry(&self, thread: u32) {
        let ended = self.retries.end(thread);
        if ended.is_some() {
            self.release_retained(ended);
        }
    }

    /// Ends the records of calls that began again too long ago. Their threads have used what they
    /// found by requests that do not show it, or have ended.
    pub(crate) fn end_old_retries(&self) {
        if self.retries.is_empty() {
            return;
        }
        for what in self.retries.end_old(Instant::now()) {
            self.release_retained(Some(what));
        }
    }

    /// Returns the target of a symbolic link; if the link was removed, the target that is held for
    /// the thread.
    pub(crate) fn or_held(
        &self,
        thread: u32,
        ino: InodeId,
        result: Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        match result {
            Err(error) if error.code == Code::Stale => {
                self.retries.target(thread, ino).ok_or(error)
            }
            result => result,
        }
    }
}

/// A LOOKUP of a thread whose call began again.
pub(crate) struct HeldLookup {
    pub(crate) state: Arc<State>,
    pub(crate) context: Context,
    pub(crate) thread: u32,
    pub(crate) user: u32,
    pub(crate) at: At,
    /// Sample of the name from before the look-up.
    pub(crate) sample: Sample,
    pub(crate) reply: Reply<reply::Entry>,
    /// Lookups that are left.
    pub(crate) rounds: u32,
}

impl HeldLookup {
    /// Looks the name up, and replies once the file is held.
    pub(crate) fn start(self) {
        let files = self.state.files.clone();
        files.lookup(&self.context, self.at.clone()).then(move |found| match found {
            Ok(found) => self.found(found),
            Err(error) => self.answer(Err(error)),
        });
    }

    fn found(self, found: Entry) {
        let files = self.state.files.clone();
        match found.attr.kind {
            FileKind::Regular => {
                // The kernel does not know of this open, so any data path will do.
                let passthrough = self.state.passthrough.is_on();
                let read = OpenFlags { read: true, passthrough, ..OpenFlags::default() };
                files.open(&self.context, found.handle, read).then(move |opened| {
                    let held = opened.map(|opened| {
                        self.state.open_ids.add(opened.open, OpenPath::Cached, false);
                        Retained::Open(opened.open)
                    });
                    self.held(found, held);
                });
            }
            FileKind::Symlink => {
                files.read_link(&self.context, found.handle).then(move |target| {
                    self.held(found, target.map(Retained::Target));
                });
            }
            _ => self.answer(Ok(found)),
        }
    }

    fn held(mut self, found: Entry, held: Result<Retained, Error>) {
        match held {
            Ok(held) => {
                let rest = self.state.retries.hold(self.thread, found.attr.ino, held);
                self.state.release_retained(rest);
            }
            Err(error) if error.code == Code::Stale && self.rounds > 0 => {
                self.rounds -= 1;
                return self.start();
            }
            // The file cannot be held; the call may succeed all the same.
            Err(_) => {}
        }
        self.answer(Ok(found));
    }

    fn answer(self, found: Result<Entry, Error>) {
        let Self { state, thread, user, at, sample, reply, .. } = self;
        let name = state.lifetimes.leased_name(&at);
        match found {
            Err(error) if error.code == Code::NotFound => {
                let hidden = HiddenName::of(&at).map(|hidden| (hidden, user));
                state.reply_absent(&sample, name.as_deref(), hidden, reply);
            }
            Ok(found) => state.reply_found(thread, &sample, name.as_deref(), found, reply),
            Err(error) => reply.error(attr::error(error)),
        }
    }
}
