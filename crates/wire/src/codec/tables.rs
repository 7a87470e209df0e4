//! The tables of requests and replies: the number of each, and its fields in their order.
//!
//! A line of a table is the encoding, the decoding, and the row of `docs/protocol.md`. Numbers are
//! never reused.

use super::field::{DecodeError, Field, LayoutRow, Reader, longest};
use super::fields::{
    Address, BulkBytes, CharterText, RevokedParts, Sentence, SiteListText, Target, Text, XattrName,
    XattrValue,
};
use super::lists::{
    BlockHashes, Credentials, DirEntries, PassedRevocations, ServerAddresses, SiteNames,
};
use super::{MOST_ANSWER_START, MOST_CALLER};
use crate::access::AccessPage;
use crate::attr::{Attr, FileKind, NewMode, SetAttr, Time};
use crate::audit::{AuditPage, AuditPlace};
use crate::error::Error;
use crate::flags::{
    AllocateMode, OpenFlags, PlaceFlags, RenameFlags, SeekFrom, WriteFlags, XattrFlags,
};
use crate::id::{Cookie, Handle, InodeId, OpenId, SessionId};
use crate::level::Level;
use crate::lock::{FileLock, LockOwner};
use crate::name::Name;
use crate::operation::Operation;
use crate::reply::{DataPath, Entry, Reply, VolumeStats};
use crate::request::Request;
use crate::reserved;
use crate::search::{Search, SearchPage, TagPage, Tags};
use crate::site_token::SiteToken;

macro_rules! requests {
    ($($number:literal $name:ident { $($field:ident: $type:ty),* } -> $reply:ident;)+) => {
        /// The requests, in the order of their numbers.
        pub const REQUESTS: &[LayoutRow] = &[$(
            LayoutRow {
                number: $number,
                name: stringify!($name),
                fields: &[$((stringify!($field), stringify!($type)),)*],
                reply: stringify!($reply),
                most: 0 $(+ <$type as Field>::MOST)*,
            },
        )+];

        /// Appends a request: its number and its fields.
        pub(super) fn put_request(request: &Request, out: &mut Vec<u8>) -> Result<(), Error> {
            match request {
                $(Request::$name { $($field),* } => {
                    u16::put(&$number, out)?;
                    $(<$type as Field>::put($field, out)?;)*
                })+
            }
            Ok(())
        }

        /// Takes a request.
        pub(super) fn take_request(from: &mut Reader<'_>) -> Result<Request, DecodeError> {
            Ok(match u16::take(from.at("the request's number"))? {
                $($number => Request::$name { $($field: {
                    let what = concat!(stringify!($name), ".", stringify!($field));
                    <$type as Field>::take(from.at(what))?
                }),* },)+
                number => return Err(from.not_spoken(reserved::REQUESTS, number)),
            })
        }

        impl Operation {
            /// Returns the bytes of the longest body that a request of this kind can have.
            #[must_use]
            pub const fn longest_body(self) -> usize {
                MOST_CALLER + u16::MOST + match self {
                    $(Self::$name => 0 $(+ <$type as Field>::MOST)*,)+
                }
            }

            /// Returns the bytes of the longest body that an answer of this kind can have, whatever
            /// its arguments are.
            #[must_use]
            pub const fn longest_answer(self) -> usize {
                MOST_ANSWER_START + u16::MOST + match self {
                    $(Self::$name => longest_reply::$reply,)+
                }
            }
        }

        impl Request {
            /// Returns whether a successful request of this kind has such a reply. Another reply is
            /// an error of the server.
            #[must_use]
            pub const fn takes(&self, reply: &Reply) -> bool {
                match self {
                    $(Self::$name { .. } => matches!(reply, Reply::$reply { .. }),)+
                }
            }

            /// Returns [`Request::takes`] for later, when the request itself is gone.
            #[must_use]
            pub const fn reply_check(&self) -> fn(&Reply) -> bool {
                match self {
                    $(Self::$name { .. } => |reply| matches!(reply, Reply::$reply { .. }),)+
                }
            }
        }
    };
}

