//! The seam between client and server.

use crate::error::Error;
use crate::id::{RequestId, SessionId};
use crate::reply::Reply;
use crate::request::Request;

/// Who asks. Permission by mode bits was checked before (by the kernel, under
/// `default_permissions`); the identity here becomes the owner of what is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// The request's number in it; zero on a direct call.
    pub request: RequestId,
    /// The user, a number of the volume.
    pub uid: u32,
    /// The group, a number of the volume.
    pub gid: u32,
}

impl Context {
    /// A direct call by this user and group.
    #[must_use]
    pub const fn direct(uid: u32, gid: u32) -> Self {
        Self { session: SessionId::DIRECT, request: RequestId(0), uid, gid }
    }
}

/// Bytes that travel beside a request.
#[derive(Debug, Default)]
pub enum Bulk<'a> {
    /// None.
    #[default]
    None,
    /// Bytes of the caller; a service that does not finish before it returns copies them.
    Borrowed(&'a [u8]),
}

impl<'a> Bulk<'a> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::None => &[],
            Self::Borrowed(bytes) => bytes,
        }
    }
}

/// What is called with the answer, exactly once.
pub type Done = Box<dyn FnOnce(Result<Reply, Error>) + Send>;

/// What a server does for a client.
pub trait Service: Send + Sync {
    /// Carries out a request, and returns the answer if it is known at once. Else it asks `later`,
    /// exactly once, for what to call with the answer, so that a caller needs memory only for
    /// answers that come later; they come before this returns, or later on any thread.
    ///
    /// Returns soon: what can wait for a disk or for others goes on elsewhere.
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>>;

    /// How often changes that were answered were lost, because the medium failed before they were
    /// safe. Who syncs a directory is told of what it lost since.
    fn losses(&self) -> u64 {
        0
    }
}
