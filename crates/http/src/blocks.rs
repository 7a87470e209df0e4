//! The blocks of a file as the body of a response (`docs/protocol.md`, "Blocks over HTTP").

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use pelago_wire::Error;
use pelago_wire::blocks::{BlockFrame, BlocksHead};
use pelago_wire::limits::BLOCK_BYTES;

use crate::delivery::{Client, Piece};

/// A body with the blocks that a client lacks, in the order in which they come into memory.
pub(crate) struct Blocks {
    client: Client,
    /// Frames and payloads that hyper takes next.
    ready: VecDeque<Bytes>,
    /// The last frame is in `ready`, or was taken from it.
    is_ended: bool,
}

impl Blocks {
    pub(crate) fn new(client: Client) -> Self {
        let head = BlocksHead { extents: client.file() }.encode();
        let ready = VecDeque::from([Bytes::copy_from_slice(&head)]);
        Self { client, ready, is_ended: false }
    }

    /// Returns the next bytes of the body; `None` at its end.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(bytes));
            }
            if self.is_ended {
                return Poll::Ready(None);
            }
            let piece = ready!(self.client.poll_next(context));
            self.take(piece);
        }
    }

    fn take(&mut self, piece: Piece) {
        let file = self.client.file();
        match piece {
            Piece::Block { offset, bytes, ended } => {
                self.put(BlockFrame::block(file, offset / BLOCK_BYTES as u64), bytes);
                if let Some(ended) = ended {
                    let hash = Bytes::copy_from_slice(&ended.hash);
                    self.put(BlockFrame::hash(file, ended.number), hash);
                }
            }
            Piece::Unreadable { extent, error } => {
                self.put(BlockFrame::unreadable(file, extent), payload(error));
            }
            Piece::Failed(error) => self.end(BlockFrame::failed(), payload(error)),
            Piece::Changed => self.end(BlockFrame::changed(), Bytes::new()),
            Piece::Finished if self.client.is_changed() => {
                self.end(BlockFrame::changed(), Bytes::new());
            }
            Piece::Finished => {
                let root = self.client.root();
                let hash = root.map(|root| Bytes::copy_from_slice(&root)).unwrap_or_default();
                self.end(BlockFrame::end(root.is_some()), hash);
            }
        }
    }

    fn end(&mut self, frame: BlockFrame, payload: Bytes) {
        self.put(frame, payload);
        self.is_ended = true;
    }

    fn put(&mut self, frame: BlockFrame, payload: Bytes) {
        self.ready.push_back(Bytes::copy_from_slice(&frame.encode()));
        if !payload.is_empty() {
            self.ready.push_back(payload);
        }
    }
}

fn payload(error: Error) -> Bytes {
    Bytes::copy_from_slice(&error.code.number().to_le_bytes())
}
