//! `bench tree`: large folders on a volume, on the disk below it, and on other file systems.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::{fs, io};

use pelago_bench::{ColdContender, Report, Restart, TreeOptions, tree};

use super::volume::{TestVolume, failed};
use super::{Pids, Scratch, bench_failed};
use crate::failure::Outcome;
use crate::{output, stale_mount};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder; a volume and an ordinary folder are created in it, and removed afterwards
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Measure DIR as it is, and make no volume
    #[arg(long, conflicts_with = "bindfs")]
    plain: bool,
    /// The processes that serve DIR and each OTHER in turn, with --plain
    #[arg(long, value_name = "PID,...", requires = "plain")]
    daemon_pid: Vec<Pids>,
    /// Further directories to measure, such as a mount of another file system
    #[arg(value_name = "OTHER")]
    others: Vec<PathBuf>,
    /// Also measure the ordinary folder through `bindfs`
    #[arg(long)]
    bindfs: bool,
    /// Empty files in one folder
    #[arg(long, default_value_t = TreeOptions::default().names)]
    names: u64,
    /// Files of 4 KiB in another folder
    #[arg(long, default_value_t = TreeOptions::default().small)]
    small: u64,
    /// Rounds over all directories
    #[arg(long, default_value_t = TreeOptions::default().rounds)]
    rounds: u32,
    /// The seed of the bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    if args.plain {
        return run_plain(args);
    }
    let scratch = Scratch::new(&args.dir, "tree")?;
    let disk = scratch.path.join("disk");
    fs::create_dir(&disk).map_err(|source| failed("creating a folder", source))?;
    // Dropped before the folder, and so unmounted.
    let volume = Rc::new(TestVolume::new(scratch.path.join("volume")));
    volume.up()?;
    let mut contenders = vec![of_volume(&volume), contender("disk", &disk)];
    let bound = args.bindfs.then(|| BindMount::new(&disk, scratch.path.join("bindfs"))).transpose();
    let bound = bound.map_err(|source| failed("bindfs", source))?.map(Rc::new);
    contenders.extend(bound.as_ref().map(of_bindfs));
    let others: Vec<OtherFolder> =
        args.others.iter().map(|dir| OtherFolder::new(dir)).collect::<Outcome<_>>()?;
    contenders.extend(others.iter().map(|other| contender(&other.name, &other.path)));
    let report = tree(&contenders, &args.options()).map_err(bench_failed)?;
    drop((contenders, bound));
    volume.unmount()?;
    print(args, &report)
}

/// Measures the given directories alone.
fn run_plain(args: &Args) -> Outcome<()> {
    let dirs = std::iter::once(&args.dir).chain(&args.others);
    let folders: Vec<OtherFolder> =
        dirs.map(|dir| OtherFolder::new(dir)).collect::<Outcome<_>>()?;
    let contenders = folders.iter().map(|folder| contender(&folder.name, &folder.path));
    let mut contenders: Vec<ColdContender> = contenders.collect();
    for (contender, pids) in contenders.iter_mut().zip(&args.daemon_pid) {
        contender.daemons.clone_from(&pids.0);
    }
    print(args, &tree(&contenders, &args.options()).map_err(bench_failed)?)
}

impl Args {
    const fn options(&self) -> TreeOptions {
        let Self { names, small, rounds, seed, .. } = *self;
        TreeOptions { names, small, rounds, seed }
    }
}

fn print(args: &Args, report: &Report) -> Outcome<()> {
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

fn contender(name: &str, path: &Path) -> ColdContender {
    let name = name.to_owned();
    let path = path.to_owned();
    ColdContender { name, path, daemons: Vec::new(), restart: None }
}

fn of_volume(volume: &Rc<TestVolume>) -> ColdContender {
    let again = Rc::clone(volume);
    let restart: Restart = Box::new(move || {
        let restarted = again.unmount().and_then(|()| again.up());
        restarted.map_err(|failure| io::Error::other(failure.to_string()))
    });
    ColdContender { restart: Some(restart), ..contender("pelago", &volume.files()) }
}

fn of_bindfs(bound: &Rc<BindMount>) -> ColdContender {
    let again = Rc::clone(bound);
    let restart: Restart = Box::new(move || {
        again.unmount()?;
        again.mount()
    });
    ColdContender { restart: Some(restart), ..contender("bindfs", &bound.point) }
}

/// A `bindfs` mount of a folder; unmounted on drop.
struct BindMount {
    folder: PathBuf,
    point: PathBuf,
}

impl BindMount {
    fn new(folder: &Path, point: PathBuf) -> io::Result<Self> {
        fs::create_dir(&point)?;
        let mount = Self { folder: folder.to_owned(), point };
        mount.mount()?;
        Ok(mount)
    }

    fn mount(&self) -> io::Result<()> {
        let mut command = Command::new("bindfs");
        let status = command.arg(&self.folder).arg(&self.point).stdin(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other("bindfs did not mount")) }
    }

    fn unmount(&self) -> io::Result<()> {
        let flags = rustix::mount::UnmountFlags::empty();
        Ok(rustix::mount::unmount(&self.point, flags)?)
    }
}

impl Drop for BindMount {
    fn drop(&mut self) {
        let _detached = stale_mount::detach(&self.point);
    }
}

/// A folder in a directory given on the command line; removed on drop.
struct OtherFolder {
    name: String,
    path: PathBuf,
}

impl OtherFolder {
    fn new(dir: &Path) -> Outcome<Self> {
        let path = dir.join(format!(".pelago-bench-tree-{}", std::process::id()));
        fs::create_dir(&path).map_err(|source| failed("creating a folder", source))?;
        Ok(Self { name: dir.display().to_string(), path })
    }
}

impl Drop for OtherFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            output::print_error(&format!("{} was not removed: {error}", self.path.display()));
        }
    }
}
