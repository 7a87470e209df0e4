//! Location of the volume for a command: by its folder, by a path in its mount or folder, by the
//! current folder, or because only one volume is up.
//!
//! A mount may hang or be dead, so symbolic links are resolved here one by one, and nothing below a
//! Pelago mount is ever opened.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use pelago_mount::mountinfo::{self, MountEntry};
use pelago_server::has_mirrors;
use pelago_store::folder::{Folder, FolderError};
use pelago_store::volume::{self, VolumeError};
use rustix::io::Errno;

use crate::failure::{Exit, Failure, Outcome};
use crate::{output, runtime_dir};

/// The limit for symbolic links in one path, the same as the kernel's.
const SYMLINKS: usize = 40;

/// A volume that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeRef {
    /// The folder of the volume, absolute.
    pub(crate) dir: PathBuf,
    /// The mount point in this process's mount namespace; `None` if the volume is not mounted
    /// there. The mount may be dead.
    pub(crate) mounted: Option<PathBuf>,
}

/// The reason why no volume was found.
#[derive(Debug, thiserror::Error)]
enum LocateError {
    #[error("{} is not in a volume", .0.display())]
    NotInVolume(PathBuf),
    #[error("{} is not a volume", .0.display())]
    NotVolume(PathBuf),
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("no volume is up")]
    NoneUp,
    #[error("several volumes are up: {}", list(.0))]
    Several(Vec<PathBuf>),
    #[error("the current folder cannot be determined")]
    NoFolder(#[source] io::Error),
    #[error("the mount table cannot be read")]
    Mounts(#[source] io::Error),
    #[error("HOME is not set")]
    NoHome,
}

/// Returns the default volume's folder, `~/pelago`.
pub(crate) fn default_dir() -> Outcome<PathBuf> {
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(Path::new(&home).join("pelago")),
        None => {
            Err(Failure::new(Exit::Usage, LocateError::NoHome)
                .hint("name a folder: `pelago up DIR`"))
        }
    }
}

/// Finds the volume with the folder `dir` (`-V`), or the volume that contains `path`. Without both
/// it finds the volume of the current folder, the only volume that is up, or the default volume.
pub(crate) fn find(dir: Option<&Path>, path: Option<&Path>) -> Outcome<VolumeRef> {
    let mounts = mountinfo::ours().map_err(mounts_failed)?;
    if let Some(dir) = dir {
        let resolved = resolve(dir, &mounts).map_err(|error| resolve_failed(dir, error))?;
        if store_of(&resolved.path).is_some() {
            return Ok(VolumeRef { dir: resolved.path, mounted: None });
        }
        if !is_volume(&resolved.path) {
            let error = LocateError::NotVolume(resolved.path);
            return Err(Failure::new(Exit::NotFound, error).hint(
                "`pelago up DIR` creates a volume in a folder that is empty or does not exist",
            ));
        }
        return Ok(volume_at(resolved.path, &mounts));
    }
    if let Some(path) = path {
        let resolved = resolve(path, &mounts).map_err(|error| resolve_failed(path, error))?;
        return containing(&resolved, &mounts).ok_or_else(|| {
            Failure::new(Exit::NotFound, LocateError::NotInVolume(resolved.path))
                .hint("name a path in a mount, or the volume's folder with `-V DIR`")
        });
    }
    let current = std::env::current_dir()
        .map_err(|error| Failure::new(Exit::NotFound, LocateError::NoFolder(error)))?;
    let here = resolve(&current, &mounts).ok().and_then(|resolved| containing(&resolved, &mounts));
    here.map_or_else(|| only_one(&mounts), Ok)
}

/// Finds a volume as [`find`] does, or a folder that keeps mirrors, or that of a relay or of a
/// server of a shared store, for the commands that work on all of them.
pub(crate) fn find_any(dir: Option<&Path>, path: Option<&Path>) -> Outcome<VolumeRef> {
    if let Some(given) = dir.or(path) {
        let mounts = mountinfo::ours().map_err(mounts_failed)?;
        let resolved = resolve(given, &mounts).map_err(|error| resolve_failed(given, error))?;
        // A path in a mount is not opened: its server may not answer.
        let path = &resolved.path;
        let is_other = || is_mirrors(path) || is_relay(path) || store_of(path).is_some();
        if resolved.mount.is_none() && is_other() {
            return Ok(VolumeRef { dir: resolved.path, mounted: None });
        }
    }
    find(dir, path)
}

/// Returns whether `dir` keeps mirrors of volumes, and is not a volume itself.
pub(crate) fn is_mirrors(dir: &Path) -> bool {
    !is_volume(dir) && has_mirrors(dir)
}

/// The folder of the spools in the folder of a relay.
pub(crate) const RELAY: &str = "relay";

/// Returns whether `dir` is the folder of a relay.
pub(crate) fn is_relay(dir: &Path) -> bool {
    let contains = |folder: Folder| folder.contains(RELAY).unwrap_or(false);
    !is_volume(dir) && !is_mirrors(dir) && Folder::open(dir).is_ok_and(contains)
}

