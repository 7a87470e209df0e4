//! Who asks, and about what.

use crate::bytes::Cursor;
pub use crate::bytes::Fault;
use crate::ids::NodeId;
use crate::init::{Agreement, Capabilities};
use crate::operation::Operation;

/// What each request begins with (`fuse_in_header`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The request's number, which its answer repeats.
    pub unique: u64,
    /// What it is about; zero where that says nothing.
    pub node: NodeId,
    /// The caller's user (`fsuid`).
    pub uid: u32,
    /// The caller's group (`fsgid`).
    pub gid: u32,
    /// The caller's thread; zero where it is not ours to see, or where nobody waits.
    pub pid: u32,
}

impl Header {
    /// Bytes of it.
    pub const BYTES: usize = 40;
}

/// What the layout of a request hangs on, besides its opcode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layouts {
    /// FUSE_SETXATTR has flags (`FUSE_SETXATTR_EXT`).
    pub setxattr_ext: bool,
}

impl From<&Agreement> for Layouts {
    fn from(agreement: &Agreement) -> Self {
        Self { setxattr_ext: agreement.capabilities.has(Capabilities::SETXATTR_EXT) }
    }
}

/// A request that breaks its layout. No kernel sends one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("request {opcode} breaks its layout: {fault}")]
pub struct Malformed {
    /// The request to answer; `None` where the header is not whole, or no answer is expected.
    pub unique: Option<u64>,
    /// Its opcode; zero where the header is not whole.
    pub opcode: u32,
    /// What is wrong.
    pub fault: Fault,
}

/// Takes a request apart: all bytes of one `read` of the device.
///
/// # Errors
/// [`Malformed`]: to be answered with `EIO` if at all.
pub fn parse(bytes: &[u8], layouts: Layouts) -> Result<(Header, Operation<'_>), Malformed> {
    let frame =
        Frame::parse(bytes).map_err(|fault| Malformed { unique: None, opcode: 0, fault })?;
    let (header, opcode) = (frame.header, frame.opcode);
    match frame.body(bytes.len()).and_then(|body| Operation::decode(opcode, body, layouts)) {
        Ok(operation) => Ok((header, operation)),
        Err(fault) => {
            let unique = Operation::is_answered(opcode).then_some(header.unique);
            Err(Malformed { unique, opcode, fault })
        }
    }
}

/// `fuse_in_header` and what stands behind it.
struct Frame<'a> {
    bytes: u32,
    opcode: u32,
    header: Header,
    /// Extensions stand at the end, in units of eight bytes.
    extensions: u16,
    rest: &'a [u8],
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(bytes);
        let (bytes, opcode) = (cursor.u32()?, cursor.u32()?);
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

    /// Without the extensions, none of which was agreed on.
    fn body(&self, read: usize) -> Result<&'a [u8], Fault> {
        if self.bytes as usize != read {
            return Err(Fault::Length);
        }
        let end = self.rest.len().checked_sub(usize::from(self.extensions) * 8);
        end.and_then(|end| self.rest.get(..end)).ok_or(Fault::Truncated)
    }
}
