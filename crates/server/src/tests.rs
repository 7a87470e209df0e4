//! The parts of a server together, over the fake table.

mod atime;
mod evict;
mod locks;
mod open_files;
mod passthrough_open;
mod pins;
mod range_ops;
mod search;
mod search_full;
mod search_hidden;
mod search_hostile;
mod search_many;
mod search_model;
mod search_tags;
mod shared_write;
mod sync;
mod tags;
