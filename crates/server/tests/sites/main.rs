//! Servers of two sites of one volume: how they join, and the requests between them.
//!
//! Both are in one process. A request over a connection is a call here, in a session that has begun
//! as one of a site.

mod ancestry;
mod clocks;
mod conflicts;
mod copies;
mod elsewhere;
mod guests;
mod hashes;
mod joining;
mod leases;
mod line;
mod locks;
mod origins;
mod remove_dir;
mod stale;
mod stays;
mod stays_at_risk;
mod storm;
mod three;
mod tokens;
mod whereabouts;
mod world;
