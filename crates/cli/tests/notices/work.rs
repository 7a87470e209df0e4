//! Programs that change names and pages of one directory, each in a process of its own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pelago_random::Random;
use rustix::io::Errno;

use crate::harness::program::{until, wait};

/// Set for a test binary that is to be a program: the directory, and its number.
const PROGRAM: &str = "PELAGO_TEST_PROGRAM";
/// Names that all programs change.
const NAMES: u64 = 9;
/// Files whose pages all programs change.
const FILES: u64 = 3;
const PAGE: u64 = 4096;
const PAGES: u64 = 32;

/// A program that works in a mount. Killed if it is dropped.
pub(crate) struct Program {
    child: Child,
    /// A file outside of the mount that exists once it works.
    works: std::path::PathBuf,
}

impl Program {
    /// Starts a program in this directory. `notes` is a folder outside of all mounts.
    pub(crate) fn start(dir: &Path, notes: &Path, number: u64) -> Self {
        let works = notes.join(format!("works.{number}"));
        let _fresh = fs::remove_file(&works);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "notices::as_program", "--nocapture"]);
        command.env(PROGRAM, format!("{}\n{}\n{number}", dir.display(), works.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap(), works }
    }

    /// Waits until it works.
    pub(crate) fn wait_until_it_works(&mut self) {
        until("a program works", || {
            assert_eq!(self.child.try_wait().unwrap(), None, "a program has ended");
            self.works.exists()
        });
    }

    /// Waits until it has ended because its mount has.
    pub(crate) fn wait_for_end(&mut self) {
        assert_eq!(wait(&mut self.child), Some(0), "a program did not end with its mount");
    }

    /// Kills it. It must end: nothing may hold it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        until("a killed program has ended", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
    }
}

/// Is a program, if this process was started as one. Ends when its mount has ended.
pub(crate) fn work_if_told() {
    let Ok(told) = std::env::var(PROGRAM) else { return };
    let mut told = told.lines();
    let dir = Path::new(told.next().unwrap()).to_owned();
    let works = Path::new(told.next().unwrap()).to_owned();
    let number: u64 = told.next().unwrap().parse().unwrap();
    let mut random = Random::new(number);
    for turn in 0_u64.. {
        match step(&dir, number, &mut random) {
            Err(error) if is_end(&error) => return,
            // Others change the same names.
            _ => {}
        }
        if turn == 20 {
            File::create(&works).unwrap();
        }
    }
}

/// Returns whether a mount has ended, by an error of it or because it was detached.
fn is_end(error: &io::Error) -> bool {
    let ends = [Errno::NOTCONN, Errno::CONNABORTED, Errno::NODEV];
    ends.iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()))
}

fn step(dir: &Path, number: u64, random: &mut Random) -> io::Result<()> {
    let own = dir.join(format!("{number}.{}", random.below(NAMES)));
    let shared = dir.join(format!("x{}", random.below(NAMES)));
    // Two of three programs only change names, so that few notices wait for pages alone.
    let least = if number.is_multiple_of(3) { 0 } else { 2 };
    match least + random.below(8) {
        0 => change_page(dir, random),
        1 => read_page(dir, random),
        2 => fs::remove_file(&shared),
        3 => shared.metadata().map(drop),
        _ => {
            drop(File::create(&own)?);
            fs::rename(&own, &shared)
        }
    }
}

fn change_page(dir: &Path, random: &mut Random) -> io::Result<()> {
    let path = dir.join(format!("pages{}", random.below(FILES)));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    if random.below(16) == 0 {
        file.set_len(random.below(PAGES) * PAGE)?;
    }
    file.write_all_at(&[random.below(256) as u8; PAGE as usize], random.below(PAGES) * PAGE)
}

fn read_page(dir: &Path, random: &mut Random) -> io::Result<()> {
    let file = File::open(dir.join(format!("pages{}", random.below(FILES))))?;
    let mut page = [0; PAGE as usize];
    file.read_at(&mut page, random.below(PAGES) * PAGE).map(drop)
}
