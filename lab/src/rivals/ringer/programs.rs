//! Whole programs in the own folder of an office beside the same in a machine's: an archive is
//! unpacked, a repository is cloned, and trees are walked (`pelago bench tree`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use pelago_random::bytes_of;
use serde_json::{Value, json};

use crate::kit::process::output;
use crate::kit::report::{failed, met, text};
use crate::kit::statistics::quartiles;

/// Files in the archive, and in each of its folders.
const FILES: usize = 20_000;
const IN_A_FOLDER: usize = 200;
/// The largest file.
const MOST_BYTES: usize = 4096;
/// Files in the repository.
const VERSIONED: usize = 2000;
/// The rounds of programs, and those of walks with their sizes.
const ROUNDS: usize = 5;
const WALKS: [&str; 6] = ["--names", "20000", "--small", "4000", "--rounds", "3"];
/// The least part of the speed of a machine without offices.
const WANTED: f64 = 0.9;

/// An archive and a repository, on the disk below.
pub(super) struct Sources {
    archive: PathBuf,
    repository: PathBuf,
}

impl Sources {
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let tree = folder.join("tree");
        for at in 0..FILES {
            let dir = tree.join(format!("{}", at / IN_A_FOLDER));
            let path = dir.join(format!("file{at}"));
            let write = || {
                fs::create_dir_all(&dir)?;
                fs::write(&path, bytes_of(at as u64, 1 + at * 7919 % MOST_BYTES))
            };
            write().map_err(|why| failed(&path, &why))?;
        }
        let archive = folder.join("files.tar");
        output(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg("."))?;
        let repository = folder.join("repository");
        let git = |words: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(&tree).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            output(command.args(words)).map(drop)
        };
        git(&["init", "-q"])?;
        for folder in 0..VERSIONED / IN_A_FOLDER {
            git(&["add", &folder.to_string()])?;
        }
        git(&["commit", "-q", "-m", "files"])?;
        let mut clone = Command::new("git");
        output(clone.args(["clone", "-q", "--bare"]).arg(&tree).arg(&repository))?;
        Ok(Self { archive, repository })
    }

    /// Returns the command of a program that works in a folder which is there, and is empty.
    fn command(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(program);
        match program {
            "tar" => command.arg("-xf").arg(&self.archive).arg("-C").arg(folder),
            _ => command.args(["clone", "-q"]).arg(&self.repository).arg(folder),
        };
        command
    }
}

/// Measures in an own folder and in a machine's in turns, prints the speeds, and returns whether
/// the goals are met.
pub(super) fn beside_a_machine(
    pelago: &Path,
    sources: &Sources,
    own: &Path,
    machine: &Path,
) -> Result<(Value, bool), String> {
    let mut report = json!({});
    let mut good = true;
    for (program, words) in [("tar", "an archive of 20,000 files"), ("git", "a clone")] {
        let mut ratios = Vec::new();
        for round in 0..ROUNDS {
            // The first one in turns, too.
            let mut folders = [own, machine];
            folders.rotate_left(round % 2);
            let mut times = folders.map(|folder| seconds(sources, program, folder));
            times.rotate_left(round % 2);
            let [of_own, of_machine] = times;
            ratios.push(of_machine? / of_own?);
        }
        let [lower, median, upper] = quartiles(ratios);
        println!(
            "  {words}: {median:.2} of the machine's speed ({lower:.2} to {upper:.2}), goal \
             {WANTED}: {}",
            met(median >= WANTED)
        );
        report[program] = json!([lower, median, upper]);
        good &= median >= WANTED;
    }
    let (walks, is_good) = walks(pelago, own, machine)?;
    report["tree"] = walks;
    Ok((report, good && is_good))
}

/// Returns the seconds of a program in a new folder, which is removed afterwards.
fn seconds(sources: &Sources, program: &str, folder: &Path) -> Result<f64, String> {
    let work = folder.join("program");
    fs::create_dir(&work).map_err(|why| failed(&work, &why))?;
    let began = Instant::now();
    output(&mut sources.command(program, &work))?;
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_dir_all(&work).map_err(|why| failed(&work, &why))?;
    Ok(seconds)
}

fn walks(pelago: &Path, own: &Path, machine: &Path) -> Result<(Value, bool), String> {
    let mut command = Command::new(pelago);
    command.args(["bench", "tree", "--json", "--plain"]).args(WALKS).arg(own).arg(machine);
    let said = output(&mut command)?;
    let bench: Value =
        serde_json::from_str(&said).map_err(|why| format!("pelago bench tree: {why}"))?;
    let mut good = true;
    for row in bench["rows"].as_array().into_iter().flatten() {
        let part = |key: &str| row["ratios"][0][key].as_f64().unwrap_or(0.0);
        let [median, lower, upper] = ["median", "lower", "upper"].map(part);
        println!(
            "  {:26} {median:.2} of the machine ({lower:.2} to {upper:.2}), goal {WANTED}: {}",
            text(row, "step"),
            met(median >= WANTED)
        );
        good &= median >= WANTED;
    }
    Ok((bench, good))
}
