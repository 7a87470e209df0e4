//! A volume of the release binary, mounted in a temporary folder, for other people's programs.
//!
//! Its programs use the mount of the server itself, or far mounts: those of other processes. On
//! drop the volume is unmounted and its folder removed, also after an error. A folder with a mount
//! in it stays.

mod far;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::process::{self, Ending};
use crate::run_as::RunAs;
use crate::workspace;

/// Most time of one step of a program. Only a step that hangs takes an hour.
pub const STEP_LIMIT: Duration = Duration::from_secs(3600);
/// Bytes of a failed step's output that are printed, from its end.
const SHOWN_BYTES: usize = 4000;

/// Builds the binary and returns its path.
pub fn build() -> Result<PathBuf, String> {
    workspace::build(&["--bin", "pelago"], "pelago")
}

/// Creates `target/xtask/VERB` unless it exists, and returns its path.
pub fn log_folder(verb: &str) -> Result<PathBuf, String> {
    let logs = workspace::target_folder()?.join("xtask").join(verb);
    fs::create_dir_all(&logs).map_err(|why| format!("{}: {why}", logs.display()))?;
    Ok(logs)
}

/// A mounted volume. [`Mounted::finish`] checks it; a drop unmounts it by force.
pub struct Mounted {
    pelago: PathBuf,
    logs: PathBuf,
    folder: PathBuf,
    run_as: RunAs,
}

