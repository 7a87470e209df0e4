//! A server and two other machines that mount its volume, joined by a network of their own, as a
//! stranger sets them up who has read README.md.

mod accepted;
mod hands;
mod mirror;
pub(crate) mod network;
mod office;
mod office_errors;
mod shared;
mod stalls;
mod store;
mod store_work;
pub(crate) mod world;
