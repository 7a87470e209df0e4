//! A volume of the release binary, mounted in a temporary folder, for programs that know nothing
//! of Pelago.
//!
//! Whatever happens, the volume is unmounted and its folder is gone in the end; the folder is only
//! removed where nothing is mounted in it any more.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::manner::Manner;
use crate::process::{self, Ending};
use crate::workspace;

/// One step of a program, an hour: only what hangs meets it.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(3600);
/// Bytes of a failed step's output that are shown, from its end.
const SHOWN_BYTES: usize = 4000;

/// Builds the binary and says where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    let build = ["build", "--release", "--package", "pelago-cli", "--bins"];
    let status = process::run_foreground(&mut workspace::cargo(&build))?;
    let binary = workspace::target_folder()?.join("release/pelago");
    if status.success() { Ok(binary) } else { Err("the build failed".to_owned()) }
}

/// `target/xtask/VERB`, made if it is missing.
pub(crate) fn log_folder(verb: &str) -> Result<PathBuf, String> {
    let logs = workspace::target_folder()?.join("xtask").join(verb);
    fs::create_dir_all(&logs).map_err(|why| format!("{}: {why}", logs.display()))?;
    Ok(logs)
}

/// A volume that is up, until [`Mounted::finish`] or the drop.
pub(crate) struct Mounted {
    pelago: PathBuf,
    logs: PathBuf,
    folder: PathBuf,
    manner: Manner,
}

