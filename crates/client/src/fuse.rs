//! The kernel's door: [`Files`](crate::Files) as a FUSE file system.
//!
//! A thin adapter over `fuser`: it turns each request of the kernel into one call of `Files`, and
//! the answer into the reply. It decides nothing that the server could decide. What it keeps is
//! what only the client can know: where the kernel's inodes were last seen ([`crate::inodes`]),
//! which files this mount has open, for writing or at all, and how far each open directory was
//! read.
//!
//! Where the server can hand out a descriptor of the file that holds the bytes, and the kernel
//! takes it, reads, writes and mappings never come here (passthrough); everything else does.
//!
//! No thread of the event loop ever waits: an answer that comes later is replied to by whoever
//! completes it. Permissions were checked by the kernel (`default_permissions`).
//!
//! Two things `fuser` 0.18 does not pass on are made up for: it drops the flags by which the kernel
//! asks to clear setuid and setgid bits on truncation, and with an access control list, so that
//! everybody but root counts as without privilege there, and whether he is in the file's group is
//! looked up (`caller`; writes carry their own flag, which it does pass on); and it mistakes times
//! before 1970.

pub use adapter::Adapter;
pub use init::{TTL, event_loops, negotiate};
pub use passthrough::NoPassthrough;
pub use state::Wishes;

pub(crate) use passthrough::Passthrough;

mod adapter;
mod attr;
mod backings;
mod caller;
mod flags;
mod gone;
mod init;
mod listed;
mod listing;
mod opening;
mod opens;
mod passthrough;
mod rename;
mod state;
mod writers;
