//! A read-only HTTP server of a tree, for browsers and download tools, and [`fetch()`], a client
//! that takes the blocks of a file in any order.
//!
//! The server reads through [`pelago_client::Files`], as one user of the machine. No other crate
//! uses hyper or its runtime.

#![forbid(unsafe_code)]

pub use access::ReadAs;
pub use fetch::{FetchError, FetchEvent, FetchPlan, Fetched, ServerViolation, UrlError, fetch};
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
