//! Several machines in a network of their own, set up with README.md's commands: mounts, shares,
//! mirrors and shared stores.

mod accepted;
pub(crate) mod hands;
pub(crate) mod lab;
pub(crate) mod line;
mod mirror;
mod mirror_reading;
mod mirror_return;
pub(crate) mod network;
mod relay;
mod shared;
mod shared_audit;
mod shared_files;
mod shared_find;
mod shared_leases;
mod shared_on;
mod shared_walk;
mod shared_writing;
mod stalls;
mod store;
mod store_work;
mod story;
pub(crate) mod world;
