//! How a test reaches a mounted file system: faults, space, power.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::errors::Errors;
use crate::model::{Model, Survival};
use crate::operation::{CallArgs, Operation};
use crate::plan::{Call, Counting, Injection, Plan};

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
    plan: Option<Plan>,
    errors: Errors,
    syncs: u64,
    /// No power: everything is refused.
    off: bool,
}

impl Control {
    /// A file system that begins as `model`.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self(Arc::new(Mutex::new(State {
            model,
            faults: Vec::new(),
            watch: None,
            plan: None,
            errors: Errors::default(),
            syncs: 0,
            off: false,
        })))
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

    /// Counts all calls from now on, by kind, by class of file, and by whose they are. From then on
    /// the kernel keeps no bytes of files, so that each read is a call.
    pub fn count(&self, counting: Counting) {
        self.0.lock().plan = Some(Plan::new(counting));
    }

    /// Fails a call that [`Control::count`] counts; `None`: no more.
    pub fn inject(&self, injection: Option<Injection>) {
        if let Some(plan) = &mut self.0.lock().plan {
            plan.inject(injection);
        }
    }

    /// The calls that were counted.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Call, u64> {
        self.0.lock().plan.as_ref().map(Plan::counts).unwrap_or_default()
    }

    /// How many calls [`Control::inject`] has failed.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.0.lock().plan.as_ref().map_or(0, Plan::failed)
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

    /// Opens a file; answers its handle.
    pub(crate) fn open(&mut self, ino: u64) -> Result<u64, Errno> {
        self.model.open(ino)?;
        Ok(self.errors.open(ino))
    }

    pub(crate) fn close(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        self.errors.close(handle);
        self.model.close(ino)
    }

    /// Makes a file safe. Fails if an earlier sync has, and this handle was not told.
    pub(crate) fn sync(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        self.model.sync(ino)?;
        self.errors.tell(ino, handle)
    }

    /// Makes a file safe, which fails.
    pub(crate) fn fail_to_sync(
        &mut self,
        ino: u64,
        handle: u64,
        error: Errno,
    ) -> Result<(), Errno> {
        self.model.fail_to_sync(ino)?;
        self.errors.add(ino, error);
        self.errors.tell(ino, handle)
    }

    /// Whether the kernel shall keep no bytes of files.
    pub(crate) const fn is_direct(&self) -> bool {
        self.plan.is_some()
    }

    /// Something is asked; it fails if the test wants it to. Answers how many of its bytes are
    /// carried.
    pub(crate) fn meet(&mut self, asked: CallArgs<'_>) -> Result<usize, Errno> {
        self.is_on()?;
        let CallArgs { operation, ino, .. } = asked;
        let path = self.model.node(ino)?.path.clone();
        let moment = Moment { operation, path: &path, model: &self.model };
        self.syncs += u64::from(moment.is_sync());
        if let Some(watch) = &mut self.watch
            && !operation.only_reads()
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
        let Some(plan) = &mut self.plan else { return Ok(asked.range.bytes) };
        match asked.name {
            Some(name) => plan.meet(&asked, &format!("{path}/{}", String::from_utf8_lossy(name))),
            None => plan.meet(&asked, &path),
        }
    }
}
