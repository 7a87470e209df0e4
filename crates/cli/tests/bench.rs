//! `pelago bench` with tiny counts: each benchmark runs, prints one object and removes its files.

use std::fs;
use std::os::unix::fs::symlink;

use crate::harness::program::{pelago, run};
use crate::harness::volume::{Volume, cannot_mount, folder};

#[test]
fn names_and_bytes_of_two_directories() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let volume = Volume::mounted();
    let plain = volume.root.join("plain");
    fs::create_dir(&plain).unwrap();
    let kinds: [&[&str]; 2] = [
        &["bench", "meta", "--names", "20", "--rounds", "2", "--json"],
        &["bench", "io", "--size", "2MiB", "--random-writes", "8", "--rounds", "2", "--json"],
    ];
    for kind in kinds {
        let mut command = pelago(&volume.root, kind);
        let report = run(command.arg(volume.files()).arg(&plain)).expect_success().json();
        assert_eq!(report["version"], 1);
        assert_eq!(report["contenders"].as_array().unwrap().len(), 2);
        let rows = report["rows"].as_array().unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            assert!(row["figures"][0]["rate"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["ratios"][0]["median"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    assert_eq!(fs::read_dir(&plain).unwrap().count(), 0);
    assert_eq!(fs::read_dir(volume.files()).unwrap().count(), 0);
    volume.finish();
}

#[test]
fn creates_without_a_mount() {
    let (_folder, root) = folder();
    let args = ["bench", "lib", ".", "--count", "2000", "--callers", "2", "--json"];
    let report = run(&mut pelago(&root, args)).expect_success().json();
    assert_eq!((&report["bench"], &report["count"]), (&"lib".into(), &2000.into()));
    assert!(report["rate"].as_f64().unwrap() > 0.0);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "the scratch volume stays behind");
}

#[test]
fn a_small_million() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let (_folder, root) = folder();
    let args = ["bench", "million", ".", "--count", "1500", "--rounds", "1", "--json"];
    let report = run(&mut pelago(&root, args)).expect_success().json();
    for kind in ["clean", "crashed"] {
        assert!(report[kind][0]["all_ms"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report[kind][0]["resident"].as_u64().unwrap() > 0, "{report}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "the scratch volume stays behind");
}

#[test]
fn a_small_tree() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let (_folder, root) = folder();
    fs::create_dir(root.join("other")).unwrap();
    let counts = ["--names", "300", "--small", "20", "--rounds", "1", "--json"];
    let mut command = pelago(&root, ["bench", "tree", ".", "other"]);
    let report = run(command.args(counts)).expect_success().json();
    let contenders = report["contenders"].as_array().unwrap();
    assert_eq!(contenders, &["pelago", "disk", "other"]);
    for row in report["rows"].as_array().unwrap() {
        assert!(row["ratios"][1]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "the scratch folder stays behind");
    assert_eq!(fs::read_dir(root.join("other")).unwrap().count(), 0);
}

#[test]
fn small_everyday_jobs() {
    let (_folder, root) = folder();
    for name in ["one", "other", "tmp"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let args = ["bench", "everyday", "one", "other", "--files", "50", "--rounds", "1"];
    let everyday = || {
        let mut command = pelago(&root, args);
        command.env("TMPDIR", root.join("tmp"));
        command
    };
    let report = run(everyday().arg("--json")).expect_success().json();
    assert_eq!((&report["version"], &report["bench"]), (&1.into(), &"everyday".into()));
    assert_eq!(report["contenders"].as_array().unwrap(), &["one", "other"]);
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 6, "{report}");
    for job in jobs {
        assert!(job["figures"][1]["seconds"]["median"].as_f64().unwrap() > 0.0, "{job}");
        assert!(job["ratios"][0]["median"].as_f64().unwrap() > 0.0, "{job}");
    }
    let printed = run(&mut everyday()).expect_success().out;
    for part in ["50 files in 3 folders", "tar x", "rm -rf", "all five", "over that of other: "] {
        assert!(printed.contains(part), "{printed}");
    }
    for name in ["one", "other", "tmp"] {
        assert_eq!(fs::read_dir(root.join(name)).unwrap().count(), 0, "{name} has files");
    }
}

/// Nothing was made before the program is missed, and its package is named.
#[test]
fn everyday_jobs_without_git() {
    let (_folder, root) = folder();
    fs::create_dir(root.join("programs")).unwrap();
    for program in ["tar", "cp", "grep"] {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|dir| dir.join(program));
        let found = found.into_iter().find(|path| path.exists()).unwrap();
        symlink(found, root.join("programs").join(program)).unwrap();
    }
    let mut command = pelago(&root, ["bench", "everyday", "."]);
    let ran = run(command.env("PATH", root.join("programs")).env("TMPDIR", &root)).expect_code(1);
    assert!(ran.err.contains("`git` is missing"), "{ran:?}");
    assert!(ran.err.contains("next: `apt install git`"), "{ran:?}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "a scratch folder stays behind");
}

/// Small sizes; bonnie++ rests for three seconds before it seeks.
#[test]
fn small_measurements_of_discfs() {
    let (_folder, root) = folder();
    for name in ["one", "other", "tmp"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let args = ["bench", "discfs", "one", "other", "--size", "8MiB", "--files", "40", "--json"];
    let mut command = pelago(&root, args);
    command.args(["--sources", "3", "--rounds", "1"]).env("TMPDIR", root.join("tmp"));
    let ran = run(&mut command);
    if ran.err.contains("it is in the Debian package") {
        println!("skipped: {}", ran.err);
        return;
    }
    let report = ran.expect_success().json();
    assert_eq!((&report["version"], &report["bench"]), (&1.into(), &"discfs".into()));
    assert_eq!(report["contenders"].as_array().unwrap(), &["one", "other"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{report}");
    for row in rows {
        assert!(row["figures"][1]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["speeds"][0]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    for name in ["one", "other", "tmp"] {
        assert_eq!(fs::read_dir(root.join(name)).unwrap().count(), 0, "{name} has files");
    }
}

/// Nothing was made before the program is missed, and its package is named.
#[test]
fn discfs_without_a_compiler() {
    let (_folder, root) = folder();
    fs::create_dir(root.join("programs")).unwrap();
    let missing = |package: &str| {
        let mut command = pelago(&root, ["bench", "discfs", "."]);
        command.env("PATH", root.join("programs")).env("TMPDIR", &root);
        let ran = run(&mut command).expect_code(1);
        assert!(ran.err.contains(&format!("next: `apt install {package}`")), "{ran:?}");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "a scratch folder stays behind");
    };
    missing("make");
    symlink("/bin/true", root.join("programs/make")).unwrap();
    missing("gcc");
}

/// A folder on the disk is served by no office, so no requests are known.
#[test]
fn small_measurements_of_ringer() {
    let (_folder, root) = folder();
    for name in ["one", "other"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    let counts = ["--calls", "3", "--runs", "4", "--sizes", "2,4KiB", "--most", "8KiB"];
    let mut command = pelago(&root, ["bench", "ringer", "one", "other", "--json"]);
    let report = run(command.args(counts)).expect_success().json();
    assert_eq!((&report["version"], &report["bench"]), (&1.into(), &"ringer".into()));
    assert_eq!(report["contenders"].as_array().unwrap(), &["one", "other"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12 + 2 * 3, "{report}");
    for row in rows {
        assert!(row["figures"][1]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["figures"][1]["requests"].is_null(), "{row}");
        assert!(row["speeds"][0]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    for name in ["one", "other"] {
        assert_eq!(fs::read_dir(root.join(name)).unwrap().count(), 0, "{name} has files");
    }
    let missing = run(&mut pelago(&root, ["bench", "ringer", "nowhere"])).expect_code(1);
    assert!(missing.err.contains("open failed in nowhere"), "{missing:?}");
}

/// A volume without a relay has all levels but one, and one without a mirror has nothing to mirror.
#[test]
fn small_measurements_of_smfs() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let volume = Volume::mounted();
    let mut command = pelago(&volume.root, ["bench", "smfs", "--json", "--level"]);
    command.args(["async,local,network,remote", "--testers", "2", "--seconds", "1"]);
    command.args(["--warm-up", "0", "--rounds", "1", "--svg", "charts.svg"]);
    let report = run(command.arg(volume.files())).expect_success().json();
    assert_eq!((&report["version"], &report["bench"]), (&1.into(), &"smfs".into()));
    let levels = report["levels"].as_array().unwrap();
    let names: Vec<_> = levels.iter().map(|level| level["level"].as_str().unwrap()).collect();
    assert_eq!(names, ["async", "local", "network", "remote"]);
    for level in levels {
        let is_network = level["level"] == "network";
        assert_eq!(level["figures"].is_null(), is_network, "{level}");
        let why = level["refused"].as_str().unwrap_or_default();
        assert_eq!(why.contains("has no relay"), is_network, "{level}");
        if !is_network {
            assert!(level["figures"]["per_s"]["median"].as_f64().unwrap() > 0.0, "{level}");
            assert!(level["figures"]["mirrored_after_s"].is_null(), "there is no mirror: {level}");
        }
    }
    assert_eq!(fs::read_dir(volume.files()).unwrap().count(), 0, "files stay behind");
    assert!(fs::read_to_string(volume.root.join("charts.svg")).unwrap().contains("<svg"));
    volume.finish();
}

/// Each question has as many hits as the corpus says, else the benchmark fails.
#[test]
fn a_small_find() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let (_folder, root) = folder();
    let args = ["bench", "find", ".", "--quick", "--svg", "charts.svg", "--json"];
    let report = run(&mut pelago(&root, args)).expect_success().json();
    let questions = report["questions"].as_array().unwrap();
    assert!(questions.iter().all(|it| it["median_ms"].as_f64().unwrap() > 0.0), "{report}");
    assert!(report["costs"]["built"]["disk_bytes"].as_u64().unwrap() > 0, "{report}");
    assert!(report["costs"]["rounds"][0]["with"]["rate"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "the scratch folder stays behind");
}
