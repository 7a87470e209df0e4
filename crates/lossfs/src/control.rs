//! How a test reaches a mounted file system: faults, space, power.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::model::{Model, Survival};

/// What is asked of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A file or node is made.
    Create,
    /// A folder is made.
    MakeDir,
    /// A name gets a second file, or a file a second name.
    Rename,
    /// A name goes.
    Remove,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is cut or extended.
    Resize,
    /// Space is reserved, or freed.
    Reserve,
    /// A file is synced.
    Sync,
    /// A folder is synced.
    SyncNames,
}

/// An error to come.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Of what.
    pub on: Operation,
    /// Only of files, or in folders, whose path when they were made has this in it.
    pub within: String,
    /// So many go well before.
    pub after: u64,
    /// So many fail.
    pub times: u64,
    /// With this.
    pub error: Errno,
}

/// A moment at which power may fail: before a change, or before a sync.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// What is about to happen.
    pub operation: Operation,
    /// Of what.
    pub path: &'a str,
    /// What there is before.
    pub model: &'a Model,
}

impl Moment<'_> {
    /// Whether something is about to become safe.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        matches!(self.operation, Operation::Sync | Operation::SyncNames)
    }
}

/// Called before each change and sync, with the file system held still.
type Watch = Box<dyn FnMut(Moment<'_>) + Send>;

/// The file system itself, behind one lock.
#[derive(Clone)]
pub struct Control(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) model: Model,
    faults: Vec<Fault>,
    watch: Option<Watch>,
    syncs: u64,
    /// No power: everything is refused.
    off: bool,
}

impl Control {
    /// A file system that begins as `model`.
    #[must_use]
    pub fn new(model: Model) -> Self {
        let state = State { model, faults: Vec::new(), watch: None, syncs: 0, off: false };
        Self(Arc::new(Mutex::new(state)))
    }

    /// What there is now.
    #[must_use]
    pub fn model(&self) -> Model {
        self.0.lock().model.clone()
    }

    /// The power fails: whatever is asked from now on is refused with `EIO`. Answers what is found
    /// when it comes back.
    #[must_use]
    pub fn cut(&self, survival: Survival) -> Model {
        let mut state = self.0.lock();
        state.off = true;
        state.watch = None;
        state.model.after_crash(survival)
    }

    /// Adds an error to come.
    pub fn fail(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// No more errors come.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Blocks of 4 KiB that there are from now on; no limit where there is nothing.
    pub fn set_limit(&self, blocks: Option<u64>) {
        self.0.lock().model.set_limit(blocks);
    }

    /// How often something was synced, well or not.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Calls this before each change and each sync from now on.
    pub fn watch(&self, watch: impl FnMut(Moment<'_>) + Send + 'static) {
        self.0.lock().watch = Some(Box::new(watch));
    }

    /// Calls nobody any more.
    pub fn unwatch(&self) {
        self.0.lock().watch = None;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

impl State {
    /// Whether the medium can be asked at all.
    pub(crate) fn is_on(&self) -> Result<(), Errno> {
        if self.off { Err(Errno::IO) } else { Ok(()) }
    }

    /// Something is asked of `ino`; it fails where the test wants it to.
    pub(crate) fn meet(&mut self, operation: Operation, ino: u64) -> Result<(), Errno> {
        self.is_on()?;
        let path = self.model.node(ino)?.path.clone();
        let moment = Moment { operation, path: &path, model: &self.model };
        self.syncs += u64::from(moment.is_sync());
        if let Some(watch) = &mut self.watch
            && operation != Operation::Read
        {
            watch(moment);
        }
        for fault in &mut self.faults {
            if fault.on != operation || fault.times == 0 || !path.contains(&fault.within) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            return Err(fault.error);
        }
        Ok(())
    }
}
