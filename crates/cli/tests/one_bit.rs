//! One flipped bit in any file but the content of a volume that is down: `up` serves the old state
//! or an error, or refuses; `check --salvage` copies all whole files, names the rest, and changes
//! nothing.
//!
//! `PELAGO_ONE_BIT` sets the number of flips, by default one for each file and some more;
//! `PELAGO_ONE_BIT_SEED` repeats a run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use pelago_random::Random;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use rustix::process::geteuid;

use crate::harness::program::{Ran, pelago, run};
use crate::harness::seen::{Tree, tree};
use crate::harness::volume::{Volume, cannot_mount};

/// Flips of a run without [`PELAGO_ONE_BIT`](self).
const FLIPS: usize = 32;
/// Flips in the journal of a volume whose server was killed, of these.
const IN_JOURNALS: usize = 4;

/// Fills a volume in several runs, so that newer rows of one sorted run replace older ones of
/// another.
fn fill(volume: &Volume) {
    for round in 0..4_u64 {
        volume.up(&[]).expect_success();
        let root = volume.files();
        for folder in ["", "docs", "docs/deep", "many"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..12_u64 {
                let path = folder.join(format!("f{number}"));
                match (number + round) % 4 {
                    0 => fs::write(&path, format!("small {number} of {round}").repeat(40)).unwrap(),
                    1 if number < 4 => fs::write(&path, vec![number as u8; 9_000]).unwrap(),
                    2 if path.exists() => {
                        fs::rename(&path, folder.join(format!("r{number}"))).unwrap();
                    }
                    3 if path.exists() && round == 3 => fs::remove_file(&path).unwrap(),
                    _ => {}
                }
            }
        }
        if round == 1 {
            special(&root);
        }
        volume.run("unmount", &[]).expect_success();
    }
}

/// Makes what is no ordinary file, and what an ordinary one may have.
fn special(root: &Path) {
    let path = root.join("docs/tagged");
    fs::write(&path, "with attributes").unwrap();
    setxattr(&path, "user.tag.colour", b"blue", XattrFlags::empty()).unwrap();
    setxattr(&path, "user.long", &[7; 3_000], XattrFlags::empty()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::hard_link(&path, root.join("docs/again")).unwrap();
    symlink("../nowhere", root.join("docs/link")).unwrap();
    mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    if geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    }
}