/// Opens a folder. It is created in its parent, which must exist, if there is none.
pub(crate) fn open_or_create(dir: &Path) -> Outcome<Folder> {
    let opened = match Folder::open(dir) {
        Err(error) if error.is_not_found() => create(dir, error),
        opened => opened,
    };
    Ok(opened.map_err(VolumeError::from)?)
}

fn create(dir: &Path, missing: FolderError) -> Result<Folder, FolderError> {
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = Folder::open(parent)?;
            let made = parent.create_folder(name)?;
            parent.sync()?;
            Ok(made)
        }
        _ => Err(missing),
    }
}

/// Returns the folder of the shared store whose server has the folder `dir`; `None` if `dir` is not
/// the folder of such a server, or cannot be read.
pub(crate) fn store_of(dir: &Path) -> Option<PathBuf> {
    if is_volume(dir) {
        return None;
    }
    volume::store_of(dir).ok().flatten()
}

/// Returns `path` absolute, with symbolic links resolved up to the first Pelago mount.
pub(crate) fn absolute(path: &Path) -> Outcome<PathBuf> {
    let mounts = mountinfo::ours().map_err(mounts_failed)?;
    let resolved = resolve(path, &mounts).map_err(|error| resolve_failed(path, error))?;
    Ok(resolved.path)
}

/// Returns the mounts that earlier runs of the volume in `dir` have left behind, the newest first.
/// The caller has made sure that no process serves the volume, so a mount with its name is dead
/// even if the kernel still answers from its caches. A mount in its folder that has another name is
/// probed.
pub(crate) fn dead_mounts_of(dir: &Path) -> Vec<MountEntry> {
    let mut mounts = mountinfo::ours().unwrap_or_default();
    mounts.retain(|mount| {
        mount.source == dir
            || volume_of(mount).as_deref() == Some(dir) && mountinfo::is_dead(&mount.point)
    });
    mounts.reverse();
    mounts
}

/// Returns the folders of all volumes that are mounted in this mount namespace.
pub(crate) fn all_up() -> Vec<PathBuf> {
    let mounts = mountinfo::ours().unwrap_or_default();
    let mut dirs: Vec<PathBuf> = mounts.iter().filter_map(volume_of).collect();
    dirs.retain(|dir| is_volume(dir));
    dirs.dedup();
    dirs
}

/// Returns the mounts that are served from this folder, which is that of a volume or of a mount.
pub(crate) fn mounts_of(dir: &Path) -> Vec<MountEntry> {
    let mut mounts = mountinfo::ours().unwrap_or_default();
    mounts.retain(|mount| served_from(mount).as_deref() == Some(dir));
    mounts
}

/// Returns whether `dir` contains the file `format` of a volume, or its copy.
pub(crate) fn is_volume(dir: &Path) -> bool {
    ["format", "format.copy"].iter().any(|name| fs::symlink_metadata(dir.join(name)).is_ok())
}

/// Returns whether the volume in `dir` is marked as stopped cleanly.
pub(crate) fn was_stopped_cleanly(dir: &Path) -> bool {
    fs::symlink_metadata(dir.join("clean")).is_ok_and(|meta| meta.is_file())
}

/// Returns the volume whose mount or folder contains the path.
fn containing(resolved: &Resolved, mounts: &[MountEntry]) -> Option<VolumeRef> {
    if let Some(mount) = &resolved.mount {
        return volume_of(mount).map(|dir| VolumeRef { dir, mounted: Some(mount.point.clone()) });
    }
    let dir = resolved.path.ancestors().find(|dir| is_volume(dir))?;
    Some(volume_at(dir.to_owned(), mounts))
}

fn only_one(mounts: &[MountEntry]) -> Outcome<VolumeRef> {
    let mut up: Vec<VolumeRef> = Vec::new();
    for mount in mounts {
        let found = volume_of(mount);
        if let Some(dir) = found.filter(|dir| up.iter().all(|other| other.dir != *dir)) {
            up.push(VolumeRef { dir, mounted: Some(mount.point.clone()) });
        }
    }
    match up.len() {
        1 => Ok(up.remove(0)),
        0 => match default_dir() {
            Ok(dir) if is_volume(&dir) => Ok(VolumeRef { dir, mounted: None }),
            _ => Err(Failure::new(Exit::NotFound, LocateError::NoneUp)
                .hint("`pelago up` starts and mounts one; `-V DIR` names one that is down")),
        },
        _ => {
            let dirs = up.into_iter().map(|volume| volume.dir).collect();
            Err(Failure::new(Exit::Usage, LocateError::Several(dirs))
                .hint("name one by a path in its mount, or with `-V DIR`"))
        }
    }
}

fn volume_at(dir: PathBuf, mounts: &[MountEntry]) -> VolumeRef {
    let mount = mounts.iter().rfind(|mount| volume_of(mount).as_ref() == Some(&dir));
    let mounted = mount.map(|mount| mount.point.clone());
    VolumeRef { dir, mounted }
}