impl Mounted {
    /// Creates a volume and mounts it, as the user and with the data path of `run_as`.
    pub fn start(pelago: &Path, logs: &Path, name: &str, run_as: &RunAs) -> Result<Self, String> {
        let name = format!("pelago-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let made = fs::create_dir(&folder).and_then(|()| fs::canonicalize(&folder));
        let folder = made.map_err(|why| format!("{}: {why}", folder.display()))?;
        let mut mounted = Self {
            pelago: pelago.to_owned(),
            logs: logs.to_owned(),
            folder,
            run_as: run_as.clone(),
        };
        let folders = [mounted.folder.clone(), mounted.scratch()];
        for folder in folders.iter().chain(&mounted.points()) {
            mounted.prepare(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        }
        mounted.pelago = mounted.bring(pelago)?;
        if mounted.has_only_own() {
            mounted.up()?
        } else {
            mounted.serve()?
        }
        // Suites change users, and each must be able to enter the root of the volume.
        mounted.shell("open", "chmod 755 .")?;
        Ok(mounted)
    }

    /// Creates a folder of the account that other users can enter, whatever our umask is.
    fn prepare(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        match &self.run_as.account {
            Some(account) => chown(folder, Some(account.uid), Some(account.gid)),
            None => Ok(()),
        }
    }

    /// Returns where the account can read a file of ours: in a copy, if the account is not ours.
    pub fn bring(&self, program: &Path) -> Result<PathBuf, String> {
        if self.run_as.account.is_none() {
            return Ok(program.to_owned());
        }
        let copy = self.folder.join(program.file_name().unwrap_or_default());
        let copied = fs::copy(program, &copy)
            .and_then(|_| fs::set_permissions(&copy, Permissions::from_mode(0o755)));
        copied.map(|()| copy.clone()).map_err(|why| format!("{}: {why}", copy.display()))
    }

    /// Unmounts the volume and runs `pelago check`.
    pub fn finish(self) -> Result<(), String> {
        if self.has_only_own() {
            let mut unmount = Command::new(&self.pelago);
            self.step("unmount", unmount.arg("unmount").arg(self.point()))?;
        } else {
            self.end()?;
        }
        let mut check = Command::new(&self.pelago);
        self.step("check", check.arg("check").arg(self.volume()))?;
        Ok(())
    }

    fn up(&self) -> Result<(), String> {
        let mut up = Command::new(&self.pelago);
        up.arg("up").arg(self.volume()).arg("--mount").arg(self.point()).arg("--detach");
        up.args(["--passthrough", self.path()]);
        self.step("up", &mut up).map(|_| ())
    }

    /// Runs a command. Its output goes to `target/xtask/VERB/STEP.out` and `.err`. An exit code
    /// other than 0 is an error that shows the end of both.
    pub fn step(&self, step: &str, command: &mut Command) -> Result<Ending, String> {
        let ending = self.run(step, command)?;
        if ending.is_success() {
            return Ok(ending);
        }
        let out = tail(&ending.stdout);
        let err = tail(&ending.stderr);
        Err(format!("{step}: {}\n{out}\n{err}", ending.describe()))
    }

    /// Runs a command as [`Mounted::step`] does; any exit code is a success.
    pub fn run(&self, step: &str, command: &mut Command) -> Result<Ending, String> {
        if let Some(account) = &self.run_as.account {
            account.apply(command, &self.scratch());
            if command.get_current_dir().is_none() {
                // The account may have no access to our working directory.
                command.current_dir(&self.folder);
            }
        }
        process::run_limited(command, &self.logs.join(step), STEP_LIMIT)
    }

    /// Runs a bash script in the root of the volume; it ends at its first error. `$POINT` is that
    /// root, `$OTHER` the root of the second mount if there is one, `$SCRATCH` a folder beside the
    /// volume; `$PELAGO`, `$VOLUME` and `$PASSTHROUGH` are what `pelago up` needs.
    pub fn shell(&self, step: &str, script: &str) -> Result<Ending, String> {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(self.point());
        bash.env("POINT", self.point()).env("SCRATCH", self.scratch()).env("LC_ALL", "C");
        bash.env("PELAGO", &self.pelago).env("VOLUME", self.volume());
        bash.env("PASSTHROUGH", self.path());
        if let Some(other) = self.points().get(1) {
            bash.env("OTHER", other);
        }
        self.step(step, &mut bash)
    }

    /// Returns the id of the process that serves the volume.
    pub fn pid(&self) -> Result<u64, String> {
        let mut status = Command::new(&self.pelago);
        let said = self.step("status", status.args(["status", "--json"]).arg(self.volume()))?;
        let answer: Value = serde_json::from_str(&said.stdout)
            .map_err(|why| format!("status --json: {why}: {}", said.stdout))?;
        answer["pid"].as_u64().ok_or_else(|| format!("status names no process: {answer}"))
    }

    /// Returns the binary, where the account can run it.
    pub fn binary(&self) -> &Path {
        &self.pelago
    }

    /// Returns the mount point; the first one if there are several.
    pub fn point(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Returns all mount points.
    pub fn points(&self) -> Vec<PathBuf> {
        let others = (1..self.run_as.ways.len()).map(|number| format!("other{number}"));
        let others = others.map(|name| self.folder.join(name));
        std::iter::once(self.point()).chain(others).collect()
    }

    /// Returns whether another user than ours serves and uses the volume.
    pub fn is_of_account(&self) -> bool {
        self.run_as.account.is_some()
    }

    /// Returns a folder beside the volume, on the file system that holds it.
    pub fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    fn path(&self) -> &'static str {
        self.run_as.path.unwrap_or("auto")
    }

    fn volume(&self) -> PathBuf {
        self.folder.join("volume")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.end_by_force();
        if self.points().iter().any(|point| is_mount(point)) || is_mount(&self.scratch()) {
            println!("left behind, still mounted: {}", self.folder.display());
        } else if let Err(why) = fs::remove_dir_all(&self.folder) {
            println!("left behind: {}: {why}", self.folder.display());
        }
    }
}

/// A tmpfs, which a suite needs as a second file system.
pub struct OtherFileSystem {
    point: PathBuf,
}

impl OtherFileSystem {
    /// Mounts it on a folder, which needs root.
    pub fn mount(point: PathBuf) -> Result<Self, String> {
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

/// Returns whether something is mounted on `path`, which has no symbolic links. It asks the
/// kernel's table, not the mount: a mount whose server does not answer would keep us waiting.
pub fn is_mount(path: &Path) -> bool {
    mounts_below(path).iter().any(|point| point == path)
}

/// Returns the mount points on a path and below it, in the order of mounting.
pub fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    points.filter(|point| point.starts_with(path)).collect()
}

/// Returns the end of a long output.
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
    fn a_plain_folder_is_not_a_mount() {
        assert!(!is_mount(&workspace::root().join("xtask")));
        assert!(!is_mount(&workspace::root().join("nowhere")));
        assert!(is_mount(Path::new("/proc")));
    }
}
