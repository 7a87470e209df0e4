//! The vocabulary of Pelago: ids, names, limits, attributes, errors, and the operations of a POSIX
//! file system as requests and replies.
//!
//! This crate does no I/O and starts no thread. A server implements [`Service`] and a client calls
//! it; within one process these are plain calls, without an encoding.
//!
//! Between processes a connection carries frames ([`mod@frame`]). It begins with a [`handshake`],
//! which agrees on a [`version`]; then [`codec`] encodes requests and replies. Files that travel
//! over HTTP in any order are [`blocks`]. `docs/protocol.md` specifies these bytes, and `vectors/`
//! has an example of each message. The `store` crate encodes rows.

#![forbid(unsafe_code)]

pub use access::{AccessPage, DenialCause, DeniedRight, GuestAccess};
pub use account::{Account, Lasting, Share};
pub use attr::{Attr, FileKind, NewMode, SetAttr, SetTime, Time};
pub use audit::{AuditPage, AuditPlace};
pub use buffer::{Buffer, Lender};
pub use codec::Replayed;
pub use description::{Effect, Subjects};
pub use directory_cache::{DirectoryCache, DirectoryLeases};
pub use error::{Code, Error, Kind};
pub use flags::{
    AllocateMode, OpenFlags, PlaceFlags, RenameFlags, SeekFrom, Whence, WriteFlags, XattrFlags,
};
pub use guest::{ForGuest, GuestRight, GuestSubject, Needs};
pub use id::{
    Cookie, Generation, Handle, InodeId, NameHash, OpenId, RequestId, SessionId, ShardId,
};
pub use leased_service::{LeaseHolder, LeaseTimes, LeasedDone, LeasedService};
pub use leases::{Granted, Leases};
pub use level::Level;
pub use local_cache::{LocalCache, Recalled, Then, Touched};
pub use lock::{FileLock, LockKind, LockMode, LockOwner, LockRange};
pub use name::{Name, NameError};
pub use operation::{Description, Operation};
pub use origin::Origin;
pub use pins::{Caching, PinError, Pinned, PinnedBlock, Pins};
pub use process::{ModeRights, Permissions, Process};
pub use reached::{MirrorStage, Reached, SentGroup};
pub use reply::{Backing, DataPath, DirEntry, Entry, PassedRevocation, Reply, VolumeStats};
pub use request::Request;
pub use search::{Asker, Hit, Search, SearchAt, SearchPage, SearchPlace, TagPage, Tags};
pub use service::{Bulk, Context, Done, Service};
pub use session_service::{
    Connections, GuestGrant, GuestRefusal, LeaseMoment, LeasedAnswer, RecordedPeer, Served,
    SessionRecord, SessionService, SiteHello, SitePeer, SiteRefusal,
};
pub use site_token::{OlderFolder, ShownTokens, SitePass, SiteToken};
pub use touches::{AtStart, NameIn, OpenEffect, Tells, Touches};
pub use write_era::WriteEra;

mod access;
mod account;
mod attr;
mod audit;
pub mod blocks;
mod buffer;
pub mod codec;
pub mod datagram;
mod description;
mod directory_cache;
mod error;
mod flags;
pub mod frame;
mod guest;
pub mod handshake;
mod id;
pub mod id_map;
mod leased_service;
mod leases;
mod level;
pub mod limits;
mod local_cache;
mod lock;
pub mod mirror;
mod name;
mod operation;
mod origin;
mod pins;
pub mod present;
mod process;
mod reached;
pub mod relay;
mod reply;
mod request;
pub mod reserved;
mod search;
mod service;
mod session_service;
mod site_token;
mod touches;
pub mod version;
mod write_era;
pub mod xattr;
