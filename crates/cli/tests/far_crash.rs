//! Repeated kills of a server with mounts of two other processes: by its Unix socket, and by TLS. A
//! witness works on each mount. It sees no error; in the end each acknowledged operation is there,
//! once, in both mounts, and nothing else is.
//!
//! `PELAGO_CRASH_FAR_ROUNDS` sets the number of kills, by default 5; `PELAGO_CRASH_SEED` repeats a
//! run.

use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;
use std::{fs, thread};

use pelago_random::Random;
use pelago_workload::witness;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::program::{pelago, run, until};
use crate::harness::volume::{Volume, cannot_mount, has_threads};
use crate::harness::witness::{said, start, work_if_told};

const ROUNDS: u64 = 5;
/// The longest time from the moment at which all witnesses work to the kill.
const LONGEST: Duration = Duration::from_millis(1500);
/// Kills on one volume; then a new one, so that its logs stay short.
const ROUNDS_OF_A_VOLUME: u64 = 10;
/// Bytes that a witness must log before it counts as working. Operations under way are a tenth of
/// that.
const WORK: u64 = 4000;

/// Not a test of its own: the witness, as a process that the test below starts.
#[test]
fn as_witness() {
    work_if_told();
}

#[test]
fn programs_of_far_mounts_see_no_crash_of_the_server() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let rounds = number("PELAGO_CRASH_FAR_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("PELAGO_CRASH_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let mut done = 0;
    while done < rounds {
        let mut world = World::new(seed * 1_000_000 + done);
        for _ in 0..ROUNDS_OF_A_VOLUME.min(rounds - done) {
            world.crash(&mut random);
        }
        world.finish();
        done += ROUNDS_OF_A_VOLUME;
    }
}

/// A served volume, two mounts of it, and a witness in each.
struct World {
    volume: Volume,
    port: String,
    sides: Vec<Side>,
    sessions: Vec<String>,
    seed: u64,
}

/// A mount by another process, and its witness.
struct Side {
    pid: Pid,
    point: PathBuf,
    /// The name of the witness's directory.
    name: &'static str,
    log: PathBuf,
    witness: Child,
}

impl World {
    fn new(seed: u64) -> Self {
        let volume = Volume::new();
        let mut world =
            Self { volume, port: "0".to_owned(), sides: Vec::new(), sessions: Vec::new(), seed };
        let address = world.serve();
        world.port = address.rsplit(':').next().unwrap().to_owned();
        world.pelago(&["key", "new"]);
        let key = world.pelago(&["key", "show"]);
        world.pelago(&["key", "allow", key.trim(), "-V", "vol"]);
        let socket = world.volume.dir.join("pelago.sock");
        for (server, name) in [(socket.to_str().unwrap(), "unix"), (&address, "tls")] {
            let side = world.side(server, name);
            world.sides.push(side);
        }
        world.sessions = world.sessions();
        assert_eq!(world.sessions.len(), world.sides.len());
        world
    }

    /// Starts the server, and returns its address.
    fn serve(&self) -> String {
        let listen = format!("127.0.0.1:{}", self.port);
        let args = ["serve", "vol", "--listen", &listen, "--detach", "--json"];
        let said = run(&mut pelago(&self.volume.root, args)).expect_success().json();
        said["listening"].as_str().unwrap().to_owned()
    }

    fn pelago(&self, args: &[&str]) -> String {
        run(&mut pelago(&self.volume.root, args)).expect_success().out
    }

    fn side(&self, server: &str, name: &'static str) -> Side {
        let point = self.volume.root.join(format!("{name}-mount"));
        fs::create_dir(&point).unwrap();
        let said = self.pelago(&["mount", server, point.to_str().unwrap(), "--detach", "--json"]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let pid = said["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).unwrap();
        let dir = point.join(name);
        fs::create_dir(&dir).unwrap();
        let log = self.volume.root.join(format!("{name}.log"));
        let witness = start("far_crash", &dir, &log, self.seed);
        Side { pid, point, name, log, witness }
    }

    fn sessions(&self) -> Vec<String> {
        let status = self.volume.run("status", &["--json"]).expect_success().json();
        let sessions = status["sessions"].as_array().unwrap().iter();
        let mut ids: Vec<String> = sessions.map(|session| session["id"].to_string()).collect();
        ids.sort();
        ids
    }

    /// Kills the server at a random moment of the work, and starts it again.
    fn crash(&mut self, random: &mut Random) {
        self.wait_for_work();
        // This sleep does not wait for a condition: the moment of the crash is random.
        thread::sleep(LONGEST.mul_f64(random.below(1000) as f64 / 1000.0));
        self.volume.kill();
        // Nor does this one: the server is down for a random time.
        thread::sleep(LONGEST.mul_f64(random.below(300) as f64 / 1000.0));
        self.serve();
    }

    fn wait_for_work(&mut self) {
        for side in &mut self.sides {
            let before = side.logged();
            until("a witness works", || {
                side.assert_works();
                side.logged() > before + WORK
            });
        }
    }

    /// Ends the witnesses, compares each of their directories in both mounts, and checks the
    /// volume.
    fn finish(mut self) {
        self.wait_for_work();
        for side in &mut self.sides {
            side.assert_works();
            side.witness.kill().unwrap();
            side.witness.wait().unwrap();
        }
        assert_eq!(self.sessions(), self.sessions, "the sessions are the first ones");
        for side in &self.sides {
            for mount in &self.sides {
                let report = witness::verify(&side.log, &mount.point.join(side.name)).unwrap();
                let is_good = report.is_clean() && report.unsafe_lost == 0;
                assert!(is_good, "seed {}, {}: {report}", self.seed, side.name);
                println!("{}: {report}", side.name);
            }
        }
        for side in std::mem::take(&mut self.sides) {
            self.pelago(&["unmount", side.point.to_str().unwrap(), "--timeout", "100"]);
        }
        self.volume.run("unmount", &[]).expect_success();
        self.volume.check_whole();
    }
}

impl Side {
    fn logged(&self) -> u64 {
        self.log.metadata().map_or(0, |found| found.len())
    }

    /// Asserts that the witness has seen no error: it would have ended.
    fn assert_works(&mut self) {
        let ended = self.witness.try_wait().unwrap();
        let printed = || fs::read_to_string(said(&self.log)).unwrap_or_default();
        assert!(ended.is_none(), "the witness in {} saw an error: {}", self.name, printed());
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // They may have ended; without its mount, the witness ends too.
        let _gone = kill_process(self.pid, Signal::KILL);
        until("killed", || !has_threads(self.pid));
        let _gone = self.witness.kill();
        let _gone = self.witness.wait();
    }
}
