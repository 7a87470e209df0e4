//! The caller of a request, for requests that are sent later on its behalf.

use pelago_wire::Context;

/// The user and the group of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Caller {
    /// Returns the caller of a request.
    pub(crate) const fn of(context: &Context) -> Self {
        Self { uid: context.uid, gid: context.gid }
    }

    /// Returns the context of a request that the holder sends on the caller's behalf.
    pub(crate) const fn context(self) -> Context {
        Context::direct(self.uid, self.gid)
    }
}