impl Mounted {
    /// Makes a new volume and mounts it, by whom and in the way that `manner` says.
    pub(crate) fn start(
        pelago: &Path,
        logs: &Path,
        name: &str,
        manner: &Manner,
    ) -> Result<Self, String> {
        let name = format!("pelago-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let mut mounted = Self {
            pelago: pelago.to_owned(),
            logs: logs.to_owned(),
            folder,
            manner: manner.clone(),
        };
        for folder in [mounted.folder.clone(), mounted.point(), mounted.scratch()] {
            mounted.prepare(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        }
        mounted.pelago = mounted.bring(pelago)?;
        mounted.up()?;
        // Others pass through the root of the volume too.
        mounted.shell("open", "chmod 755 .")?;
        Ok(mounted)
    }

    /// A folder of the account, through which others pass, whatever our umask is.
    fn prepare(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        match &self.manner.account {
            Some(account) => chown(folder, Some(account.uid), Some(account.gid)),
            None => Ok(()),
        }
    }

    /// Where the account can run a program of ours: a copy, if it is not us.
    pub(crate) fn bring(&self, program: &Path) -> Result<PathBuf, String> {
        if self.manner.account.is_none() {
            return Ok(program.to_owned());
        }
        let copy = self.folder.join(program.file_name().unwrap_or_default());
        let copied = fs::copy(program, &copy)
            .and_then(|_| fs::set_permissions(&copy, Permissions::from_mode(0o755)));
        copied.map(|()| copy.clone()).map_err(|why| format!("{}: {why}", copy.display()))
    }

    /// Unmounts the volume and looks it over; it must be whole.
    pub(crate) fn finish(self) -> Result<(), String> {
        let mut unmount = Command::new(&self.pelago);
        self.step("unmount", unmount.arg("unmount").arg(self.point()))?;
        let mut check = Command::new(&self.pelago);
        self.step("check", check.arg("check").arg(self.volume()))?;
        Ok(())
    }

    /// Mounts the volume, again after its process was killed.
    pub(crate) fn up(&self) -> Result<(), String> {
        let mut up = Command::new(&self.pelago);
        up.arg("up").arg(self.volume()).arg("--mount").arg(self.point()).arg("--detach");
        // Its own default needs no word.
        if let Some(way) = self.manner.way.filter(|way| *way != "auto") {
            up.args(["--passthrough", way]);
        }
        self.step("up", &mut up).map(|_| ())
    }

    /// Runs a command in the mounted volume; its output goes to `target/xtask/VERB/STEP.out` and
    /// `.err`. Anything but exit code 0 is an error that shows the end of both.
    pub(crate) fn step(&self, step: &str, command: &mut Command) -> Result<Ending, String> {
        let ending = self.run(step, command)?;
        if ending.is_success() {
            return Ok(ending);
        }
        let (out, err) = (tail(&ending.stdout), tail(&ending.stderr));
        Err(format!("{step}: {}\n{out}\n{err}", ending.describe()))
    }

    /// The same, whatever its exit code is.
    pub(crate) fn run(&self, step: &str, command: &mut Command) -> Result<Ending, String> {
        if let Some(account) = &self.manner.account {
            account.dress(command, &self.scratch());
            if command.get_current_dir().is_none() {
                // Ours may be closed to it.
                command.current_dir(&self.folder);
            }
        }
        process::run_limited(command, &self.logs.join(step), STEP_LIMIT)
    }

    /// Runs a bash script, which ends at its first error, in the root of the volume. `$POINT` is
    /// that root, `$SCRATCH` a folder beside the volume.
    pub(crate) fn shell(&self, step: &str, script: &str) -> Result<Ending, String> {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(self.point());
        bash.env("POINT", self.point()).env("SCRATCH", self.scratch()).env("LC_ALL", "C");
        self.step(step, &mut bash)
    }

    /// The number of the process that serves the volume.
    pub(crate) fn pid(&self) -> Result<u64, String> {
        let mut status = Command::new(&self.pelago);
        let said = self.step("status", status.args(["status", "--json"]).arg(self.volume()))?;
        let answer: Value = serde_json::from_str(&said.stdout)
            .map_err(|why| format!("status --json: {why}: {}", said.stdout))?;
        answer["pid"].as_u64().ok_or_else(|| format!("status names no process: {answer}"))
    }

    /// Where the volume is mounted.
    pub(crate) fn point(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Whether somebody else than who runs us serves and uses it.
    pub(crate) fn is_of_account(&self) -> bool {
        self.manner.account.is_some()
    }

    /// A folder on the file system below the volume.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    fn volume(&self) -> PathBuf {
        self.folder.join("volume")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mount(&self.point()) {
            let mut unmount = Command::new(&self.pelago);
            let ended =
                self.step("unmount-force", unmount.args(["unmount", "--force"]).arg(self.point()));
            if let Err(why) = ended {
                println!("{why}");
            }
        }
        if is_mount(&self.point()) || is_mount(&self.scratch()) {
            println!("left behind, still mounted: {}", self.folder.display());
        } else if let Err(why) = fs::remove_dir_all(&self.folder) {
            println!("left behind: {}: {why}", self.folder.display());
        }
    }
}

/// A file system in memory, to be another one than the volume's; needs root.
pub(crate) struct OtherFileSystem {
    point: PathBuf,
}

impl OtherFileSystem {
    /// Mounts it on the folder.
    pub(crate) fn mount(point: PathBuf) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m,mode=1777", "pelago-xtask"]).arg(&point);
        let status = process::run_foreground(&mut mount)?;
        if status.success() { Ok(Self { point }) } else { Err("cannot mount a tmpfs".to_owned()) }
    }
}

impl Drop for OtherFileSystem {
    fn drop(&mut self) {
        if let Err(why) = process::run_foreground(Command::new("umount").arg(&self.point)) {
            println!("{why}");
        }
    }
}

/// Whether something is mounted there; a dead mount, which cannot be looked at, counts.
fn is_mount(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    match (device(path), path.parent().map(device)) {
        (Ok(own), Some(Ok(parent))) => own != parent,
        (Err(why), _) => why.kind() != std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The end of what was said.
fn tail(said: &str) -> &str {
    let start = said.len().saturating_sub(SHOWN_BYTES);
    let start = (start..=said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(said.len());
    said[start..].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_output_is_shown() {
        assert_eq!(tail("short\n"), "short");
        let long = format!("{}end", "ä".repeat(SHOWN_BYTES));
        let shown = tail(&long);
        assert!(shown.ends_with("end") && shown.len() <= SHOWN_BYTES);
    }

    #[test]
    fn a_plain_folder_is_no_mount() {
        assert!(!is_mount(&workspace::root().join("xtask")));
        assert!(!is_mount(&workspace::root().join("nowhere")));
        assert!(is_mount(Path::new("/proc")));
    }
}
