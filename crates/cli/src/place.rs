//! How a command finds its volume: by name, by a path in its mount or its folder, by the current
//! folder, or because only one is up.
//!
//! A mount may hang or be dead, so paths are walked link by link and nothing inside of a mount of
//! ours is ever asked for.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use pelago_mount::mountinfo::{self, MountEntry};
use rustix::io::Errno;

use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// Links in one path, as in the kernel.
const LINKS: usize = 40;

/// A volume that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its folder, absolute.
    pub(crate) dir: PathBuf,
    /// Where it is mounted, as far as this process can see.
    pub(crate) mounted: Option<PathBuf>,
}

/// Why no volume was found.
#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error("{} is in no volume", .0.display())]
    InNone(PathBuf),
    #[error("{} is not a volume", .0.display())]
    NotVolume(PathBuf),
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    #[error("no volume is up")]
    NoneUp,
    #[error("several volumes are up: {}", list(.0))]
    Several(Vec<PathBuf>),
    #[error("there is no current folder")]
    NoFolder(#[source] io::Error),
    #[error("the table of mounts cannot be read")]
    Mounts(#[source] io::Error),
    #[error("HOME is not set")]
    NoHome,
}

/// The folder of a volume that nobody names.
pub(crate) fn default_dir() -> Outcome<PathBuf> {
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(Path::new(&home).join("pelago")),
        None => {
            Err(Failure::new(Exit::Usage, PlaceError::NoHome)
                .hint("name a folder: `pelago up DIR`"))
        }
    }
}

/// Finds the volume that `-V dir` or `path` means, or neither.
pub(crate) fn find(dir: Option<&Path>, path: Option<&Path>) -> Outcome<Place> {
    let mounts = mountinfo::ours().map_err(mounts_failed)?;
    if let Some(dir) = dir {
        let walked = walk(dir, &mounts).map_err(|error| walk_failed(dir, error))?;
        if !is_volume(&walked.path) {
            let error = PlaceError::NotVolume(walked.path);
            return Err(Failure::new(Exit::NotFound, error)
                .hint("`pelago up DIR` makes a volume in a folder that is empty or missing"));
        }
        return Ok(place_of(walked.path, &mounts));
    }
    if let Some(path) = path {
        let walked = walk(path, &mounts).map_err(|error| walk_failed(path, error))?;
        return holding(&walked, &mounts).ok_or_else(|| {
            Failure::new(Exit::NotFound, PlaceError::InNone(walked.path))
                .hint("name a path in a mount, or the volume's folder with -V DIR")
        });
    }
    let current = std::env::current_dir()
        .map_err(|error| Failure::new(Exit::NotFound, PlaceError::NoFolder(error)))?;
    let here = walk(&current, &mounts).ok().and_then(|walked| holding(&walked, &mounts));
    here.map_or_else(|| only_one(&mounts), Ok)
}

/// The path that `path` means, without links in it as far as it was walked.
pub(crate) fn absolute(path: &Path) -> Outcome<PathBuf> {
    let mounts = mountinfo::ours().map_err(mounts_failed)?;
    let walked = walk(path, &mounts).map_err(|error| walk_failed(path, error))?;
    Ok(walked.path)
}

/// The mounts that a former life of the volume in `dir` has left behind, the newest first. The
/// caller knows that no process has the volume: a mount that names it is dead, whatever the kernel
/// still answers from memory. One that only lies in its folder must be seen to be dead.
pub(crate) fn dead_mounts_of(dir: &Path) -> Vec<PathBuf> {
    let mut mounts = mountinfo::ours().unwrap_or_default();
    mounts.retain(|mount| {
        mount.source == dir
            || volume_of(mount).as_deref() == Some(dir) && mountinfo::is_dead(&mount.point)
    });
    mounts.into_iter().rev().map(|mount| mount.point).collect()
}

/// Whether `dir` is the folder of a volume, by its looks.
pub(crate) fn is_volume(dir: &Path) -> bool {
    fs::symlink_metadata(dir.join("format")).is_ok()
}

/// Whether the volume in `dir` is marked as stopped cleanly.
pub(crate) fn was_stopped_cleanly(dir: &Path) -> bool {
    fs::symlink_metadata(dir.join("clean")).is_ok_and(|meta| meta.is_file())
}

