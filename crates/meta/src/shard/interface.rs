//! Methods of a shard that other crates call, other than its operations: attributes, open files,
//! and workers. Each takes the lock, runs a function of another file, and commits. The method of an
//! operation is in the file of the operation.

mod attributes;
mod open_files;
mod workers;
