//! Kills, lost power, full and broken disks, damaged and restored files.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod crash;
mod damage;
mod disk;
mod full_disk;
#[path = "harness/all.rs"]
mod harness;
mod one_bit;
mod restored;
mod salvage;
