//! Files that the kernel holds without an open when they lose their last name: by a bind mount of
//! the file alone, as container engines make for a configuration file, and by a descriptor made
//! with `O_PATH`, which is opened later through `/proc/self/fd`. Both stay usable until they are
//! released.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, XattrFlags, getxattr, setxattr};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::far::world::World;
use crate::harness::mapping::Mapping;
use crate::harness::program::until;
use crate::harness::volume::{cannot_mount, passthrough_modes};
use crate::pairs::{MINUTE, Pair};

/// A file whose bytes are a row, and one that has a content file.
const SIZES: [usize; 2] = [6, 1 << 20];

/// An extended attribute of a file that is held.
const KEPT: &str = "user.kept";

/// A way to hold a file without an open.
#[derive(Debug)]
enum Holder {
    /// A mount of the file alone, at this path.
    Bound(PathBuf),
    /// A descriptor that opens nothing.
    Path(OwnedFd),
}

/// The ways in which a file loses its name.
#[derive(Debug, Clone, Copy)]
enum How {
    Removed,
    Replaced,
}

/// A file that is held.
#[derive(Debug)]
struct HeldFile {
    holder: Holder,
    bytes: Vec<u8>,
    what: String,
}

impl Holder {
    fn bound(file: &Path, below: &Path) -> Option<Self> {
        let at = below.join(format!("bound-{}", file.file_name().unwrap().display()));
        let at = (0..).map(|number| at.with_extension(number.to_string()));
        let at = at.into_iter().find(|at| !at.exists()).unwrap();
        File::create(&at).unwrap();
        mount_bind(file, &at).ok()?;
        Some(Self::Bound(at))
    }

    fn path(file: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Self::Path(rustix::fs::open(file, flags, Mode::empty()).unwrap())
    }

    /// Returns a path by which the file is reached.
    fn reach(&self) -> PathBuf {
        match self {
            Self::Bound(at) => at.clone(),
            Self::Path(descriptor) => format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into(),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Self::Bound(at) = self {
            unmount(&*at, UnmountFlags::DETACH).unwrap();
        }
    }
}

impl HeldFile {
    fn expect(&self, when: &str) {
        let what = format!("{when}: {}", self.what);
        let found = fs::metadata(self.holder.reach()).map(|meta| (meta.size(), meta.nlink()));
        assert_eq!(found.map_err(|e| e.to_string()), Ok((self.bytes.len() as u64, 0)), "{what}");
        let found = fs::read(self.holder.reach()).map_err(|error| error.to_string());
        assert!(found.as_ref() == Ok(&self.bytes), "{what}: {:?}", found.map(|it| it.len()));
    }
}

/// Makes files by the mount of one folder, which holds them, and removes them by that of the other.
fn held_by(pair: &Pair, below: &Path) -> Vec<HeldFile> {
    let mut all = Vec::new();
    for (number, size) in SIZES.into_iter().enumerate() {
        for how in [How::Removed, How::Replaced] {
            for binds in [true, false] {
                let name = format!("conf-{number}-{how:?}-{binds}");
                let one = pair.one.join(&name);
                let other = pair.other.join(&name);
                let bytes = vec![b'o'; size];
                fs::write(&one, &bytes).unwrap();
                let holder = match binds {
                    true => Holder::bound(&one, below),
                    false => Some(Holder::path(&one)),
                };
                let Some(holder) = holder else {
                    println!("not here: a mount of one file is refused");
                    continue;
                };
                assert_eq!(fs::read(holder.reach()).unwrap(), bytes);
                match how {
                    How::Removed => fs::remove_file(&other).unwrap(),
                    How::Replaced => {
                        let new = other.with_extension("new");
                        fs::write(&new, b"two").unwrap();
                        fs::rename(&new, &other).unwrap();
                    }
                }
                let what = format!("{name} of {} by {}", one.display(), other.display());
                let held = HeldFile { holder, bytes, what };
                held.expect("at once");
                all.push(held);
            }
        }
    }
    all
}

/// Returns the folders of the disk below, and of each pair of mounts.
fn pairs_of(world: &World) -> Vec<Pair> {
    let folder = |root: &PathBuf, name: &str| {
        let folder = root.join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    };
    let disk = folder(&world.volume.root, "disk");
    let mut pairs = vec![Pair { one: disk.clone(), other: disk }];
    let roots = world.roots();
    for (first, one) in roots.iter().enumerate() {
        for (second, other) in roots.iter().enumerate() {
            let name = format!("pair{first}{second}");
            pairs.push(Pair { one: folder(one, &name), other: folder(other, &name) });
        }
    }
    pairs
}

fn content_files(world: &World) -> HashSet<PathBuf> {
    let folders = fs::read_dir(world.volume.dir.join("content")).unwrap();
    let folders = folders.map(|folder| folder.unwrap().path()).filter(|path| path.is_dir());
    folders.flat_map(|path| fs::read_dir(path).unwrap()).map(|file| file.unwrap().path()).collect()
}

/// Waits until what is removed now could not be brought back any more.
fn until_forgotten(world: &World) {
    let before = content_files(world);
    let path = world.volume.files().join("canary");
    fs::write(&path, vec![b'c'; SIZES[1]]).unwrap();
    let canary: Vec<PathBuf> = content_files(world).difference(&before).cloned().collect();
    assert_eq!(canary.len(), 1);
    fs::remove_file(&path).unwrap();
    until("a file that nothing holds is gone", || !canary[0].exists());
}

fn on_each_path(work: impl Fn(&World)) {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    for passthrough in passthrough_modes(&["never", "always"]) {
        println!("--passthrough {passthrough}");
        let world = World::with_deadline(&passthrough, 4 * MINUTE);
        world.mount_both();
        work(&world);
        world.finish();
    }
}

#[test]
fn what_a_kernel_holds_lives_until_it_lets_go() {
    on_each_path(|world| {
        let below = world.volume.root.join("bound");
        fs::create_dir_all(&below).unwrap();
        let held: Vec<_> = pairs_of(world).iter().flat_map(|pair| held_by(pair, &below)).collect();
        until_forgotten(world);
        held.iter().for_each(|held| held.expect("later"));
        drop(held);
        let files = world.volume.files();
        for name in fs::read_dir(&files).unwrap() {
            fs::remove_dir_all(name.unwrap().path()).unwrap();
        }
        until("nothing is open", || world.status()["open_files"] == 0);
        until("no bytes are left", || content_files(world).is_empty());
    });
}

/// Uses a file as a program does that holds it by a descriptor made with `O_PATH`.
fn used(path: &Path) -> io::Result<String> {
    let mut said = String::new();
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    file.write_all(b"more")?;
    file.rewind()?;
    file.read_to_string(&mut said)?;
    drop(file);
    if Mapping::cannot().is_none() {
        let mut mapping = Mapping::of(path, 3);
        mapping.put(0, "map");
    }
    said += &fs::read_to_string(path)?;
    let meta = fs::metadata(path)?;
    said += &format!(" {:o} {} {}", meta.mode(), meta.size(), meta.nlink());
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(b"short")?;
    said += &fs::read_to_string(path)?;
    let mut value = [0; 16];
    let length = getxattr(path, KEPT, &mut value[..])?;
    said += &String::from_utf8_lossy(&value[..length]);
    Ok(said)
}

/// A file that was removed by the other mount of a pair, and a descriptor of it.
struct Unnamed {
    descriptor: OwnedFd,
    what: String,
}

impl Unnamed {
    fn by(pair: &Pair) -> Self {
        let one = pair.one.join("used");
        let other = pair.other.join("used");
        fs::write(&one, b"text").unwrap();
        setxattr(&one, KEPT, b"kept", XattrFlags::empty()).unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(&one, flags, Mode::empty()).unwrap();
        fs::remove_file(&other).unwrap();
        Self { descriptor, what: format!("{} by {}", one.display(), other.display()) }
    }

