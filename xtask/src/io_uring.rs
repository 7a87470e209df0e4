//! The kernel's switch for FUSE over io_uring, which holds for the whole machine.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// The file of the switch; it came with Linux 6.14.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch, on. It decides whether the kernel offers io_uring to new connections.
///
/// On drop it is set as it was before; also if this process is killed.
pub(crate) struct SwitchedOn {
    /// Sets it back at the end of its input, which this process holds.
    guardian: Child,
}

impl SwitchedOn {
    /// Switches it on.
    ///
    /// # Errors
    /// Why this machine cannot.
    pub(crate) fn new() -> Result<Self, String> {
        let failed = |why| format!("{SWITCH}: {why}");
        let before = fs::read_to_string(SWITCH).map_err(failed)?;
        let mut guardian = Command::new("sh");
        guardian.args(["-c", "cat; printf %s \"$1\" > \"$2\"", "sh", before.trim(), SWITCH]);
        // Ctrl-C ends the group of this process.
        guardian.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let guardian = guardian.spawn().map_err(failed)?;
        let switched_on = Self { guardian };
        fs::write(SWITCH, "Y").map_err(failed)?;
        Ok(switched_on)
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        if !self.guardian.wait().is_ok_and(|status| status.success()) {
            println!("{SWITCH}: it may still be on");
        }
    }
}
