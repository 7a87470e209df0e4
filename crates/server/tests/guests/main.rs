//! Guests: sessions whose client has shown a chain of credentials. Each test has a real
//! volume, and asks the service as a connection does.

mod access;
mod admission;
mod attaching;
mod audit_pages;
mod audit_subjects;
mod audited;
mod auditing;
mod chains;
mod files;
mod holding;
mod inherited;
mod issued;
mod keys;
mod kinds;
mod moves;
mod opens;
mod places;
mod races;
mod recalls;
mod revoking;
mod searching;
mod world;
mod writing;
