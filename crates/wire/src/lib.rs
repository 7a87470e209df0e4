//! The words of Pelago: ids, names, limits, attributes, errors, and the operations of a whole POSIX
//! file system as requests and replies.
//!
//! This crate does no I/O, keeps no clock and starts no thread. A server implements [`Service`], a
//! client calls it; in one process they call directly, without encoding. The encoding for sockets
//! comes with the sockets; what is stored is encoded by the `store` crate.

#![forbid(unsafe_code)]

pub use attr::{Attr, FileKind, NewMode, SetAttr, SetTime, Time};
pub use buffer::{Buffer, Lender};
pub use description::{Description, Effect, Operation, Right, Subjects};
pub use error::{Code, Error, Kind};
pub use id::{Cookie, Generation, Handle, InodeId, NameHash, OpenId, RequestId, SessionId};
pub use name::{Name, NameError};
pub use reply::{Backing, DataPath, DirEntry, Entry, Reply, VolumeStats};
pub use request::{AllocateMode, OpenFlags, RenameFlags, Request, SeekFrom, Whence, XattrFlags};
pub use service::{Bulk, Context, Done, Service};

mod attr;
mod buffer;
mod description;
mod error;
mod id;
pub mod id_map;
pub mod limits;
mod name;
mod reply;
mod request;
mod service;
pub mod xattr;
