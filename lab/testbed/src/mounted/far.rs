//! A volume that one process serves without mounting it, and mounts of it by other processes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Mounted, mounts_below};
use crate::run_as::Way;

impl Mounted {
    /// Serves the volume, with a mount of its own only if the suite uses that, and mounts it in
    /// further processes.
    pub(super) fn serve(&self) -> Result<(), String> {
        let own = match () {
            () if self.run_as.ways.contains(&Way::Own) => Some(self.point()),
            () if self.run_as.ways.contains(&Way::Guest) => Some(self.of_owner()),
            () => None,
        };
        let mut serve = self.pelago(if own.is_some() { "up" } else { "serve" });
        serve.arg(self.volume()).args(["--listen", "127.0.0.1:0", "--detach", "--json"]);
        if let Some(own) = own {
            self.prepare(&own).map_err(|why| format!("{}: {why}", own.display()))?;
            serve.arg("--mount").arg(own).args(["--passthrough", self.path()]);
        }
        let served = self.json("serve", &mut serve)?;
        let address = served["listening"].as_str().ok_or("serve names no address")?;
        self.step("key-new", self.pelago("key").arg("new"))?;
        let key = self.step("key-show", self.pelago("key").arg("show"))?.stdout;
        let allow = &mut self.pelago("key");
        self.step("key-allow", allow.args(["allow", key.trim(), "-V"]).arg(self.volume()))?;
        for (way, point) in self.run_as.ways.iter().zip(self.points()) {
            let mut mount = self.pelago("mount");
            match way {
                Way::Own => continue,
                Way::Guest => {
                    self.attach(address, &point)?;
                    continue;
                }
                Way::Unix => mount.arg(self.volume().join("pelago.sock")),
                Way::Tls => mount.arg(address),
            };
            self.step("mount", mount.arg(point).arg("--detach"))?;
        }
        Ok(())
    }

    /// Shares a folder of the volume with a key of its own, to be changed, and attaches it.
    fn attach(&self, address: &str, point: &Path) -> Result<(), String> {
        let (_, at) = address.split_once('@').ok_or_else(|| format!("no address: {address}"))?;
        let as_guest = |verb: &str| {
            let mut command = Command::new(&self.pelago);
            command.arg(verb).env("PELAGO_KEY", self.folder.join("guest.key"));
            command
        };
        let shared = self.of_owner().join("shared");
        self.prepare(&shared).map_err(|why| format!("{}: {why}", shared.display()))?;
        self.step("guest-key-new", as_guest("key").arg("new"))?;
        let key = self.step("guest-key-show", as_guest("key").arg("show"))?.stdout;
        let credential = self.folder.join("guest.cred");
        let mut share = self.pelago("share");
        share.arg(shared).args(["--to", key.trim(), "--rights", "rwxcd", "--at", at]);
        self.step("share", share.arg("--out").arg(&credential))?;
        let mut attach = as_guest("attach");
        self.step("attach", attach.arg(credential).arg(point).arg("--detach")).map(drop)
    }

    /// Returns the server's own mount of a volume that a guest uses.
    fn of_owner(&self) -> PathBuf {
        self.folder.join("owner")
    }

    /// Serves the volume again, after its server was killed.
    pub fn serve_again(&self) -> Result<(), String> {
        let mut serve = self.pelago("up");
        serve.arg(self.volume()).args(["--listen", "127.0.0.1:0", "--detach", "--json", "--mount"]);
        serve.arg(self.point()).args(["--passthrough", self.path()]);
        self.json("serve", &mut serve).map(drop)
    }

    /// Returns the port at which the server listens.
    pub fn listening(&self) -> Result<u16, String> {
        let (_, port) = self.key_and_port()?;
        port.parse().map_err(|why| format!("`{port}` as a port: {why}"))
    }

    /// Returns the server's address at another port of this machine.
    pub fn address_at(&self, port: u16) -> Result<String, String> {
        let (key, _) = self.key_and_port()?;
        Ok(format!("{key}@127.0.0.1:{port}"))
    }

    fn key_and_port(&self) -> Result<(String, String), String> {
        let mut status = self.pelago("status");
        let status = self.json("status", status.arg(self.volume()).arg("--json"))?;
        let address = status["listening"].as_str().ok_or("the server does not listen")?;
        let split = address.split_once('@').zip(address.rsplit_once(':'));
        let ((key, _), (_, port)) = split.ok_or_else(|| format!("no address: {address}"))?;
        Ok((key.to_owned(), port.to_owned()))
    }

    /// Returns the socket by which processes of this machine mount the volume.
    pub fn socket(&self) -> OsString {
        self.volume().join("pelago.sock").into()
    }

    /// Mounts the volume in one more process, in a new folder. Returns the process.
    pub fn mount_far(&self, server: &OsStr, point: &Path) -> Result<u64, String> {
        self.prepare(point).map_err(|why| format!("{}: {why}", point.display()))?;
        let mut mount = self.pelago("mount");
        mount.arg(server).arg(point).args(["--detach", "--json"]);
        let mounted = self.json("mount", &mut mount)?;
        mounted["pid"].as_u64().ok_or_else(|| format!("mount names no process: {mounted}"))
    }

    /// Ends such a mount.
    pub fn unmount_far(&self, point: &Path) -> Result<(), String> {
        self.step("unmount", self.pelago("unmount").arg(point)).map(drop)
    }

    fn json(&self, step: &str, command: &mut Command) -> Result<Value, String> {
        let said = self.step(step, command)?.stdout;
        serde_json::from_str(&said).map_err(|why| format!("{step} --json: {why}: {said}"))
    }

    /// Returns the command of this verb, with the key that [`Mounted::serve`] has allowed.
    fn pelago(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.pelago);
        command.arg(verb).env("PELAGO_KEY", self.folder.join("key"));
        command
    }

    /// Ends the mounts and their server.
    pub(super) fn end(&self) -> Result<(), String> {
        for (way, point) in self.run_as.ways.iter().zip(self.points()) {
            if *way != Way::Own {
                self.step("unmount", self.pelago("unmount").arg(point))?;
            }
        }
        self.step("end", self.pelago("unmount").arg("-V").arg(self.volume())).map(|_| ())
    }

    /// Ends the mounts by force after an error, and goes on after each failure.
    pub(super) fn end_by_force(&self) {
        // Also those that a suite has made.
        let points = mounts_below(&self.folder);
        let mut arguments: Vec<[&OsStr; 2]> = Vec::new();
        for point in points.iter().rev() {
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
