//! The disk below a volume fails: it fills up, returns errors, loses power. Programs get the usual
//! errno, safe data stays, and the volume is usable afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use pelago_lossfs::{Fault, Lossfs, Model, Names, Operation, Survival};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::program::{run, until};
use crate::harness::volume::{Volume, cannot_mount, passthrough_modes};

macro_rules! needs_mount {
    () => {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return;
        }
    };
}

/// Bytes of the disk that fills up.
const IMAGE_BYTES: u64 = 96 << 20;

/// Returns bytes that depend on the file and the offset.
fn content(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number * 7 + at / 512) as u8).collect()
}

/// Mounts an ext4 image on the folder of a volume. The error is the reason to skip the test.
fn mount_image(volume: &Volume) -> Result<(), String> {
    let image = volume.root.join("image");
    File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).unwrap();
    fs::create_dir(&volume.dir).unwrap();
    let mut made = Command::new("mkfs.ext4");
    made.args(["-q", "-F", "-m", "0"]).arg(&image);
    let mut mounted = Command::new("mount");
    mounted.args(["-o", "loop"]).arg(&image).arg(&volume.dir);
    for mut command in [made, mounted] {
        if command.get_program() == "mkfs.ext4" && which("mkfs.ext4").is_none() {
            return Err("not here: there is no mkfs.ext4".to_owned());
        }
        let ran = run(&mut command);
        if ran.code != Some(0) {
            return Err(format!("not here: no loop device: {}", ran.err.trim()));
        }
    }
    Ok(())
}

fn which(program: &str) -> Option<()> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).any(|folder| folder.join(program).exists()).then_some(())
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.unwrap_err())
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes until the disk is full; any other failure is an error.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let filled = loop {
        if let Err(error) = file.write_all(&[7; 1 << 20]).and_then(|()| file.sync_data()) {
            break error;
        }
    };
    assert_eq!(Errno::from_io_error(&filled), Some(Errno::NOSPC));
}

#[test]
fn a_full_disk_is_enospc_until_there_is_room_again() {
    needs_mount!();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root for a disk that fills up");
        return;
    }
    for passthrough in passthrough_modes(&["never", "always"]) {
        let mut volume = Volume::new();
        volume.passthrough = Some(passthrough.clone());
        if let Err(reason) = mount_image(&volume) {
            println!("skipped: {reason}");
            return;
        }
        volume.up(&[]).expect_success();
        let files = volume.files();
        let small = content(1, 900);
        let large = content(2, 300_000);
        write_synced(&files.join("small"), &small).unwrap();
        write_synced(&files.join("large"), &large).unwrap();
        fill(&files.join("big"));
        let mut more = 0;
        until("a file can be made no more", || {
            let path = files.join(format!("more{more}"));
            more += 1;
            match write_synced(&path, &content(3, 30_000)) {
                Ok(()) => false,
                Err(error) => {
                    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{passthrough}");
                    !path.exists()
                }
            }
        });
        assert_eq!(fs::read(files.join("small")).unwrap(), small, "{passthrough}");
        assert_eq!(fs::read(files.join("large")).unwrap(), large, "{passthrough}");
        assert!(fs::read_dir(&files).unwrap().count() >= 3);
        fs::remove_file(files.join("big")).unwrap();
        until("there is room again", || {
            match write_synced(&files.join("again"), &content(4, 8 << 20)) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{passthrough}");
                    false
                }
            }
        });
        assert_eq!(fs::read(files.join("again")).unwrap(), content(4, 8 << 20), "{passthrough}");
        volume.finish();
    }
}

/// Mounts a file system that fails on command below a volume.
fn on_lossfs(volume: &Volume, model: Model) -> Lossfs {
    let lossfs = Lossfs::mount(&volume.dir, model).unwrap();
    volume.up(&[]).expect_success();
    lossfs
}

fn fault(on: Operation, within: &str) -> Fault {
    Fault { on, within: within.to_owned(), after: 0, times: 1, error: Errno::IO }
}

fn new_volume() -> Volume {
    let mut volume = Volume::new();
    volume.passthrough = Some("never".to_owned());
    fs::create_dir(&volume.dir).unwrap();
    volume
}

