//! The witness on a plain directory, whose file system survives whatever happens to the workload:
//! so everything must be there, and whatever is taken away must be missed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pelago_workload::witness::{WitnessError, run, verify};

/// Tells the test binary to be the workload instead: directory, log, seed, by line.
const ROLE: &str = "PELAGO_WITNESS_ROLE";

struct Scene {
    _keeper: tempfile::TempDir,
    dir: PathBuf,
    log: PathBuf,
}

fn new_scene() -> Scene {
    let keeper = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dir, log) = (keeper.path().join("dir"), keeper.path().join("log"));
    fs::create_dir(&dir).unwrap();
    Scene { _keeper: keeper, dir, log }
}

/// Not a test of its own: the workload as a process that can be killed.
#[test]
fn workload_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.lines();
    let mut next = || words.next().unwrap().to_owned();
    let (dir, log, seed) = (next(), next(), next().parse().unwrap());
    run(Path::new(&dir), Path::new(&log), seed, None).unwrap();
}

fn start_workload(scene: &Scene, seed: u64) -> Child {
    let role = format!("{}\n{}\n{seed}", scene.dir.display(), scene.log.display());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workload_process", "--test-threads=1"])
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
fn a_killed_workload_leaves_what_its_log_says() {
    let scene = new_scene();
    for round in 0..6 {
        let before = log_size(&scene);
        let mut child = start_workload(&scene, round);
        let deadline = Instant::now() + Duration::from_secs(120);
        while log_size(&scene) < before + 30_000 + 7919 * round {
            assert!(Instant::now() < deadline, "the workload does not get on");
            assert_eq!(child.try_wait().unwrap(), None, "the workload ended by itself");
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
        let ran = run(&scene.dir, &scene.log, round, Some(150)).unwrap();
        assert_eq!((ran.answered, ran.died), (600, None));
        let report = verify(&scene.log, &scene.dir).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.runs, report.in_flight), (round, (0, 0)));
    }
}

/// Some file of a finished run with at least `size` bytes and one name.
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
    files.into_iter().next().expect("a run leaves files")
}

type Damage = fn(&Scene);

#[test]
fn damage_is_noticed() {
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
        ("is not ours", |scene| fs::write(scene.dir.join("invented"), b"").unwrap()),
        ("is missing", |scene| fs::rename(scene.dir.join("t2"), scene.dir.join("t9")).unwrap()),
        ("names, not", |scene| {
            fs::hard_link(some_file(scene, 0), scene.dir.join("t0/more")).unwrap();
        }),
    ];
    for (says, damage) in damages {
        let scene = new_scene();
        run(&scene.dir, &scene.log, 5, Some(300)).unwrap();
        assert!(verify(&scene.log, &scene.dir).unwrap().is_clean());
        damage(&scene);
        let report = verify(&scene.log, &scene.dir).unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(says)), "{says}: {report}");
        let refused = run(&scene.dir, &scene.log, 6, Some(1));
        assert!(matches!(refused, Err(WitnessError::Lost(_))), "{refused:?}");
    }
}

/// A time that was seen after a close must come back.
#[test]
fn a_changed_time_is_noticed() {
    let scene = new_scene();
    run(&scene.dir, &scene.log, 5, Some(300)).unwrap();
    let mut noticed = false;
    for entry in fs::read_dir(scene.dir.join("t0")).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_file() {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        let report = verify(&scene.log, &scene.dir).unwrap();
        noticed |= report.problems.iter().any(|problem| problem.contains("changed at"));
    }
    assert!(noticed);
}

#[test]
fn a_log_that_makes_no_sense_is_an_error() {
    let scene = new_scene();
    fs::write(&scene.log, "R\ni 0 5 mkdir\n").unwrap();
    assert!(matches!(verify(&scene.log, &scene.dir), Err(WitnessError::Line { line: 2 })));
    fs::write(&scene.log, "R\ni 77 5 stat a\n").unwrap();
    assert!(matches!(verify(&scene.log, &scene.dir), Err(WitnessError::Line { line: 2 })));
}

/// The log by hand: changes neither closed nor fsynced may be missing from some moment on, not in
/// between; closed ones may not.
#[test]
fn only_unsafe_changes_may_be_missing_and_only_the_last() {
    let scene = new_scene();
    for top in ["t0", "t1", "t2", "t3", "shared"] {
        fs::create_dir(scene.dir.join(top)).unwrap();
    }
    let write =
        |number: u64| format!("i 0 {number} write 0 {} 10 {number}\na 0 {number}\n", 10 * number);
    let head = format!("R\ni 0 1 create 0 t0/a\na 0 1\n{}i 0 2 fsync 0\na 0 2\n", write(0));
    fs::write(&scene.log, format!("{head}{}{}", write(1), write(2))).unwrap();
    let all: Vec<u8> = (0..3).flat_map(|seed| pelago_random::bytes_of(seed, 10)).collect();
    let file = scene.dir.join("t0/a");
    for (bytes, lost) in [(&all[..], 0), (&all[..20], 1), (&all[..10], 2)] {
        fs::write(&file, bytes).unwrap();
        let report = verify(&scene.log, &scene.dir).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.unsafe_lost, lost);
    }
    let holed = [&all[..10], &[0; 10], &all[20..]].concat();
    for wrong in [&all[..5], &all[..15], &[][..], &holed] {
        fs::write(&file, wrong).unwrap();
        assert!(!verify(&scene.log, &scene.dir).unwrap().is_clean());
    }
    // What was in flight may be there in part, and a later run goes on from what is.
    let more = format!("{head}{}i 0 9 write 0 20 10 2\n", write(1));
    fs::write(&scene.log, more).unwrap();
    fs::write(&file, &all[..25]).unwrap();
    let report = verify(&scene.log, &scene.dir).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.in_flight, (1, 1));
    run(&scene.dir, &scene.log, 1, Some(50)).unwrap();
    let report = verify(&scene.log, &scene.dir).unwrap();
    assert!(report.is_clean(), "{report}");
}
