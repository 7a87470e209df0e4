//! What a server keeps: rows in a table, bytes in content files, and the volume's own files.
//!
//! This crate owns the disk format (`docs/format.md`): keys, values, the engine behind the
//! [`table::Table`] seam, the files of a volume and the content files. It decides nothing about files
//! and directories; the server does.

pub mod table;