/// Waits until a file can be written and synced.
fn expect_usable(files: &Path, name: &str) {
    let bytes = content(5, 20_000);
    until("it is usable again", || write_synced(&files.join(name), &bytes).is_ok());
    assert_eq!(fs::read(files.join(name)).unwrap(), bytes);
}

#[test]
fn an_error_of_the_disk_is_eio_and_ends_with_its_cause() {
    needs_mount!();
    let volume = new_volume();
    let lossfs = on_lossfs(&volume, Model::new());
    let files = volume.files();
    let control = lossfs.control();
    let small = content(1, 900);
    let large = content(2, 300_000);
    write_synced(&files.join("small"), &small).unwrap();
    write_synced(&files.join("large"), &large).unwrap();

    // Writing content, syncing content, syncing the journal.
    control.fail(fault(Operation::Write, "/content/"));
    let mut file = OpenOptions::new().append(true).open(files.join("large")).unwrap();
    assert_eq!(errno(file.write_all(&[1; 50_000])), Some(Errno::IO));
    drop(file);
    expect_usable(&files, "write");
    control.fail(fault(Operation::Sync, "/content/"));
    assert_eq!(errno(write_synced(&files.join("a"), &large)), Some(Errno::IO));
    expect_usable(&files, "sync");
    control.fail(fault(Operation::SyncNames, "/content/"));
    let names = (0..300).map(|number| files.join(format!("n{number}")));
    let failed = names.map(|path| write_synced(&path, &large[..5_000])).find(io::Result::is_err);
    assert_eq!(errno(failed.unwrap()), Some(Errno::IO));
    expect_usable(&files, "names");
    control.fail(fault(Operation::Sync, ".jnl"));
    assert_eq!(errno(write_synced(&files.join("b"), &small)), Some(Errno::IO));
    expect_usable(&files, "journal");

    // Safe data is there after a restart; reading it fails as long as the disk fails.
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
    volume.up(&[]).expect_success();
    control.fail(Fault { times: u64::MAX, ..fault(Operation::Read, "/content/") });
    let mut read = Vec::new();
    let failed = File::open(files.join("sync")).and_then(|mut file| file.read_to_end(&mut read));
    assert_eq!(errno(failed), Some(Errno::IO));
    assert_eq!(fs::read(files.join("small")).unwrap(), small);
    control.heal();
    assert_eq!(fs::read(files.join("sync")).unwrap(), content(5, 20_000));
    assert_eq!(fs::read(files.join("large")).unwrap()[..300_000], large);
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
    drop(volume);
}

/// The whole stack: a program, the kernel, the daemon, and a disk whose power fails.
#[test]
fn a_power_failure_loses_nothing_that_was_fsynced() {
    needs_mount!();
    let volume = new_volume();
    let mut lossfs = on_lossfs(&volume, Model::new());
    let mut kept = Vec::new();
    for round in 0..4_usize {
        let files = volume.files();
        for (path, bytes) in &kept {
            assert_eq!(fs::read(files.join(path)).unwrap(), *bytes, "round {round}: {path}");
        }
        for number in 0..12 {
            let size = [0, 700, 4_097, 30_000, 200_000][number % 5] + number;
            let path = format!("{round}-{number}");
            let bytes = content(number, size);
            fs::write(files.join("new"), &bytes).unwrap();
            fs::rename(files.join("new"), files.join(&path)).unwrap();
            if number % 3 == 0 {
                File::open(files.join(&path)).unwrap().sync_all().unwrap();
                kept.push((path, bytes));
            }
        }
        let open = OpenOptions::new().append(true).open(files.join(format!("{round}-1"))).unwrap();
        (&open).write_all(&[1; 9_000]).unwrap();
        let survival = match round {
            0 => Survival::Nothing,
            seed => Survival::Some { seed: seed as u64, names: Names::PerFolder },
        };
        // Without power the lock file with the process id cannot be read.
        let pid = volume.pid().unwrap();
        let left = lossfs.control().cut(survival);
        kill(pid);
        drop((open, lossfs));
        volume_is_gone(&volume);
        lossfs = on_lossfs(&volume, left);
    }
    for (path, bytes) in &kept {
        assert_eq!(fs::read(volume.files().join(path)).unwrap(), *bytes, "{path}");
    }
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
    drop(volume);
}

