//! The HTTP server: a tree, read-only, for browsers and every tool that downloads; and [`fetch()`],
//! the client that takes the blocks of a file in any order.
//!
//! The server reads through [`pelago_client::Files`], as one user of the machine. hyper and its
//! runtime are known in this crate only.

#![forbid(unsafe_code)]

pub use access::ReadAs;
pub use fetch::{FetchError, FetchEvent, FetchPlan, Fetched, Lie, UrlError, fetch};
pub use server::{HttpOptions, HttpServer};
pub use traffic::HttpTraffic;

mod access;
mod blocks;
mod body;
mod conditions;
mod delivery;
mod direct;
mod failure;
mod fetch;
mod hashes;
mod have_map;
mod listing;
mod pinned;
mod places;
mod range;
mod request_body;
mod response;
mod server;
mod target;
mod traffic;
mod tree;
mod watched;
