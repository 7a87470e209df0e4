//! Random programs against the reference model: through `Files` on a real server with its engine
//! and group commit, and through the kernel on a mount.

use std::fs;
use std::path::Path;
use std::time::Duration;

use pelago_client::Files;
use pelago_server::{Options, Server};
use pelago_wire::Context;
use pelago_workload::compare::{run_ops, run_program, shrink};
use pelago_workload::generate::program;
use pelago_workload::target::{FilesTarget, LocalTarget};

use crate::harness::volume::{Volume, cannot_mount, folder, passthrough_modes};

const SEEDS: u64 = 120;
const STEPS: usize = 80;
/// The number of programs run through a mount.
const MOUNTED_SEEDS: u64 = 90;

fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let shift = std::env::var("PELAGO_MODEL_SEED").ok().and_then(|value| value.parse().ok());
    let first = first + shift.unwrap_or(0);
    first..first + count
}

fn start(dir: &Path, sync_interval: Duration) -> Server {
    Server::start(dir, Options { sync_interval, ..Options::default() }).unwrap()
}

/// Runs a program on a server of its own; a failing program is shrunk before it is printed.
fn check_program(seed: u64, steps: usize, sync_interval: Duration) {
    let (_folder, root) = folder();
    let server = start(&root.join("vol"), sync_interval);
    let result = {
        let files = Files::new(server.service());
        let mut target = FilesTarget::new(files, Context::direct(0, 0), true);
        let result = run_program(seed, steps, &mut target);
        target.close_all();
        result
    };
    server.stop().unwrap();
    drop(server);
    let Err(divergence) = result else {
        let plan = pelago_check::plan(&root.join("vol")).unwrap();
        assert!(plan.is_whole(), "seed {seed}: {plan:?}");
        return;
    };
    let mut tries = 0;
    let small = shrink(&program(seed, divergence.step + 1), |ops| {
        tries += 1;
        let (_folder, root) = folder();
        let server = start(&root.join(format!("vol{tries}")), sync_interval);
        let files = Files::new(server.service());
        let mut target = FilesTarget::new(files, Context::direct(0, 0), true);
        let fails = run_ops(ops, &mut target).is_err();
        target.close_all();
        server.stop().unwrap();
        fails
    });
    panic!("{divergence}\nshrunk: {small:#?}");
}

/// Group commits between nearly all operations.
#[test]
fn a_server_that_commits_often_agrees_with_the_model() {
    for seed in seeds(0, SEEDS) {
        check_program(seed, STEPS, Duration::from_millis(1));
    }
}

/// Group commits with many operations.
#[test]
fn a_server_that_commits_seldom_agrees_with_the_model() {
    for seed in seeds(SEEDS, SEEDS) {
        check_program(seed, STEPS, Duration::from_millis(100));
    }
}

#[test]
fn long_programs_agree_with_the_model() {
    for seed in seeds(5000, 6) {
        check_program(seed, 1000, Duration::from_millis(10));
    }
}

/// The same programs through the kernel, which caches names and times itself, on each data path.
#[test]
fn a_mount_agrees_with_the_model() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let modes = passthrough_modes(&["auto", "always", "never"]);
    let count = MOUNTED_SEEDS / modes.len() as u64;
    for (index, passthrough) in (0..).zip(&modes) {
        let volume = Volume::with_passthrough(passthrough);
        for seed in seeds(10_000 + index * count, count) {
            mount_agrees(&volume, passthrough, seed);
        }
        volume.finish();
    }
}

fn mount_agrees(volume: &Volume, passthrough: &str, seed: u64) {
    let dir = volume.files().join(format!("seed{seed}"));
    fs::create_dir(&dir).unwrap();
    let mut target = LocalTarget::new(&dir).unwrap();
    let Err(divergence) = run_program(seed, STEPS, &mut target) else { return };
    let mut tries = 0;
    let small = shrink(&program(seed, divergence.step + 1), |ops| {
        tries += 1;
        let dir = volume.files().join(format!("seed{seed}-{tries}"));
        fs::create_dir(&dir).unwrap();
        run_ops(ops, &mut LocalTarget::new(&dir).unwrap()).is_err()
    });
    panic!("{passthrough}: {divergence}\nshrunk: {small:#?}");
}
