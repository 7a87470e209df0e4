//! The programs that do the work of a measurement, in surroundings that depend on no user.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::io::Errno;

use crate::{BenchError, MemoryLimit};

/// Each program with its Debian package.
const PACKAGES: [(&str, &str); 11] = [
    ("tar", "tar"),
    ("cp", "coreutils"),
    ("grep", "grep"),
    ("git", "git"),
    ("rm", "coreutils"),
    ("diff", "diffutils"),
    ("find", "findutils"),
    ("wc", "coreutils"),
    ("make", "make"),
    ("cc", "gcc"),
    ("bonnie++", "bonnie++"),
];
/// The folders in which Debian has programs that the `PATH` of an ordinary user leaves out.
const SYSTEM_PROGRAMS: &str = ":/usr/sbin";
/// The settings of `git`: a user, and trust in a folder that may belong to another one.
const GIT_CONFIG: &str = "\
[user]
    name = Pelago
    email = bench@localhost
[gc]
    auto = 0
[maintenance]
    auto = false
[core]
    hooksPath = /dev/null
[safe]
    directory = *
";
/// Most lines of a program's message that an error repeats.
const SAID_LINES: usize = 10;

/// Programs, all of which are there.
#[derive(Debug)]
pub(crate) struct Programs {
    /// A folder with nothing but the configuration of `git`.
    home: PathBuf,
}

impl Programs {
    /// Looks for the programs, and makes their home folder.
    ///
    /// # Errors
    /// [`BenchError::NoProgram`] with the first one that is missing; [`BenchError::Fill`].
    pub(crate) fn new(home: PathBuf, names: &[&'static str]) -> Result<Self, BenchError> {
        let programs = Self { home };
        names.iter().try_for_each(|program| programs.start_once(program))?;
        let config = programs.home.join(".gitconfig");
        let made = fs::create_dir(&programs.home).and_then(|()| fs::write(&config, GIT_CONFIG));
        made.map_err(|source| BenchError::Fill { path: config, source })?;
        Ok(programs)
    }

    /// Runs a program in `dir` and returns what it printed.
    ///
    /// # Errors
    /// [`BenchError::Program`] if it fails.
    pub(crate) fn run(
        &self,
        program: &'static str,
        arguments: &[&OsStr],
        dir: &Path,
    ) -> Result<Output, BenchError> {
        let mut command = self.command(program, None);
        run_to_end(program, command.args(arguments).current_dir(dir), dir)
    }

    /// Runs a program in `dir` within a memory limit, as [`Programs::run`] does.
    pub(crate) fn run_within(
        &self,
        limit: Option<&MemoryLimit>,
        program: &'static str,
        arguments: &[&str],
        dir: &Path,
    ) -> Result<Output, BenchError> {
        let mut command = self.command(program, limit);
        run_to_end(program, command.args(arguments).current_dir(dir), dir)
    }

    /// Runs a program that does nothing, so that the kernel has its file in memory.
    pub(crate) fn start_once(&self, program: &'static str) -> Result<(), BenchError> {
        let mut command = self.command(program, None);
        match command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(_) => Ok(()),
            Err(source) => Err(not_started(program, Path::new("/"), &source)),
        }
    }

    /// Returns a command in the surroundings of all programs.
    pub(crate) fn command(&self, program: &str, limit: Option<&MemoryLimit>) -> Command {
        let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        path.push(SYSTEM_PROGRAMS);
        let mut command = match limit {
            Some(limit) => limit.command(program),
            None => Command::new(program),
        };
        command.env_clear().env("PATH", path).env("HOME", &self.home).env("LC_ALL", "C");
        command.env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        command
    }
}

fn run_to_end(
    program: &'static str,
    command: &mut Command,
    dir: &Path,
) -> Result<Output, BenchError> {
    let output = command.output().map_err(|source| not_started(program, dir, &source))?;
    check(program, dir, output)
}

/// Returns the output of a program that has succeeded.
///
/// # Errors
/// [`BenchError::Program`] if it has failed.
pub(crate) fn check(
    program: &'static str,
    dir: &Path,
    output: Output,
) -> Result<Output, BenchError> {
    // `grep` ends with 1 if it finds nothing, and its lines are counted.
    if output.status.success() || program == "grep" && output.status.code() == Some(1) {
        return Ok(output);
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    Err(BenchError::Program {
        program,
        path: dir.to_owned(),
        status: output.status,
        said: first_lines(said),
    })
}

/// Returns the error of a program that could not be started.
pub(crate) fn not_started(program: &'static str, dir: &Path, source: &io::Error) -> BenchError {
    let package = PACKAGES.iter().find(|(name, _)| *name == program);
    match package {
        Some((_, package)) if source.kind() == ErrorKind::NotFound && dir.exists() => {
            BenchError::NoProgram { program, package }
        }
        _ => BenchError::Step {
            step: program,
            path: dir.to_owned(),
            source: Errno::from_io_error(source).unwrap_or(Errno::IO),
        },
    }
}

/// Returns the first lines of a message as one line.
fn first_lines(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines: Vec<&str> = said.trim().lines().take(SAID_LINES).map(str::trim).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> (tempfile::TempDir, Programs) {
        let dir = tempfile::tempdir().unwrap();
        let programs = Programs::new(dir.path().join("home"), &["git"]).unwrap();
        (dir, programs)
    }

    #[test]
    fn a_failure_names_the_program_its_exit_code_and_what_it_said() {
        let (dir, programs) = programs();
        let arguments = ["-xf", "missing.tar"].map(OsStr::new);
        let failed = programs.run("tar", &arguments, dir.path()).unwrap_err().to_string();
        for part in ["`tar`", "exit status: 2", "missing.tar: Cannot open"] {
            assert!(failed.contains(part), "{failed}");
        }
        assert_eq!(first_lines(b"one\n two\n"), "one; two");
    }

    #[test]
    fn a_search_that_finds_nothing_is_no_failure() {
        let (dir, programs) = programs();
        let arguments = ["-r", "nothing", "."].map(OsStr::new);
        assert_eq!(programs.run("grep", &arguments, dir.path()).unwrap().stdout, b"");
    }

    #[test]
    fn the_configuration_of_the_user_is_not_read() {
        let (dir, programs) = programs();
        let arguments = ["config", "--list"].map(OsStr::new);
        let said = programs.run("git", &arguments, dir.path()).unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.lines().next(), Some("user.name=Pelago"));
        assert_eq!(said.lines().count(), 6, "{said}");
    }

    #[test]
    fn a_folder_that_is_gone_is_no_missing_program() {
        let (dir, programs) = programs();
        let gone = dir.path().join("gone");
        let failed = programs.run("cp", &[], &gone).unwrap_err();
        assert!(matches!(failed, BenchError::Step { step: "cp", .. }), "{failed}");
        let failed = not_started("git", dir.path(), &ErrorKind::NotFound.into());
        assert_eq!(failed.to_string(), "`git` is missing: it is in the Debian package `git`");
        let failed = not_started("cc", dir.path(), &ErrorKind::NotFound.into());
        assert_eq!(failed.to_string(), "`cc` is missing: it is in the Debian package `gcc`");
    }
}
