//! The encoding of each type of a field; `docs/protocol.md` lists them.

use super::access::{DeniedRights, GuestAccesses, RightLetter, RightLetters};
use super::field::{DecodeError, Field, LayoutRow, Reader};
use super::search::{Groups, Hits, TagPart, TagParts};
use crate::access::{AccessPage, DenialCause, DeniedRight, GuestAccess};
use crate::attr::{Attr, FileKind, NewMode, Time};
use crate::audit::{AuditPage, AuditPlace};
use crate::buffer::Buffer;
use crate::error::{Code, Error};
use crate::flags::{AllocateMode, RenameFlags, SeekFrom, Whence, XattrFlags};
use crate::id::{Cookie, Handle, InodeId, NameHash, OpenId, SessionId};
use crate::level::Level;
use crate::limits;
use crate::lock::{FileLock, LockKind, LockMode, LockOwner};
use crate::name::Name;
use crate::reply::{DataPath, DirEntry, Entry, PassedRevocation, VolumeStats};
use crate::search::{Asker, Search, SearchAt, SearchPage, SearchPlace, TagPage, Tags};
use crate::site_token::SiteToken;

macro_rules! integers {
    ($($type:ident)+) => { $(
        impl Field for $type {
            type Value = Self;
            const MOST: usize = size_of::<Self>();

            fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
                out.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                from.array().map(Self::from_le_bytes)
            }
        }
    )+ };
}

integers! { u8 u16 u32 u64 i64 }

/// Ids and positions, each a u64 of which every value is legal.
macro_rules! ids {
    ($($type:ident: $from:expr, $to:expr;)+) => { $(
        impl Field for $type {
            type Value = Self;
            const MOST: usize = size_of::<u64>();

            fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
                let to: fn(Self) -> u64 = $to;
                u64::put(&to(*value), out)
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                u64::take(from).map($from)
            }
        }
    )+ };
}

ids! {
    InodeId: Self::from_raw, Self::raw;
    NameHash: NameHash, |hash| hash.0;
    LockOwner: LockOwner, |owner| owner.0;
    OpenId: OpenId, |open| open.0;
    Cookie: Cookie, |cookie| cookie.0;
    SessionId: SessionId, |session| session.0;
}

impl Field for bool {
    type Value = Self;
    const MOST: usize = 1;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        u8::put(&u8::from(*value), out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.invalid()),
        }
    }
}

impl<const N: usize> Field for [u8; N] {
    type Value = Self;
    const MOST: usize = N;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.array()
    }
}

impl<T: Field> Field for Option<T> {
    type Value = Option<T::Value>;
    const MOST: usize = 1 + T::MOST;

    fn put(value: &Self::Value, out: &mut Vec<u8>) -> Result<(), Error> {
        bool::put(&value.is_some(), out)?;
        value.as_ref().map_or(Ok(()), |value| T::put(value, out))
    }

