//! Mounts of one volume by several processes: the server's own, one by its Unix socket, and one by
//! TCP with TLS. Everything runs as a user runs it: the binary, its sockets and the kernel.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::far::world::World;
use crate::harness::program::until;
use crate::harness::volume::{cannot_mount, passthrough_modes};

mod accounts;
mod bad_input;
mod bytes;
mod cut;
mod errors;
mod find;
mod forwarder;
mod good;
mod guests;
mod keys;
mod leases;
mod locks;
mod names;
mod peer;
mod replay;
mod requests;
mod runtime_dir;
mod strangers;
mod together;
mod waiters;
pub(crate) mod world;
mod write_behind;

/// Runs `work` on a new volume that is up with all three mounts, on each data path of its server;
/// afterwards the volume must be whole.
fn on_world(work: impl Fn(&World)) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    for passthrough in passthrough_modes(&["auto", "always"]) {
        println!("--passthrough {passthrough}");
        let world = World::new(&passthrough);
        world.mount_both();
        work(&world);
        world.finish();
    }
}

/// The same on one data path, without mounts by others yet: what is tested does not depend on it.
fn on_server(work: impl FnOnce(&World)) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let modes = passthrough_modes(&["auto"]);
    let world = World::new(&modes[0]);
    work(&world);
    world.finish();
}

/// Returns the errno of a failure.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&result.unwrap_err()).unwrap()
}

/// Stops a process, and returns once none of its threads runs.
fn stop(pid: Pid) {
    kill_process(pid, Signal::STOP).unwrap();
    until("stopped", || {
        let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('T'))
        })
    });
}
