//! Bugs, and the copy of the sources in which they are planted.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pelago_testbed::{process, workspace};

/// A bug: a text that occurs once in a file, and what stands there with the bug.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

/// A bug that a test of the server finds.
pub(super) struct Tested {
    pub(super) mutant: Mutant,
    /// The binary of the test.
    pub(super) suite: &'static str,
    /// The path of the test in it.
    pub(super) test: &'static str,
}

/// Stands, in the text of a bug that can be switched on, for the condition that it is.
const SWITCH: &str = "PLANTED";
/// The variable of the environment that has the number of the bug that is switched on.
pub(super) const SWITCHED: &str = "PELAGO_PLANTED";

impl Mutant {
    /// Returns what stands in the file with the bug behind a switch. A text without [`SWITCH`] is
    /// an expression or a statement, as what it replaces.
    fn switched(&self, number: usize) -> String {
        let Self { from, to, .. } = self;
        let is_on = format!(
            "({{ static IS: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
             std::env::var_os(\"{SWITCHED}\").is_some_and(|it| it == \"{number}\")); *IS }})"
        );
        match to.contains(SWITCH) {
            true => to.replace(SWITCH, &is_on),
            false => format!("if {is_on} {{ {to} }} else {{ {from} }}"),
        }
    }
}

/// A copy of the sources, with a target folder of its own.
pub(super) struct Copy {
    root: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Makes the copy, or brings the last one up to date.
    pub(super) fn make() -> Result<Self, String> {
        let folder = workspace::target_folder()?.join("mutants");
        let copy = Self { root: folder.join("sources"), target: folder.join("target") };
        let root = workspace::root();
        let listed = Command::new("git").arg("-C").arg(&root).args(["ls-files", "-z"]).output();
        let listed = listed.map_err(|why| format!("cannot list the sources: {why}"))?;
        for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = Path::new(OsStr::from_bytes(name));
            copy.take(&root.join(name), &copy.root.join(name))?;
        }
        copy.drop_moved_crates(&root)?;
        Ok(copy)
    }

    /// Removes crates that the sources do not have any more: a crate that has moved would be twice
    /// in the workspace.
    fn drop_moved_crates(&self, root: &Path) -> Result<(), String> {
        let entries = fs::read_dir(self.root.join("crates")).into_iter().flatten().flatten();
        for entry in entries {
            let path = entry.path();
            if !root.join("crates").join(entry.file_name()).join("Cargo.toml").exists() {
                fs::remove_dir_all(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Copies a file if it has changed: cargo builds what is newer than it has built.
    fn take(&self, from: &Path, to: &Path) -> Result<(), String> {
        let Ok(bytes) = fs::read(from) else { return Ok(()) };
        if fs::read(to).is_ok_and(|known| known == bytes) {
            return Ok(());
        }
        let dir = to.parent().unwrap_or(&self.root);
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(to, bytes));
        written.map_err(|why| format!("{}: {why}", to.display()))
    }

    /// Returns the root of the copied sources.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of a program that [`Copy::cargo`] has built.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// Calls `find` while a bug is planted.
    pub(super) fn with<T>(
        &self,
        mutant: &Mutant,
        find: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let path = self.root.join(mutant.file);
        let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", mutant.file))?;
        if text.matches(mutant.from).count() != 1 {
            return Err(format!("{}: `{}` is stale", mutant.file, mutant.name));
        }
        let write = |text: &str| fs::write(&path, text).map_err(|why| format!("{path:?}: {why}"));
        write(&text.replace(mutant.from, mutant.to))?;
        let found = find();
        write(&text)?;
        found
    }

    /// Calls `find` while all these bugs are planted, each behind a switch by its number.
    pub(super) fn with_all<T>(
        &self,
        mutants: &[&Mutant],
        find: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let mut texts = BTreeMap::<&str, (String, String)>::new();
        for (number, mutant) in mutants.iter().enumerate() {
            if !texts.contains_key(mutant.file) {
                let text = fs::read_to_string(self.root.join(mutant.file));
                let text = text.map_err(|why| format!("{}: {why}", mutant.file))?;
                texts.insert(mutant.file, (text.clone(), text));
            }
            let Some((_, text)) = texts.get_mut(mutant.file) else { continue };
            if text.matches(mutant.from).count() != 1 {
                return Err(format!("{}: `{}` is stale", mutant.file, mutant.name));
            }
            *text = text.replace(mutant.from, &mutant.switched(number));
        }
        let write = |file: &str, text: &str| {
            fs::write(self.root.join(file), text).map_err(|why| format!("{file}: {why}"))
        };
        texts.iter().try_for_each(|(file, (_, text))| write(file, text))?;
        let found = find();
        texts.iter().try_for_each(|(file, (text, _))| write(file, text))?;
        found
    }

    /// Runs cargo in the copy.
    pub(super) fn cargo(&self, arguments: &[&str]) -> Result<Output, String> {
        let ran = self.command(arguments).output();
        ran.map_err(|why| format!("cannot run cargo: {why}"))
    }

    /// Runs cargo in the copy, at most for `limit`, and returns all that it has said.
    pub(super) fn cargo_within(
        &self,
        limit: Duration,
        arguments: &[&str],
    ) -> Result<String, String> {
        self.run_within(limit, &mut self.command(arguments))
    }

    /// As [`Copy::cargo_within`], with the bug of this number switched on.
    pub(super) fn cargo_switched(
        &self,
        limit: Duration,
        arguments: &[&str],
        number: usize,
    ) -> Result<String, String> {
        self.run_within(limit, self.command(arguments).env(SWITCHED, number.to_string()))
    }

    fn run_within(&self, limit: Duration, command: &mut Command) -> Result<String, String> {
        let log = self.root.with_file_name("log");
        let ending = process::run_limited(command, &log, limit)?;
        Ok(ending.stdout + &ending.stderr)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = workspace::cargo(arguments);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        command
    }
}