/// The volume whose mount or folder a path is in.
fn holding(walked: &Walked, mounts: &[MountEntry]) -> Option<Place> {
    if let Some(mount) = &walked.mount {
        return volume_of(mount).map(|dir| Place { dir, mounted: Some(mount.point.clone()) });
    }
    let dir = walked.path.ancestors().find(|dir| is_volume(dir))?;
    Some(place_of(dir.to_owned(), mounts))
}

fn only_one(mounts: &[MountEntry]) -> Outcome<Place> {
    let mut up: Vec<Place> = Vec::new();
    for mount in mounts {
        let found = volume_of(mount);
        if let Some(dir) = found.filter(|dir| up.iter().all(|place| place.dir != *dir)) {
            up.push(Place { dir, mounted: Some(mount.point.clone()) });
        }
    }
    match up.len() {
        1 => Ok(up.remove(0)),
        0 => match default_dir() {
            Ok(dir) if is_volume(&dir) => Ok(Place { dir, mounted: None }),
            _ => Err(Failure::new(Exit::NotFound, PlaceError::NoneUp)
                .hint("`pelago up` brings one up; -V DIR names one that is down")),
        },
        _ => {
            let dirs = up.into_iter().map(|place| place.dir).collect();
            Err(Failure::new(Exit::Usage, PlaceError::Several(dirs))
                .hint("say which with a path in its mount, or with -V DIR"))
        }
    }
}

fn place_of(dir: PathBuf, mounts: &[MountEntry]) -> Place {
    let mount = mounts.iter().rfind(|mount| volume_of(mount).as_ref() == Some(&dir));
    let mounted = mount.map(|mount| mount.point.clone());
    Place { dir, mounted }
}

/// The folder that a mount of ours says it shows; where that is not one (its name did not survive
/// the table), the folder that the mount point lies in.
fn volume_of(mount: &MountEntry) -> Option<PathBuf> {
    let said = PathBuf::from(&mount.source);
    if said.is_absolute() && is_volume(&said) {
        return Some(said);
    }
    let above = mount.point.parent()?;
    above.ancestors().find(|dir| is_volume(dir)).map(Path::to_owned)
}

/// Where a path leads.
struct Walked {
    /// Absolute, without links before the mount.
    path: PathBuf,
    /// The mount of ours that it is in.
    mount: Option<MountEntry>,
}

/// Follows `path` as the kernel would, but never into a mount of ours. What is missing at the end
/// is taken as it stands.
fn walk(path: &Path, mounts: &[MountEntry]) -> io::Result<Walked> {
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
            return Ok(Walked { path: done, mount: Some(mount.clone()) });
        }
        // Anything that is no link is walked through, missing or not.
        if let Ok(target) = fs::read_link(&done) {
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP.into());
            }
            done.pop();
            push(&mut rest, &target);
        }
    }
    Ok(Walked { path: done, mount: None })
}

fn walk_failed(path: &Path, error: io::Error) -> Failure {
    if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        return Failure::new(Exit::NotFound, PlaceError::Missing(path.to_owned()));
    }
    Failure::new(Exit::NotFound, PlaceError::NoFolder(error))
}

fn mounts_failed(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, PlaceError::Mounts(error))
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
    fn a_path_in_a_mount_names_the_volume_without_asking_the_mount() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        volume(&root.join("v"));
        fs::create_dir(root.join("m")).unwrap();
        symlink("m", root.join("link")).unwrap();
        let mounts = [mount(&root.join("m"), &root.join("v"))];
        for path in ["m", "m/not/there", "link/x", "v/../link"] {
            let walked = walk(&root.join(path), &mounts).unwrap();
            let place = holding(&walked, &mounts).unwrap();
            assert_eq!(place.dir, root.join("v"), "{path}");
            assert_eq!(place.mounted, Some(root.join("m")), "{path}");
        }
        assert!(holding(&walk(&root, &mounts).unwrap(), &mounts).is_none());
    }

    #[test]
    fn a_path_in_the_folder_names_the_volume_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        volume(&root.join("v"));
        let place = holding(&walk(&root.join("v/files"), &[]).unwrap(), &[]).unwrap();
        assert_eq!(place, Place { dir: root.join("v"), mounted: None });
    }

    #[test]
    fn a_mount_with_a_garbled_name_is_found_by_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        volume(&root.join("v"));
        let mounts = [mount(&root.join("v/files"), Path::new("garbled"))];
        assert_eq!(place_of(root.join("v"), &mounts).mounted, Some(root.join("v/files")));
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        assert!(walk(&folder.path().join("a"), &[]).is_err());
    }
}
