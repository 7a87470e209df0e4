//! The kernel's view of a volume: [`Files`](pelago_client::Files) mounted as a FUSE file system.
//!
//! [`mount`] makes a mount and [`Mount`] ends it. In between, `adapter` turns each request of the
//! kernel into one call of `Files`, and the result into the reply, over [`pelago_fuse`]. It decides
//! nothing that the server could decide. This crate holds only state that a server cannot have: the
//! names under which the kernel's inodes were last seen (`inodes`), the files that this mount has
//! open, the inodes that have lost their last name, the positions of open directories, and the
//! lifetimes of replies in the kernel's cache (`lifetimes`, `kernel_cache`).
//!
//! If the server can hand out a descriptor of the file that holds the bytes, and the kernel accepts
//! it, reads, writes and mappings bypass this process (passthrough). All else comes as requests.
//!
//! No thread of the event loop ever waits: a later result is sent to the kernel by the thread that
//! completes it. The kernel has checked permissions before it sends a request
//! (`default_permissions`).
//!
//! A request says whether setuid and setgid bits survive the change, with one exception: whether
//! the setgid bit is cleared although the group may not execute. `caller` finds that out.
//!
//! The protocol is described in `docs/fuse.md`.

#![forbid(unsafe_code)]

pub use dir_attrs::DirAttrs;
pub use init::{LEASED_TTL, TTL};
pub use inodes::Inodes;
pub use mounting::{Mount, MountError, UnmountError, mount, mount_over, serve};
pub use notices::Notices;
pub use options::{Atime, IoUring, Keeps, MountOptions, Trusts};
pub use passthrough::NoPassthrough;
pub use pelago_fuse::NoRing;

mod adapter;
mod attr;
mod attr_ttl;
mod backings;
mod begin_again;
pub mod busy;
mod caller;
mod clock;
mod close;
pub mod connection;
mod create;
mod dir_attrs;
mod dir_cache;
mod dir_streams;
mod dispatch;
mod entry_attrs;
mod find;
mod flags;
mod held_inodes;
mod holding;
mod init;
mod inodes;
mod installing;
mod kernel_cache;
mod late;
mod late_names;
mod leased;
mod lifetimes;
mod locks;
pub mod mountinfo;
mod mounting;
mod moves;
mod name_changes;
mod name_times;
mod notices;
mod open;
mod open_ids;
mod options;
mod page_versions;
mod passthrough;
mod process;
mod prune;
mod range_ops;
mod read;
mod readdir;
mod rename;
mod replies;
mod retries;
mod set_lock;
#[cfg(test)]
mod silent;
mod stale_pages;
mod state;
mod striped;
mod unlinked;
mod write;
mod xattrs;
