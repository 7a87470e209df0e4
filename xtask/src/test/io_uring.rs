//! The kernel's switch for FUSE over io_uring, which holds for the whole machine.
//!
//! It decides what new connections are offered. All our mounts but those of tests that want a ring
//! use the device anyway, so that it is on harms no other test.

use std::fs;

/// Where the switch is; it came with Linux 6.14.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch, on. Dropped, it is as it was before.
pub(crate) struct SwitchedOn {
    before: String,
}

impl SwitchedOn {
    /// Switches it on.
    ///
    /// # Errors
    /// Why this machine cannot.
    pub(crate) fn new() -> Result<Self, String> {
        let failed = |why| format!("{SWITCH}: {why}");
        let before = fs::read_to_string(SWITCH).map_err(failed)?;
        fs::write(SWITCH, "Y").map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        if let Err(why) = fs::write(SWITCH, self.before.trim()) {
            println!("{SWITCH}: {why}");
        }
    }
}
