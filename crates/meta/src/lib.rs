//! Names and attributes: the single writer of directories and inodes, over a table.
//!
//! [`shard`] carries out operations, each as one batch. [`row_cache`], `directory` and
//! [`name_filter`] are its memory beside the table. [`durability`] records which batches are safe,
//! and [`writeback_errors`] which inodes lost changes. [`reply_cache`] stores replies, so that a
//! repeated request is not carried out twice. `acl` has the rules of access control lists, and
//! [`process`] checks permissions by them and by modes. [`tree`] is a snapshot of the names, for
//! searches. [`recovery`] is the first step of a run.

#![forbid(unsafe_code)]

mod acl;
mod directory;
pub mod durability;
pub mod name_filter;
mod place_hints;
pub mod process;
pub mod recovery;
pub mod reply_cache;
pub mod row_cache;
pub mod shard;
pub mod tree;
mod unsafe_changes;
pub mod writeback_errors;
