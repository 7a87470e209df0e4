//! What `docs/semantics.md` promises: each line of its tables has a test of its name here, and each
//! test here is named after a line (`crate::document` sees to it). Where a local file system
//! promises the same, the test runs on the disk below too.

mod attributes;
mod bytes;
mod differences;
mod names;
mod opening;
mod sharing;
mod survives;
