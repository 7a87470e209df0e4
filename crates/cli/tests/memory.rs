//! The memory of a volume's process, and the option that limits it.

use std::path::Path;
use std::{fs, thread};

use crate::harness::program::until;
use crate::harness::volume::{Volume, cannot_mount};

const MIB: u64 = 1 << 20;
/// Resident bytes beside the total: the program, the stacks of its threads, the engine's buffers
/// during a merge, and free memory of the allocator.
const BESIDES: u64 = 80 * MIB;

macro_rules! needs_mount {
    () => {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return;
        }
    };
}

#[test]
fn the_total_of_memory_is_chosen_at_the_start() {
    needs_mount!();
    let volume = Volume::new();
    let refused = volume.up(&["--memory", "19MiB"]).expect_code(2);
    assert!(refused.err.contains("at least 20 MiB"), "{refused:?}");
    assert!(!volume.dir.exists(), "something was made");
    for (total, inodes) in [(20 * MIB, 3 * MIB), (1024 * MIB, 1024 * MIB * 24 / 160)] {
        volume.up(&["--memory", &total.to_string()]).expect_success();
        let status = volume.run("status", &["--json"]).expect_success().json();
        let limits: Vec<(&str, u64)> = status["memory"]
            .as_array()
            .unwrap()
            .iter()
            .map(|each| (each["name"].as_str().unwrap(), each["limit"].as_u64().unwrap()))
            .collect();
        let sum: u64 = limits.iter().map(|(_, limit)| limit).sum();
        assert!(sum <= total && sum + 5 > total, "{limits:?}");
        assert!(limits.contains(&("INODE_TABLE_BYTES", inodes)), "{limits:?}");
        for number in 0..500 {
            let file = volume.files().join(format!("{number}"));
            fs::write(&file, number.to_string()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), number.to_string());
        }
        let status = volume.run("status", &["--json"]).expect_success().json();
        let memory = status["memory"].as_array().unwrap();
        let inodes = memory.iter().find(|each| each["name"] == "INODE_TABLE_BYTES").unwrap();
        assert!(inodes["used"].as_u64().unwrap() >= 500 * 20, "{inodes}");
        volume.run("unmount", &[]).expect_success();
        volume.check_whole();
    }
}

/// The short form of `cargo xtask memory`.
#[test]
fn copies_of_many_files_keep_to_the_total() {
    needs_mount!();
    let total = 40 * MIB;
    let volume = Volume::new();
    volume.up(&["--memory", &total.to_string()]).expect_success();
    for round in 0..3 {
        let copies: Vec<_> = (0..4).map(|copy| volume.files().join(format!("{copy}"))).collect();
        thread::scope(|scope| {
            for copy in &copies {
                scope.spawn(move || write_tree(copy, round));
            }
        });
        thread::scope(|scope| {
            for copy in &copies {
                scope.spawn(move || fs::remove_dir_all(copy).unwrap());
            }
        });
    }
    let peak = resident(&volume, "VmHWM:");
    assert!(peak <= total + BESIDES, "{} MiB at the most", peak / MIB);
    // The kernel forgets the removed files, and the workers become idle.
    until("at rest", || resident(&volume, "VmRSS:") <= total + BESIDES / 2);
    volume.finish();
}

/// Writes 3,000 files, most of them inline, some larger.
fn write_tree(root: &Path, round: usize) {
    for folder in 0..30 {
        let folder = root.join(format!("folder-{folder}"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..100 {
            let bytes = if file % 5 == 0 { 20_000 } else { 37 * (file + round) };
            fs::write(folder.join(format!("a-longer-name-{file}.rs")), vec![7; bytes]).unwrap();
        }
    }
}

/// Returns a memory figure of the process from `/proc`, in bytes.
fn resident(volume: &Volume, what: &str) -> u64 {
    let pid = volume.pid().expect("the volume is up").as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}
