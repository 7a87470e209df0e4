//! Servers of two sites of one volume: who may join, and what each asks the other.
//!
//! The two are in one process. What a connection would carry is a call, in a session that has begun
//! as one of a site.

mod elsewhere;
mod joining;
mod world;
