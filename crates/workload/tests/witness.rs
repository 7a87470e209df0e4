//! Tests of the witness on a plain directory. Its file system survives the process, so everything
//! must be there, and whatever a test removes must be reported.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use pelago_random::bytes_of;
use pelago_workload::witness::{VerifyReport, WitnessError, run, verify};

/// Set for a test binary that is to be the run: directory, log and seed, one per line.
const ROLE: &str = "PELAGO_WITNESS_ROLE";

struct Scene {
    _keeper: tempfile::TempDir,
    dir: PathBuf,
    log: PathBuf,
}

fn new_scene() -> Scene {
    let keeper = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = keeper.path().join("dir");
    let log = keeper.path().join("log");
    fs::create_dir(&dir).unwrap();
    Scene { _keeper: keeper, dir, log }
}

/// Not a test of its own: a run as a process that can be killed.
#[test]
fn run_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.lines();
    let mut next = || words.next().unwrap().to_owned();
    let dir = next();
    let log = next();
    let seed = next().parse().unwrap();
    run(Path::new(&dir), Path::new(&log), seed, None).unwrap();
}

fn start_run(scene: &Scene, seed: u64) -> Child {
    let role = format!("{}\n{}\n{seed}", scene.dir.display(), scene.log.display());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "run_process", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn log_size(scene: &Scene) -> u64 {
    fs::metadata(&scene.log).map_or(0, |meta| meta.len())
}

#[test]
fn a_killed_run_leaves_what_its_log_says() {
    let scene = new_scene();
    for round in 0..6 {
        let before = log_size(&scene);
        let mut child = start_run(&scene, round);
        let deadline = Instant::now() + Duration::from_secs(120);
        while log_size(&scene) < before + 30_000 + 7919 * round {
            assert!(Instant::now() < deadline, "the run makes no progress");
            assert_eq!(child.try_wait().unwrap(), None, "the run ended by itself");
            thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let report = verify(&scene.log, &scene.dir).unwrap();
        assert!(report.is_clean(), "round {round}: {report}");
        assert_eq!(report.unsafe_lost, 0, "{report}");
        assert_eq!(report.runs, round + 1);
        assert!(report.answered > 100 && report.bytes > 0, "{report}");
    }
}

#[test]
fn a_run_ends_after_its_operations() {
    let scene = new_scene();
    for round in 1..=3 {
        let summary = run(&scene.dir, &scene.log, round, Some(150)).unwrap();
        assert_eq!((summary.answered, summary.died), (600, None));
        let report = verify(&scene.log, &scene.dir).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.runs, report.in_flight), (round, 0));
    }
}

/// Returns a file of a finished run with at least `size` bytes and one name.
fn some_file(scene: &Scene, size: u64) -> PathBuf {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(scene.dir.join("t0")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| {
            let meta = fs::symlink_metadata(path).unwrap();
            meta.is_file() && meta.len() >= size && meta.nlink() == 1
        })
        .collect();
    files.sort();
    files.into_iter().next().expect("a run leaves such files")
}

type Damage = fn(&Scene);

#[test]
fn damage_is_reported_and_ends_further_runs() {
    let damages: [(&str, Damage); 7] = [
        ("missing", |scene| fs::remove_file(some_file(scene, 0)).unwrap()),
        ("wrong bytes", |scene| {
            let file =
                fs::File::options().read(true).write(true).open(some_file(scene, 100)).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, 50).unwrap();
            file.write_all_at(&[byte[0] ^ 1], 50).unwrap();
        }),
        ("wrong size", |scene| {
            let file = fs::File::options().write(true).open(some_file(scene, 100)).unwrap();
            let size = file.metadata().unwrap().len();
            file.set_len(size - 1).unwrap();
        }),
        ("should not be there", |scene| fs::write(scene.dir.join("t1/invented"), b"").unwrap()),
        ("belongs to no thread", |scene| fs::write(scene.dir.join("invented"), b"").unwrap()),
        ("is missing", |scene| fs::rename(scene.dir.join("t2"), scene.dir.join("t9")).unwrap()),
        ("names, not", |scene| {
            fs::hard_link(some_file(scene, 0), scene.dir.join("t0/more")).unwrap();
        }),
    ];
    for (problem, damage) in damages {
        let scene = new_scene();
        run(&scene.dir, &scene.log, 5, Some(300)).unwrap();
        assert!(verify(&scene.log, &scene.dir).unwrap().is_clean());
        damage(&scene);
        let report = verify(&scene.log, &scene.dir).unwrap();
        assert!(report.problems.iter().any(|found| found.contains(problem)), "{problem}: {report}");
        let refused = run(&scene.dir, &scene.log, 6, Some(1));
        assert!(matches!(refused, Err(WitnessError::Lost(_))), "{refused:?}");
    }
}

