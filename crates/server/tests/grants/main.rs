//! Guests: sessions that present a credential for one directory.

mod admission;
mod moved;
mod revoked;
mod table;
mod world;
