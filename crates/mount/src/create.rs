//! CREATE, while other programs make and remove the same name.
//!
//! The kernel sends CREATE for a name that it has found missing. If the name exists by then, its
//! file is opened, unless the program wants a new one (`O_EXCL`). If the file is gone when it is to
//! be opened, CREATE begins again here, up to [`ROUNDS`] times: the kernel would resolve the path
//! only once more, and the program would then see `ESTALE`.

use std::sync::Arc;

use pelago_client::{At, Opened};
use pelago_fuse::Errno;
use pelago_wire::{Code, Entry, Error, FileKind, NewMode};

use crate::attr;
use crate::open::{CreateReply, MayKeep, Opening};
use crate::retries::Why;

/// Rounds in which a file is made or opened in vain before the kernel begins the call again.
const ROUNDS: u32 = 16;

/// A CREATE in progress.
pub(crate) struct Creating {
    pub(crate) opening: Opening<CreateReply>,
    pub(crate) at: At,
    pub(crate) mode: NewMode,
    /// The program wants a new file.
    pub(crate) is_exclusive: bool,
    /// Rounds in which the file was made or opened in vain.
    pub(crate) round: u32,
}

impl Creating {
    /// Makes the file, or opens the one that has the name.
    pub(crate) fn start(self) {
        let Opening { state, context, wanted, .. } = &self.opening;
        let state = Arc::clone(state);
        let change = state.begin_change(&self.at);
        let answer = state.files.create(context, self.at.clone(), self.mode, *wanted);
        answer.then(move |created| {
            state.end_change(change);
            match created {
                Ok(created) => self.opening.created(Some(self.at), created),
                Err(error) if error.code == Code::Exists && !self.is_exclusive => {
                    self.open_existing();
                }
                Err(error) => self.fail(error),
            }
        });
    }

    /// Opens the file that another program has made under this name.
    fn open_existing(self) {
        let files = self.opening.state.files.clone();
        files.lookup(&self.opening.context, self.at.clone()).then(move |found| match found {
            Ok(entry) if entry.attr.kind == FileKind::Regular => self.open(entry),
            Ok(entry) if entry.attr.kind == FileKind::Directory => {
                self.fail(Code::IsDirectory.into());
            }
            // The kernel resolves the path again, and follows the link or opens the device.
            Ok(_) => self.begin_again(),
            Err(error) if error.code == Code::NotFound => self.next_round(),
            Err(error) => self.fail(error),
        });
    }

    fn open(self, entry: Entry) {
        let Opening { state, context, wanted, .. } = &self.opening;
        let answer = state.files.open(context, entry.handle, *wanted);
        answer.then(move |opened| match opened {
            Ok(Opened { open, attr, path }) => {
                // Linux takes the attributes in a reply to CREATE without comparing versions.
                // Beside other sessions it may have newer ones of this inode, which another
                // program has made.
                let is_shared = self.opening.state.lifetimes.is_shared();
                let may_keep = MayKeep { name: !attr.volatile, attr: !attr.volatile && !is_shared };
                self.opening.found(may_keep, Entry { handle: entry.handle, attr }, open, path);
            }
            Err(error) if error.code == Code::Stale => self.next_round(),
            Err(error) => self.fail(error),
        });
    }

    /// Begins the next round: the name has vanished, and the file is made once more.
    fn next_round(mut self) {
        self.round += 1;
        if self.round < ROUNDS { self.start() } else { self.begin_again() }
    }

    fn begin_again(self) {
        self.opening.state.begins_again(self.opening.reply.thread, Why::Gone);
        self.opening.reply.reply.error(Errno::STALE);
    }

    fn fail(self, error: Error) {
        self.opening.reply.reply.error(attr::error(error));
    }
}
