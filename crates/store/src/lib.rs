//! The storage of a server on a local disk: rows in a table, bytes in content files, and the files
//! of a volume around them.
//!
//! This crate owns the disk format (`docs/format.md`). [`key`] has the keys of rows and [`rows`]
//! the values; [`table`] is the interface to the storage engine, and its implementations;
//! [`content`] has the content files. [`volume`] opens and locks a volume, with the help of
//! [`folder`] (files below a descriptor) and [`reserve`] (space for a full disk); [`owner`] decides
//! which of several servers owns a volume on a shared store. [`spool`] has the group that a mirror
//! receives, and [`relay_spool`] the groups that a relay passes on. [`hash`] orders names, and
//! [`os`] has all `unsafe` code. Only the crates above know what files and directories are.
//!
//! Damaged bytes on disk never cause a panic: they decode in full, or return an error.

pub mod clock;
pub mod content;
pub mod cycle;
pub mod hash;
pub mod key;
pub mod os;
pub mod owner;
pub mod relay_spool;
pub mod report;
pub mod reserve;
pub mod rows;
pub mod spool;
pub mod sync;
pub mod table;
pub mod volume;

pub use pelago_folder as folder;
