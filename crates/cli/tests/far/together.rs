//! The short form of `cargo xtask fsx --two`: one file in three mounts, changed through each in a
//! random order. Each shows what the others have done, and all agree about the attributes.

use pelago_workload::together::{Bounds, run};

use crate::far::on_world;

const OPERATIONS: u64 = 1500;

#[test]
fn one_file_in_three_mounts_holds_what_programs_put_there() {
    on_world(|world| {
        let bounds = Bounds { longest: 262_144, largest: 65_536 };
        run(&world.roots(), 1, OPERATIONS, bounds).unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}

/// The size crosses the limit of inline files in both directions.
#[test]
fn one_small_file_in_three_mounts_holds_what_programs_put_there() {
    on_world(|world| {
        let bounds = Bounds { longest: 6000, largest: 1500 };
        run(&world.roots(), 2, OPERATIONS, bounds).unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}