requests! {
    1 Lookup { dir: Handle, name: Name } -> Entry;
    2 Parent { dir: Handle } -> Entry;
    3 Find { ino: InodeId } -> Entry;
    4 GetAttr { node: Handle } -> Attr;
    5 SetAttr { node: Handle, open: Option<OpenId>, set: SetAttr } -> Attr;
    6 Create {
        dir: Handle, name: Name, mode: NewMode, flags: OpenFlags, open: OpenId
    } -> Created;
    7 CreateUnnamed { dir: Handle, mode: NewMode, flags: OpenFlags, open: OpenId } -> Created;
    8 MakeDir { dir: Handle, name: Name, mode: NewMode } -> Entry;
    9 MakeNode { dir: Handle, name: Name, kind: FileKind, mode: NewMode, rdev: u32 } -> Entry;
    10 Symlink { dir: Handle, name: Name, target: Target } -> Entry;
    11 ReadLink { node: Handle } -> Bytes;
    12 Link { node: Handle, dir: Handle, name: Name } -> Entry;
    13 Unlink { dir: Handle, name: Name } -> Removed;
    14 RemoveDir { dir: Handle, name: Name } -> Removed;
    15 Rename {
        from_dir: Handle, from: Name, to_dir: Handle, to: Name, flags: RenameFlags
    } -> Renamed;
    16 Open { node: Handle, flags: OpenFlags, open: OpenId } -> Opened;
    17 Flush { open: OpenId, owner: Option<LockOwner> } -> Done;
    18 Release { open: OpenId } -> Done;
    19 Fsync { open: OpenId, data_only: bool } -> Done;
    20 FsyncDir { dir: Handle, since: Option<u64> } -> Done;
    21 Read { open: OpenId, offset: u64, size: u32 } -> Data;
    22 Write { open: OpenId, offset: u64, flags: WriteFlags } -> Written;
    23 List {
        dir: Handle, after: Cookie, behind: Option<Name>, entries: u32, attributes: bool
    } -> Listed;
    24 GetXattr { node: Handle, name: XattrName } -> Bytes;
    25 ListXattr { node: Handle } -> Bytes;
    26 SetXattr {
        node: Handle, name: XattrName, value: XattrValue, flags: XattrFlags, kill_setgid: bool
    } -> Done;
    27 RemoveXattr { node: Handle, name: XattrName } -> Done;
    28 StatFs {} -> Volume;
    29 Allocate { open: OpenId, offset: u64, length: u64, mode: AllocateMode } -> Done;
    30 Seek { open: OpenId, from: SeekFrom } -> Offset;
    31 CopyRange {
        from: OpenId, from_offset: u64, to: OpenId, to_offset: u64, length: u64
    } -> Written;
    32 GetLock { open: OpenId, owner: LockOwner, lock: FileLock } -> Lock;
    33 SetLock { open: OpenId, owner: LockOwner, lock: FileLock, wait: bool } -> Done;
    34 Reopen { node: Handle, flags: OpenFlags, open: OpenId } -> Opened;
    35 ReclaimLock { open: OpenId, owner: LockOwner, lock: FileLock } -> Done;
    36 Search { dir: Handle, search: Search } -> Found;
    37 Tags { dir: Handle, tags: Tags } -> Tagged;
    38 Attach { chain: Credentials } -> Bytes;
    39 Issue { node: Handle } -> Issued;
    40 Revoke { sentence: Sentence, chain: Credentials } -> Unreached;
    41 Access { node: Handle, chain: Credentials, after: SessionId } -> Access;
    42 Audited { dir: Handle, after: AuditPlace } -> Audited;
    48 Step { dir: Handle, to: Option<Name> } -> Stepped;
    49 AddDir { dir: Handle, name: Name, made: InodeId } -> Done;
    50 SiteAddress { address: Address } -> Done;
    51 DropDir { dir: Handle, name: Name, removed: InodeId } -> Done;
    52 RemoveNamedDir { dir: Handle, parent: InodeId, name: Name } -> Removed;
    53 SiteList { text: SiteListText } -> Done;
    54 LeaveSite {} -> Done;
    55 Charter { known: u64 } -> Charter;
    56 Revoked { parts: RevokedParts, after: Option<[u8; 32]> } -> Revoked;
    57 PassRevocation { sentence: Sentence, end: u64 } -> Unreached;
    58 CharterChanged {} -> Done;
    59 SetBytes {
        node: Handle, at: InodeId, size: u64, mtime: Time, since: Time, flags: PlaceFlags
    } -> Attr;
    60 GiveBytes { node: Handle, file: InodeId } -> Attr;
    61 DropBytes { node: Handle, file: InodeId } -> Done;
    62 Clock {} -> Clock;
    63 Hashes { open: OpenId, offset: u64, blocks: u32 } -> Hashes;
    64 RenewToken { token: SiteToken } -> Token;
    65 KeepToken { token: SiteToken } -> Done;
    66 FsyncAt { open: OpenId, level: Level } -> Done;
    72 Servers {} -> Servers;
}

