//! Frames, the unit of a connection. Each has a header of fixed size, a body, and bulk bytes.
//!
//! The bulk bytes are those of a file. They follow the body, so that a receiver reads them straight
//! into memory of their own.

use crate::codec::ORIGIN_BYTES;
use crate::{limits, reserved};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;

/// Bytes of the body of a cancel: a mutation number, 0 for a request that is no mutation.
pub const CANCEL_BYTES: usize = 8;

/// Bytes of the body of a cancel of a request that was passed on: as of a cancel, and its origin.
pub const FORWARD_CANCEL_BYTES: usize = CANCEL_BYTES + ORIGIN_BYTES;

/// Bytes of the body of the end of an origin: the id of a session.
pub const ORIGIN_ENDS_BYTES: usize = 8;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $body:expr;)+) => {
        /// The kind of a frame. Numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum FrameKind {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl FrameKind {
            /// Every kind, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the kind with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Returns the number.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// Returns the limit of the body, in bytes.
            #[must_use]
            pub const fn body_limit(self) -> usize {
                match self { $(Self::$name => $body,)+ }
            }
        }
    };
}

kinds! {
    /// The client's first frame: the versions that it speaks.
    Hello = 1, limits::HANDSHAKE_BYTES;
    /// The server's first frame: the session.
    Welcome = 2, limits::HANDSHAKE_BYTES;
    /// The server's only frame: the reason for which there is no session.
    Refused = 3, limits::HANDSHAKE_BYTES;
    /// A request of the client.
    Request = 4, limits::FRAME_BODY_BYTES;
    /// The answer to a request.
    Reply = 5, limits::FRAME_BODY_BYTES;
    /// The client does not wait for a request any more. The body is its mutation number: a mutation
    /// that has not arrived yet will never be carried out.
    Cancel = 6, CANCEL_BYTES;
    /// The sender lives; the receiver answers with [`FrameKind::Pong`].
    Ping = 7, 0;
    /// The answer to [`FrameKind::Ping`].
    Pong = 8, 0;
    /// The client ends the session.
    Goodbye = 9, 0;
    /// The server says why it ends the connection.
    Closing = 10, limits::HANDSHAKE_BYTES;
    /// The client of a resumed session has opened its files again, and has repeated the requests
    /// that were not answered or not safe. [`FrameKind::Flushed`] follows.
    Reclaimed = 11, 0;
    /// A request that an earlier run of the server has answered, and which may be lost.
    Replay = 12, limits::FRAME_BODY_BYTES;
    /// Another session is about to change what the body names: its leases end.
    Recall = 13, limits::RECALL_BYTES;
    /// The client has dropped the things that the recall with this number named.
    Recalled = 14, 0;
    /// The credentials of a guest: the client's second frame, and only if its hello says that it is
    /// one.
    Present = 15, limits::CHAIN_BYTES;
    /// A request that the server of a site passes on for a client, with its origin.
    Forward = 16, limits::FRAME_BODY_BYTES;
    /// As [`FrameKind::Replay`], of a request that was passed on.
    ForwardReplay = 17, limits::FRAME_BODY_BYTES;
    /// As [`FrameKind::Cancel`], of a request that was passed on.
    ForwardCancel = 18, FORWARD_CANCEL_BYTES;
    /// The session of a client has ended, so that it repeats nothing. The body is its id.
    OriginEnds = 19, ORIGIN_ENDS_BYTES;
    /// A part of a group, which a primary sends to its mirror ([`crate::mirror`]).
    Group = 20, limits::FRAME_BODY_BYTES;
    /// The state of a mirror, and its answer to a group.
    GroupState = 21, limits::HANDSHAKE_BYTES;
    /// A message to or from a relay ([`crate::relay`]).
    Relay = 23, limits::FRAME_BODY_BYTES;
    /// The client of a resumed session has the answer to each write that it had buffered in an
    /// earlier epoch.
    Flushed = 28, 0;
}

impl FrameKind {
    /// Returns whether the frame has a number, that of its request or recall. A ping and a pong
    /// have one or not.
    #[must_use]
    pub const fn has_number(self) -> bool {
        matches!(
            self,
            Self::Request
                | Self::Reply
                | Self::Cancel
                | Self::Replay
                | Self::Forward
                | Self::ForwardReplay
                | Self::ForwardCancel
                | Self::Recall
                | Self::Recalled
        )
    }