fn log(volume: &Volume) -> String {
    fs::read_to_string(volume.dir.join("log")).unwrap()
}

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
    // A zombie that is not reaped runs no program.
    let program = format!("/proc/{}/exe", pid.as_raw_nonzero());
    until("killed", || fs::read_link(&program).is_err());
}

/// Waits until nothing is mounted on the folder.
fn volume_is_gone(volume: &Volume) {
    until("the disk is gone", || {
        fs::read_dir(&volume.dir).is_ok_and(|mut all| all.next().is_none())
    });
}

/// Syncing the journal fails once: acknowledged changes that were not safe are lost, and each
/// descriptor gets the error.
#[test]
fn a_journal_that_cannot_be_synced() {
    needs_mount!();
    let volume = new_volume();
    let lossfs = on_lossfs(&volume, Model::new());
    let files = volume.files();
    write_synced(&files.join("warm"), &content(1, 20_000)).unwrap();
    write_synced(&files.join("old"), &[1; 500]).unwrap();
    File::open(&files).unwrap().sync_all().unwrap();
    let since = log(&volume).len();
    lossfs.control().fail(fault(Operation::Sync, ".jnl"));
    fs::write(files.join("old"), [7; 500]).unwrap();
    let mut small = File::create(files.join("small")).unwrap();
    small.write_all(&[2; 100]).unwrap();
    let mut large = File::create(files.join("large")).unwrap();
    large.write_all(&[2; 20_000]).unwrap();
    until("the table is reopened", || log(&volume)[since..].contains("was reopened"));
    for file in [&small, &large] {
        let told = [errno(file.sync_all()), errno(file.sync_all())];
        assert_eq!(told, [Some(Errno::IO), Some(Errno::STALE)]);
    }
    drop((small, large));
    let old = File::open(files.join("old")).unwrap();
    assert_eq!(errno(old.sync_all()), Some(Errno::IO));
    old.sync_all().unwrap();
    drop(old);
    let bytes = content(5, 20_000);
    write_synced(&files.join("again"), &bytes).unwrap();
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
    volume.up(&[]).expect_success();
    assert_eq!(fs::read(files.join("old")).unwrap(), [1; 500], "as the second fsync has said");
    assert_eq!(fs::read(files.join("again")).unwrap(), bytes);
    volume.run("unmount", &[]).expect_success();
}

/// Syncing closed files in the background fails once. As on Linux the error is reported once, and
/// the next sync succeeds.
#[test]
fn bytes_that_cannot_be_synced() {
    needs_mount!();
    let volume = new_volume();
    let mut lossfs = on_lossfs(&volume, Model::new());
    let files = volume.files();
    let old = vec![1; 200_000];
    write_synced(&files.join("target"), &old).unwrap();
    lossfs.control().fail(Fault { times: 2, ..fault(Operation::Sync, "/content/") });
    for name in ["a", "b"] {
        fs::write(files.join(name), vec![2; 300_000]).unwrap();
    }
    let in_error = || log(&volume).matches("the file is in error").count();
    until("both could not be synced", || in_error() == 2);
    let a = File::open(files.join("a")).unwrap();
    assert_eq!([errno(a.sync_all()), errno(a.sync_all())], [Some(Errno::IO); 2]);
    let replaced = || fs::rename(files.join("b"), files.join("target"));
    assert_eq!([errno(replaced()), errno(replaced())], [Some(Errno::IO); 2]);
    drop(a);
    // Rewritten as a whole, the file is intact.
    let mut a = OpenOptions::new().write(true).truncate(true).open(files.join("a")).unwrap();
    a.write_all(&[3; 300_000]).unwrap();
    a.sync_all().unwrap();
    File::open(&files).unwrap().sync_all().unwrap();

    let pid = volume.pid().unwrap();
    let left = lossfs.control().cut(Survival::Nothing);
    kill(pid);
    drop((a, lossfs));
    volume_is_gone(&volume);
    lossfs = on_lossfs(&volume, left);
    assert_eq!(fs::read(files.join("target")).unwrap(), old);
    assert_eq!(fs::read(files.join("a")).unwrap(), [3; 300_000]);
    volume.run("unmount", &[]).expect_success();
    volume.check_whole();
    drop(lossfs);
}
