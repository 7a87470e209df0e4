//! A disk that other programs fill to the last byte: files can still be removed and truncated, the
//! volume can be unmounted and started again, and the remaining files are intact.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::statvfs;
use rustix::process::geteuid;

use crate::harness::program::{pelago, run, until};
use crate::harness::volume::{Volume, cannot_mount, passthrough_modes};

/// Writes 64 KiB at a time, then a page at a time, and retries until it is killed. With a size it
/// fills the holes of a sparse file, otherwise it appends. The first failure is printed.
const WRITER: &str = r#"
use Fcntl;
$| = 1;
my ($name, $size) = @ARGV;
sysopen(my $file, $name, O_RDWR | O_CREAT, 0644) or die "open: $!";
truncate($file, $size) or die "truncate: $!" if $size;
my ($at, $part, $told) = (0, 65536, 0);
while (1) {
    sysseek($file, $at, 0);
    my $done = syswrite($file, "\x07" x $part);
    if ($done) { $at += $done; next; }
    die "write: $!" unless $!{ENOSPC};
    if ($part > 4096) { $part = 4096; next; }
    print "full\n" unless $told++;
    select(undef, undef, undef, 0.002);
    $part = 65536;
}
"#;

/// A program of an ordinary user that writes as much as it can; killed on drop.
struct Writer(Child);

impl Writer {
    /// Starts it in a folder, with the file `name`; fills holes up to `size` unless that is 0.
    fn start(folder: &Path, name: &str, size: u64) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["perl", "-MErrno", "-e", WRITER, name]).arg(size.to_string());
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Waits until a write has failed for lack of space.
    fn wait_until_full(&mut self) {
        use std::io::{BufRead as _, BufReader};

        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "full\n", "the writer ended");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The file system below a volume.
#[derive(Clone, Copy, Debug)]
enum Disk {
    /// A tmpfs of this many MiB.
    Memory(u64),
    /// An ext4 image of this many MiB, with a percentage reserved for root.
    Ext4(u64, u64),
}

impl Disk {
    /// Mounts it; the error is the reason to skip the test.
    fn mount(self, root: &Path, point: &Path) -> Result<(), String> {
        let mut mounted = Command::new("mount");
        match self {
            Self::Memory(mib) => {
                mounted.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"]);
            }
            Self::Ext4(mib, kept) => {
                let image = root.join("image");
                File::create(&image).and_then(|file| file.set_len(mib << 20)).unwrap();
                let mut made = Command::new("mkfs.ext4");
                made.args(["-q", "-F", "-m", &kept.to_string()]).arg(&image);
                let made = made.status();
                if !made.is_ok_and(|status| status.success()) {
                    return Err("not here: there is no mkfs.ext4".to_owned());
                }
                mounted.args(["-o", "loop"]).arg(&image);
            }
        }
        let ran = run(mounted.arg(point));
        match ran.code {
            Some(0) => Ok(()),
            _ => Err(format!("not here: {}", ran.err.trim())),
        }
    }
}

/// Returns the bytes available to an ordinary user.
fn available(path: &Path) -> u64 {
    let stats = statvfs(path).unwrap();
    stats.f_bavail * stats.f_frsize
}

/// Returns the percentage of blocks available to root only.
fn for_root(path: &Path) -> u64 {
    let stats = statvfs(path).unwrap();
    (stats.f_bfree - stats.f_bavail) * 100 / stats.f_blocks
}

/// Makes a folder writable for all users.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
}

/// The files of a volume before its disk fills up.
struct Stored {
    files: PathBuf,
}

const SMALL: usize = 400;
const LARGE: usize = 6;

impl Stored {
    fn put(files: PathBuf) -> Self {
        for number in 0..SMALL {
            let folder = files.join(format!("d{}", number % 20));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("small{number}")), [number as u8; 900]).unwrap();
        }
        for number in 0..LARGE {
            fs::write(files.join(format!("large{number}")), vec![number as u8; 2 << 20]).unwrap();
        }
        fs::write(files.join("kept"), [1; 5_000]).unwrap();
        fs::write(files.join("kept-small"), [2; 500]).unwrap();
        Self { files }
    }

    /// Removes or truncates the first or the second half of them.
    fn remove_half(&self, half: usize) {
        for number in (0..SMALL).filter(|number| number % 20 / 10 == half) {
            let path = self.files.join(format!("d{}/small{number}", number % 20));
            fs::remove_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        for folder in (0..20).filter(|folder| folder / 10 == half) {
            fs::remove_dir(self.files.join(format!("d{folder}"))).unwrap();
        }
        for number in (0..LARGE).filter(|number| number % 2 == half) {
            let path = self.files.join(format!("large{number}"));
            File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
            fs::remove_file(&path).unwrap();
        }
    }

    fn expect_kept(&self) {
        assert_eq!(fs::read(self.files.join("kept")).unwrap(), [1; 5_000]);
        assert_eq!(fs::read(self.files.join("kept-small")).unwrap(), [2; 500]);
    }
}

