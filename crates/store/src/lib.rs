//! What a server keeps: rows in a table, bytes in content files, and the volume's own files.
//!
//! This crate owns the disk format (`docs/format.md`): keys ([`key`]), values ([`rows`]), the
//! engine behind the [`table::Table`] seam, the files of a volume ([`volume`], [`reserve`]), opened
//! below descriptors ([`folder`]), and the content files ([`content`]); [`os`] has the little that
//! needs `unsafe`. It decides nothing about files and directories; the server does.
//!
//! Bytes that come from a medium never panic: they decode whole, or answer an error.

pub mod content;
pub mod folder;
pub mod hash;
pub mod key;
pub mod os;
pub mod reserve;
pub mod rows;
pub mod table;
pub mod volume;
