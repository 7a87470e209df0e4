//! The FUSE protocol over `/dev/fuse` and io_uring, for any file system.
//!
//! Three layers, each of which knows only the one before it.
//!
//! 1. **Messages**, without I/O: [`parse`](request::parse) turns the bytes of a request into an
//!    [`Operation`], each reply is a value that encodes itself ([`Encode`]), and [`init`]
//!    negotiates with the kernel. No input causes a panic, and no allocation has a size that a
//!    request names.
//! 2. **The device** ([`device`]): descriptors, `read`, `writev`, ioctls; and the ring, which
//!    brings requests over io_uring instead. The only system calls that exchange messages.
//! 3. **The session** ([`session`]): the threads of both, which call a [`Filesystem`] with a
//!    [`Reply`], which it completes at once or later.
//!
//! Layouts are those of `include/uapi/linux/fuse.h`, protocol 7.45, and are listed in
//! `docs/fuse.md`; the oldest supported version is 7.31 (Linux 5.4). Integers are in host byte
//! order: the kernel is on the same machine.

pub mod attr;
pub mod device;
pub mod filesystem;
pub mod ids;
pub mod init;
pub mod listing;
pub mod notify;
pub mod operation;
pub mod protocol;
pub mod reply;
pub mod request;
pub mod session;

mod bytes;
mod decode;
mod encode;
mod hand;
mod interrupts;
mod os;
mod parked;
mod reader;
mod reply_to;
mod reserve;
mod rights;
mod ring;
mod server;
mod waiters;

pub use attr::{Attr, FileType, Timestamp};
pub use filesystem::Filesystem;
pub use notify::Notifier;
pub use operation::Operation;
pub use reply::{Encode, Reply};
pub use request::Header;
pub use ring::{NoRing, RingUse};
pub use rustix::io::Errno;
pub use session::{RequestPath, Session, SessionOptions};
