//! The frame of a request: its header, and the body that [`Operation`] decodes.

use crate::bytes::Cursor;
pub use crate::bytes::LayoutError;
use crate::ids::NodeId;
use crate::init::{Capabilities, Negotiated};
use crate::operation::Operation;

/// The header of a request (`fuse_in_header`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Id of the request, which its reply repeats.
    pub unique: u64,
    /// The inode that the request is about, or zero.
    pub node: NodeId,
    /// User id of the caller (`fsuid`).
    pub uid: u32,
    /// Group id of the caller (`fsgid`).
    pub gid: u32,
    /// Thread id of the caller; zero if no process waits, or if it is outside our pid namespace.
    pub pid: u32,
}

impl Header {
    /// Size of the header in bytes.
    pub const BYTES: usize = 40;
}

/// Results of the negotiation on which the layouts of requests depend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layouts {
    /// FUSE_SETXATTR has flags (`FUSE_SETXATTR_EXT`).
    pub setxattr_ext: bool,
}

impl From<&Negotiated> for Layouts {
    fn from(negotiated: &Negotiated) -> Self {
        Self { setxattr_ext: negotiated.capabilities.has(Capabilities::SETXATTR_EXT) }
    }
}

/// A request that breaks its layout, which no correct kernel sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request {opcode} breaks its layout: {error}")]
pub struct Malformed {
    /// Id of the request; `None` if the header is not whole or no reply is expected.
    pub unique: Option<u64>,
    /// Its opcode; zero if the header is not whole.
    pub opcode: u32,
    /// The way in which it breaks the layout.
    pub error: LayoutError,
}

/// Parses a request: all bytes of one `read` of the device.
///
/// # Errors
/// [`Malformed`]; the reply is `EIO`, if one is expected.
pub fn parse(bytes: &[u8], layouts: Layouts) -> Result<(Header, Operation<'_>), Malformed> {
    let frame =
        Frame::parse(bytes).map_err(|error| Malformed { unique: None, opcode: 0, error })?;
    let body = frame.body(bytes.len()).map(Cursor::new);
    frame.decode(body, layouts)
}

/// Parses a request of a ring: its header, the fields of its opcode, and its names and data, which
/// the kernel writes to three places.
///
/// # Errors
/// As [`parse`].
pub fn parse_parts<'a>(
    header: &[u8],
    fields: &'a [u8],
    payload: &'a [u8],
    layouts: Layouts,
) -> Result<(Header, Operation<'a>), Malformed> {
    let frame =
        Frame::parse(header).map_err(|error| Malformed { unique: None, opcode: 0, error })?;
    let is_whole = frame.bytes as usize == Header::BYTES + fields.len() + payload.len();
    // An extension (Linux 6.3) is after the payload, and names and data are read from its start.
    let body =
        if is_whole { Ok(Cursor::in_parts(fields, payload)) } else { Err(LayoutError::Length) };
    frame.decode(body, layouts)
}

/// The facts that a ring needs of a request besides its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outline {
    /// The node, if only regular files have such a request: FUSE_READ, FUSE_WRITE, FUSE_FSYNC,
    /// FUSE_FLUSH or FUSE_SETLKW.
    pub(crate) regular_file: Option<NodeId>,
    /// The thread that waits for a lock, which may take long; `None` for other requests, and if no
    /// process waits or it is outside our pid namespace.
    pub(crate) waiting_thread: Option<u32>,
}

impl Outline {
    /// Reads the facts from the header of a request.
    pub(crate) fn of(header: &[u8]) -> Self {
        let frame = Frame::parse(header).ok();
        let of = |opcodes: &[u32]| {
            let asked = frame.as_ref().filter(|frame| opcodes.contains(&frame.opcode));
            asked.map(|frame| frame.header)
        };
        Self {
            regular_file: of(&[READ, WRITE, FSYNC, FLUSH, SETLKW]).map(|header| header.node),
            waiting_thread: of(&[SETLKW]).map(|header| header.pid).filter(|pid| *pid > 0),
        }
    }
}

const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const SETLKW: u32 = 33;

/// `fuse_in_header` and the bytes after it.
struct Frame<'a> {
    bytes: u32,
    opcode: u32,
    header: Header,
    /// Bytes of extensions at the end, in units of eight.
    extensions: u16,
    rest: &'a [u8],
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let mut cursor = Cursor::new(bytes);
        let bytes = cursor.u32()?;
        let opcode = cursor.u32()?;
        let header = Header {
            unique: cursor.u64()?,
            node: NodeId(cursor.u64()?),
            uid: cursor.u32()?,
            gid: cursor.u32()?,
            pid: cursor.u32()?,
        };
        let extensions = cursor.u16()?;
        cursor.skip::<2>()?;
        Ok(Self { bytes, opcode, header, extensions, rest: cursor.rest() })
    }

    /// Returns the body without the extensions, of which none is negotiated.
    fn body(&self, read: usize) -> Result<&'a [u8], LayoutError> {
        if self.bytes as usize != read {
            return Err(LayoutError::Length);
        }
        let end = self.rest.len().checked_sub(usize::from(self.extensions) * 8);
        end.and_then(|end| self.rest.get(..end)).ok_or(LayoutError::Truncated)
    }

    fn decode<'b>(
        &self,
        body: Result<Cursor<'b>, LayoutError>,
        layouts: Layouts,
    ) -> Result<(Header, Operation<'b>), Malformed> {
        let decoded = body.and_then(|mut body| Operation::read(self.opcode, &mut body, layouts));
        decoded.map(|operation| (self.header, operation)).map_err(|error| {
            let unique = Operation::has_reply(self.opcode).then_some(self.header.unique);
            Malformed { unique, opcode: self.opcode, error }
        })
    }
}