    /// Returns whether the frame lengthens leases, unless it says that it does not.
    #[must_use]
    pub const fn may_be_overdue(self) -> bool {
        matches!(self, Self::Reply | Self::Pong)
    }

    const fn may_have_number(self) -> bool {
        matches!(self, Self::Ping | Self::Pong)
    }

    /// Returns the limit of the bulk bytes.
    #[must_use]
    pub const fn bulk_limit(self) -> usize {
        match self {
            Self::Request | Self::Reply | Self::Replay | Self::Forward | Self::ForwardReplay => {
                limits::FRAME_BULK_BYTES
            }
            _ => 0,
        }
    }
}

fn unknown(number: u16) -> FrameError {
    match reserved::name(reserved::FRAMES, number) {
        Some(name) => FrameError::Newer { number, name },
        None => FrameError::Kind(number),
    }
}

/// The flag of a reply or a pong that lengthens no lease.
const OVERDUE: u16 = 1;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body, which follows the header.
    pub body: u32,
    /// Bulk bytes, which follow the body.
    pub bulk: u32,
    /// The kind of the frame.
    pub kind: FrameKind,
    /// A recall waits for the client: the frame does not lengthen its leases. Only Reply and Pong
    /// say so.
    pub is_overdue: bool,
    /// The number of the request or the recall in its session, from 1; in a ping a number that
    /// rises, and in a pong that of the newest ping; 0 in other frames.
    pub number: u64,
    /// From the client: every mutation up to this number is answered and safe. From the server: the
    /// newest safe sequence of the present epoch.
    pub progress: u64,
}

/// The fault of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No frame has this kind.
    #[error("a frame has the unknown kind {0}")]
    Kind(u16),
    /// Only newer versions have frames of this kind.
    #[error("a frame has the kind {number} ({name}), which needs a newer version of pelago")]
    Newer {
        /// The kind.
        number: u16,
        /// Its name.
        name: &'static str,
    },
    /// A flag is not defined, or not for this kind.
    #[error("a frame has the flags {0:#x}, which its kind does not have")]
    Flags(u16),
    /// The reserved bytes are not zero.
    #[error("a frame has {0:#x} in its reserved bytes, which must be zero")]
    Reserved(u32),
    /// The body is longer than the kind allows.
    #[error("a {kind:?} frame has a body of {bytes} bytes, the limit is {}", .kind.body_limit())]
    Body {
        /// The kind of the frame.
        kind: FrameKind,
        /// Bytes of the body.
        bytes: u32,
    },
    /// There are more bulk bytes than the kind allows.
    #[error("a {kind:?} frame has {bytes} bulk bytes, the limit is {}", .kind.bulk_limit())]
    Bulk {
        /// The kind of the frame.
        kind: FrameKind,
        /// Bulk bytes.
        bytes: u32,
    },
    /// A frame of a request has no number, or another frame has one.
    #[error("a {kind:?} frame has the request number {number}")]
    Number {
        /// The kind of the frame.
        kind: FrameKind,
        /// The number.
        number: u64,
    },
}

