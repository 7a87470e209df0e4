//! A server for tests whose mount sends it no request.

use pelago_wire::{Bulk, Code, Context, Done, Error, Reply, Request, Service};

/// A server for tests of a mount's state: it gets no requests.
pub(crate) struct Silent;

impl Service for Silent {
    fn ask(
        &self,
        _context: &Context,
        _request: Request,
        _bulk: Bulk<'_>,
        _later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Err(Code::Bug.into()))
    }
}
