//! An ordinary user, as whom a suite can be run by root: the daemon, the mount and the programs
//! are all that user's, mounted by `fusermount3`.
//!
//! What such a user needs and a machine may keep from it is put right in a mount namespace of our
//! own, and so for nobody else: `/dev/fuse` open to all, as udev makes it everywhere, and the Rust
//! toolchain where it can be reached, read-only. Both are gone when the namespace is.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{machine, process, workspace};

/// Names the folder of the namespace to the process that runs inside.
const DOOR: &str = "PELAGO_XTASK_DOOR";

/// `$1` is the folder, `$2` the toolchain; the rest is run.
const ENTER: &str = r#"
    set -e
    door=$1 toolchain=$2
    shift 2
    mount -t tmpfs -o mode=755 pelago-xtask "$door"
    mknod "$door/fuse" c 10 229
    chmod 666 "$door/fuse"
    mount --bind "$door/fuse" /dev/fuse
    mkdir "$door/toolchain"
    mount --bind -o ro "$toolchain" "$door/toolchain"
    exec "$@"
"#;

/// An existing user of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Its user number.
    pub(crate) uid: u32,
    /// Its first group.
    pub(crate) gid: u32,
}

impl Account {
    /// The user of that name, who must not be root.
    pub(crate) fn find(name: &str) -> Result<Self, String> {
        let id = |option: &str| {
            let said = process::output_of("id", &[option, name]).unwrap_or_default();
            said.trim().parse::<u32>().map_err(|_| format!("there is no user `{name}`"))
        };
        let account = Self { uid: id("-u")?, gid: id("-g")? };
        if !machine::is_root() {
            return Err("--user needs root, to become somebody else".to_owned());
        }
        if account.uid == 0 { Err(format!("`{name}` is root")) } else { Ok(account) }
    }

    /// Makes the command this user's, with `home` as its home.
    pub(crate) fn dress(&self, command: &mut Command, home: &Path) {
        command.uid(self.uid).gid(self.gid).env("HOME", home);
        // Whatever is set up for the user that runs us cannot be reached.
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

/// Runs this verb again in a mount namespace made for ordinary users; nothing if it is one.
pub(crate) fn enter_namespace(
    verb: &str,
    arguments: &[String],
) -> Result<Option<ExitCode>, String> {
    if std::env::var_os(DOOR).is_some() {
        return Ok(None);
    }
    let own = std::env::current_exe().map_err(|why| format!("where xtask is: {why}"))?;
    let toolchain = process::output_of("rustc", &["--print", "sysroot"]).unwrap_or_default();
    let door = std::env::temp_dir().join(format!("pelago-door-{}", std::process::id()));
    fs::create_dir(&door).map_err(|why| format!("{}: {why}", door.display()))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]);
    command.arg(&door).arg(toolchain.trim()).arg(own).arg(verb).args(arguments);
    command.env(DOOR, &door).current_dir(workspace::root());
    let status = process::run_foreground(&mut command);
    // Only an empty folder goes; what was mounted on it went with the namespace.
    fs::remove_dir(&door).map_err(|why| format!("{}: {why}", door.display()))?;
    let code = status?.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// Where `cargo` and `rustc` are for everybody, inside the namespace.
fn toolchain() -> Option<PathBuf> {
    std::env::var_os(DOOR).map(|door| Path::new(&door).join("toolchain/bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_nobody_known_are_refused() {
        assert!(Account::find("root").is_err());
        assert!(Account::find("no such user").is_err());
    }
}