impl Header {
    /// Returns the header of a frame of no request, with a body of `body` bytes.
    #[must_use]
    pub const fn new(kind: FrameKind, body: u32, progress: u64) -> Self {
        Self { body, bulk: 0, kind, is_overdue: false, number: 0, progress }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&self.body.to_le_bytes());
        out[4..8].copy_from_slice(&self.bulk.to_le_bytes());
        out[8..10].copy_from_slice(&self.kind.number().to_le_bytes());
        out[10..12].copy_from_slice(&(u16::from(self.is_overdue) * OVERDUE).to_le_bytes());
        // The reserved bytes (12..16) stay zero.
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..].copy_from_slice(&self.progress.to_le_bytes());
        out
    }

    /// Decodes a header, and checks its lengths against the limits of its kind.
    ///
    /// # Errors
    /// Returns [`FrameError`] with the field and its value.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let [b0, b1, b2, b3, c0, c1, c2, c3, k0, k1, f0, f1, r0, r1, r2, r3, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, n4, n5, n6, n7, p0, p1, p2, p3, p4, p5, p6, p7] = rest;
        let flags = u16::from_le_bytes([f0, f1]);
        let reserved = u32::from_le_bytes([r0, r1, r2, r3]);
        let number = u16::from_le_bytes([k0, k1]);
        let kind = FrameKind::from_number(number).ok_or_else(|| unknown(number))?;
        let header = Self {
            body: u32::from_le_bytes([b0, b1, b2, b3]),
            bulk: u32::from_le_bytes([c0, c1, c2, c3]),
            kind,
            is_overdue: flags & OVERDUE != 0,
            number: u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
            progress: u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
        };
        match () {
            () if flags & !OVERDUE != 0 => Err(FrameError::Flags(flags)),
            () if flags != 0 && !kind.may_be_overdue() => Err(FrameError::Flags(flags)),
            () if reserved != 0 => Err(FrameError::Reserved(reserved)),
            () => header.check().map(|()| header),
        }
    }

    fn check(&self) -> Result<(), FrameError> {
        let Self { body, bulk, kind, number, .. } = *self;
        if body as usize > kind.body_limit() {
            return Err(FrameError::Body { kind, bytes: body });
        }
        if bulk as usize > kind.bulk_limit() {
            return Err(FrameError::Bulk { kind, bytes: bulk });
        }
        if kind.has_number() == (number == 0) && !kind.may_have_number() {
            return Err(FrameError::Number { kind, number });
        }
        Ok(())
    }
}

const _: () = assert!(size_of::<u32>() * 3 + size_of::<u16>() * 2 + size_of::<u64>() * 2 == 32);

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Header {
        let kind = FrameKind::Request;
        Header { body: 26, bulk: 4096, kind, is_overdue: false, number: 7, progress: 5 }
    }

    #[test]
    fn a_header_is_decoded_as_it_was_encoded() {
        for &kind in FrameKind::ALL {
            let header = Header {
                body: u32::try_from(kind.body_limit()).unwrap(),
                bulk: u32::try_from(kind.bulk_limit()).unwrap(),
                kind,
                is_overdue: kind.may_be_overdue(),
                number: if kind.has_number() { u64::MAX } else { 0 },
                progress: 0x0102_0304_0506_0708,
            };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        assert_eq!(FrameKind::from_number(0), None);
    }

    #[test]
    fn each_field_is_checked() {
        let with = |at: usize, byte: u8| {
            let mut bytes = request().encode();
            bytes[at] = byte;
            Header::decode(&bytes)
        };
        let kind = FrameKind::Request;
        assert_eq!(with(9, 1), Err(FrameError::Kind(0x0104)));
        assert_eq!(with(10, 1), Err(FrameError::Flags(1)));
        assert_eq!(with(15, 1), Err(FrameError::Reserved(1 << 24)));
        assert_eq!(with(3, 1), Err(FrameError::Body { kind, bytes: 26 + (1 << 24) }));
        assert_eq!(with(7, 1), Err(FrameError::Bulk { kind, bytes: 4096 + (1 << 24) }));
        assert_eq!(with(16, 0), Err(FrameError::Number { kind, number: 0 }));
        assert_eq!(with(31, 9).map(|header| header.progress), Ok(5 + (9 << 56)));
    }

    #[test]
    fn bulk_numbers_and_flags_are_those_of_the_kind() {
        let kind = FrameKind::Goodbye;
        let plain = Header::new(kind, 0, 9);
        assert_eq!(Header::decode(&plain.encode()), Ok(plain));
        let bulk = Header { bulk: 1, ..plain };
        assert_eq!(Header::decode(&bulk.encode()), Err(FrameError::Bulk { kind, bytes: 1 }));
        let number = Header { number: 3, ..plain };
        let expected = Err(FrameError::Number { kind, number: 3 });
        assert_eq!(Header::decode(&number.encode()), expected);
        let ping = Header { kind: FrameKind::Ping, ..number };
        assert_eq!(Header::decode(&ping.encode()), Ok(ping), "it may have a number");
        let overdue = Header { is_overdue: true, ..ping };
        assert_eq!(Header::decode(&overdue.encode()), Err(FrameError::Flags(1)));
    }
}
