//! Receipt of a request's body, within a limit of bytes and of time.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;

use crate::places::{AddressPlaces, SMALL_BYTES};

/// The time within which a client must send the body of its request.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// The reason why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoBody {
    TooLong,
    TooSlow,
    Cut,
}

/// Reads a whole body of at most `limit` bytes. A large one waits for a place.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    places: &AddressPlaces,
) -> Result<Vec<u8>, NoBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let read = tokio::time::timeout(BODY_WITHIN, gather(body, limit, places));
    read.await.unwrap_or(Err(NoBody::TooSlow))
}

async fn gather<B>(mut body: B, limit: usize, places: &AddressPlaces) -> Result<Vec<u8>, NoBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut all = Vec::new();
    let mut place = None;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_error| NoBody::Cut)?;
        // Trailers have no meaning here.
        let Ok(bytes) = frame.into_data() else { continue };
        if all.len() + bytes.len() > limit {
            return Err(NoBody::TooLong);
        }
        if all.len() + bytes.len() > SMALL_BYTES && place.is_none() {
            place = places.place().await;
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}
