//! Headers of a slot: the bytes that it shares with the kernel besides the payload
//! (`fuse_uring_req_header`).

use crate::bytes::{Cursor, Layout, LayoutError};
use crate::device::{OUT_HEADER_BYTES, out_header};
use crate::request::Header;

/// Bytes of `fuse_uring_req_header`: the header of request or reply, the fields of the opcode, and
/// what the ring adds.
pub(super) const HEADERS_BYTES: usize = 288;
/// Offset of the fields of the opcode (`op_in`), and their limit.
const FIELDS: usize = 128;
const FIELDS_BYTES: usize = 128;
/// Offset of `fuse_uring_ent_in_out`, and its bytes.
pub(super) const ADDED: usize = FIELDS + FIELDS_BYTES;
pub(super) const ADDED_BYTES: usize = 32;
/// Offsets of the number of the request, and of `commit_id`.
const UNIQUE: usize = 8;
const COMMIT: usize = ADDED + 8;

/// A request in a slot, besides its payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received<'a> {
    /// `fuse_in_header`.
    pub(super) header: &'a [u8],
    /// The fields of the opcode.
    pub(super) fields: &'a [u8],
    /// Bytes of the payload.
    pub(super) payload_bytes: usize,
}

impl<'a> Received<'a> {
    /// Reads what the kernel wrote.
    ///
    /// # Errors
    /// [`LayoutError::Length`] if the parts do not have the length that the header says.
    pub(super) fn read(headers: &'a [u8; HEADERS_BYTES]) -> Result<Self, LayoutError> {
        let bytes = Cursor::new(headers).u32()?;
        let mut added = Cursor::new(&headers[ADDED..]);
        added.skip::<16>()?;
        let payload_bytes = added.u32()?;
        let fields = bytes.checked_sub(payload_bytes).map(|bytes| bytes as usize);
        let fields = fields.and_then(|bytes| bytes.checked_sub(Header::BYTES));
        let fields = fields.and_then(|bytes| headers[FIELDS..ADDED].get(..bytes));
        Ok(Self {
            header: &headers[..Header::BYTES],
            fields: fields.ok_or(LayoutError::Length)?,
            payload_bytes: payload_bytes as usize,
        })
    }
}

/// Returns the number of a request, and the one by which its reply is sent (`commit_id`).
pub(super) fn numbers(headers: &[u8; HEADERS_BYTES]) -> (u64, u64) {
    let number = |at: usize| {
        let mut number = Cursor::new(&headers[at..]);
        number.u64().unwrap_or_default()
    };
    (number(UNIQUE), number(COMMIT))
}

/// Returns the bytes before the payload of a reply: `fuse_out_header`, and the fields that the ring
/// adds.
/// `error` is zero or a negative errno.
pub(super) fn reply(
    unique: u64,
    commit: u64,
    error: i32,
    payload_bytes: usize,
) -> ([u8; OUT_HEADER_BYTES], [u8; ADDED_BYTES]) {
    let payload = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
    let mut added = Layout::new();
    added.u64(0).u64(commit).u32(payload).padding(12);
    (out_header(unique, error, payload_bytes), *added.done())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(bytes: u32, payload_bytes: u32) -> [u8; HEADERS_BYTES] {
        let mut headers = Layout::new();
        headers.u32(bytes).u32(0).u64(3).padding(FIELDS - 16);
        headers.u64(7).padding(FIELDS_BYTES - 8);
        headers.u64(0).u64(9).u32(payload_bytes).padding(12);
        *headers.done()
    }

    #[test]
    fn the_fields_are_what_is_neither_header_nor_payload() {
        let headers = headers(40 + 16 + 100, 100);
        let received = Received::read(&headers).unwrap();
        assert_eq!((numbers(&headers), received.payload_bytes), ((3, 9), 100));
        assert_eq!((received.header.len(), received.fields.len(), received.fields[0]), (40, 16, 7));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        for (bytes, payload_bytes) in [(0, 0), (39, 0), (40, 1), (40 + 129, 0), (40, u32::MAX)] {
            let refused = Received::read(&headers(bytes, payload_bytes)).err();
            assert_eq!(refused, Some(LayoutError::Length), "{bytes} {payload_bytes}");
        }
        assert!(Received::read(&headers(40 + 128, 0)).is_ok());
    }

    #[test]
    fn a_reply_says_how_long_its_payload_is() {
        let (header, added) = reply(3, 9, -2, 24);
        assert_eq!(header, *Layout::new().u32(40).i32(-2).u64(3).done());
        assert_eq!(added, *Layout::new().u64(0).u64(9).u32(24).padding(12).done());
    }
}
