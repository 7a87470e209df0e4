//! `real`: programs that people use, each on a volume of its own, which must be whole afterwards.
//!
//! A program is a script in `conformance/real`. Root runs each twice: with the data path that the
//! volume chooses for each file, and with passthrough for every file. Those of two far mounts, and
//! of a guest's, run once.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pelago_testbed::mounted::Mounted;
use pelago_testbed::run_as::{RunAs, Way};
use pelago_testbed::{VerbResult, run_as, workspace};

use crate::steps::{self, Step};

/// One program.
struct Program {
    /// The name of its script, without `.sh`.
    name: &'static str,
    /// Debian's packages that it needs.
    packages: &'static [&'static str],
    /// Only root can run it.
    needs_root: bool,
    mounts: Mounts,
}

/// The mounts that a program can use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mounts {
    /// The server's own, or one far mount.
    Any,
    /// The server's own: it kills the server and starts it itself.
    Own,
    /// Two far mounts of one volume: `$POINT` over TLS, `$OTHER` by the Unix socket.
    TwoFar,
    /// The mount of a guest, who may change all in it.
    Guest,
}

const fn program(name: &'static str, packages: &'static [&'static str]) -> Program {
    Program { name, packages, needs_root: false, mounts: Mounts::Any }
}

const PROGRAMS: &[Program] = &[
    program("git", &["git"]),
    program("sqlite", &["sqlite3"]),
    Program { mounts: Mounts::Own, ..program("postgres", &["postgresql-15"]) },
    program("cargo", &[]),
    program("tar", &["tar", "attr", "acl", "rsync"]),
    program("rsync", &["rsync", "attr", "acl"]),
    Program { needs_root: true, ..program("overlay", &["attr"]) },
    Program { mounts: Mounts::Own, ..program("find", &["xz-utils", "attr"]) },
    program("stress", &["stress-ng"]),
    program("bonnie", &["bonnie++"]),
    Program { mounts: Mounts::TwoFar, ..program("git-far", &["git"]) },
    Program { mounts: Mounts::TwoFar, ..program("sqlite-far", &["sqlite3"]) },
    Program { mounts: Mounts::Guest, ..program("git-guest", &["git"]) },
    Program { mounts: Mounts::Guest, ..program("sqlite-guest", &["sqlite3"]) },
];

/// Runs all programs, or the named ones.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    run_as::enter("real", arguments, |run_as, names| {
        let is_program = |name: &&String| PROGRAMS.iter().any(|program| program.name == **name);
        if let Some(unknown) = names.iter().find(|name| !is_program(name)) {
            let all: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
            return Err(format!("no program `{unknown}`, only {}", all.join(", ")));
        }
        let is_chosen = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
        let steps: Vec<Step<'_>> = PROGRAMS
            .iter()
            .filter(|it| is_chosen(it.name))
            .flat_map(|program| steps_of(program, run_as))
            .collect();
        steps::run_all("real", run_as, &steps)
    })
}

/// Returns the runs of a program.
fn steps_of(program: &'static Program, run_as: &RunAs) -> Vec<Step<'static>> {
    let (paths, ways): (_, &[Way]) = match program.mounts {
        Mounts::TwoFar => (vec!["never"], &[Way::Tls, Way::Unix]),
        Mounts::Guest => (vec!["never"], &[Way::Guest]),
        Mounts::Own if run_as.is_far() => (Vec::new(), run_as.ways),
        _ => (run_as.paths(&["auto", "always"]), run_as.ways),
    };
    let step = |path| Step {
        name: match program.mounts {
            Mounts::TwoFar | Mounts::Guest => program.name.to_owned(),
            Mounts::Any | Mounts::Own => format!("{} ({})", program.name, run_as.describe(path)),
        },
        path,
        ways,
        packages: program.packages,
        needs_root: program.needs_root,
        run: Box::new(|volume: &Mounted| run_script(program.name, volume)),
    };
    paths.into_iter().map(step).collect()
}

fn run_script(name: &str, volume: &Mounted) -> Result<(), String> {
    let copies = volume.scratch().join("scripts");
    copy_scripts(&copies).map_err(|why| format!("{}: {why}", copies.display()))?;
    volume.shell(name, &format!(". \"$SCRATCH/scripts/{name}.sh\"")).map(|_| ())
}

/// Copies our scripts to where the user of the volume can read them.
fn copy_scripts(to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(scripts())? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        fs::copy(entry.path(), &copy)?;
        fs::set_permissions(&copy, Permissions::from_mode(0o644))?;
    }
    Ok(())
}

fn scripts() -> PathBuf {
    workspace::root().join("conformance/real")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_script() {
        for program in PROGRAMS {
            assert!(scripts().join(format!("{}.sh", program.name)).is_file(), "{}", program.name);
        }
    }
}
