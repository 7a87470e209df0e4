//! The interface between client and server.

use std::time::Duration;

use crate::codec::Replayed;
use crate::error::Error;
use crate::id::{InodeId, RequestId, SessionId};
use crate::origin::Origin;
use crate::reply::Reply;
use crate::request::Request;

/// The caller of a request. Mode bits were checked before, by the kernel under
/// `default_permissions`. The user and group own the files that the request creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The session that sends the request.
    pub session: SessionId,
    /// The caller's number of the request, by which [`Service::cancel`] names it; 0 for a request
    /// that is never cancelled.
    pub request: RequestId,
    /// The number of the mutation in its session, by which a repetition is recognized; 0 for
    /// another request, and for direct calls.
    pub mutation: u64,
    /// The newest mutation of the session up to which the client has all answers: their stored
    /// replies are not needed any more. 0 for direct calls.
    pub acknowledged: u64,
    /// User id, as the volume numbers users.
    pub uid: u32,
    /// Group id, as the volume numbers groups.
    pub gid: u32,
    /// The answer of an earlier run of the server, if the client repeats the request because that
    /// answer may be lost.
    pub replayed: Option<Replayed>,
    /// The mutation of another site's client, if the server of that site passes it on.
    pub origin: Option<Origin>,
}

impl Context {
    /// Returns the context of a direct call by this user and group.
    #[must_use]
    pub const fn direct(uid: u32, gid: u32) -> Self {
        let session = SessionId::DIRECT;
        let request = RequestId(0);
        let mutation = 0;
        let acknowledged = 0;
        let replayed = None;
        let origin = None;
        Self { session, request, mutation, acknowledged, uid, gid, replayed, origin }
    }
}

/// Bytes that accompany a request.
#[derive(Debug, Default)]
pub enum Bulk<'a> {
    /// No bytes.
    #[default]
    None,
    /// Bytes in the caller's memory. A service that completes the request after it returns copies
    /// them first.
    Borrowed(&'a [u8]),
    /// Bytes that the service may keep without a copy.
    Owned(Vec<u8>),
    /// No bytes, but the caller's memory for those of the reply: a service may fill it before it
    /// returns, and answers with [`Buffer::in_room`](crate::Buffer::in_room) then.
    Room(&'a mut [u8]),
}

impl Bulk<'_> {
    /// Returns the bytes, and the memory for those of the reply.
    #[must_use]
    pub fn parts(&mut self) -> (&[u8], Option<&mut [u8]>) {
        match self {
            Self::Room(room) => (&[], Some(room)),
            bulk => (bulk.bytes(), None),
        }
    }

    /// Returns the bytes; empty if there are none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::None | Self::Room(_) => &[],
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// Returns the bytes in memory of their own; copies borrowed ones.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::None | Self::Room(_) => Vec::new(),
            Self::Borrowed(bytes) => bytes.to_vec(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A callback that gets the result, exactly once.
pub type Done = Box<dyn FnOnce(Result<Reply, Error>) + Send>;

/// The operations of a server.
pub trait Service: Send + Sync {
    /// Carries out a request and returns its result, if that is known at once.
    ///
    /// Otherwise returns `None`, after exactly one call of `later`. The callback that `later`
    /// returned gets the result, before this function returns or afterwards on any thread. So a
    /// caller allocates only for results that come later.
    ///
    /// Does not block for long: work that waits for a disk or a lock continues on another thread.
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>>;

    /// Asks that the request of this session and number ends soon, because its caller does not wait
    /// any more. The request is answered all the same: with what it did, or with
    /// [`crate::Code::Interrupted`] if it did nothing. A request that is unknown, or over, is left
    /// alone.
    fn cancel(&self, _context: &Context) {}

    /// Says that the caller of the request of this session and number is gone, and its result is
    /// not needed. A request that was not begun may end with [`crate::Code::Interrupted`], so that
    /// requests for which no program waits take no room while the server is away.
    fn forsake(&self, _context: &Context) {}

    /// Says that the kernel of this session has no reference any more to a file that has lost its
    /// last name. If no other kernel can have one, the file need not be kept for a later request.
    fn forgotten(&self, _removed: InodeId) {}

    /// Returns how many times acknowledged changes were lost, because the disk failed before they
    /// were safe. [`Request::FsyncDir`] reports the losses since a given count.
    fn losses(&self) -> u64 {
        0
    }

    /// Returns how long nothing has come from the server: a server in another process is pinged
    /// regularly, and should answer. `None` if it is in this process.
    fn silence(&self) -> Option<Duration> {
        None
    }
}
