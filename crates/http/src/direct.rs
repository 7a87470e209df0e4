//! Responses with few bytes of a file, read for one client alone and not through a delivery.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, channel};

use crate::body::{Broken, Content};
use crate::delivery::Delivery;
use crate::pinned::PinnedFile;
use crate::places::{AddressPlaces, PieceRight, ReplyPieces};

/// A piece of a file, and its permit to be in memory.
struct PlacedPiece {
    piece: Vec<u8>,
    _right: PieceRight,
}

impl AsRef<[u8]> for PlacedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// Returns a body with a part of a file, which is read while the client takes it.
pub(crate) fn content(
    file: PinnedFile,
    part: Range<u64>,
    delivery: Arc<Delivery>,
    places: AddressPlaces,
) -> Content {
    if part.is_empty() {
        return Content::EMPTY;
    }
    let (to, pieces) = channel(1);
    let left = part.end - part.start;
    tokio::spawn(async move {
        if let Err(broken) = send(&file, part, &delivery, places.answer(), &to).await {
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
    answer: ReplyPieces,
    to: &Sender<Result<Bytes, Broken>>,
) -> Result<(), Broken> {
    while !left.is_empty() {
        let right = tokio::select! {
            right = answer.piece(left.end - left.start) => right,
            () = to.closed() => return Ok(()),
        };
        let Some(right) = right else { return Ok(()) };
        let count = right.bytes as u64;
        let mut piece = vec![0; right.bytes];
        if !file.read_cached(&mut piece, left.start) {
            piece = file.read(piece, left.start).await?;
            delivery.count_read(count);
        }
        left.start += count;
        let bytes = Bytes::from_owner(PlacedPiece { piece, _right: right });
        if to.send(Ok(bytes)).await.is_err() {
            return Ok(());
        }
        delivery.count_served(count);
    }
    Ok(())
}
