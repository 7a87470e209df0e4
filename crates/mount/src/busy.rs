//! The processes that keep a mount busy.
//!
//! Only `/proc` is read: its links show paths without a request to the file system they lead to, so
//! that this does not hang on a mount that hangs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

/// A process that uses a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountUser {
    /// Process id.
    pub pid: u32,
    /// Name of its command, which the kernel truncates to 15 bytes.
    pub command: String,
}

/// Returns the processes that have a file below `point` open, mapped or running, or their current
/// or root directory there, by process id. Processes that this user may not inspect are left out.
/// `point` must be absolute and without symbolic links.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn mount_users(point: &Path) -> io::Result<Vec<MountUser>> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if uses(&entry.path(), point) {
            users.push(MountUser { pid, command: command(&entry.path()) });
        }
    }
    users.sort_by_key(|user| user.pid);
    Ok(users)
}

fn uses(process: &Path, point: &Path) -> bool {
    let links = ["cwd", "root", "exe"].map(|link| process.join(link));
    links.iter().any(|link| leads_below(link, point))
        || has_open(&process.join("fd"), point)
        || has_mapped(&process.join("maps"), point)
}

fn has_open(folder: &Path, point: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| leads_below(&entry.path(), point))
}

fn has_mapped(maps: &Path, point: &Path) -> bool {
    let Ok(maps) = fs::read(maps) else { return false };
    maps.split(|byte| *byte == b'\n').any(|line| maps_below(line, point))
}

fn leads_below(link: &Path, point: &Path) -> bool {
    fs::read_link(link).is_ok_and(|target| target.starts_with(point))
}

/// Parses a line of `maps`: five fields, spaces, and a path if a file is mapped.
fn maps_below(line: &[u8], point: &Path) -> bool {
    let Some(start) = line.iter().position(|byte| *byte == b'/') else { return false };
    let path = Path::new(OsStr::from_bytes(&line[start..]));
    path.starts_with(point)
}

fn command(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process;

    use super::*;

    #[test]
    fn a_process_with_an_open_file_uses_the_mount() {
        let folder = tempfile::tempdir().unwrap();
        let point = fs::canonicalize(folder.path()).unwrap();
        let me = process::id();
        assert!(!mount_users(&point).unwrap().iter().any(|user| user.pid == me));
        let file = File::create(point.join("file")).unwrap();
        let users = mount_users(&point).unwrap();
        let found = users.iter().find(|user| user.pid == me).unwrap();
        assert!(!found.command.is_empty());
        drop(file);
    }

    #[test]
    fn a_path_with_the_same_prefix_is_not_below() {
        let line = b"7f00-7f01 r-xp 00000000 00:1f 12      /mnt/vol 2/lib.so (deleted)";
        assert!(maps_below(line, Path::new("/mnt/vol 2")));
        assert!(!maps_below(line, Path::new("/mnt/vol")));
        assert!(!maps_below(b"7f00-7f01 r-xp 00000000 00:00 0   [heap]", Path::new("/")));
    }
}
