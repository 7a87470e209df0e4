//! Programs to run on a file system, and checks of the results. For tests only.
//!
//! Random programs ([`op`], [`generate`]) run on a [`target::Target`] and on a reference [`model`],
//! and [`compare`] reports the first difference; the same programs on a plain directory test the
//! model itself. [`together`] changes one file through several mounts. A [`witness`] logs each
//! acknowledged operation outside the mount, and after a crash reports the missing ones. A
//! [`ledger`] does so for a mirror, which may be behind. A [`crowd`] downloads a file over HTTP.

#![forbid(unsafe_code)]

mod clock;
pub mod compare;
pub mod crowd;
pub mod generate;
pub mod ledger;
pub mod model;
pub mod op;
pub mod target;
pub mod together;
pub mod witness;
