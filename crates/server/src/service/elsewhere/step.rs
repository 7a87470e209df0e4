//! The step of a change that another site takes: how it is asked for, and what its answer says.

use pelago_wire::{Code, Context, Error, Reply, RequestId};

use super::super::{ErrorReport, OpResult, Outcome};

/// Returns the context of the second step of a change, which the first one needs: no signal ends
/// it.
pub(super) fn not_cancelled(context: &Context) -> Context {
    Context { request: RequestId(0), ..*context }
}

/// Returns whether this is an error of the other site itself, which has not added the name, or of
/// the line, which has not sent the request.
pub(super) const fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::Exists
            | Code::NotFound
            | Code::NotDirectory
            | Code::Stale
            | Code::Invalid
            | Code::NoSpace
            | Code::ReadOnly
            | Code::HostDown
    )
}

/// Returns the answer to a site's request for its part of a change, once that is safe. The site
/// acts on an error as on one that lasts, so there is none while an earlier session of it may still
/// carry the same request out. `has_earlier`: there was one before this request was carried out.
pub(super) fn when_safe_for_site(has_earlier: bool, done: Result<(), Error>) -> OpResult {
    match done {
        Ok(()) => Ok(Outcome::WhenSafe(Reply::Done, ErrorReport::Undecided)),
        Err(_) if has_earlier => Err(Error::from(Code::Busy).into()),
        Err(error) => Err(error.into()),
    }
}
