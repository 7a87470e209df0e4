//! The kit of the laboratories: groups of processes with limits, and links between machines.

pub(crate) mod group;
pub(crate) mod slow_link;
