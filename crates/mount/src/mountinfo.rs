//! The mount table, from `/proc/self/mountinfo`.
//!
//! Only [`probe`] touches a mounted file system, on a thread of its own and with a deadline. So
//! nothing here can hang on a mount that does not answer.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

use rustix::io::Errno;

/// File system type of our mounts.
pub const FS_TYPE: &str = "fuse.pelago";

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's number among those that exist now. The kernel uses numbers again.
    pub id: u64,
    /// Device number, `major:minor`.
    pub device: String,
    /// The mount point.
    pub point: PathBuf,
    /// File system type, for example `ext4` or `fuse.pelago`.
    pub fs_type: String,
    /// Source: a device, or the name that a FUSE file system gave itself.
    pub source: OsString,
}

/// The response of a mount to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The mount responds.
    Alive,
    /// Its process is gone; it can only be unmounted.
    Dead,
    /// It does not respond within [`PROBE_TIMEOUT`].
    Silent,
}

/// Time for which [`probe`] waits.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns all mounts that this process sees, in the order of mounting.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn all() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Returns the mount on `point`; of several, the topmost. `point` must be absolute and
/// without symbolic links.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(all()?.into_iter().rfind(|entry| entry.point == point))
}

/// Returns all mounts of type [`FS_TYPE`].
///
/// # Errors
/// If `/proc` cannot be read.
pub fn ours() -> io::Result<Vec<MountEntry>> {
    let mut all = all()?;
    all.retain(|entry| entry.fs_type == FS_TYPE);
    Ok(all)
}

/// Returns a mount of the file system with this device number, as `stat` returns it; `None` if this
/// process sees none.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn of_device(device: u64) -> io::Result<Option<MountEntry>> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    Ok(all()?.into_iter().find(|entry| entry.device == device))
}

/// Returns the mounts below `point`, which keep a mount there busy.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn below(point: &Path) -> io::Result<Vec<MountEntry>> {
    let mut all = all()?;
    all.retain(|entry| entry.point != point && entry.point.starts_with(point));
    Ok(all)
}

/// Returns whether the mount on `point` responds. A silent mount blocks the probing thread, which
/// is left behind until the mount ends.
#[must_use]
pub fn probe(point: &Path) -> Liveness {
    let (tell, told) = mpsc::channel();
    let path = point.to_owned();
    let asker = thread::Builder::new().name("probe".to_owned()).spawn(move || {
        // The kernel never answers `statfs` from a cache.
        let error = rustix::fs::statfs(&path).err();
        // The receiver is gone if the deadline has passed.
        let _ = tell.send(error);
    });
    if asker.is_err() {
        return Liveness::Silent;
    }
    match told.recv_timeout(PROBE_TIMEOUT) {
        Ok(Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)) => Liveness::Dead,
        Ok(_) => Liveness::Alive,
        Err(_) => Liveness::Silent,
    }
}

/// Returns whether the process of the mount on `point` is gone.
#[must_use]
pub fn is_dead(point: &Path) -> bool {
    probe(point) == Liveness::Dead
}

/// Resolves the path of a mount point without touching what is mounted there: all links of its
/// parent are resolved, its last component is not.
pub(crate) fn resolve(point: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(point)?;
    let Some(name) = point.file_name() else { return fs::canonicalize(absolute) };
    let folder = absolute.parent().unwrap_or(&absolute);
    Ok(fs::canonicalize(folder)?.join(name))
}

/// Parses a mount table; malformed lines are left out.
fn parse(table: &[u8]) -> Vec<MountEntry> {
    table.split(|byte| *byte == b'\n').filter_map(entry).collect()
}

/// Parses a line (`man 5 proc`): id, parent, device, root, point, options, optional fields, a dash,
/// type, source, more options.
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.nth(1)?)?;
    let point = fields.nth(1)?;
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?)?;
    let source = fields.next()?;
    Some(MountEntry {
        id,
        device,
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        fs_type,
        source: OsString::from_vec(unescape(source)),
    })
}

fn text(field: &[u8]) -> Option<String> {
    String::from_utf8(unescape(field)).ok()
}

/// Decodes spaces, tabs, line feeds and backslashes, which are a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if *first == b'\\' => {
                bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_optional_fields_are_read() {
        let table = b"22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n\
            36 22 0:31 / /mnt/a\\040b\\134c rw,nosuid - fuse.pelago vol\\011x rw,user_id=0\n";
        let entries = parse(table);
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].id, entries[1].id), (22, 36));
        assert_eq!(entries[0].device, "254:0");
        assert_eq!(entries[0].source, "/dev/vda");
        assert_eq!(entries[1].point, Path::new("/mnt/a b\\c"));
        assert_eq!(entries[1].fs_type, FS_TYPE);
        assert_eq!(entries[1].source, "vol\tx");
    }

    #[test]
    fn malformed_lines_are_left_out() {
        for line in [
            &b""[..],
            b"1 2 3",
            b"22 1 254:0 / / rw no dash here",
            b"22 1 0:1 / /x rw -",
            b"x 1 0:1 / /x rw - a b",
        ] {
            assert_eq!(parse(line), []);
        }
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(b"a\\b\\04\\999\\"), b"a\\b\\04\\999\\");
        assert_eq!(unescape(b"\\040\\377"), b" \xff");
    }

    #[test]
    fn the_mount_table_has_a_root() {
        let entries = all().unwrap();
        assert!(entries.iter().any(|entry| entry.point == Path::new("/")), "{entries:?}");
    }

    #[test]
    fn a_plain_folder_is_alive_and_no_mount() {
        let folder = tempfile::tempdir().unwrap();
        let path = resolve(folder.path()).unwrap();
        assert!(!is_dead(&path));
        assert_eq!(at(&path).unwrap(), None);
        assert_eq!(below(&path).unwrap(), []);
    }
}
