//! The bytes of a file as the body of an answer.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pelago_wire::{Code, Error, Handle, OpenId};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::conditions::Version;
use crate::tree::{Tree, wait};

/// Bytes that are read at a time.
const PIECE_BYTES: u32 = 64 << 10;
/// Pieces that are read ahead of what the client has taken.
const AHEAD: usize = 1;

/// The body of an answer.
pub(crate) enum Content {
    /// It is ready; empty once it was taken.
    Ready(Bytes),
    /// It comes piece by piece: so many bytes are left, if that is known.
    Coming(Receiver<Result<Bytes, Broken>>, Option<u64>),
}

/// An answer ends before its end: the connection is closed, so that no client takes what it has for
/// the whole.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The file is another one by now.
    Changed,
    Failed(Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("the file was changed while it was sent"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Content {
    pub(crate) const EMPTY: Self = Self::Ready(Bytes::new());
}

impl Body for Content {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Ready(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Ready(bytes) => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
            Self::Coming(pieces, left) => pieces.poll_recv(context).map(|piece| {
                let piece = piece?.inspect(|bytes| {
                    *left = left.map(|left| left.saturating_sub(bytes.len() as u64));
                });
                Some(piece.map(Frame::data))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ready(bytes) => bytes.is_empty(),
            Self::Coming(_, left) => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ready(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Coming(_, left) => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// An open file. Its end releases it.
pub(crate) struct OpenFile {
    pub(crate) tree: Arc<Tree>,
    pub(crate) node: Handle,
    pub(crate) open: OpenId,
    pub(crate) version: Version,
}

impl OpenFile {
    /// Returns a body with these bytes of the file, which are read as the client takes them.
    pub(crate) fn into_content(self, part: Range<u64>) -> Content {
        if part.is_empty() {
            return Content::EMPTY;
        }
        let (sender, pieces) = channel(AHEAD);
        let left = part.end - part.start;
        tokio::spawn(async move {
            if let Err(broken) = self.send(part, &sender).await {
                // The client may be gone by now.
                let _unheard = sender.send(Err(broken)).await;
            }
        });
        Content::Coming(pieces, Some(left))
    }

    async fn send(
        &self,
        mut left: Range<u64>,
        to: &Sender<Result<Bytes, Broken>>,
    ) -> Result<(), Broken> {
        let Tree { files, .. } = &*self.tree;
        let context = self.tree.context();
        while !left.is_empty() {
            let size = u32::try_from(left.end - left.start).unwrap_or(u32::MAX).min(PIECE_BYTES);
            let piece = wait(files.read(&context, self.open, left.start, size)).await?;
            let bytes = Bytes::from_owner(piece);
            if bytes.is_empty() {
                return Err(Broken::Changed);
            }
            left.start += bytes.len() as u64;
            // Nothing is whole before the last piece.
            if left.is_empty() {
                let now = wait(files.get_attr(&context, self.node)).await?;
                if Version::of(&now) != self.version {
                    return Err(Broken::Changed);
                }
            }
            if to.send(Ok(bytes)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let released = self.tree.files.release(&self.tree.context(), self.open);
        released.then(|released| {
            if let Err(Error { code }) = released
                && code != Code::Unavailable
            {
                tracing::debug!(why = code.says(), "a file that was read is not released");
            }
        });
    }
}
