//! Requests for blocks, and the have-map in their body.

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use hyper::{HeaderMap, StatusCode};
use pelago_wire::blocks::{BLOCKS_TYPE, HAVE_TYPE};
use pelago_wire::limits::HAVE_BYTES;

use crate::conditions::text;
use crate::failure::Failure;
use crate::places::AddressPlaces;
use crate::request_body;

/// Returns whether a client accepts blocks in any order.
pub(crate) fn accepts_blocks(headers: &HeaderMap) -> bool {
    text(headers, &ACCEPT).is_some_and(|accept| accept.contains(BLOCKS_TYPE))
}

/// Receives the bytes of the have-map of a request. `places` are the memory permits of its client.
pub(crate) async fn receive<B>(
    headers: &HeaderMap,
    body: B,
    places: &AddressPlaces,
) -> Result<Vec<u8>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    if text(headers, &CONTENT_TYPE) != Some(HAVE_TYPE) {
        let text = format!("the body of a POST is a have-map, {HAVE_TYPE}");
        return Err(Failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    // Otherwise blocks of different versions would be mixed.
    if text(headers, &IF_MATCH).is_none_or(|tags| tags.contains(['*', ','])) {
        let text = "a POST names one entity tag in If-Match: the version that the client has";
        return Err(Failure(StatusCode::PRECONDITION_REQUIRED, text.to_owned()));
    }
    Ok(request_body::read(body, HAVE_BYTES, places).await?)
}
