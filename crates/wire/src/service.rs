//! The seam between client and server.

use std::fmt;
use std::sync::Arc;

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

/// Bytes that were read. Those that were lent go back when this is dropped, so that large reads
/// need no fresh memory each.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// Of `bytes`, those that count.
    length: usize,
    lender: Option<Arc<dyn Lender>>,
}

/// Who lends memory to a [`Buffer`] and takes it back.
pub trait Lender: Send + Sync {
    /// Takes memory back, as long as it was.
    fn take_back(&self, bytes: Vec<u8>);
}

impl Buffer {
    /// A buffer with these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len(), bytes, lender: None }
    }

    /// A buffer with the first `length` of these bytes, all of them at the most, which go back to
    /// `lender`.
    #[must_use]
    pub fn lent(bytes: Vec<u8>, length: usize, lender: Arc<dyn Lender>) -> Self {
        Self { length: length.min(bytes.len()), bytes, lender: Some(lender) }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The bytes, given away.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.lender = None;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.length);
        bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            lender.take_back(std::mem::take(&mut self.bytes));
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::new(self.as_bytes().to_vec())
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.as_bytes()).finish()
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
