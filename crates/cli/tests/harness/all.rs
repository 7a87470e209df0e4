//! The helpers of the tests of the binary. Each test uses some of them.

#![allow(dead_code, reason = "each test binary uses a part of the harness")]

#[path = "damage.rs"]
pub(crate) mod damage;
#[path = "golden.rs"]
pub(crate) mod golden;
#[path = "mapping.rs"]
pub(crate) mod mapping;
#[path = "namespace.rs"]
pub(crate) mod namespace;
#[path = "page_cache.rs"]
pub(crate) mod page_cache;
#[path = "program.rs"]
pub(crate) mod program;
#[path = "programs.rs"]
pub(crate) mod programs;
#[path = "seen.rs"]
pub(crate) mod seen;
#[path = "volume.rs"]
pub(crate) mod volume;
#[path = "witness.rs"]
pub(crate) mod witness;