/// A variant with named fields is written with braces, one with a value with parentheses.
macro_rules! replies {
    ($($number:literal $name:ident
        $(($value:ident: $of:ty))? $({ $($field:ident: $type:ty),+ })?;)+) => {
        /// The replies, in the order of their numbers.
        pub const REPLIES: &[LayoutRow] = &[$(
            LayoutRow {
                number: $number,
                name: stringify!($name),
                fields: &[
                    $((stringify!($value), stringify!($of)),)?
                    $($((stringify!($field), stringify!($type)),)+)?
                ],
                reply: "",
                most: 0 $(+ <$of as Field>::MOST)? $($(+ <$type as Field>::MOST)+)?,
            },
        )+];

        /// Bytes of the fields of each reply at most.
        #[expect(non_upper_case_globals, reason = "they have the names of the replies")]
        mod longest_reply {
            use super::*;

            $(pub(super) const $name: usize =
                0 $(+ <$of as Field>::MOST)? $($(+ <$type as Field>::MOST)+)?;)+
        }

        /// Appends a reply: its number and its fields.
        pub(super) fn put_reply(reply: &Reply, out: &mut Vec<u8>) -> Result<(), Error> {
            match reply {
                $(Reply::$name $(($value))? $({ $($field),+ })? => {
                    u16::put(&$number, out)?;
                    $(<$of as Field>::put($value, out)?;)?
                    $($(<$type as Field>::put($field, out)?;)+)?
                })+
            }
            Ok(())
        }

        /// Takes a reply.
        pub(super) fn take_reply(from: &mut Reader<'_>) -> Result<Reply, DecodeError> {
            Ok(match u16::take(from.at("the reply's number"))? {
                $($number => Reply::$name
                    $((<$of as Field>::take(from.at(stringify!($name)))?))?
                    $({ $($field: {
                        let what = concat!(stringify!($name), ".", stringify!($field));
                        <$type as Field>::take(from.at(what))?
                    }),+ })?,)+
                number => return Err(from.not_spoken(reserved::REPLIES, number)),
            })
        }
    };
}

replies! {
    1 Done;
    2 Entry(entry: Entry);
    3 Attr(attr: Attr);
    4 Created { entry: Entry, path: DataPath };
    5 Opened { attr: Attr, path: DataPath };
    6 Removed(attr: Attr);
    7 Renamed { moved: Handle, replaced: Option<Entry> };
    8 Data(bytes: BulkBytes);
    9 Bytes(bytes: XattrValue);
    10 Written { bytes: u64, size: u64 };
    11 Listed { entries: DirEntries, end: bool };
    12 Offset(bytes: u64);
    13 Volume(volume: VolumeStats);
    14 Lock(lock: Option<FileLock>);
    15 Found(page: SearchPage);
    16 Tagged(page: TagPage);
    17 Issued(chain: Credentials);
    20 Access(page: AccessPage);
    21 Audited(page: AuditPage);
    24 Stepped { node: Handle, attr: Option<Attr> };
    25 Charter { text: Option<CharterText>, revoked: [u8; 32] };
    26 Revoked { revocations: PassedRevocations, differing: [u8; 32], more: bool };
    27 Unreached { away: SiteNames, refused: SiteNames };
    28 Clock { now: Time, program: Text };
    29 Hashes(hashes: BlockHashes);
    30 Token(token: SiteToken);
    40 Servers(servers: ServerAddresses);
}

/// Bytes of the longest request, its number included.
pub(super) const MOST_REQUEST: usize = u16::MOST + longest(REQUESTS);
/// Bytes of the longest reply, its number included.
pub(super) const MOST_REPLY: usize = u16::MOST + longest(REPLIES);
