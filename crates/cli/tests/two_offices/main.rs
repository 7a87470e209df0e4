//! Two machines of two offices, set up with README.md's commands.

mod apart;
mod changes;
mod client;
mod conflicts;
mod copies;
mod directories;
mod errors;
mod guests;
pub(crate) mod office;
mod older;
mod paths;
mod repair;
mod ringer;
mod stays;
mod third;
