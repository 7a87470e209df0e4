//! Connections that are lost, and clients that are silent for too long.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_random::bytes_of;
use rustix::process::Signal;

use crate::far::forwarder::Forwarder;
use crate::far::on_server;
use crate::harness::program::until;
use crate::harness::programs::locker;

/// Connections that are cut in a test.
const CUTS: usize = 60;
/// Of them those after which the server gets late what the client said before.
const LATE: usize = 5;

/// One worker's operations. Each of them would fail, or show, if it were carried out twice or not
/// at all.
fn work(root: &Path, worker: usize, stop: &AtomicBool) -> usize {
    let dir = root.join(format!("w{worker}"));
    fs::create_dir(&dir).unwrap();
    let log = dir.join("log");
    let mut log = OpenOptions::new().append(true).create_new(true).open(log).unwrap();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let path = dir.join(format!("new{round}"));
        let file = File::create_new(&path).unwrap();
        file.write_all_at(&bytes_of(round as u64, 1 + round * 37 % 30_000), 0).unwrap();
        drop(file);
        fs::rename(&path, dir.join(format!("done{round}"))).unwrap();
        fs::create_dir(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        log.write_all(format!("{round}\n").as_bytes()).unwrap();
        if round % 3 == 0 {
            fs::remove_file(dir.join(format!("done{round}"))).unwrap();
        }
        round += 1;
    }
    log.sync_all().unwrap();
    round
}

/// Asserts that every operation of a worker was carried out once.
fn check(root: &Path, worker: usize, rounds: usize) {
    let dir = root.join(format!("w{worker}"));
    let log = fs::read_to_string(dir.join("log")).unwrap();
    assert_eq!(log, (0..rounds).map(|round| format!("{round}\n")).collect::<String>());
    let kept = (0..rounds).filter(|round| round % 3 != 0);
    let mut expected: BTreeSet<String> = kept.clone().map(|round| format!("done{round}")).collect();
    expected.insert("log".to_owned());
    let entries = fs::read_dir(&dir).unwrap();
    let found: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, expected);
    for round in kept {
        let bytes = bytes_of(round as u64, 1 + round * 37 % 30_000);
        assert!(fs::read(dir.join(format!("done{round}"))).unwrap() == bytes, "{round}");
    }
}

/// Runs workers over a network that cuts connections, until these are enough, and checks what the
/// workers did.
fn work_over_cuts(prepare: impl FnOnce(&Forwarder), are_enough: impl Fn(&Forwarder) -> bool) {
    const WORKERS: usize = 3;
    on_server(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "tls", &[]);
        let session = world.status()["sessions"][0]["id"].clone();
        let stop = AtomicBool::new(false);
        let rounds = thread::scope(|scope| {
            let start = |worker| {
                let root = &far.point;
                let stop = &stop;
                scope.spawn(move || work(root, worker, stop))
            };
            let workers: Vec<_> = (0..WORKERS).map(start).collect();
            let guard = StopAtEnd(&stop);
            prepare(&forwarder);
            forwarder.be_rough(true);
            until("enough cuts", || {
                let failed = workers.iter().any(thread::ScopedJoinHandle::is_finished);
                failed || are_enough(&forwarder)
            });
            forwarder.be_rough(false);
            drop(guard);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        let status = world.pelago(&["status", far.point.to_str().unwrap(), "--json"]);
        let connections = status.expect_success().json()["connections"].as_u64().unwrap();
        let cuts = forwarder.cuts();
        let late = forwarder.late();
        println!("{cuts} cuts, {late} late, {connections} connections, rounds {rounds:?}");
        assert!(connections > 5, "the session was resumed over new connections");
        assert_eq!(world.status()["sessions"][0]["id"], session, "it is the same session");
        for (worker, rounds) in rounds.into_iter().enumerate() {
            check(&world.volume.files(), worker, rounds);
            check(&far.point, worker, rounds);
        }
    });
}

#[test]
fn each_operation_is_carried_out_once_over_lost_connections() {
    work_over_cuts(|_| {}, |forwarder| forwarder.cuts() >= CUTS);
}

/// Requests on the old connection of a client arrive after it has another connection, both before
/// and after its session has moved to that. Then the server ends the old connection, so only some
/// of the cuts are late: the network is rough until there were enough of them.
#[test]
fn what_an_old_connection_says_late_is_not_carried_out_again() {
    work_over_cuts(Forwarder::be_late, |forwarder| {
        forwarder.cuts() >= CUTS && forwarder.late() >= LATE
    });
}

