//! Checks after the run: a mount below a far mount is still there, and all mounts show the same
//! tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::process;

const FOLDER: &str = "below";
const PROOF: &str = "proof";

/// Prints each name with its attributes; the time of the last access is not one of them.
const FIND: &str = r"find . -printf '%P %y %m %n %U %G %s %i %T@ %C@ %l\n' | sort";

/// A folder of another file system that is mounted below a far mount. It is unmounted on drop.
pub(super) struct Bound {
    point: PathBuf,
}

impl Bound {
    /// Mounts a new folder of `outside` below the mount `far`, in a folder made in `own`.
    pub(super) fn mount(own: &Path, far: &Path, outside: &Path) -> Result<Self, String> {
        let source = outside.join(FOLDER);
        let bound = Self { point: far.join(FOLDER) };
        let made = fs::create_dir(&source)
            .and_then(|()| fs::write(source.join(PROOF), PROOF))
            .and_then(|()| fs::create_dir(own.join(FOLDER)));
        made.map_err(|why| format!("{}: {why}", source.display()))?;
        let mut mount = Command::new("mount");
        mount.arg("--bind").arg(&source).arg(&bound.point);
        match process::run_foreground(&mut mount)?.success() {
            true => Ok(bound),
            false => Err(format!("cannot mount {}", bound.point.display())),
        }
    }

    /// Checks that the folder is still mounted, and unmounts it.
    pub(super) fn check(self) -> Result<(), String> {
        let point = self.point.display();
        if !mounted::is_mount(&self.point) {
            return Err(format!("{point} is not mounted any more"));
        }
        match fs::read_to_string(self.point.join(PROOF)) {
            Ok(said) if said == PROOF => Ok(()),
            said => Err(format!("{point} is mounted, and what is in it is not found: {said:?}")),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if !mounted::is_mount(&self.point) {
            return;
        }
        let unmounted = process::run_foreground(Command::new("umount").arg("-l").arg(&self.point));
        if let Err(why) = unmounted {
            println!("{why}");
        }
    }
}

/// Compares the names and attributes of all mounts.
pub(super) fn same_trees(volume: &Mounted, points: &[PathBuf]) -> Result<(), String> {
    let mut first: Option<Vec<String>> = None;
    for (number, point) in points.iter().enumerate() {
        let mut find = Command::new("bash");
        find.args(["-euo", "pipefail", "-c", FIND]).current_dir(point).env("LC_ALL", "C");
        let listed = volume.step(&format!("find-{number}"), &mut find)?.stdout;
        let lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        let Some(first) = &first else {
            first = Some(lines);
            continue;
        };
        if let Some(line) = first.iter().find(|line| !lines.contains(line)) {
            let point = point.display();
            return Err(format!("the server's own mount has `{line}`, and {point} has not"));
        }
        if let Some(line) = lines.iter().find(|line| !first.contains(line)) {
            let point = point.display();
            return Err(format!("{point} has `{line}`, and the server's own mount has not"));
        }
    }
    Ok(())
}
