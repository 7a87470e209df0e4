//! A volume that one process serves without mounting it, and mounts of it by other processes.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

use super::{Mounted, is_mount};
use crate::run_as::Way;

impl Mounted {
    /// Serves the volume, with a mount of its own only if the suite uses that, and mounts it in
    /// further processes.
    pub(super) fn serve(&self) -> Result<(), String> {
        let has_own = self.run_as.ways.contains(&Way::Own);
        let mut serve = self.pelago(if has_own { "up" } else { "serve" });
        serve.arg(self.volume()).args(["--listen", "127.0.0.1:0", "--detach", "--json"]);
        if has_own {
            serve.arg("--mount").arg(self.point()).args(["--passthrough", self.path()]);
        }
        let served = self.step("serve", &mut serve)?;
        let served: Value = serde_json::from_str(&served.stdout)
            .map_err(|why| format!("serve --json: {why}: {}", served.stdout))?;
        let address = served["listening"].as_str().ok_or("serve names no address")?;
        self.step("key-new", self.pelago("key").arg("new"))?;
        let key = self.step("key-show", self.pelago("key").arg("show"))?.stdout;
        let allow = &mut self.pelago("key");
        self.step("key-allow", allow.args(["allow", key.trim(), "-V"]).arg(self.volume()))?;
        for (way, point) in self.run_as.ways.iter().zip(self.points()) {
            let mut mount = self.pelago("mount");
            match way {
                Way::Own => continue,
                Way::Unix => mount.arg(self.volume().join("pelago.sock")),
                Way::Tls => mount.arg(address),
            };
            self.step("mount", mount.arg(point).arg("--detach"))?;
        }
        Ok(())
    }

    /// Returns the command of this verb, with the key that [`Mounted::serve`] has allowed.
    fn pelago(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.pelago);
        command.arg(verb).env("PELAGO_KEY", self.folder.join("key"));
        command
    }

    /// Ends the mounts, and the server behind them.
    pub(super) fn end(&self) -> Result<(), String> {
        for (way, point) in self.run_as.ways.iter().zip(self.points()) {
            if *way != Way::Own {
                self.step("unmount", self.pelago("unmount").arg(point))?;
            }
        }
        self.step("end", self.pelago("unmount").arg("-V").arg(self.volume())).map(|_| ())
    }

    /// The same after an error: by force, and going on after what fails.
    pub(super) fn end_by_force(&self) {
        let points = self.points();
        let mut arguments: Vec<[&OsStr; 2]> = Vec::new();
        for point in points.iter().filter(|point| is_mount(point)) {
            arguments.push(["--force".as_ref(), point.as_ref()]);
        }
        let volume = self.volume();
        if !self.has_only_own() && volume.join("format").is_file() {
            arguments.push(["-V".as_ref(), volume.as_ref()]);
        }
        for words in arguments {
            let ended = self.step("unmount-force", self.pelago("unmount").args(words));
            if let Err(why) = ended {
                println!("{why}");
            }
        }
    }

    /// Returns whether the mount of the server is the only one.
    pub(super) fn has_only_own(&self) -> bool {
        self.run_as.ways == [Way::Own]
    }
}
