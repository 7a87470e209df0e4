//! A primary and its mirror: the groups that are sent, and the states that the mirror has.
//!
//! The mirror of [`image`] is in memory: it carries out each group, and records the state after it.

mod image;
mod levels;
mod reached;
mod sending;