    /// Uses the file, by a path that holds for programs that this one starts too.
    fn answers(self, when: &str) -> String {
        let process = std::process::id();
        let path = format!("/proc/{process}/fd/{}", self.descriptor.as_raw_fd());
        used(Path::new(&path)).unwrap_or_else(|error| format!("{when}, {}: {error}", self.what))
    }
}

#[test]
fn a_file_that_is_held_is_used_as_on_the_disk() {
    on_each_path(|world| {
        let pairs = pairs_of(world);
        let mut answers: Vec<String> =
            pairs.iter().map(|pair| Unnamed::by(pair).answers("at once")).collect();
        let held: Vec<Unnamed> = pairs.iter().map(Unnamed::by).collect();
        until_forgotten(world);
        answers.extend(held.into_iter().map(|held| held.answers("later")));
        for answer in &answers {
            assert_eq!(answer, &answers[0]);
        }
        until("nothing is open", || world.status()["open_files"] == 0);
    });
}

/// A file that is held without an open is gone with its server, and leaves nothing.
#[test]
fn a_server_that_is_killed_leaves_nothing_of_what_was_held() {
    on_each_path(|world| {
        let roots = world.roots();
        let mut held = Vec::new();
        for (number, root) in roots.iter().enumerate() {
            for size in SIZES {
                let path = root.join(format!("held-{number}-{size}"));
                fs::write(&path, vec![b'h'; size]).unwrap();
                let holder = Holder::path(&path);
                fs::remove_file(&path).unwrap();
                held.push((number, holder));
            }
        }
        world.volume.kill();
        world.volume.up(&["--listen", world.tcp()]).expect_success();
        for (number, holder) in &held {
            // The server's own mount is gone too.
            let found = fs::read(holder.reach());
            assert!(*number > 0 || found.is_err(), "{found:?}");
        }
        drop(held);
        until("nothing is open", || world.status()["open_files"] == 0);
        until("no bytes are left", || content_files(world).is_empty());
    });
}
