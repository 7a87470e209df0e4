//! The gate between the requests of a mirror's readers and the groups of its primary: while a group
//! is carried out no request runs, so that each request sees the state between two groups.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use pelago_data::{MayBlock, OpError};
use pelago_wire::Code;

/// The gate. It is taken before all locks of a request except that of a stop.
#[derive(Debug, Default)]
pub struct GroupGate {
    /// True once a group was carried out in part only.
    has_ended: RwLock<bool>,
}

/// The gate while a group is carried out.
pub(crate) struct ClosedGate<'a>(RwLockWriteGuard<'a, bool>);

impl GroupGate {
    /// Waits until no group is carried out. None begins before the result is dropped.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`] if the caller may not wait; `Unavailable` after
    /// [`ClosedGate::end`].
    pub(crate) fn enter(&self, may_block: MayBlock) -> Result<RwLockReadGuard<'_, bool>, OpError> {
        let entered = match may_block {
            MayBlock::Yes => self.has_ended.read(),
            MayBlock::No => self.has_ended.try_read().ok_or(OpError::WouldBlock)?,
        };
        match *entered {
            true => Err(Code::Unavailable.into()),
            false => Ok(entered),
        }
    }

    /// Waits until no request runs. None begins before the result is dropped.
    pub(crate) fn close(&self) -> ClosedGate<'_> {
        ClosedGate(self.has_ended.write())
    }
}

impl ClosedGate<'_> {
    /// Refuses all requests from now on.
    pub(crate) fn end(&mut self) {
        *self.0 = true;
    }
}
