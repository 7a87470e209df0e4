//! Answers with few bytes of a file, which are read for them alone.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{Broken, Content};
use crate::delivery::Delivery;
use crate::pinned::PinnedFile;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 64 << 10;
/// Pieces that are read ahead of what the client has taken.
const AHEAD: usize = 1;

/// A piece of a file, and the right to have it in memory.
struct PlacedPiece {
    piece: Vec<u8>,
    _place: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for PlacedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// Returns a body with these bytes of a file, which are read as the client takes them, once there
/// is a place for it.
pub(crate) fn content(
    file: PinnedFile,
    part: Range<u64>,
    delivery: Arc<Delivery>,
    places: Arc<Semaphore>,
) -> Content {
    if part.is_empty() {
        return Content::EMPTY;
    }
    let (to, pieces) = channel(AHEAD);
    let left = part.end - part.start;
    tokio::spawn(async move {
        // It is never closed.
        let Ok(place) = places.acquire_owned().await else { return };
        if let Err(broken) = send(&file, part, &delivery, (Arc::new(place), &to)).await {
            // The client may be gone by now.
            let _unheard = to.send(Err(broken)).await;
        }
    });
    Content::Coming(pieces, Some(left))
}

async fn send(
    file: &PinnedFile,
    mut left: Range<u64>,
    delivery: &Delivery,
    (place, to): (Arc<OwnedSemaphorePermit>, &Sender<Result<Bytes, Broken>>),
) -> Result<(), Broken> {
    while !left.is_empty() && !to.is_closed() {
        let end = left.end.min(left.start + PIECE_BYTES);
        let count = end - left.start;
        // At most PIECE_BYTES.
        let mut piece = vec![0; count as usize];
        if !file.read_cached(&mut piece, left.start) {
            piece = file.read(piece, left.start).await?;
            delivery.count_read(count);
        }
        left.start = end;
        let bytes = Bytes::from_owner(PlacedPiece { piece, _place: Arc::clone(&place) });
        if to.send(Ok(bytes)).await.is_err() {
            return Ok(());
        }
        delivery.count_served(count);
    }
    Ok(())
}
