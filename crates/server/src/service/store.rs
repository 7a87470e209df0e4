//! The request for the servers of a shared store.

use pelago_data::{MayBlock, OpError};
use pelago_wire::{Code, Reply};

use super::execute::Executor;
use super::{OpResult, Outcome};

impl Executor<'_> {
    /// Reads the addresses of the servers from the store. The list in memory would not do: a server
    /// may have joined just before the client, which must know it if this one is lost.
    pub(super) fn servers(&self) -> OpResult {
        let ownership = self.parts.ownership.as_ref().ok_or(Code::NotSupported)?;
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let read = ownership.read_addresses().map_err(|error| {
            tracing::warn!(%error, "cannot read the servers of the store");
            Code::Unavailable
        })?;
        Ok(Outcome::Reply(Reply::Servers(read)))
    }
}
