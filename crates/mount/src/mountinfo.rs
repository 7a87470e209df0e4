//! What is mounted where, as `/proc/self/mountinfo` says it.
//!
//! Nothing here touches a mounted file system, so nothing can hang on one that does not answer;
//! only [`probe`] does, from a thread of its own and to a deadline.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

/// The type of our mounts.
pub const FS_TYPE: &str = "fuse.pelago";

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Device numbers, `major:minor`.
    pub device: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The type, for example `ext4` or `fuse.pelago`.
    pub fs_type: String,
    /// What is mounted: a device, or the name a FUSE file system gave itself.
    pub source: OsString,
}

/// Whether a mount answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Alive,
    /// Its process is gone; only unmounting helps.
    Dead,
    /// It says nothing within [`PROBE_TIME`].
    Silent,
}

/// How long [`probe`] waits for an answer.
pub const PROBE_TIME: Duration = Duration::from_secs(5);

/// All mounts that this process sees, in the order they were made.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn all() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The mount on `point`, the topmost where there are several. `point` is compared as it stands:
/// absolute and without symbolic links.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(all()?.into_iter().rfind(|entry| entry.point == point))
}

/// All mounts of ours.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn ours() -> io::Result<Vec<MountEntry>> {
    let mut all = all()?;
    all.retain(|entry| entry.fs_type == FS_TYPE);
    Ok(all)
}

/// Mounts below a point; they keep it busy.
///
/// # Errors
/// Where `/proc` cannot be read.
pub fn below(point: &Path) -> io::Result<Vec<MountEntry>> {
    let mut all = all()?;
    all.retain(|entry| entry.point != point && entry.point.starts_with(point));
    Ok(all)
}

/// Asks whether the mount on `point` answers. On a silent mount the thread that asks is left
/// behind until the mount ends.
#[must_use]
pub fn probe(point: &Path) -> Liveness {
    let (tell, told) = mpsc::channel();
    let path = point.to_owned();
    let asker = thread::Builder::new().name("probe".to_owned()).spawn(move || {
        // The one question that the kernel never answers from what it remembers.
        let error = rustix::fs::statfs(&path).err();
        // Nobody listens any more where the deadline has passed.
        let _ = tell.send(error);
    });
    if asker.is_err() {
        return Liveness::Silent;
    }
    match told.recv_timeout(PROBE_TIME) {
        Ok(Some(Errno::NOTCONN | Errno::CONNABORTED)) => Liveness::Dead,
        Ok(_) => Liveness::Alive,
        Err(_) => Liveness::Silent,
    }
}

/// Whether the mount on `point` is one whose process is gone.
#[must_use]
pub fn is_dead(point: &Path) -> bool {
    probe(point) == Liveness::Dead
}

/// The path of a mount point without touching what may be mounted there: its folder with all links
/// resolved, and its name.
pub(crate) fn resolve(point: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(point)?;
    let Some(name) = point.file_name() else { return fs::canonicalize(absolute) };
    let folder = absolute.parent().unwrap_or(&absolute);
    Ok(fs::canonicalize(folder)?.join(name))
}

/// The entries of a table; lines that make no sense are left out.
fn parse(table: &[u8]) -> Vec<MountEntry> {
    table.split(|byte| *byte == b'\n').filter_map(entry).collect()
}

/// One line, `man 5 proc`: number, parent, device, root, point, options, any optional fields, a
/// dash, type, source, more options.
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?)?;
    let point = fields.nth(1)?;
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?)?;
    let source = fields.next()?;
    Some(MountEntry {
        device,
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        fs_type,
        source: OsString::from_vec(unescape(source)),
    })
}

fn text(field: &[u8]) -> Option<String> {
    String::from_utf8(unescape(field)).ok()
}

/// The kernel writes spaces, tabs, line ends and backslashes as a backslash and three octal digits.
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
        assert_eq!(entries[0].device, "254:0");
        assert_eq!(entries[0].source, "/dev/vda");
        assert_eq!(entries[1].point, Path::new("/mnt/a b\\c"));
        assert_eq!(entries[1].fs_type, FS_TYPE);
        assert_eq!(entries[1].source, "vol\tx");
    }

    #[test]
    fn broken_lines_are_left_out() {
        for line in [&b""[..], b"1 2 3", b"22 1 254:0 / / rw no dash here", b"22 1 0:1 / /x rw -"] {
            assert_eq!(parse(line), []);
        }
    }

    #[test]
    fn a_backslash_that_escapes_nothing_stays() {
        assert_eq!(unescape(b"a\\b\\04\\999\\"), b"a\\b\\04\\999\\");
        assert_eq!(unescape(b"\\040\\377"), b" \xff");
    }

    #[test]
    fn this_machine_has_a_root() {
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
