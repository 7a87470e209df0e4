//! Controls of a mounted file system: faults, space, power.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use crate::errors::Errors;
use crate::model::{Model, Survival};
use crate::operation::{CallArgs, Operation};
use crate::plan::{Call, Counting, Injection, Plan};

/// An error that calls will return.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The kind of calls that fail.
    pub on: Operation,
    /// A part of the path that the file or directory had when it was created.
    pub within: String,
    /// The number of calls that succeed first.
    pub after: u64,
    /// The number of calls that fail then.
    pub times: u64,
    /// The error that they return.
    pub error: Errno,
}

/// A point at which the power may fail: before a change, or before a sync.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// The call that is about to happen.
    pub operation: Operation,
    /// Path of its file.
    pub path: &'a str,
    /// The file system before the call.
    pub model: &'a Model,
}

impl Moment<'_> {
    /// Returns whether the call makes something safe.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        matches!(self.operation, Operation::Sync | Operation::SyncNames)
    }
}

/// Called before each change and sync, under the lock of the file system.
type Watch = Box<dyn FnMut(Moment<'_>) + Send>;

/// The file system, behind one lock.
#[derive(Clone)]
pub struct Control(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) model: Model,
    faults: Vec<Fault>,
    watch: Option<Watch>,
    plan: Option<Plan>,
    errors: Errors,
    syncs: u64,
    /// The power is off: all calls fail.
    off: bool,
}

impl Control {
    /// Returns controls of a file system that begins as `model`.
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

    /// Returns a copy of the present file system.
    #[must_use]
    pub fn model(&self) -> Model {
        self.0.lock().model.clone()
    }

    /// Cuts the power: all calls fail with `EIO` from now on. Returns the file system that is found
    /// after a restart.
    #[must_use]
    pub fn cut(&self, survival: Survival) -> Model {
        let mut state = self.0.lock();
        state.off = true;
        state.watch = None;
        state.model.after_crash(survival)
    }

    /// Adds a fault.
    pub fn fail(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Limits the space to `blocks` of 4 KiB; `None` removes the limit.
    pub fn set_limit(&self, blocks: Option<u64>) {
        self.0.lock().model.set_limit(blocks);
    }

    /// Returns the count of syncs, successful or not.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.0.lock().syncs
    }

    /// Calls `watch` before each change and each sync from now on.
    pub fn watch(&self, watch: impl FnMut(Moment<'_>) + Send + 'static) {
        self.0.lock().watch = Some(Box::new(watch));
    }

    /// Removes the callback of [`Control::watch`].
    pub fn unwatch(&self) {
        self.0.lock().watch = None;
    }

    /// Counts all calls from now on, by kind, by class of file, and by whether the caller is one of
    /// the test's threads. The kernel then caches no bytes of files, so that each read is a call.
    pub fn count(&self, counting: Counting) {
        self.0.lock().plan = Some(Plan::new(counting));
    }

    /// Fails a call that [`Control::count`] counts; `None` ends that.
    pub fn inject(&self, injection: Option<Injection>) {
        if let Some(plan) = &mut self.0.lock().plan {
            plan.inject(injection);
        }
    }

    /// Returns the counted calls.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Call, u64> {
        self.0.lock().plan.as_ref().map(Plan::counts).unwrap_or_default()
    }

    /// Returns how many calls [`Control::inject`] has failed.
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
    /// Fails if the power is off.
    pub(crate) fn is_on(&self) -> Result<(), Errno> {
        if self.off { Err(Errno::IO) } else { Ok(()) }
    }

    /// Opens a file and returns its handle.
    pub(crate) fn open(&mut self, ino: u64) -> Result<u64, Errno> {
        self.model.open(ino)?;
        Ok(self.errors.open(ino))
    }

    pub(crate) fn close(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        self.errors.close(handle);
        self.model.close(ino)
    }

    /// Makes a file safe. Fails if an earlier sync failed and this handle has not had that error
    /// yet.
    pub(crate) fn sync(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        self.model.sync(ino)?;
        self.errors.report(ino, handle)
    }

    /// Fails a sync of a file.
    pub(crate) fn fail_to_sync(
        &mut self,
        ino: u64,
        handle: u64,
        error: Errno,
    ) -> Result<(), Errno> {
        self.model.fail_to_sync(ino)?;
        self.errors.add(ino, error);
        self.errors.report(ino, handle)
    }

    /// Returns whether the kernel must not cache bytes of files.
    pub(crate) const fn is_direct(&self) -> bool {
        self.plan.is_some()
    }

    /// Fails a call if the test wants it to, else returns how many of its bytes are to be carried
    /// out.
    pub(crate) fn admit(&mut self, attempt: CallArgs<'_>) -> Result<usize, Errno> {
        self.is_on()?;
        let CallArgs { operation, ino, .. } = attempt;
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
        let Some(plan) = &mut self.plan else { return Ok(attempt.range.bytes) };
        match attempt.name {
            Some(name) => {
                plan.admit(&attempt, &format!("{path}/{}", String::from_utf8_lossy(name)))
            }
            None => plan.admit(&attempt, &path),
        }
    }
}