/// A time that was read after a close must stay.
#[test]
fn a_changed_time_is_reported() {
    let scene = new_scene();
    run(&scene.dir, &scene.log, 5, Some(300)).unwrap();
    let mut reported = false;
    for entry in fs::read_dir(scene.dir.join("t0")).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_file() {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        let report = verify(&scene.log, &scene.dir).unwrap();
        reported |= report.problems.iter().any(|problem| problem.contains("has mtime"));
    }
    assert!(reported);
}

#[test]
fn a_log_with_an_incomplete_action_is_an_error() {
    let scene = new_scene();
    fs::write(&scene.log, "R\ni 0 5 mkdir\n").unwrap();
    assert!(matches!(verify(&scene.log, &scene.dir), Err(WitnessError::Line { line: 2 })));
}

#[test]
fn a_log_with_an_unknown_thread_is_an_error() {
    let scene = new_scene();
    fs::write(&scene.log, "R\ni 77 5 stat a\n").unwrap();
    assert!(matches!(verify(&scene.log, &scene.dir), Err(WitnessError::Line { line: 2 })));
}

/// A directory with one file, and a log written by hand: the file gets three writes of 10 bytes,
/// and an fsync after the first one.
struct ThreeWrites {
    scene: Scene,
    file: PathBuf,
    /// The 30 bytes.
    all: Vec<u8>,
}

impl ThreeWrites {
    /// With `in_flight` the third write has not returned.
    fn new(in_flight: bool) -> Self {
        let scene = new_scene();
        for folder in ["t0", "t1", "t2", "t3", "shared"] {
            fs::create_dir(scene.dir.join(folder)).unwrap();
        }
        let intent = |number: u64| format!("i 0 {number} write 0 {} 10 {number}\n", 10 * number);
        let write = |number: u64| format!("{}a 0 {number}\n", intent(number));
        let head = format!("R\ni 0 1 create 0 t0/a\na 0 1\n{}i 0 2 fsync 0\na 0 2\n", write(0));
        let last = if in_flight { intent(2) } else { write(2) };
        fs::write(&scene.log, format!("{head}{}{last}", write(1))).unwrap();
        let all = (0..3).flat_map(|seed| bytes_of(seed, 10)).collect();
        Self { file: scene.dir.join("t0/a"), scene, all }
    }

    fn verify_with(&self, bytes: &[u8]) -> VerifyReport {
        fs::write(&self.file, bytes).unwrap();
        verify(&self.scene.log, &self.scene.dir).unwrap()
    }
}

#[test]
fn the_latest_unsynced_writes_may_be_missing() {
    let writes = ThreeWrites::new(false);
    for (length, lost) in [(30, 0), (20, 1), (10, 2)] {
        let report = writes.verify_with(&writes.all[..length]);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.unsafe_lost, lost);
    }
}

#[test]
fn a_synced_write_must_not_be_missing() {
    let writes = ThreeWrites::new(false);
    for length in [0, 5] {
        assert!(!writes.verify_with(&writes.all[..length]).is_clean());
    }
}

#[test]
fn an_acknowledged_write_must_not_be_torn() {
    let writes = ThreeWrites::new(false);
    assert!(!writes.verify_with(&writes.all[..15]).is_clean());
}

#[test]
fn a_write_must_not_be_missing_before_a_later_one() {
    let writes = ThreeWrites::new(false);
    let bytes = [&writes.all[..10], &[0; 10], &writes.all[20..]].concat();
    assert!(!writes.verify_with(&bytes).is_clean());
}

#[test]
fn a_write_in_flight_may_be_torn() {
    let writes = ThreeWrites::new(true);
    let report = writes.verify_with(&writes.all[..25]);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.in_flight, report.happened), (1, 1));
}

#[test]
fn a_run_continues_after_a_torn_write() {
    let writes = ThreeWrites::new(true);
    fs::write(&writes.file, &writes.all[..25]).unwrap();
    run(&writes.scene.dir, &writes.scene.log, 1, Some(50)).unwrap();
    let report = verify(&writes.scene.log, &writes.scene.dir).unwrap();
    assert!(report.is_clean(), "{report}");
}
