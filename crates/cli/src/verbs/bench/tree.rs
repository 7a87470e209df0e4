//! Large folders on a volume, on the disk below it, and on whatever else is named.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use pelago_bench::{Restart, Side, TreeOptions, tree};

use super::volume::{Volume, failed};
use super::{Scratch, bench_failed};
use crate::failure::Outcome;
use crate::{dead, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder; a volume and an ordinary folder are made in it for this, and removed again
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Further directories to measure, such as a mount of another file system
    #[arg(value_name = "OTHER")]
    others: Vec<PathBuf>,
    /// Measure the ordinary folder through `bindfs` too
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
    /// What the bytes follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let scratch = Scratch::new(&args.dir, "tree")?;
    let disk = scratch.path.join("disk");
    fs::create_dir(&disk).map_err(|source| failed("making a folder", source))?;
    // Goes before the folder does.
    let volume = Rc::new(Volume::new(scratch.path.join("volume")));
    volume.up()?;
    let mut sides = vec![of_volume(&volume), side("disk", &disk)];
    let bound = args.bindfs.then(|| Bound::new(&disk, scratch.path.join("bindfs"))).transpose();
    let bound = bound.map_err(|source| failed("bindfs", source))?.map(Rc::new);
    sides.extend(bound.as_ref().map(of_bindfs));
    let others: Vec<Other> =
        args.others.iter().map(|dir| Other::new(dir)).collect::<Outcome<_>>()?;
    sides.extend(others.iter().map(|other| side(&other.name, &other.path)));
    let options =
        TreeOptions { names: args.names, small: args.small, rounds: args.rounds, seed: args.seed };
    let report = tree(&sides, &options).map_err(bench_failed)?;
    drop((sides, bound));
    volume.unmount()?;
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

fn side(name: &str, path: &Path) -> Side {
    Side { name: name.to_owned(), path: path.to_owned(), restart: None }
}

fn of_volume(volume: &Rc<Volume>) -> Side {
    let again = Rc::clone(volume);
    let restart: Restart = Box::new(move || {
        let restarted = again.unmount().and_then(|()| again.up());
        restarted.map_err(|failure| io::Error::other(failure.to_string()))
    });
    Side { restart: Some(restart), ..side("pelago", &volume.files()) }
}

fn of_bindfs(bound: &Rc<Bound>) -> Side {
    let again = Rc::clone(bound);
    let restart: Restart = Box::new(move || {
        again.unmount()?;
        again.mount()
    });
    Side { restart: Some(restart), ..side("bindfs", &bound.point) }
}

/// A folder that `bindfs` shows at another place. When it goes, its mount goes.
struct Bound {
    folder: PathBuf,
    point: PathBuf,
}

impl Bound {
    fn new(folder: &Path, point: PathBuf) -> io::Result<Self> {
        fs::create_dir(&point)?;
        let bound = Self { folder: folder.to_owned(), point };
        bound.mount()?;
        Ok(bound)
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

impl Drop for Bound {
    fn drop(&mut self) {
        let _detached = dead::detach(&self.point);
    }
}

/// A folder in a directory that was named; removed with all that is in it.
struct Other {
    name: String,
    path: PathBuf,
}

impl Other {
    fn new(dir: &Path) -> Outcome<Self> {
        let path = dir.join(format!(".pelago-bench-tree-{}", std::process::id()));
        fs::create_dir(&path).map_err(|source| failed("making a folder", source))?;
        Ok(Self { name: dir.display().to_string(), path })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            output::tell(&format!("{} stays behind: {error}", self.path.display()));
        }
    }
}
