//! The pre-commit hook: format, clippy and tidy over the working tree before each commit.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::check;

/// Installs the hook unless the repository has one of its own. Returns whether it was installed.
///
/// Does nothing if `.git` is not a folder: in a source tree without git, and in an additional work
/// tree, which uses the hooks of the first one.
pub(super) fn install(root: &Path) -> io::Result<bool> {
    let git = root.join(".git");
    if !fs::symlink_metadata(&git).is_ok_and(|found| found.is_dir()) {
        return Ok(false);
    }
    let hooks = git.join("hooks");
    fs::create_dir_all(&hooks)?;
    let hook = hooks.join("pre-commit");
    match File::options().write(true).create_new(true).mode(0o755).open(&hook) {
        Ok(mut file) => match file.write_all(text().as_bytes()) {
            Ok(()) => Ok(true),
            // The next setup would take half a hook for the developer's own.
            Err(why) => fs::remove_file(&hook).and(Err(why)),
        },
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(why) => Err(why),
    }
}

fn text() -> String {
    let fmt = check::FMT.join(" ");
    let clippy = check::CLIPPY.join(" ");
    format!(
        "#!/bin/sh\n\
         # Installed by `cargo xtask setup`. `git commit --no-verify` commits without it.\n\
         set -e\n\
         cargo {fmt}\n\
         cargo {clippy}\n\
         cargo xtask tidy\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_repository_without_the_hook_gets_it_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".git")).unwrap();
        let hook = folder.path().join(".git/hooks/pre-commit");
        assert!(install(folder.path()).unwrap());
        let script = fs::read_to_string(&hook).unwrap();
        for command in ["cargo fmt --all --check\n", " -D warnings\n", "cargo xtask tidy\n"] {
            assert!(script.contains(command), "{script}");
        }
        assert_eq!(fs::metadata(&hook).unwrap().permissions().mode() & 0o111, 0o111);
        assert!(!install(folder.path()).unwrap());
    }

    #[test]
    fn a_hook_of_the_developer_stays() {
        let folder = tempfile::tempdir().unwrap();
        let hook = folder.path().join(".git/hooks/pre-commit");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, "mine").unwrap();
        assert!(!install(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(&hook).unwrap(), "mine");
    }

    /// A dangling link is the developer's hook too, and is not followed.
    #[test]
    fn a_hook_that_is_a_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let hook = folder.path().join(".git/hooks/pre-commit");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(folder.path().join("target"), &hook).unwrap();
        assert!(!install(folder.path()).unwrap());
        assert!(!folder.path().join("target").exists());
    }

    #[test]
    fn a_tree_without_a_git_folder_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!install(folder.path()).unwrap());
        fs::write(folder.path().join(".git"), "gitdir: elsewhere").unwrap();
        assert!(!install(folder.path()).unwrap());
    }
}