    fn take(from: &mut Reader<'_>) -> Result<Self::Value, DecodeError> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

/// Permission bits and their like: only the bits of the mask are sent, and others are refused.
macro_rules! bit_fields {
    ($($(#[doc = $doc:literal])+ $marker:ident = $mask:literal;)+) => { $(
        $(#[doc = $doc])+
        pub(crate) enum $marker {}

        impl Field for $marker {
            type Value = u16;
            const MOST: usize = u16::MOST;

            fn put(value: &u16, out: &mut Vec<u8>) -> Result<(), Error> {
                u16::put(&(value & $mask), out)
            }

            fn take(from: &mut Reader<'_>) -> Result<u16, DecodeError> {
                let bits = u16::take(from)?;
                if bits & !$mask == 0 { Ok(bits) } else { Err(from.invalid()) }
            }
        }
    )+ };
}

bit_fields! {
    /// Permission, setuid, setgid and sticky bits.
    Mode = 0o7777;
    /// A umask.
    Umask = 0o777;
}

/// Nanoseconds of a time.
pub(crate) enum Nanos {}

impl Field for Nanos {
    type Value = u32;
    const MOST: usize = u32::MOST;

    fn put(value: &u32, out: &mut Vec<u8>) -> Result<(), Error> {
        u32::put(value, out)
    }

    fn take(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
        let nanos = u32::take(from)?;
        if nanos < 1_000_000_000 { Ok(nanos) } else { Err(from.invalid()) }
    }
}

impl Field for Name {
    type Value = Self;
    const MOST: usize = 1 + limits::NAME_BYTES;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        let length = u8::try_from(value.as_bytes().len()).map_err(|_| Code::NameTooLong)?;
        u8::put(&length, out)?;
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = from.length::<u8>(limits::NAME_BYTES)?;
        let bytes = from.bytes(length)?;
        Self::new(bytes).map_err(|_| from.invalid())
    }
}

/// Byte strings: length u32 and the bytes. The code is that of the server for a longer one.
macro_rules! byte_strings {
    ($($(#[doc = $doc:literal])+ $marker:ident = $limit:ident, $code:ident;)+) => { $(
        $(#[doc = $doc])+
        pub(crate) enum $marker {}

        impl Field for $marker {
            type Value = Vec<u8>;
            const MOST: usize = u32::MOST + limits::$limit;

            fn put(value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), Error> {
                if value.len() > limits::$limit {
                    return Err(Code::$code.into());
                }
                let length = u32::try_from(value.len()).map_err(|_| Code::$code)?;
                u32::put(&length, out)?;
                out.extend_from_slice(value);
                Ok(())
            }

            fn take(from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
                let length = from.length::<u32>(limits::$limit)?;
                from.bytes(length).map(<[u8]>::to_vec)
            }
        }
    )+ };
}

byte_strings! {
    /// The target of a symbolic link.
    Target = TARGET_BYTES, NameTooLong;
    /// The name of an extended attribute.
    XattrName = XATTR_NAME_BYTES, Range;
    /// The value of an extended attribute, the names of all of them, or a link's target.
    XattrValue = XATTR_VALUE_BYTES, TooBig;
    /// A query in its canonical form.
    QueryText = QUERY_BYTES, TooBig;
    /// A signed sentence that takes a credential back.
    Sentence = REVOCATION_BYTES, Invalid;
    /// Lines of the audit log.
    AuditLines = AUDIT_PAGE_BYTES, Bug;
    /// The address of a site's server.
    Address = SITE_ADDRESS_BYTES, Invalid;
    /// The signed list of the volume's sites.
    SiteListText = SITE_LIST_BYTES, Invalid;
    /// The signed charter of the volume.
    CharterText = CHARTER_BYTES, Invalid;
    /// The hashes of the parts of the revocations that a site has.
    RevokedParts = REVOKED_PARTS_BYTES, Invalid;
    /// The payload of an error, beside its code: empty in this version.
    ErrorPayload = ERROR_PAYLOAD_BYTES, Bug;
}

const _: () = assert!(limits::XATTR_LIST_BYTES <= limits::XATTR_VALUE_BYTES);
const _: () = assert!(limits::TARGET_BYTES <= limits::XATTR_VALUE_BYTES);

/// UTF-8 text for people: length u16 and the bytes. A longer text is cut.
pub(crate) enum Text {}

impl Field for Text {
    type Value = String;
    const MOST: usize = u16::MOST + limits::TEXT_BYTES;

    fn put(value: &String, out: &mut Vec<u8>) -> Result<(), Error> {
        let bytes = &value.as_bytes()[..value.floor_char_boundary(limits::TEXT_BYTES)];
        let length = u16::try_from(bytes.len()).map_err(|_| Code::Bug)?;
        u16::put(&length, out)?;
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<String, DecodeError> {
        let length = from.length::<u16>(limits::TEXT_BYTES)?;
        let bytes = from.bytes(length)?;
        str::from_utf8(bytes).map(str::to_owned).map_err(|_| from.invalid())
    }
}

/// The bulk bytes of the frame. They take no byte of the body.
pub(crate) enum BulkBytes {}

impl Field for BulkBytes {
    type Value = Buffer;
    const MOST: usize = 0;

    fn put(_: &Buffer, _: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Buffer, DecodeError> {
        Ok(from.bulk())
    }
}

/// Values of which each has a number, a u8.
macro_rules! choices {
    ($($type:ident { $($number:literal = [$($value:tt)+],)+ })+) => { $(
        impl Field for $type {
            type Value = Self;
            const MOST: usize = 1;

            fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
                u8::put(&match value { $(Self::$($value)+ => $number,)+ }, out)
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(match u8::take(from)? {
                    $($number => Self::$($value)+,)+
                    number => return Err(from.unknown(number.into())),
                })
            }
        }
    )+ };
}

choices! {
    RenameFlags {
        0 = [Replace],
        1 = [NoReplace],
        2 = [Exchange],
        3 = [Whiteout { replace: false }],
        4 = [Whiteout { replace: true }],
    }
    XattrFlags {
        0 = [Any],
        1 = [Create],
        2 = [Replace],
    }
    AllocateMode {
        0 = [Reserve { keep_size: false }],
        1 = [Reserve { keep_size: true }],
        2 = [PunchHole],
        3 = [Zero { keep_size: false }],
        4 = [Zero { keep_size: true }],
    }
    Level {
        0 = [Async],
        1 = [Local],
        2 = [Network],
        3 = [Remote],
    }
    LockKind {
        0 = [Flock],
        1 = [Posix],
        2 = [OpenFile],
    }
    LockMode {
        0 = [Read],
        1 = [Write],
        2 = [Unlock],
    }
    Whence {
        0 = [Data],
        1 = [Hole],
    }
    DenialCause {
        0 = [Right],
        1 = [Grant],
        2 = [Place],
        3 = [Ended],
        4 = [Address],
        5 = [Volume],
        6 = [Conditions],
        7 = [Revoked],
        8 = [NoRoot],
        9 = [Policy],
        10 = [Steps],
        11 = [Modes],
        12 = [User],
    }
}

impl Field for FileKind {
    type Value = Self;
    const MOST: usize = 1;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        u8::put(&value.number(), out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = u8::take(from)?;
        Self::from_number(number).ok_or_else(|| from.unknown(number.into()))
    }
}

const CACHED: u8 = 0;
const DIRECT: u8 = 1;

impl Field for DataPath {
    type Value = Self;
    const MOST: usize = 1;

    /// A descriptor does not pass a socket. Its file is written externally, so the open of another
    /// process must not cache.
    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        let number = match value {
            Self::Cached => CACHED,
            Self::Direct | Self::Passthrough(_) => DIRECT,
        };
        u8::put(&number, out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(from)? {
            CACHED => Ok(Self::Cached),
            DIRECT => Ok(Self::Direct),
            number => Err(from.unknown(number.into())),
        }
    }
}

/// Two booleans in a byte: bit 0 is the first, bit 1 the second. A byte of an older version, which
/// had only the first, is still valid.
pub(crate) enum TwoBits {}

impl Field for TwoBits {
    type Value = (bool, bool);
    const MOST: usize = 1;

    fn put(bits: &(bool, bool), out: &mut Vec<u8>) -> Result<(), Error> {
        let (first, second) = bits;
        u8::put(&(u8::from(*first) | u8::from(*second) << 1), out)
    }

    fn take(from: &mut Reader<'_>) -> Result<(bool, bool), DecodeError> {
        let bits = u8::take(from)?;
        if bits < 4 { Ok((bits & 1 != 0, bits & 2 != 0)) } else { Err(from.invalid()) }
    }
}

/// Structures: their fields one after the other. The destructuring finds a field that is missing.
macro_rules! records {
    ($($type:ident { $($field:ident: $as:ty,)+ $(($first:ident, $second:ident): TwoBits,)? })+) => {
        $(
            impl Field for $type {
                type Value = Self;
                const MOST: usize = 0 $(+ <$as as Field>::MOST)+ $(+ {
                    let _ = stringify!($first);
                    TwoBits::MOST
                })?;

                fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
                    let Self { $($field,)+ $($first, $second)? } = value;
                    $(<$as as Field>::put($field, out)?;)+
                    $(TwoBits::put(&(*$first, *$second), out)?;)?
                    Ok(())
                }

                fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                    $(let $field = <$as as Field>::take(from)?;)+
                    $(let ($first, $second) = TwoBits::take(from)?;)?
                    Ok(Self { $($field,)+ $($first, $second)? })
                }
            }
        )+

        /// The structures that fields consist of.
        pub const RECORDS: &[LayoutRow] = &[$(
            LayoutRow {
                number: 0,
                name: stringify!($type),
                fields: &[
                    $((stringify!($field), stringify!($as)),)+
                    $((stringify!($first and $second), "TwoBits"),)?
                ],
                reply: "",
                most: <$type as Field>::MOST,
            },
        )+];
    };
}

records! {
    Handle { ino: InodeId, dir: InodeId, hash: NameHash, }
    Time { seconds: i64, nanos: Nanos, }
    Attr {
        ino: InodeId, kind: FileKind, mode: Mode, links: u32, uid: u32, gid: u32, rdev: u32,
        size: u64, blocks: u64, atime: Time, mtime: Time, ctime: Time, btime: Time,
        (volatile, has_xattrs): TwoBits,
    }
    Entry { handle: Handle, attr: Attr, }
    DirEntry {
        name: Name, ino: InodeId, kind: FileKind, cookie: Cookie, entry: Option<Entry>,
    }
    NewMode { mode: Mode, umask: Umask, }
    SeekFrom { offset: u64, whence: Whence, }
    FileLock { kind: LockKind, mode: LockMode, start: u64, end: u64, pid: u32, }
    SearchPlace { now: Time, at: SearchAt, }
    Asker { groups: Groups, reads_all: bool, }
    Search { query: QueryText, hits: u32, after: Option<SearchPlace>, asker: Asker, }
    SearchPage { hits: Hits, as_of: Time, after: Option<SearchPlace>, examined: u64, }
    Tags { key: Option<TagPart>, prefix: TagPart, asker: Asker, }
    TagPage { parts: TagParts, as_of: Time, more: bool, }
    DeniedRight {
        right: RightLetter, link: u8, signer: [u8; 32], cause: DenialCause, detail: Text,
    }
    GuestAccess {
        session: SessionId, key: [u8; 32], credential: [u8; 32], links: u8, rights: RightLetters,
        denied: DeniedRights,
    }
    AccessPage { guests: GuestAccesses, more: bool, }
    PassedRevocation { sentence: Sentence, end: u64, }
    SiteToken { number: u64, random: [u8; 16], }
    AuditPlace { day: u32, offset: u64, }
    AuditPage { lines: AuditLines, next: Option<AuditPlace>, }
    VolumeStats {
        block_bytes: u32, blocks: u64, free: u64, available: u64, files: u64, free_files: u64,
    }
}

impl Field for Code {
    type Value = Self;
    const MOST: usize = u16::MOST;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        u16::put(&value.number(), out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = u16::take(from)?;
        Self::from_number(number).ok_or_else(|| from.unknown(number.into()))
    }
}
