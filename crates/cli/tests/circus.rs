//! Downloads of one file by a crowd, from a server with less memory than the file. The cost is
//! measured in bytes that the server reads from its disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pelago_workload::crowd::{CrowdClass, CrowdPlan, DownloadForm, RootHasher, hex, run as crowd};
use rustix::process::geteuid;

use crate::harness::page_cache::forget;
use crate::harness::program::{bare, run, until};
use crate::harness::volume::Volume;

const FILE_BYTES: usize = 64 << 20;
const CLIENTS: usize = 50;
const RATE: f64 = 5e6;
/// Long enough that the last client begins behind what the server can keep of the first one.
const WINDOW: Duration = Duration::from_secs(10);
/// A limit for a machine that hangs.
const DEADLINE: Duration = Duration::from_secs(300);
/// Memory of the server with its page cache.
const GROUP_BYTES: u64 = 48 << 20;
/// The most that is read from the disk, over what the fastest client present takes.
const MOST_OF_FASTEST: f64 = 2.0;
/// Joins the groups whose files come before `--`, then runs what comes behind it.
const JOIN: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit; shift; done; shift; exec "$@""#;

/// A group of processes whose memory is limited and whose reads are counted; removed on drop.
struct Group {
    memory: PathBuf,
    blkio: PathBuf,
}

impl Group {
    /// Makes one; the error is the reason to skip the test.
    fn new() -> Result<Self, String> {
        if !geteuid().is_root() {
            return Err("needs root, for cgroups and a loop device".to_owned());
        }
        let make = |controller: &str| {
            let root = Path::new("/sys/fs/cgroup").join(controller);
            if !root.join("cgroup.procs").exists() {
                return Err(format!("not here: no cgroup (version 1) has {controller}"));
            }
            let folder = root.join(format!("pelago-test-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            Ok(folder)
        };
        let blkio = make("blkio")?;
        let memory = make("memory").inspect_err(|_| fs::remove_dir(&blkio).unwrap())?;
        fs::write(memory.join("memory.limit_in_bytes"), GROUP_BYTES.to_string()).unwrap();
        Ok(Self { memory, blkio })
    }

    /// Has reads from the disk below a path counted: some kernels count only those of a disk that
    /// has a limit, which none reaches here.
    fn count_reads(&self, path: &Path) {
        let limit = format!("{} {}", disk_of(path), 1_u64 << 40);
        fs::write(self.blkio.join("blkio.throttle.read_bps_device"), limit).unwrap();
    }

    /// Returns the bytes that were read from the disk below a path.
    fn read_bytes(&self, path: &Path) -> u64 {
        let start = format!("{} Read ", disk_of(path));
        let counts = self.blkio.join("blkio.throttle.io_service_bytes_recursive");
        let text = fs::read_to_string(counts).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |bytes| bytes.parse().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel forgets an exited process a moment later.
        until("the groups are empty", || {
            [&self.memory, &self.blkio].iter().all(|it| fs::remove_dir(it).is_ok() || !it.exists())
        });
    }
}

/// Returns the numbers of the disk below a path, `MAJOR:MINOR`.
fn disk_of(path: &Path) -> String {
    let device = rustix::fs::stat(path).unwrap().st_dev;
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Makes an ext4 in an image, and mounts it; returns why it cannot.
fn mount_disk(image: &Path, point: &Path) -> Result<(), String> {
    File::create(image).and_then(|file| file.set_len(512 << 20)).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("not here: there is no mkfs.ext4".to_owned());
    }
    let ran = run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(point));
    if ran.code == Some(0) { Ok(()) } else { Err(format!("not here: {}", ran.err.trim())) }
}

/// Starts the volume in the group, and returns the address of its HTTP server.
fn up_in(group: &Group, volume: &Volume) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", JOIN, "sh"]);
    command.args([&group.memory, &group.blkio].map(|folder| folder.join("cgroup.procs")));
    command.arg("--").arg(env!("CARGO_BIN_EXE_pelago")).arg("up").arg(&volume.dir);
    command.args(["--http", "127.0.0.1:0", "--memory", "20MiB", "--detach", "--json"]);
    bare(&mut command, &volume.root);
    let report = run(&mut command).expect_success().json();
    let url = report["http"].as_str().unwrap();
    url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned()
}

#[test]
fn a_crowd_gets_every_byte_from_a_server_with_little_memory() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let volume = Volume::in_folder(Path::new("disk/vol"));
    let image = volume.root.join("image");
    let point = volume.root.join("disk");
    if let Err(reason) = mount_disk(&image, &point) {
        return println!("skipped: {reason}");
    }
    volume.up(&[]).expect_success();
    let file = pelago_random::bytes_of(1, FILE_BYTES);
    fs::write(volume.files().join("file"), &file).unwrap();
    volume.wait_until_closed();
    volume.run("unmount", &[]).expect_success();
    rustix::fs::sync();
    forget(&volume.dir);
    group.count_reads(&point);
    let address = up_in(&group, &volume);
    let before = group.read_bytes(&point);
    let outcome = crowd(&CrowdPlan {
        server: address.parse().unwrap(),
        paths: vec!["/file".to_owned()],
        form: DownloadForm::Blocks,
        classes: vec![CrowdClass { rate: Some(RATE), clients: CLIENTS }],
        window: WINDOW,
        limit: DEADLINE,
        seed: 1,
        samples: 3,
    })
    .unwrap();
    let read = group.read_bytes(&point) - before;
    let report = outcome.to_json();
    assert_eq!(outcome.finished().count(), CLIENTS, "{}", report["failures"]);
    assert!(outcome.downloads.iter().all(|it| it.bytes == FILE_BYTES as u64));
    let mut hasher = RootHasher::default();
    hasher.update(&file);
    assert_eq!(report["roots"], serde_json::json!([hex(&hasher.finish().unwrap())]));
    let passes = read as f64 / FILE_BYTES as f64;
    let of_fastest = read as f64 / outcome.pass_bytes();
    println!("{passes:.2} passes, {of_fastest:.2} of what the fastest client takes");
    assert!(passes >= 0.9 && of_fastest <= MOST_OF_FASTEST, "{passes} passes, {of_fastest}");
    volume.finish();
}
