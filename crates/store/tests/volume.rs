//! The files of a volume: created atomically, locked by one process, and refused with a reason.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use pelago_store::reserve::Reserve;
use pelago_store::volume::{
    CLIENTS, Format, TAGS_ARE_COMPLETE, Volume, VolumeError, VolumeOptions, lock_holder,
    open_folder, set_tags_complete,
};
use pelago_wire::{Kind, limits};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

fn temp() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn make(dir: &Path) -> Volume {
    Volume::create(dir, VolumeOptions::default()).unwrap()
}

/// Opens the reserve of a volume in `dir`.
fn reserve_in(dir: &Path, bytes: u64) -> Result<Reserve, pelago_store::reserve::Error> {
    let path = dir.join("reserve");
    let file = fs::File::options().write(true).create(true).truncate(false).open(&path).unwrap();
    Reserve::open(file, path, bytes)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Opens a volume, which must fail, change nothing, and say why in one sentence.
fn refused(dir: &Path) -> VolumeError {
    let before = names(dir);
    let error = Volume::open(dir).unwrap_err();
    assert_eq!(names(dir), before);
    let says = error.to_string();
    assert!(says.contains(dir.to_str().unwrap()), "{says}");
    assert!(!says.contains('\n') && !says.ends_with('.'), "{says}");
    error
}

#[test]
fn what_was_made_is_opened() {
    let temp = temp();
    let dir = temp.path().join("some/where");
    let made = make(&dir);
    assert_eq!(made.inline_bytes(), limits::INLINE_DEFAULT_BYTES);
    assert!(made.was_clean());
    let id = made.id();
    let format = *made.format();
    let hasher = made.hasher();
    drop(made);
    let opened = Volume::open(&dir).unwrap();
    assert_eq!((opened.id(), *opened.format()), (id, format));
    assert_eq!(id.to_string().len(), 32);
    assert_eq!(opened.hasher(), hasher);
    assert_eq!(names(&dir), ["clean", "content", "format", "format.copy", "lock", "table"]);
    for private in [opened.content_dir(), opened.table_dir()] {
        assert_eq!(fs::metadata(private).unwrap().mode() & 0o077, 0);
    }
}

#[test]
fn two_volumes_differ_in_id_and_seed() {
    let a = temp();
    let b = temp();
    let a = make(a.path());
    let b = make(b.path());
    assert_ne!(a.id(), b.id());
    assert_ne!(a.hasher(), b.hasher());
}

#[test]
fn options_stay_and_are_cut_to_their_limit() {
    let temp = temp();
    let options = VolumeOptions { inline_bytes: u32::MAX, ..VolumeOptions::default() };
    drop(Volume::create(temp.path(), options).unwrap());
    assert_eq!(Volume::open(temp.path()).unwrap().inline_bytes(), limits::INLINE_BYTES);
}

/// A volume is clean until it is marked unclean, and the other way round. Marking twice is no
/// error.
#[test]
fn a_volume_knows_whether_it_was_stopped_cleanly() {
    let temp = temp();
    make(temp.path()).mark_unclean().unwrap();
    let opened = Volume::open(temp.path()).unwrap();
    assert!(!opened.was_clean());
    opened.mark_unclean().unwrap();
    opened.mark_clean().unwrap();
    opened.mark_clean().unwrap();
    drop(opened);
    assert!(Volume::open(temp.path()).unwrap().was_clean());
}

#[test]
fn a_second_opener_learns_who_has_it() {
    let temp = temp();
    assert_eq!(lock_holder(temp.path()), None);
    let held = make(temp.path());
    let pid = Some(std::process::id());
    assert_eq!(lock_holder(temp.path()), pid);
    for refused in
        [Volume::open(temp.path()), Volume::open_or_create(temp.path(), VolumeOptions::default())]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error, VolumeError::InUse { pid: found, .. } if found == pid), "{error}");
        assert_eq!(error.kind(), Kind::Busy);
    }
    drop(held);
    assert_eq!(lock_holder(temp.path()), None);
    Volume::open(temp.path()).unwrap();
}

/// A process that dies leaves its id in the file, but no lock.
#[test]
fn the_number_of_a_dead_holder_means_nothing() {
    let temp = temp();
    drop(make(temp.path()));
    fs::write(temp.path().join("lock"), "1         \n").unwrap();
    assert_eq!(lock_holder(temp.path()), None);
    Volume::open(temp.path()).unwrap();
    fs::write(temp.path().join("lock"), "no number").unwrap();
    Volume::open(temp.path()).unwrap();
}

