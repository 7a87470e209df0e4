//! The file system as programs see it: POSIX through the kernel. Each test has a volume of its own,
//! which is checked at the end.

use std::path::Path;

use crate::harness::volume::{Volume, cannot_mount, passthrough_modes};

mod acl;
mod attributes;
mod bad_input;
mod beside;
mod bytes;
mod crowd;
mod document;
mod errors;
mod listing;
mod locks;
mod names;
mod promises;
mod together;

/// Runs `work` in the mount of a new volume, on each data path; afterwards the volume must be
/// whole.
fn on_mount(work: impl Fn(&Path)) {
    on_volume(|volume| work(&volume.files()));
}

fn on_volume(work: impl Fn(&Volume)) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    for passthrough in passthrough_modes(&["auto", "always"]) {
        println!("--passthrough {passthrough}");
        let volume = Volume::with_passthrough(&passthrough);
        work(&volume);
        volume.finish();
    }
}

/// Returns the errno of a failure.
fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&result.unwrap_err()).unwrap()
}
