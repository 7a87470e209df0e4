//! Open control files: each is a conversation of its own, with the rights of the process that
//! opened it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_client::Files;
use pelago_fuse::Errno;
use pelago_fuse::ids::FileId;
use pelago_wire::{Handle, InodeId};

use super::asker::Rights;
use super::conversation::{Conversation, Step};

/// The open control files, whose number the kernel limits with that of descriptors.
#[derive(Debug, Default)]
pub(super) struct Controls {
    open: Mutex<HashMap<u64, Arc<Control>>>,
    last: AtomicU64,
}

/// An open control file.
#[derive(Debug)]
pub(super) struct Control {
    dir: InodeId,
    rights: Rights,
    /// Its lock is a leaf.
    conversation: Mutex<Conversation>,
}

impl Controls {
    /// Opens the control file of a directory.
    pub(super) fn open(&self, dir: InodeId, rights: Rights) -> FileId {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let conversation = Mutex::default();
        // No server has issued a number like this one.
        let id = u64::from(InodeId::MOUNT_SITE) << 48 | number;
        self.open.lock().insert(id, Arc::new(Control { dir, rights, conversation }));
        FileId(id)
    }

    pub(super) fn close(&self, file: FileId) {
        self.open.lock().remove(&file.0);
    }

    pub(super) fn get(&self, file: FileId) -> Option<Arc<Control>> {
        self.open.lock().get(&file.0).map(Arc::clone)
    }
}

impl Control {
    /// Takes the question that a program writes.
    ///
    /// # Errors
    /// As [`Conversation::write`].
    pub(super) fn write(&self, query: &[u8]) -> Result<(), Errno> {
        self.conversation.lock().write(query)
    }

    /// Reads up to `size` bytes of the answer, and calls `then` with them.
    pub(super) fn read(
        self: Arc<Self>,
        files: &Files,
        size: usize,
        then: impl FnOnce(Result<Vec<u8>, Errno>) + Send + 'static,
    ) {
        let step = self.conversation.lock().read(size, &self.rights.asker);
        let context = self.rights.context();
        let dir = Handle::own(self.dir);
        match step {
            Ok(Step::Give(bytes)) => then(Ok(bytes)),
            Ok(Step::Ask(search)) => files.search(&context, dir, search).then(move |page| {
                then(self.go_on(size, |conversation| conversation.page(page)));
            }),
            Ok(Step::AskTags(tags)) => files.tags(&context, dir, tags).then(move |page| {
                then(self.go_on(size, |conversation| conversation.tags(page)));
            }),
            Err(error) => then(Err(error)),
        }
    }

    /// Continues a read after its page has come.
    fn go_on(&self, size: usize, take: impl FnOnce(&mut Conversation)) -> Result<Vec<u8>, Errno> {
        let mut conversation = self.conversation.lock();
        take(&mut conversation);
        match conversation.read(size, &self.rights.asker)? {
            Step::Give(bytes) => Ok(bytes),
            // Each page has at least one record.
            Step::Ask(_) | Step::AskTags(_) => Err(Errno::IO),
        }
    }
}
