//! Requests that an earlier run has answered and lost.

use pelago_data::{MayBlock, OpenKey};
use pelago_wire::{Code, OpenFlags, Replayed, Request, SetAttr};

use super::OpResult;
use super::execute::Executor;

impl Executor<'_> {
    /// Carries out a request that an earlier run has answered and lost. The opens that it names may
    /// have ended since it was answered.
    pub(super) fn execute_again(&self, request: &Request, replayed: Replayed) -> OpResult {
        match request {
            Request::SetAttr { node, open: Some(open), set }
                if self.parts.opens.inode_of(self.key(*open)).is_err() =>
            {
                self.execute_new(&Request::SetAttr { node: *node, open: None, set: *set })
            }
            // The client has the file open again, if it still wants that.
            Request::Open { node, flags, .. } => {
                let set = SetAttr {
                    size: flags.truncate.then_some(0),
                    kill_privileges: flags.kill_privileges,
                    ..SetAttr::default()
                };
                self.execute_new(&Request::SetAttr { node: *node, open: None, set })
            }
            // In a new epoch of the same run it is still open, and its file is lost.
            Request::Create { open, .. } | Request::CreateUnnamed { open, .. }
                if self.parts.opens.inode_of(self.key(*open)).is_ok() =>
            {
                if let Err(error) = self.parts.opens.release(self.key(*open), MayBlock::Yes) {
                    tracing::debug!(?error, "an open of a file that is lost ends");
                }
                self.execute_new(request)
            }
            Request::Write { open, .. } | Request::Allocate { open, .. } => {
                self.with_open(self.key(*open), replayed, request)
            }
            request => self.execute_new(request),
        }
    }

    /// Executes a request with an open, which is made for it if it does not exist.
    fn with_open(&self, open: OpenKey, replayed: Replayed, request: &Request) -> OpResult {
        let opens = &self.parts.opens;
        if opens.inode_of(open).is_ok() {
            return self.execute_new(request);
        }
        let node = replayed.node.ok_or(Code::BadOpen)?;
        opens.open_again(open, node, OpenFlags::READ_WRITE, self.may_block)?;
        let result = self.execute_new(request);
        // What is in memory is committed with each request.
        opens.release(open, MayBlock::Yes)?;
        result
    }
}