/// A process that a server starts does not inherit the lock.
#[test]
fn a_child_does_not_keep_the_volume() {
    let temp = temp();
    let held = make(temp.path());
    let started = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let Ok(mut child) = started else {
        println!("skipped: no `cat` to start");
        return;
    };
    drop(held);
    let opened = Volume::open(temp.path());
    drop(child.stdin.take());
    child.wait().unwrap();
    opened.unwrap();
}

/// A volume is created again after a crash at any step of its creation. `format` comes last.
#[test]
fn a_volume_half_made_is_made_again() {
    let whole = temp();
    drop(make(whole.path()));
    for left in [
        &[][..],
        &["lock"],
        &["lock", "table"],
        &["lock", "table", "content"],
        &["lock", "table", "content", "table/seed.new"],
        &["lock", "table", "content", "table/seed"],
        &["lock", "table", "content", "clean"],
        &["lock", "table", "content", "clean", "format.new"],
    ] {
        let temp = temp();
        for name in left {
            match *name {
                "table" | "content" => {
                    fs::DirBuilder::new().mode(0o700).create(temp.path().join(name)).unwrap();
                }
                _ => fs::write(temp.path().join(name), b"").unwrap(),
            }
        }
        assert!(matches!(refused(temp.path()), VolumeError::Missing { .. }), "{left:?}");
        let options = VolumeOptions::default();
        let id = Volume::open_or_create(temp.path(), options).unwrap().id();
        assert_eq!(names(temp.path()), names(whole.path()));
        assert_eq!(Volume::open(temp.path()).unwrap().id(), id);
    }
}

/// A volume has a key, lists and an address only after it has a format; without one they are the
/// files of something else, or what is left of a volume.
#[test]
fn a_key_without_a_format_is_no_volume_half_made() {
    for name in ["key", "clients", "policy", "keys", "listen"] {
        let temp = temp();
        fs::write(temp.path().join(name), b"text").unwrap();
        let made = Volume::create(temp.path(), VolumeOptions::default()).unwrap_err();
        assert!(matches!(made, VolumeError::NotAVolume { found, .. } if found == name));
        assert_eq!(names(temp.path()), [name]);
        fs::remove_file(temp.path().join(name)).unwrap();
        drop(make(temp.path()));
        fs::write(temp.path().join("table/1"), b"rows").unwrap();
        fs::write(temp.path().join(name), b"text").unwrap();
        Volume::open(temp.path()).unwrap();
        remove_formats(temp.path());
        assert!(matches!(refused(temp.path()), VolumeError::Corrupt { .. }));
    }
}

/// `open_folder` takes no lock, and finds files that the server would refuse.
#[test]
fn the_folder_of_a_volume_in_use_can_be_opened() {
    let temp = temp();
    assert!(matches!(open_folder(temp.path()), Err(VolumeError::Missing { .. })));
    let held = make(temp.path());
    assert_eq!(open_folder(temp.path()).unwrap().path(), temp.path());
    drop(held);
    fs::hard_link(temp.path().join("lock"), temp.path().join(CLIENTS)).unwrap();
    assert!(matches!(open_folder(temp.path()), Err(VolumeError::Insecure(_))));
    assert!(matches!(Volume::open(temp.path()), Err(VolumeError::Insecure(_))));
}

#[test]
fn making_one_where_one_is_is_refused() {
    let temp = temp();
    let id = make(temp.path()).id();
    let error = Volume::create(temp.path(), VolumeOptions::default()).unwrap_err();
    assert!(matches!(error, VolumeError::Exists { .. }), "{error}");
    assert_eq!(Volume::open(temp.path()).unwrap().id(), id);
}

#[test]
fn a_folder_of_somebody_else_is_left_alone() {
    let temp = temp();
    fs::write(temp.path().join("thesis.tex"), b"text").unwrap();
    let options = VolumeOptions::default();
    for refused in [
        Volume::open(temp.path()),
        Volume::create(temp.path(), options),
        Volume::open_or_create(temp.path(), options),
    ] {
        let error = refused.unwrap_err();
        let says = error.to_string();
        assert!(matches!(error, VolumeError::NotAVolume { .. }), "{error}");
        assert!(says.contains("thesis.tex") && !says.contains('\n'), "{says}");
    }
    assert_eq!(names(temp.path()), ["thesis.tex"]);
}

