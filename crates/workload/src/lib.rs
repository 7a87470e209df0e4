//! Work to do, and what must be true afterwards.
//!
//! Three things, none of which knows a server. Random programs ([`op`], [`generate`]) run on a
//! [`target::Target`] and on a reference [`model`], and [`compare`] tells where they part; the same
//! programs on a plain directory test the model itself. A [`witness`] logs each answered operation
//! outside the mount and says after a crash what is missing. The engines of [`mod@bench`]
//! measure.

#![forbid(unsafe_code)]

pub mod bench;
mod clock;
pub mod compare;
pub mod generate;
pub mod model;
pub mod op;
pub mod random;
pub mod target;
pub mod witness;