/// Returns the folder with the control socket of a mount's process: the volume's folder, which is
/// the mount's source, or the runtime folder of the mount if another process serves the volume.
pub(crate) fn served_from(mount: &MountEntry) -> Option<PathBuf> {
    let source = PathBuf::from(&mount.source);
    if source.is_absolute() && is_volume(&source) {
        return Some(source);
    }
    runtime_dir::of(mount)
}

/// Returns the folder of a mounted volume: the folder that it is served from, or, if the mount
/// table garbled its name, the volume's folder that contains the mount point.
fn volume_of(mount: &MountEntry) -> Option<PathBuf> {
    if let Some(dir) = served_from(mount) {
        return Some(dir);
    }
    let above = mount.point.parent()?;
    above.ancestors().find(|dir| is_volume(dir)).map(Path::to_owned)
}

/// A path after resolution.
struct Resolved {
    /// Absolute, without symbolic links above the mount.
    path: PathBuf,
    /// The Pelago mount that contains the path.
    mount: Option<MountEntry>,
}

/// Resolves symbolic links as the kernel would, but never below a Pelago mount. Components that do
/// not exist stay.
fn resolve(path: &Path, mounts: &[MountEntry]) -> io::Result<Resolved> {
    let mut rest: VecDeque<OsString> = VecDeque::new();
    let push = |rest: &mut VecDeque<OsString>, path: &Path| {
        for part in path.components().rev() {
            match part {
                Component::CurDir | Component::Prefix(_) => {}
                Component::RootDir => rest.push_front("/".into()),
                Component::ParentDir => rest.push_front("..".into()),
                Component::Normal(name) => rest.push_front(name.to_owned()),
            }
        }
    };
    push(&mut rest, path);
    if !path.is_absolute() {
        push(&mut rest, &std::env::current_dir()?);
    }
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        if part == "/" {
            done = PathBuf::from("/");
            continue;
        }
        if part == ".." {
            done.pop();
            continue;
        }
        done.push(&part);
        if let Some(mount) = mounts.iter().rfind(|mount| mount.point == done) {
            done.extend(rest);
            return Ok(Resolved { path: done, mount: Some(mount.clone()) });
        }
        // An error means that this component is not a symbolic link, or does not exist.
        if let Ok(target) = fs::read_link(&done) {
            links += 1;
            if links > SYMLINKS {
                return Err(Errno::LOOP.into());
            }
            done.pop();
            push(&mut rest, &target);
        }
    }
    Ok(Resolved { path: done, mount: None })
}

fn resolve_failed(path: &Path, error: io::Error) -> Failure {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return Failure::new(Exit::NotFound, LocateError::Missing(path.to_owned()));
    }
    Failure::new(Exit::NotFound, LocateError::NoFolder(error))
}

fn mounts_failed(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, LocateError::Mounts(error))
}

fn list(dirs: &[PathBuf]) -> String {
    let shown = dirs.iter().map(|dir| output::name(&dir.to_string_lossy()).into_owned());
    let shown: Vec<String> = shown.collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mount(point: &Path, source: &Path) -> MountEntry {
        MountEntry {
            id: 1,
            device: "0:1".to_owned(),
            point: point.to_owned(),
            fs_type: mountinfo::FS_TYPE.to_owned(),
            source: source.as_os_str().to_owned(),
        }
    }

    fn volume(dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("format"), "").unwrap();
    }

    #[test]
    fn a_path_in_a_mount_finds_the_volume_without_touching_the_mount() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        volume(&root.join("v"));
        fs::create_dir(root.join("m")).unwrap();
        symlink("m", root.join("link")).unwrap();
        let mounts = [mount(&root.join("m"), &root.join("v"))];
        for path in ["m", "m/not/there", "link/x", "v/../link"] {
            let resolved = resolve(&root.join(path), &mounts).unwrap();
            let found = containing(&resolved, &mounts).unwrap();
            assert_eq!(found.dir, root.join("v"), "{path}");
            assert_eq!(found.mounted, Some(root.join("m")), "{path}");
        }
        assert!(containing(&resolve(&root, &mounts).unwrap(), &mounts).is_none());
    }

    #[test]
    fn a_path_in_the_folder_finds_the_volume() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        volume(&root.join("v"));
        let found = containing(&resolve(&root.join("v/files"), &[]).unwrap(), &[]).unwrap();
        assert_eq!(found, VolumeRef { dir: root.join("v"), mounted: None });
    }

    #[test]
    fn a_mount_with_a_garbled_source_is_found_by_its_mount_point() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        volume(&root.join("v"));
        let mounts = [mount(&root.join("v/files"), Path::new("garbled"))];
        assert_eq!(volume_at(root.join("v"), &mounts).mounted, Some(root.join("v/files")));
    }

    #[test]
    fn a_loop_of_symbolic_links_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        assert!(resolve(&folder.path().join("a"), &[]).is_err());
    }
}
