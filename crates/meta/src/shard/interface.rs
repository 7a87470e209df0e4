//! The methods of a shard that other crates call. Each takes the lock, runs one operation, and
//! commits; the operations are in files of their own.

mod attributes;
mod names;
mod open_files;
mod workers;
