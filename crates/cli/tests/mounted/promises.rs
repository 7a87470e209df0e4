//! The promises of `docs/semantics.md`: each row of its tables has a test of its name here, and
//! each test is named after a row (`super::document` compares them). If a local file system
//! promises the same, the test runs on the disk below too.

mod attributes;
mod bytes;
mod differences;
mod names;
mod opening;
mod sharing;
mod survives;
