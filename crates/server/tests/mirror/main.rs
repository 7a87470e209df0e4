//! A primary and its mirror: what is sent, and in which states the mirror is.
//!
//! The mirror of [`image`] is memory: it carries out each group, and keeps what it has then.

mod image;
mod sending;
