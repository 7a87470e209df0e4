//! The blocks of a file as the body of an answer (`docs/protocol.md`, "Blocks over HTTP").

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use pelago_wire::Error;
use pelago_wire::blocks::{BlockFrame, BlocksHead};
use pelago_wire::limits::BLOCK_BYTES;

use crate::delivery::{Client, Piece};
use crate::open_file::ReadError;

/// A body with the blocks that a client lacks, in the order in which they are in memory.
pub(crate) struct Blocks {
    client: Client,
    /// Frames and payloads that hyper takes next.
    ready: VecDeque<Bytes>,
    step: Step,
}

/// What comes behind the frames that are ready.
enum Step {
    Blocks,
    /// Everything was sent, if the file still is this version.
    Checking(Pin<Box<dyn Future<Output = Result<(), ReadError>> + Send>>),
    Nothing,
}

impl Blocks {
    pub(crate) fn new(client: Client) -> Self {
        let head = BlocksHead { extents: client.file() }.encode();
        let ready = VecDeque::from([Bytes::copy_from_slice(&head)]);
        Self { client, ready, step: Step::Blocks }
    }

    /// Returns the next bytes of the body; `None` at its end.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(bytes));
            }
            match &mut self.step {
                Step::Blocks => {
                    let piece = ready!(self.client.poll_next(true, context));
                    self.take(piece);
                }
                Step::Checking(checking) => {
                    let checked = ready!(checking.as_mut().poll(context));
                    self.end(checked);
                }
                Step::Nothing => return Poll::Ready(None),
            }
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
            Piece::Changed => self.end(Err(ReadError::Changed)),
            Piece::Failed(error) => self.end(Err(ReadError::Failed(error))),
            Piece::Finished => self.step = Step::Checking(self.client.check()),
        }
    }

    fn end(&mut self, checked: Result<(), ReadError>) {
        match checked {
            Ok(()) => {
                let root = self.client.root();
                let hash = root.map(|root| Bytes::copy_from_slice(&root)).unwrap_or_default();
                self.put(BlockFrame::end(root.is_some()), hash);
            }
            Err(ReadError::Changed) => self.put(BlockFrame::changed(), Bytes::new()),
            Err(ReadError::Unreadable(error) | ReadError::Failed(error)) => {
                self.put(BlockFrame::failed(), payload(error));
            }
        }
        // A future that has ended is not polled again.
        drop(mem::replace(&mut self.step, Step::Nothing));
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
