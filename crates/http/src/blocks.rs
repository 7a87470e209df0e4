//! The blocks of a file as the body of an answer (`docs/protocol.md`, "Blocks over HTTP").

use std::ops::Range;
use std::sync::Arc;

use blake3::Hasher;
use bytes::Bytes;
use pelago_wire::blocks::{BlockFrame, BlocksHead, Extents};
use pelago_wire::{Code, Error};
use tokio::sync::mpsc::{Sender, channel};

use crate::body::{Broken, Content, OpenFile};
use crate::conditions::Version;
use crate::hashes::ExtentHashes;
use crate::order::ExtentOrder;
use crate::tree::{Tree, wait};

/// Parts of the body that wait for the client: a frame and its payload.
const AHEAD: usize = 2;

/// A body that is being sent.
struct Delivery {
    file: OpenFile,
    extents: Extents,
    order: ExtentOrder,
    hashes: Arc<ExtentHashes>,
    to: Sender<Result<Bytes, Broken>>,
}

/// Why a delivery, or an extent of it, ends early.
enum Stop {
    ClientGone,
    /// The file is being changed, or is another version by now.
    Changed,
    /// This extent cannot be read; others may.
    Unreadable(Error),
    /// Nothing can be read.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.code {
            Code::Io | Code::Corrupt => Self::Unreadable(error),
            Code::NotFound | Code::Stale => Self::Changed,
            _ => Self::Failed(error),
        }
    }
}

/// Returns a body with the blocks of a file that are in `order`, read as the client takes them.
pub(crate) fn content(
    file: OpenFile,
    extents: Extents,
    order: ExtentOrder,
    hashes: Arc<ExtentHashes>,
) -> Content {
    let (to, pieces) = channel(AHEAD);
    tokio::spawn(async move {
        let mut delivery = Delivery { file, extents, order, hashes, to };
        let (last, error) = match delivery.send_all().await {
            Ok(()) | Err(Stop::ClientGone) => return,
            Err(Stop::Changed) => (BlockFrame::changed(), None),
            Err(Stop::Unreadable(error) | Stop::Failed(error)) => {
                (BlockFrame::failed(), Some(error))
            }
        };
        let code = error.map(|error| Bytes::copy_from_slice(&error.code.number().to_le_bytes()));
        // The client may be gone by now.
        let _unheard = delivery.put(last, code.unwrap_or_default()).await;
    });
    Content::Coming(pieces, None)
}

impl Delivery {
    async fn send_all(&mut self) -> Result<(), Stop> {
        let head = BlocksHead { extents: self.extents }.encode();
        self.put_bytes(Bytes::copy_from_slice(&head)).await?;
        while let Some(extent) = self.order.next_extent() {
            match self.send_extent(extent).await {
                Err(Stop::Unreadable(Error { code })) => {
                    tracing::warn!(extent, why = code.says(), "an extent cannot be sent");
                    let payload = Bytes::copy_from_slice(&code.number().to_le_bytes());
                    self.put(BlockFrame::unreadable(self.extents, extent), payload).await?;
                }
                sent => sent?,
            }
        }
        self.check_version().await?;
        let root = self.hashes.root(&self.file.version.tag, self.extents);
        let payload = root.map(|root| Bytes::copy_from_slice(&root)).unwrap_or_default();
        self.put(BlockFrame::end(root.is_some()), payload).await
    }

    /// Sends what the client lacks of an extent, and the hash of the whole. What it has is read too
    /// unless the hash is known.
    async fn send_extent(&self, extent: u64) -> Result<(), Stop> {
        let tag = &self.file.version.tag;
        let known = self.hashes.get(tag, extent);
        let mut hasher = Hasher::new();
        for block in self.extents.blocks_of(extent) {
            let has = self.order.has(block);
            if has && known.is_some() {
                continue;
            }
            let bytes = self.read(self.extents.block(block)).await?;
            if known.is_none() {
                hasher.update(&bytes);
            }
            if !has {
                self.put(BlockFrame::block(self.extents, block), bytes).await?;
            }
        }
        // A hash of two versions must not be remembered.
        self.check_version().await?;
        let hash = known.unwrap_or_else(|| *hasher.finalize().as_bytes());
        if known.is_none() {
            self.hashes.put(tag, self.extents, extent, hash);
        }
        self.put(BlockFrame::hash(self.extents, extent), Bytes::copy_from_slice(&hash)).await
    }

    /// Reads a part of the file, all of it.
    async fn read(&self, mut left: Range<u64>) -> Result<Bytes, Stop> {
        let Tree { files, .. } = &*self.file.tree;
        let context = self.file.tree.context();
        let mut begun: Vec<u8> = Vec::new();
        loop {
            // At most BLOCK_BYTES.
            let size = (left.end - left.start) as u32;
            let piece = wait(files.read(&context, self.file.open, left.start, size)).await?;
            let bytes = Bytes::from_owner(piece);
            if bytes.is_empty() {
                return Err(Stop::Changed);
            }
            left.start += bytes.len() as u64;
            if left.is_empty() && begun.is_empty() {
                return Ok(bytes);
            }
            begun.extend_from_slice(&bytes);
            if left.is_empty() {
                return Ok(begun.into());
            }
        }
    }

    /// Checks that the bytes are still those of the version that was asked for.
    async fn check_version(&self) -> Result<(), Stop> {
        let OpenFile { tree, node, version, .. } = &self.file;
        let attr = wait(tree.files.get_attr(&tree.context(), *node)).await.map_err(|error| {
            match Stop::from(error) {
                Stop::Unreadable(error) => Stop::Failed(error),
                stop => stop,
            }
        })?;
        let is_same = Version::of(&attr) == *version && !(tree.is_written)(attr.ino);
        if is_same { Ok(()) } else { Err(Stop::Changed) }
    }

    async fn put(&self, frame: BlockFrame, payload: Bytes) -> Result<(), Stop> {
        self.put_bytes(Bytes::copy_from_slice(&frame.encode())).await?;
        if payload.is_empty() { Ok(()) } else { self.put_bytes(payload).await }
    }

    async fn put_bytes(&self, bytes: Bytes) -> Result<(), Stop> {
        self.to.send(Ok(bytes)).await.map_err(|_gone| Stop::ClientGone)
    }
}