/// Fills the disk below a volume, and uses, stops, kills and starts the volume.
fn use_a_full(disk: Disk) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    if !geteuid().is_root() {
        println!("skipped: needs root for a disk that fills up");
        return;
    }
    for passthrough in passthrough_modes(&["never", "always"]) {
        let mut volume = Volume::in_folder(Path::new("disk/vol"));
        volume.passthrough = Some(passthrough.clone());
        let point = volume.root.join("disk");
        if let Err(reason) = disk.mount(&volume.root, &point) {
            println!("skipped: {reason}");
            return;
        }
        println!("{disk:?}, {passthrough}");
        open_to_all(&point);
        volume.up(&[]).expect_success();
        open_to_all(&volume.files());
        let stored = Stored::put(volume.files());

        // Two programs write in the volume, the second one into holes, and one beside it.
        let mut inside = [
            Writer::start(&volume.files(), "append", 0),
            Writer::start(&volume.files(), "sparse", 1 << 30),
        ];
        inside.iter_mut().for_each(Writer::wait_until_full);
        let mut beside = Writer::start(&point, "beside", 0);
        beside.wait_until_full();
        until("the disk is full", || available(&point) == 0);
        if let Disk::Ext4(_, kept) = disk {
            // With passthrough the kernel writes as the user, not as root.
            assert!(for_root(&point) + 1 >= kept, "{passthrough}: {} of {kept}", for_root(&point));
        }
        stored.remove_half(0);
        stored.expect_kept();
        drop(inside);
        until("the disk is full again", || available(&point) < 64 << 10);
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        stored.expect_kept();
        stored.remove_half(1);
        volume.kill();
        volume.up(&[]).expect_success();
        stored.expect_kept();
        for name in ["append", "sparse"] {
            fs::remove_file(volume.files().join(name)).unwrap();
        }
        volume.run("unmount", &[]).expect_success();
        drop(beside);
        fs::remove_file(point.join("beside")).unwrap();
        volume.up(&[]).expect_success();
        stored.expect_kept();
        until("there is room again", || {
            fs::write(volume.files().join("again"), vec![3; 1 << 20]).is_ok()
        });
        volume.finish();
    }
}

#[test]
fn files_on_a_full_tmpfs_can_be_removed() {
    use_a_full(Disk::Memory(200));
}

#[test]
fn files_on_a_full_ext4_can_be_removed() {
    use_a_full(Disk::Ext4(200, 0));
}

#[test]
fn files_on_a_larger_full_ext4_can_be_removed() {
    use_a_full(Disk::Ext4(400, 5));
}

/// Returns how many lines of a log have all these words.
fn lines_with(log: &Path, words: &[&str]) -> usize {
    let log = fs::read_to_string(log).unwrap();
    log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

/// Returns how many files below a mount a query means.
fn count(volume: &Volume, query: &str) -> usize {
    let ran = run(pelago(&volume.root, ["find", query, "--json"]).current_dir(volume.files()));
    ran.json()["paths"].as_array().unwrap().len()
}

/// Searches need no index, so they go on; with room again the index does too.
#[test]
fn an_index_on_a_full_disk_stops_and_is_said_once() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    if !geteuid().is_root() {
        return println!("skipped: needs root for a disk that fills up");
    }
    let volume = Volume::in_folder(Path::new("disk/vol"));
    let point = volume.root.join("disk");
    let log = volume.root.join("log");
    if let Err(reason) = Disk::Memory(200).mount(&volume.root, &point) {
        return println!("skipped: {reason}");
    }
    open_to_all(&point);
    let mut up = volume.command("up", &["--find"]);
    up.env("PELAGO_LOG", "info,pelago_server::background=debug").stdin(Stdio::null());
    let mut server = up.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let complete = || lines_with(&log, &["the search index is complete"]);
    until("the index is complete", || complete() == 1);
    let files = volume.files();
    for number in 0..40 {
        fs::write(files.join(format!("small{number}")), "coral reef").unwrap();
    }

    let mut beside = Writer::start(&point, "beside", 0);
    beside.wait_until_full();
    until("the disk is full", || available(&point) == 0);
    fs::remove_file(files.join("small7")).unwrap();
    let stopped = || lines_with(&log, &["WARN", "the search index has stopped"]);
    let failed = |level| lines_with(&log, &[level, "background work failed", "\"index\""]);
    until("the index has tried again", || failed("WARN") + failed("DEBUG") > 1);
    assert_eq!((stopped(), failed("WARN")), (1, 1), "{}", fs::read_to_string(&log).unwrap());
    assert_eq!((count(&volume, "name~small*"), count(&volume, "text:reef")), (39, 39));
    fs::remove_file(files.join("small8")).unwrap();
    assert_eq!((count(&volume, "name~small*"), count(&volume, "text:reef")), (38, 38));

    drop(beside);
    fs::remove_file(point.join("beside")).unwrap();
    until("the index is complete again", || complete() == 2);
    until("there is room again", || fs::write(files.join("again"), "reef").is_ok());
    assert_eq!((count(&volume, "name=again"), count(&volume, "text:reef")), (1, 39));
    assert_eq!((stopped(), failed("WARN")), (1, 1), "{}", fs::read_to_string(&log).unwrap());
    volume.finish();
    server.wait().unwrap();
}
