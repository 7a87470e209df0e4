//! Bodies of responses, and the error that cuts one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pelago_wire::Error;
use tokio::sync::mpsc::{Receiver, channel};

use crate::blocks::Blocks;
use crate::delivery::{Client, Piece};
use crate::pinned::ReadError;

/// The body of a response.
pub(crate) enum Content {
    /// Bytes in memory; empty once they were taken.
    Ready(Bytes),
    /// Pieces that come one by one, and the number of bytes that are left, if that is known.
    Coming(Receiver<Result<Bytes, Broken>>, Option<u64>),
    /// Bytes of a file in order, and the number of bytes that are left.
    Ordered(Box<Client>, u64),
    /// The blocks of a file in any order.
    Blocks(Box<Blocks>),
}

/// The error that cuts a response: the connection is closed, so that no client takes its part for
/// the whole.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The file was changed, and the bytes of the requested version are gone.
    Changed,
    Failed(Error),
}

impl Content {
    pub(crate) const EMPTY: Self = Self::Ready(Bytes::new());

    /// Returns a body for the response to a HEAD request, of which hyper uses only the size.
    pub(crate) fn unsent(size: Option<u64>) -> Self {
        Self::Coming(channel(1).1, size)
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let piece = match &mut *self {
            Self::Ready(bytes) if bytes.is_empty() => None,
            Self::Ready(bytes) => Some(Ok(mem::take(bytes))),
            Self::Coming(pieces, left) => {
                let piece = ready!(pieces.poll_recv(context));
                piece.inspect(|piece| {
                    let bytes = piece.as_ref().map_or(0, Bytes::len);
                    *left = left.map(|left| left.saturating_sub(bytes as u64));
                })
            }
            Self::Ordered(client, left) => match ready!(client.poll_next(context)) {
                Piece::Block { bytes, .. } => {
                    *left = left.saturating_sub(bytes.len() as u64);
                    Some(Ok(bytes))
                }
                Piece::Finished => None,
                Piece::Changed => Some(Err(Broken::Changed)),
                Piece::Failed(error) | Piece::Unreadable { error, .. } => {
                    Some(Err(Broken::Failed(error)))
                }
            },
            Self::Blocks(blocks) => ready!(blocks.poll_bytes(context)).map(Ok),
        };
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ready(bytes) => bytes.is_empty(),
            Self::Coming(_, left) => *left == Some(0),
            Self::Ordered(_, left) => *left == 0,
            Self::Blocks(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ready(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Coming(_, left) => left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Ordered(_, left) => SizeHint::with_exact(*left),
            Self::Blocks(_) => SizeHint::default(),
        }
    }
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

impl From<ReadError> for Broken {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Changed => Self::Changed,
            ReadError::Unreadable(error) | ReadError::Failed(error) => Self::Failed(error),
        }
    }
}
