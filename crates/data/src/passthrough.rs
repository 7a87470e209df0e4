//! Passthrough: the kernel reads and writes the content file of an open itself (decision 4).
//!
//! Linux 6.9 and later have it. Four of its properties force the code here:
//!
//! - It registers descriptors only for a process with `CAP_SYS_ADMIN` ([`probe`]).
//! - It fails an open with `EIO` if the inode is open by the other data path, cached pages or
//!   passthrough: so the path is chosen for an inode, under its lock ([`open`]).
//! - A shared mapping of such a file outlives RELEASE, and the kernel's descriptor outlives a
//!   killed daemon; both still write the content file. Only a lease on the content file
//!   (`F_SETLEASE`) shows whether a writer is left ([`observer`], [`pending_close`]). On an overlay
//!   the lease is granted although a mapping is left, so [`probe`] tries it first.
//! - To create a content file and to register it doubles the time of a CREATE. So this is done at
//!   once only for a file that is expected to be large ([`placement`]).

pub(crate) mod observer;
pub(crate) mod open;
pub(crate) mod pending_close;
pub(crate) mod placement;
pub(crate) mod probe;
pub(crate) mod shared_write;
