//! Operations by each pair of mounts on the same files and names: the server's own mount, one by
//! its Unix socket, one by TLS, and each with itself. A folder of the disk below shows the
//! behaviour of Linux.
//!
//! `PELAGO_PAIRS_NAMES` sets how many names each race has, by default 40.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::far::world::World;
use crate::harness::volume::{cannot_mount, passthrough_modes};

mod again;
mod held;
mod held_inodes;
mod locks;

const NAMES: usize = 40;
const MINUTE: Duration = Duration::from_secs(60);

/// Returns how many names a race has.
fn names() -> usize {
    std::env::var("PELAGO_PAIRS_NAMES").ok().and_then(|text| text.parse().ok()).unwrap_or(NAMES)
}

/// Two folders that are one, by the mounts of a pair.
#[derive(Debug, Clone)]
struct Pair {
    one: PathBuf,
    other: PathBuf,
}

/// Runs `work` on a new volume with all three mounts, on each data path of its server; afterwards
/// the volume must be whole.
fn on_world(work: impl Fn(&World)) {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    for passthrough in passthrough_modes(&["never", "always"]) {
        println!("--passthrough {passthrough}");
        let world = World::with_deadline(&passthrough, 4 * MINUTE);
        world.mount_both();
        work(&world);
        world.finish();
    }
}

/// Runs `work` with a folder of the disk below, and with a folder of a new volume by each pair of
/// its mounts, in both orders.
fn on_pairs(work: impl Fn(&Pair)) {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    let mode = passthrough_modes(&["auto"]).remove(0);
    // A hang ends; the more names, the later.
    let turns = u32::try_from(names().div_ceil(NAMES)).unwrap();
    let world = World::with_deadline(&mode, 4 * MINUTE * turns);
    world.mount_both();
    let folder = |root: &PathBuf, name: &str| {
        let folder = root.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    };
    let disk = folder(&world.volume.root, "disk");
    work(&Pair { one: disk.clone(), other: disk });
    let roots = world.roots();
    for (first, one) in roots.iter().enumerate() {
        for (second, other) in roots.iter().enumerate() {
            let name = format!("pair{first}{second}");
            let pair = Pair { one: folder(one, &name), other: folder(other, &name) };
            work(&pair);
        }
    }
    world.finish();
}
