//! An ordinary user for whom root runs a suite: the daemon, the mount (by `fusermount3`) and the
//! programs belong to that user.
//!
//! A mount namespace of the run provides what the machine may deny to such a user: `/dev/fuse` open
//! to all, as udev makes it, and the Rust toolchain in a readable folder, read-only. Both end with
//! the namespace.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{machine, process, workspace};

/// Names the namespace's folder to the process inside it.
const FOLDER: &str = "PELAGO_XTASK_NAMESPACE";

/// `$1` is the folder, `$2` the toolchain, the rest a command.
const ENTER: &str = r#"
    set -e
    folder=$1 toolchain=$2
    shift 2
    mount -t tmpfs -o mode=755 pelago-xtask "$folder"
    mknod "$folder/fuse" c 10 229
    chmod 666 "$folder/fuse"
    mount --bind "$folder/fuse" /dev/fuse
    mkdir "$folder/toolchain"
    mount --bind -o ro "$toolchain" "$folder/toolchain"
    exec "$@"
"#;

/// An existing user of the machine.
#[derive(Clone, Debug)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
}

impl Account {
    /// Returns the user of that name, who must not be root.
    pub fn find(name: &str) -> Result<Self, String> {
        let id = |option: &str| {
            let said = process::output_of("id", &[option, name]).unwrap_or_default();
            said.trim().parse::<u32>().map_err(|_| format!("there is no user `{name}`"))
        };
        let account = Self { uid: id("-u")?, gid: id("-g")? };
        if !machine::is_root() {
            return Err("--user needs root, to become another user".to_owned());
        }
        if account.uid == 0 { Err(format!("`{name}` is root")) } else { Ok(account) }
    }

    /// Makes a command run as this user, with `home` as its home.
    pub fn apply(&self, command: &mut Command, home: &Path) {
        command.uid(self.uid).gid(self.gid).env("HOME", home);
        // The user has no access to our folders.
        for name in ["CARGO", "CARGO_HOME", "RUSTUP_HOME", "TMPDIR"] {
            command.env_remove(name);
        }
        if let Some(bin) = toolchain() {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(bin).chain(std::env::split_paths(&path));
            if let Ok(path) = std::env::join_paths(folders) {
                command.env("PATH", path);
            }
        }
    }
}

/// Runs this verb again in a mount namespace made for ordinary users, and returns its exit code;
/// `None` if this process is in such a namespace.
pub fn enter_namespace(verb: &str, arguments: &[String]) -> Result<Option<ExitCode>, String> {
    if std::env::var_os(FOLDER).is_some() {
        return Ok(None);
    }
    let own = std::env::current_exe().map_err(|why| format!("where xtask is: {why}"))?;
    let toolchain = process::output_of("rustc", &["--print", "sysroot"]).unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("pelago-namespace-{}", std::process::id()));
    fs::create_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]);
    command.arg(&folder).arg(toolchain.trim()).arg(own).arg(verb).args(arguments);
    command.env(FOLDER, &folder).current_dir(workspace::root());
    let status = process::run_foreground(&mut command);
    // The mounts ended with the namespace, so the folder is empty.
    fs::remove_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let code = status?.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// Returns the folder of `cargo` and `rustc` inside the namespace.
fn toolchain() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(|folder| Path::new(&folder).join("toolchain/bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_unknown_users_are_refused() {
        assert!(Account::find("root").is_err());
        assert!(Account::find("no such user").is_err());
    }
}