/// Writes of a megabyte, in place and behind the end, while connections end in the middle of them.
#[test]
fn large_writes_are_whole_over_connections_that_are_reset() {
    const CUTS: usize = 15;
    on_server(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "tls", &[]);
        let placed = File::create(far.path("placed")).unwrap();
        let mut log = OpenOptions::new();
        let mut log = log.append(true).create_new(true).open(far.path("log")).unwrap();
        forwarder.cut_within(4 << 20);
        forwarder.be_rough(true);
        let mut rounds = 0_u64;
        until("enough cuts", || {
            placed.write_all_at(&bytes_of(rounds, 1 << 20), (rounds % 8) << 20).unwrap();
            log.write_all(&bytes_of(rounds, 300_000)).unwrap();
            rounds += 1;
            forwarder.cuts() >= CUTS && rounds >= 8
        });
        forwarder.be_rough(false);
        println!("{} cuts in {rounds} rounds", forwarder.cuts());
        drop((placed, log));
        for root in [&world.volume.files(), &far.point] {
            let placed = File::open(root.join("placed"));
            let log = File::open(root.join("log"));
            let placed = placed.unwrap();
            let log = log.unwrap();
            for round in rounds - 8..rounds {
                let mut bytes = vec![0; 1 << 20];
                placed.read_exact_at(&mut bytes, (round % 8) << 20).unwrap();
                assert!(bytes == bytes_of(round, 1 << 20), "round {round} of {rounds}");
            }
            assert_eq!(log.metadata().unwrap().len(), rounds * 300_000);
            for round in 0..rounds {
                let mut bytes = vec![0; 300_000];
                log.read_exact_at(&mut bytes, round * 300_000).unwrap();
                assert!(bytes == bytes_of(round, 300_000), "line {round} of {rounds}");
            }
        }
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A program that waits for a lock keeps its place over lost connections.
#[test]
fn a_lock_is_waited_for_over_lost_connections() {
    on_server(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "tls", &[]);
        let holder = File::create(world.volume.files().join("file")).unwrap();
        holder.lock().unwrap();
        let waiter = File::open(far.path("file")).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock());
            until("it waits", || world.status()["lock_waiters"] == 1);
            forwarder.be_rough(true);
            until("some cuts", || {
                // Traffic, so that there is something to cut.
                fs::write(far.path("other"), bytes_of(1, 20_000)).unwrap();
                forwarder.cuts() >= 10
            });
            forwarder.be_rough(false);
            assert!(!waiting.is_finished());
            holder.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert!(holder.try_lock().is_err(), "the far program has the lock");
    });
}

/// A client that is stopped for longer than the term (the test waits for those 10 seconds, because
/// only then does the server give up) loses its session and its locks. Its files are opened again,
/// but not what its programs had locks through.
#[test]
fn a_client_that_was_silent_for_a_term_begins_anew() {
    on_server(|world| {
        let far = world.mount_tls("tls");
        let own = world.volume.files();
        fs::write(far.path("file"), "before").unwrap();
        // Another program has it open: a file that this process has open is closed by each program
        // that any test starts, which would have to wait for the stopped client.
        let mut holder = locker(&far.path("file"));
        assert_eq!(holder.ask("try ofd write 0 0"), "yes");
        assert_eq!(holder.ask("open"), "yes");
        far.signal(Signal::STOP);
        thread::scope(|scope| {
            // Asked while the client is stopped.
            let asked = scope.spawn(|| fs::metadata(far.path("file")).map(|found| found.len()));
            until("the session is over", || world.status()["sessions"] == serde_json::json!([]));
            let mut other = locker(&own.join("file"));
            assert_eq!(other.ask("try ofd write 0 0"), "yes");
            fs::write(own.join("new"), "made meanwhile").unwrap();
            far.signal(Signal::CONT);
            assert_eq!(asked.join().unwrap().unwrap(), 6);
        });
        assert_eq!(fs::read(far.path("new")).unwrap(), b"made meanwhile");
        assert_eq!(holder.ask("try ofd read 0 1"), "no, 5", "its lock is lost");
        assert_eq!(holder.ask("try ofd read 0 1 1"), "yes", "what was open is opened again");
        fs::write(far.path("file"), "after").unwrap();
        assert_eq!(fs::read(own.join("file")).unwrap(), b"after");
        drop(holder);
        fs::remove_file(far.path("file")).unwrap();
    });
}

/// A write that was given up is not carried out when the connection comes back.
#[test]
fn a_soft_write_that_was_given_up_never_comes() {
    on_server(|world| {
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "tls", &["--soft", "2"]);
        fs::write(far.path("file"), "written before").unwrap();
        // While another mount has it open each write goes to the server.
        let _shared = File::open(world.volume.files().join("file")).unwrap();
        // In a process of its own, which alone waits when it closes the file.
        let mut writer = locker(&far.path("file"));
        assert_eq!(writer.ask("get"), "yes");
        forwarder.cut(true);
        assert_eq!(writer.ask("put given up"), "no, 110");
        forwarder.cut(false);
        // Its answer comes behind those of all repeated requests.
        until("it works again", || writer.ask("get") == "yes");
        assert_eq!(fs::read(world.volume.files().join("file")).unwrap(), b"written before");
        assert_eq!(world.status()["sessions"].as_array().unwrap().len(), 1);
    });
}
