//! The file system on a real mount.

#![expect(clippy::unwrap_used, reason = "a test fails on an unexpected error")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use pelago_lossfs::{Fault, Lossfs, Model, Operation, Survival};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Returns a directory and the mount on it, or prints why nothing can be mounted.
fn mounted(model: Model) -> Option<(tempfile::TempDir, Lossfs)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    match Lossfs::mount(folder.path(), model) {
        Ok(lossfs) => Some((folder, lossfs)),
        Err(error) => {
            println!("skipped: not here: no FUSE file system can be mounted: {error}");
            None
        }
    }
}

fn sync_names(folder: &Path) {
    File::open(folder).unwrap().sync_all().unwrap();
}

#[test]
fn synced_files_survive_a_power_cut() {
    let Some((folder, lossfs)) = mounted(Model::new()) else { return };
    let root = folder.path();
    fs::create_dir(root.join("below")).unwrap();
    sync_names(root);
    let mut kept = File::create(root.join("below/kept")).unwrap();
    kept.write_all(&[1; 10_000]).unwrap();
    kept.sync_all().unwrap();
    fs::write(root.join("below/empty"), b"never synced").unwrap();
    sync_names(&root.join("below"));
    kept.write_all_at(&[2; 10], 0).unwrap();
    fs::write(root.join("gone"), b"never synced").unwrap();
    fs::rename(root.join("below/kept"), root.join("below/renamed")).unwrap();
    assert_eq!(fs::read(root.join("gone")).unwrap(), b"never synced");
    assert_eq!(lossfs.control().syncs(), 3);
    let left = lossfs.control().cut(Survival::Nothing);
    assert_eq!(kept.write_at(&[3], 0).unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    drop((kept, lossfs));
    let Some((folder, _lossfs)) = mounted(left) else { return };
    let root = folder.path();
    assert!(!root.join("gone").exists());
    assert_eq!(fs::read(root.join("below/kept")).unwrap(), [1; 10_000]);
    assert_eq!(fs::read(root.join("below/empty")).unwrap(), b"");
    fs::remove_dir_all(root.join("below")).unwrap();
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}

#[test]
fn injected_errors_occur() {
    let Some((folder, lossfs)) = mounted(Model::new()) else { return };
    let fault = |on, error| Fault { on, within: "a".to_owned(), after: 1, times: 1, error };
    let control = lossfs.control();
    control.fail(fault(Operation::Write, Errno::IO));
    control.fail(fault(Operation::Sync, Errno::NOSPC));
    let (a, b) = ["a", "b"].map(|name| File::create(folder.path().join(name)).unwrap()).into();
    for (file, expected) in [(&b, None), (&a, None), (&b, None), (&a, Some(Errno::IO)), (&a, None)]
    {
        let written = file.write_at(b"x", 0).err().and_then(|error| error.raw_os_error());
        assert_eq!(written, expected.map(Errno::raw_os_error));
    }
    a.sync_all().unwrap();
    assert_eq!(a.sync_data().unwrap_err().raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    a.sync_all().unwrap();
}

#[test]
fn it_behaves_as_other_file_systems() {
    let Some((folder, lossfs)) = mounted(Model::new()) else { return };
    let path = folder.path().join("a");
    let file = OpenOptions::new().read(true).append(true).create(true).open(&path).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 20_000).unwrap();
    (&file).write_all(b"0123456789").unwrap();
    (&file).write_all(b"abc").unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.blocks(), meta.nlink()), (13, 40, 1));
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 2, 9).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"01\0\0\0\0\0\0\0\0\0bc");
    fs::hard_link(&path, folder.path().join("b")).unwrap();
    fs::write(&path, b"new").unwrap();
    assert_eq!(fs::read(folder.path().join("b")).unwrap(), b"new");
    lossfs.control().set_limit(Some(10));
    let stats = statvfs(folder.path()).unwrap();
    assert_eq!((stats.f_blocks, stats.f_bavail), (10, 9));
    let full = fs::write(folder.path().join("c"), [0; 50_000]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    File::open(&path).unwrap().lock().unwrap();
}