/// The root of a new file system, with its `lost+found`, counts as an empty folder.
#[test]
fn a_new_file_system_can_become_a_volume() {
    let temp = temp();
    fs::create_dir(temp.path().join("lost+found")).unwrap();
    drop(make(temp.path()));
    Volume::open(temp.path()).unwrap();
}

#[test]
fn what_is_missing_or_no_folder_says_so() {
    let temp = temp();
    let error = Volume::open(&temp.path().join("none")).unwrap_err();
    assert!(matches!(error, VolumeError::Missing { .. }), "{error}");
    assert_eq!(error.kind(), Kind::NotFound);
    let file = temp.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("below")] {
        for refused in [Volume::open(&path), Volume::create(&path, VolumeOptions::default())] {
            let error = refused.unwrap_err();
            assert!(matches!(error, VolumeError::NotAFolder { .. }), "{error}");
        }
    }
}

/// A volume that lost its `format` still has its data. No new volume may be created over it.
#[test]
fn a_volume_without_its_format_is_damaged_not_new() {
    let temp = temp();
    drop(make(temp.path()));
    fs::write(temp.path().join("table/data"), b"x").unwrap();
    remove_formats(temp.path());
    assert!(matches!(refused(temp.path()), VolumeError::Corrupt { .. }));
    let error = Volume::open_or_create(temp.path(), VolumeOptions::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert_eq!(fs::read(temp.path().join("table/data")).unwrap(), b"x");
}

fn remove_formats(dir: &Path) {
    for name in ["format", "format.copy"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
}

/// One whole file of two is enough, whatever is wrong with the other one; nothing is written before
/// `mend`, and then both are whole.
#[test]
fn one_whole_file_of_two_is_enough() {
    let temp = temp();
    drop(make(temp.path()));
    for name in ["format", "format.copy", "table/seed", "table/seed.copy"] {
        let path = temp.path().join(name);
        let good = fs::read(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().mode();
        for at in 0..=good.len() {
            // The last one is a file that is missing.
            match good.get(at) {
                Some(byte) => {
                    let mut bad = good.clone();
                    bad[at] = byte ^ 0x40;
                    fs::write(&path, bad).unwrap();
                }
                None => fs::remove_file(&path).unwrap(),
            }
            let opened = Volume::open(temp.path()).unwrap();
            let mends = opened.mends();
            assert_eq!(mends.len(), 1, "{name} {at}: {mends:?}");
            assert_eq!(mends[0].path, path);
            // A copy that is missing was perhaps never made.
            let is_new = name.ends_with("copy") && at == good.len();
            assert_eq!(mends[0].is_damage, !is_new);
            assert_ne!(fs::read(&path).unwrap_or_default(), good, "{name}: too early");
            opened.mend().unwrap();
            assert_eq!(fs::read(&path).unwrap(), good, "{name} {at}");
            assert_eq!(fs::metadata(&path).unwrap().mode(), mode);
            drop(opened);
            assert!(Volume::open(temp.path()).unwrap().mends().is_empty());
        }
    }
}

/// The second files are opened as the first ones are.
#[test]
fn second_files_of_others_are_refused() {
    for name in ["format.copy", "table/seed.copy"] {
        let temp = temp();
        drop(make(temp.path()));
        let path = temp.path().join(name);
        let good = fs::read(&path).unwrap();
        let elsewhere = temp.path().join("content/elsewhere");
        fs::write(&elsewhere, &good).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let opened = Volume::open(temp.path());
        match name {
            "format.copy" => assert!(matches!(opened, Err(VolumeError::Insecure(_)))),
            // In a folder of ours it is replaced, and what it leads to stays.
            _ => opened.unwrap().mend().unwrap(),
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), good);
    }
}

#[test]
fn a_damaged_or_newer_format_is_refused() {
    let temp = temp();
    drop(make(temp.path()));
    let path = temp.path().join("format");
    let good = fs::read(&path).unwrap();
    fs::write(temp.path().join("format.copy"), b"no format").unwrap();

    let mut bad = good.clone();
    bad[40] ^= 1;
    for damaged in [&bad[..], &good[..60], b"", b"[a text file]\n"] {
        fs::write(&path, damaged).unwrap();
        let error = refused(temp.path());
        assert!(matches!(error, VolumeError::Corrupt { .. }), "{error}");
        assert_eq!(error.kind(), Kind::Corrupt);
    }

    let mut newer = good[..120].to_vec();
    newer[8] = 9;
    let sum = xxh3_64(&newer);
    newer.extend_from_slice(&sum.to_le_bytes());
    fs::write(&path, &newer).unwrap();
    // Also if the second file is older.
    for copy in [b"no format", &good[..]] {
        fs::write(temp.path().join("format.copy"), copy).unwrap();
        let error = refused(temp.path());
        assert!(matches!(error, VolumeError::Newer { found: 9, known: 2, .. }), "{error}");
    }

    fs::write(&path, &good).unwrap();
    assert_eq!(Volume::open(temp.path()).unwrap().format().encode(), good);
    assert!(Format::decode(&good).is_ok());
}

/// A volume from before there were rows of tags is as it was until it gets the feature.
#[test]
fn a_volume_gets_the_feature_that_its_tags_are_complete() {
    let temp = temp();
    let made = make(temp.path());
    assert!(made.format().tags_are_complete(), "a new one has no tags");
    let before = Format { needed_features: 0, ..*made.format() };
    drop(made);
    fs::write(temp.path().join("format"), before.encode()).unwrap();
    // What a crash may leave.
    fs::write(temp.path().join("format.new"), b"PEL").unwrap();
    let opened = Volume::open(temp.path()).unwrap();
    assert_eq!(*opened.format(), before);
    for _ in 0..2 {
        set_tags_complete(opened.folder()).unwrap();
    }
    drop(opened);
    let after = Format { needed_features: TAGS_ARE_COMPLETE, ..before };
    assert_eq!(*Volume::open(temp.path()).unwrap().format(), after);
    assert!(!names(temp.path()).contains(&"format.new".to_owned()));
}

/// The message tells a user how to keep the data.
#[test]
fn an_older_format_is_refused_and_says_what_to_do() {
    let temp = temp();
    drop(make(temp.path()));
    let path = temp.path().join("format");
    let mut older = fs::read(&path).unwrap()[..120].to_vec();
    older[8] = 1;
    let sum = xxh3_64(&older);
    older.extend_from_slice(&sum.to_le_bytes());
    fs::write(&path, &older).unwrap();
    let error = refused(temp.path());
    assert!(matches!(error, VolumeError::Older { found: 1, known: 2, .. }), "{error}");
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("copy the files out"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), older);
}

/// No name can be found without the key of the hash. Such a volume does not open, and no new key is
/// created.
#[test]
fn a_lost_or_damaged_seed_is_damage() {
    let temp = temp();
    drop(make(temp.path()));
    let path = temp.path().join("table/seed");
    let good = fs::read(&path).unwrap();
    fs::write(temp.path().join("table/seed.copy"), &good[..30]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut other = good.clone();
    other[20] ^= 1;
    for damaged in [Some(&other[..]), Some(&good[..39]), Some(b""), None] {
        match damaged {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        for error in [
            refused(temp.path()),
            Volume::open_or_create(temp.path(), VolumeOptions::default()).unwrap_err(),
        ] {
            let named = matches!(&error, VolumeError::Corrupt { path: of, .. } if *of == path);
            assert!(named, "{error}");
        }
    }
    fs::write(&path, &good).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Volume::open(temp.path()).unwrap();
}

/// Files that other users can read do not have the key.
#[test]
fn the_key_of_the_hash_is_in_no_public_file() {
    let temp = temp();
    drop(make(temp.path()));
    let key = fs::read(temp.path().join("table/seed")).unwrap()[16..32].to_vec();
    for name in names(temp.path()) {
        let path = temp.path().join(&name);
        if path.is_dir() {
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{name}");
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for half in key.chunks(8) {
            assert!(!bytes.windows(8).any(|window| window == half), "{name}");
        }
    }
}

#[test]
fn a_missing_part_is_damage() {
    for part in ["table", "content"] {
        let temp = temp();
        drop(make(temp.path()));
        fs::remove_dir_all(temp.path().join(part)).unwrap();
        let error = refused(temp.path());
        assert!(matches!(&error, VolumeError::Corrupt { path, .. } if path.ends_with(part)));
    }
}

/// Root can use every folder. So as root, the test runs itself again as the user `nobody`.
#[test]
fn a_folder_that_cannot_be_used_says_so() {
    const CLOSED: &str = "PELAGO_TEST_CLOSED_FOLDER";
    if let Some(dir) = std::env::var_os(CLOSED) {
        let error = Volume::create(Path::new(&dir), VolumeOptions::default()).unwrap_err();
        assert!(matches!(error, VolumeError::PermissionDenied { .. }), "{error}");
        assert_eq!(error.kind(), Kind::Denied);
        println!("refused as it must be");
        return;
    }
    let temp = temp();
    let dir = temp.path().join("closed");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).unwrap();
    // The user `nobody` may have no access to the build folder.
    let open = tempfile::tempdir().unwrap();
    let program = open.path().join("again");
    fs::copy("/proc/self/exe", &program).unwrap();
    for path in [open.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut again = Command::new(&program);
    again.args(["--exact", "a_folder_that_cannot_be_used_says_so", "--nocapture"]);
    again.env(CLOSED, &dir).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        again.uid(65534).gid(65534);
    }
    let output = loop {
        match again.output() {
            // A child of another test has the copy open for writing until its `exec`.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
            output => break output,
        }
    };
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: not here: the user nobody may not run a program: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("refused as it must be"), "{output:?}");
}

/// A mounted file system, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a tmpfs at `path`. Returns `None` if this process may not mount.
    fn new(path: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let data = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", path, "tmpfs", flags, data.as_c_str()) {
            Ok(()) => Some(Self(path.into())),
            Err(error) => {
                println!("skipped: cannot mount a file system: {error}");
                None
            }
        }
    }

    fn make_read_only(&self) {
        let flags = rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(&self.0, flags, c"").unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_read_only_medium_says_so() {
    let temp = temp();
    let Some(disk) = Mounted::new(&temp.path().join("m"), 1 << 20) else { return };
    let volume = disk.0.join("volume");
    drop(make(&volume));
    disk.make_read_only();
    let new = Volume::create(&disk.0.join("new"), VolumeOptions::default());
    for refused in [Volume::open(&volume), new] {
        let error = refused.unwrap_err();
        assert!(matches!(error, VolumeError::ReadOnly { .. }), "{error}");
    }
}

/// Fills a file system.
fn fill(disk: &Path) {
    let full = fs::write(disk.join("filler"), vec![1; 2 << 20]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
}

/// On a full disk no volume can be created. An existing one can be opened and marked as in use, so
/// that the server can release its reserve.
#[test]
fn a_full_medium_says_so_and_a_volume_on_it_opens() {
    let temp = temp();
    let Some(disk) = Mounted::new(&temp.path().join("m"), 1 << 20) else { return };
    let volume = disk.0.join("volume");
    drop(make(&volume));
    fill(&disk.0);
    let error = Volume::create(&disk.0.join("new"), VolumeOptions::default()).unwrap_err();
    assert!(matches!(error, VolumeError::NoSpace { .. }), "{error}");
    Volume::open(&volume).unwrap().mark_unclean().unwrap();
}

#[test]
fn a_reserve_is_given_up_and_had_again() {
    let temp = temp();
    let path = temp.path().join("reserve");
    let reserve = reserve_in(temp.path(), 1 << 20).unwrap();
    if !reserve.is_allocated() {
        println!("skipped: the disk has no MiB for a reserve, or no `fallocate`");
        return;
    }
    assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 1 << 20);
    assert!(reserve.release().unwrap());
    assert!(!reserve.release().unwrap(), "nothing was left to release");
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 0);
    assert!(!reserve.is_allocated());
    assert!(reserve.allocate().unwrap());
    drop(reserve);
    // An existing file is used again.
    assert!(reserve_in(temp.path(), 1 << 20).unwrap().is_allocated());
}

/// A reserve larger than the disk takes no space, not even for a moment.
#[test]
fn a_reserve_that_cannot_be_had_is_no_error() {
    let temp = temp();
    let reserve = reserve_in(temp.path(), 1 << 60).unwrap();
    assert!(!reserve.is_allocated());
    assert_eq!(fs::metadata(temp.path().join("reserve")).unwrap().blocks(), 0);
    assert!(!reserve.release().unwrap());
    assert!(!reserve.allocate().unwrap());
}

/// Releasing the reserve makes space on a full disk at once.
#[test]
fn a_reserve_makes_space_on_a_full_medium() {
    let temp = temp();
    let Some(disk) = Mounted::new(&temp.path().join("m"), 1 << 20) else { return };
    let reserve = reserve_in(&disk.0, 256 << 10).unwrap();
    assert!(reserve.is_allocated());
    fill(&disk.0);
    assert!(fs::write(disk.0.join("more"), [1; 8192]).is_err());
    assert!(reserve.release().unwrap());
    fs::write(disk.0.join("more"), [1; 8192]).unwrap();
    assert!(reserve.allocate().is_ok_and(|held| !held), "there is not twice as much");
}
