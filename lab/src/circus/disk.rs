//! The disk of the measurement: an ext4 on a loop device of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pelago_testbed::process;
use rustix::fs::{Advice, fadvise};

use crate::kit::process::output;
use crate::kit::report::failed;

/// How long a file system may stay busy after its last process.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(100);

/// The beginning of the folder's name; the process that made it follows.
const PREFIX: &str = "pelago-circus-";

/// A disk that is mounted; taken apart on drop.
pub(super) struct Disk {
    pub(super) point: PathBuf,
    folder: PathBuf,
    /// The loop device.
    device: String,
}

impl Disk {
    /// Makes a disk of this many bytes. Those that a killed run has left go before.
    pub(super) fn new(bytes: u64) -> Result<Self, String> {
        left_behind().into_iter().for_each(drop);
        let folder = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        let image = folder.join("image");
        let point = folder.join("disk");
        let made = fs::create_dir_all(&point)
            .and_then(|()| File::create(&image))
            .and_then(|file| file.set_len(bytes));
        made.map_err(|why| format!("{}: {why}", folder.display()))?;
        let mut disk = Self { point, folder, device: String::new() };
        let image = image.to_string_lossy().into_owned();
        run("mkfs.ext4", &["-q", "-F", &image])?;
        // Its bytes are in no second page cache, which would be outside the group.
        disk.device =
            run("losetup", &["--direct-io=on", "-f", "--show", &image])?.trim().to_owned();
        disk.mount()?;
        Ok(disk)
    }

    /// Empties the page cache of the disk.
    pub(super) fn remount(&self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while let Err(why) = run("umount", &[&self.point.to_string_lossy()]) {
            if Instant::now() > until {
                return Err(why);
            }
            thread::sleep(POLL);
        }
        self.mount()?;
        // Another mount namespace may have kept a copy of the mount, and all pages with it.
        drop_pages(&self.point)
    }

    /// Returns the numbers of the device, as cgroups name it.
    pub(super) fn numbers(&self) -> Result<String, String> {
        Ok(run("lsblk", &["-dno", "MAJ:MIN", &self.device])?.trim().to_owned())
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &[&self.device, &self.point.to_string_lossy()]).map(drop)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Not mounted, or not there, after an error.
        let _gone = process::output_of("umount", &["-l", &self.point.to_string_lossy()]);
        if !self.device.is_empty() && run("losetup", &["-d", &self.device]).is_err() {
            println!("left behind: {}", self.device);
        }
        if let Err(why) = fs::remove_dir_all(&self.folder) {
            println!("left behind: {}: {why}", self.folder.display());
        }
    }
}

/// Drops the pages of the files below a folder from the page cache, and of no others: something
/// else may be measured beside this.
fn drop_pages(folder: &Path) -> Result<(), String> {
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |why: std::io::Error| failed(&path, &why)
    };
    for entry in fs::read_dir(folder).map_err(wrong(folder))? {
        let path = entry.map_err(wrong(folder))?.path();
        let kind = fs::symlink_metadata(&path).map_err(wrong(&path))?.file_type();
        if kind.is_dir() {
            drop_pages(&path)?;
        } else if kind.is_file() {
            let file = File::open(&path).map_err(wrong(&path))?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|why| wrong(&path)(why.into()))?;
        }
    }
    Ok(())
}

/// Returns the disks of processes that have ended.
fn left_behind() -> Vec<Disk> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        maker.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    });
    let disk = |folder: PathBuf| {
        let image = folder.join("image");
        let used = process::output_of("losetup", &["-j", &image.to_string_lossy()]);
        let device = used.as_deref().and_then(|line| line.split_once(':')).map(|it| it.0);
        let device = device.unwrap_or_default().to_owned();
        Disk { point: folder.join("disk"), folder, device }
    };
    folders.map(|entry| disk(entry.path())).collect()
}

/// Runs a command to its end, and returns its output.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    output(Command::new(program).args(arguments))
}