/// Returns the files of a volume that is down, but not its content and those without a meaning.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = entry.file_name();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() && name != "content" && name != "files" {
                folders.push(path);
            } else if meta.is_file() && meta.len() > 0 && name != "log" && name != "reserve" {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns the bytes of all files of a volume but its lock.
fn all_bytes(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = files_of(dir).into_iter().filter(|path| !path.ends_with("lock"));
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn copy(from: &Path, to: &Path) {
    let _none = fs::remove_dir_all(to);
    let mut command = Command::new("cp");
    command.args(["-a", "--sparse=always"]).arg(from).arg(to);
    assert_eq!(run(&mut command).code, Some(0));
}

/// A copy of a volume in which one bit is flipped.
struct Flipped<'a> {
    volume: &'a Volume,
    /// A volume of its own.
    dir: PathBuf,
    /// The folder to which its files are salvaged.
    to: PathBuf,
    /// The flipped bit, for messages and choices.
    file: String,
    what: String,
}

impl<'a> Flipped<'a> {
    fn new(volume: &'a Volume, file: &Path, random: &mut Random) -> Self {
        let dir = volume.root.join("flipped");
        copy(&volume.dir, &dir);
        let below = file.strip_prefix(&volume.dir).unwrap();
        let mut bytes = fs::read(file).unwrap();
        // Zeros are mostly holes.
        let mut at = random.below(bytes.len() as u64) as usize;
        for _ in 0..50 {
            if bytes[at] != 0 {
                break;
            }
            at = random.below(bytes.len() as u64) as usize;
        }
        let bit = 1 << random.below(8);
        bytes[at] ^= bit;
        let flipped = File::options().write(true).open(dir.join(below)).unwrap();
        flipped.write_all_at(&bytes[at..=at], at as u64).unwrap();
        let to = volume.root.join("salvaged");
        let _none = fs::remove_dir_all(&to);
        let file = below.display().to_string();
        let what = format!("{file}, byte {at} of {}, bit {bit}", bytes.len());
        Self { volume, dir, to, file, what }
    }

    fn run(&self, verb: &str, args: &[&str]) -> Ran {
        let mut command = pelago(&self.volume.root, [verb]);
        run(command.args(args).arg(&self.dir))
    }

    /// Salvages: what is there is right or named, nothing is changed.
    fn salvage(&self, good: &Tree) -> Salvage {
        let before = all_bytes(&self.dir);
        let mut command = pelago(&self.volume.root, ["check", "--json", "--salvage"]);
        let ran = run(command.arg(&self.dir).arg(&self.to));
        assert!(matches!(ran.code, Some(0 | 7)), "{}: {ran:?}", self.what);
        assert!(before == all_bytes(&self.dir), "{}: the volume was changed", self.what);
        let report = fs::read_to_string(self.to.join("report")).unwrap();
        let found = tree(&self.to.join("files"));
        let wrong = different(good, &found);
        let is_whole = ran.code == Some(0);
        assert_eq!(ran.json()["whole"], is_whole, "{}: {ran:?}", self.what);
        if is_whole {
            assert!(wrong.is_empty(), "{}: not told: {wrong:?}", self.what);
        }
        assert!(!self.to.join(".rows").exists(), "{}", self.what);
        Salvage { is_whole, wrong, report }
    }

    /// Starts a server: it serves what was there, or errors, or says what to do. Returns whether
    /// all of it is right.
    fn up(&self, good: &Tree) -> bool {
        let ran = self.run("up", &["--detach"]);
        if ran.code != Some(0) {
            assert_eq!(ran.code, Some(7), "{}: {ran:?}", self.what);
            assert!(ran.err.contains("data at risk: yes"), "{}: {ran:?}", self.what);
            assert!(ran.err.contains("\n  next: "), "{}: {ran:?}", self.what);
            return false;
        }
        let found = tree(&self.dir.join("files"));
        let has_error = found.values().any(Result::is_err);
        for path in different(good, &found) {
            // What a directory that cannot be listed has is not seen.
            let is_error = matches!(found.get(&path), Some(Err(_)));
            let is_below = !found.contains_key(&path) && has_error;
            assert!(is_error || is_below, "{}: {path} is wrong", self.what);
        }
        self.run("unmount", &["--force", "--timeout", "100", "-V"]).expect_success();
        !has_error
    }
}

struct Salvage {
    is_whole: bool,
    /// Paths that are not as they were.
    wrong: Vec<String>,
    report: String,
}

impl Salvage {
    /// Checks that each path that is not as it was is named, or in a directory that is.
    fn expect_named(&self, what: &str) {
        for path in &self.wrong {
            let mut above = Path::new(path).ancestors();
            let is_named = above.any(|path| {
                let named = match path.to_str().unwrap() {
                    "" => "lost  files:".to_owned(),
                    path => format!("lost  files/{path}:"),
                };
                self.report.contains(&named)
            });
            assert!(is_named, "{what}: {path} is wrong and not named:\n{}", self.report);
        }
    }
}

/// Returns the paths that differ between two trees.
fn different(good: &Tree, found: &Tree) -> Vec<String> {
    let paths: std::collections::BTreeSet<&String> = good.keys().chain(found.keys()).collect();
    let same = |path: &String| match (good.get(path), found.get(path)) {
        (Some(Ok(good)), Some(Ok(found))) => good == found,
        _ => false,
    };
    paths.into_iter().filter(|path| !same(path)).cloned().collect()
}

/// Returns whether the file says nothing that is not said elsewhere.
fn costs_nothing(file: &str) -> bool {
    !file.starts_with("table/engine/keyspaces/1/tables/") && !file.ends_with(".jnl")
}

#[test]
fn one_flipped_bit_is_found_and_what_is_whole_is_given() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let flips = number("PELAGO_ONE_BIT").unwrap_or(FLIPS);
    let seed = number("PELAGO_ONE_BIT_SEED").unwrap_or(1);
    let mut random = Random::new(seed as u64);
    let volume = Volume::new();
    fill(&volume);
    volume.up(&[]).expect_success();
    let good = tree(&volume.files());
    volume.run("unmount", &[]).expect_success();
    assert!(good.values().all(Result::is_ok) && good.len() > 40);
    let files = files_of(&volume.dir);
    assert!(!files.iter().any(|file| file.extension().is_some_and(|end| end == "jnl")));
    let mut counts = BTreeMap::<String, usize>::new();
    for flip in 0..flips.saturating_sub(IN_JOURNALS) {
        let flipped = Flipped::new(&volume, &files[flip % files.len()], &mut random);
        let salvage = flipped.salvage(&good);
        salvage.expect_named(&flipped.what);
        if costs_nothing(&flipped.file) {
            assert!(salvage.is_whole, "{}: {}", flipped.what, salvage.report);
        }
        let is_right = flipped.up(&good);
        let twice = ["format", "format.copy", "table/seed", "table/seed.copy"];
        assert!(is_right || !twice.contains(&&*flipped.file), "{}: not mended", flipped.what);
        let outcome = format!("up is right: {is_right}, salvage whole: {}", salvage.is_whole);
        *counts.entry(outcome).or_default() += 1;
    }
    println!("{} flips in {} files, seed {seed}: {counts:?}", flips, files.len());
    in_journals(&volume, &mut random);
}

/// The journals of a volume whose server was killed: a batch is lost, and what is older of its rows
/// is there.
fn in_journals(volume: &Volume, random: &mut Random) {
    volume.up(&[]).expect_success();
    for number in 0..30 {
        fs::write(volume.files().join(format!("many/new{number}")), [b'n'; 100]).unwrap();
    }
    let good = tree(&volume.files());
    File::open(volume.files()).unwrap().sync_all().unwrap();
    volume.kill();
    crate::harness::volume::detach_all(&volume.root);
    let files = files_of(&volume.dir);
    let journal = files.iter().find(|file| file.extension().is_some_and(|end| end == "jnl"));
    for _ in 0..IN_JOURNALS {
        let flipped = Flipped::new(volume, journal.expect("a journal has rows"), random);
        let salvage = flipped.salvage(&good);
        assert!(salvage.is_whole || salvage.report.contains("latest changes"), "{}", flipped.what);
        // A batch has some rows of one or two names.
        assert!(salvage.wrong.len() <= 4, "{}: {:?}", flipped.what, salvage.wrong);
        flipped.up(&good);
    }
}
