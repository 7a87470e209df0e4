//! Methods of a shard that other crates call beside its operations: attributes, open files, and
//! workers. Each takes the lock, runs a function of another file, and commits. The method of an
//! operation stands in the operation's own file.

mod attributes;
mod open_files;
mod workers;
