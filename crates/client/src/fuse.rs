//! The kernel's door: [`Files`](crate::Files) as a FUSE file system.
//!
//! A thin adapter over [`pelago_fuse`]: it turns each request of the kernel into one call of
//! `Files`, and the answer into the reply. It decides nothing that the server could decide. What it
//! keeps is what only the client can know: where the kernel's inodes were last seen
//! ([`crate::inodes`]), which files this mount has open, for writing or at all, and how far each
//! open directory was read.
//!
//! Where the server can hand out a descriptor of the file that holds the bytes, and the kernel
//! takes it, reads, writes and mappings never come here (passthrough); everything else does.
//!
//! No thread of the event loop ever waits: an answer that comes later is replied to by whoever
//! completes it. Permissions were checked by the kernel (`default_permissions`).
//!
//! Who may keep setuid and setgid bits of what he changes the kernel says with the request. The one
//! thing it does not say, whether the setgid bit goes where the group may not execute, is looked up
//! (`caller`).

pub use adapter::Adapter;
pub use init::{TTL, event_loops};
pub use passthrough::NoPassthrough;
pub use state::Preferences;

pub(crate) use init::wishes;
pub(crate) use passthrough::Passthrough;

mod adapter;
mod attr;
mod backings;
mod caller;
mod dir_streams;
mod flags;
mod forgetting;
mod gone;
mod init;
mod listed;
mod listing;
mod opening;
mod opens;
mod passthrough;
mod rename;
mod stale;
mod state;
mod writers;
