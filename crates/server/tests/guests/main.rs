//! Guests: sessions whose client has shown a chain of credentials. Each test has a real
//! volume, and asks the service as a connection does.

mod access;
mod admission;
mod attaching;
mod audited;
mod chains;
mod files;
mod keys;
mod kinds;
mod moves;
mod opens;
mod places;
mod races;
mod revoking;
mod world;
mod writing;
