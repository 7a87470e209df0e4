//! `pelago bench circus`.

pub mod world;

#[cfg(test)]
mod explore;
