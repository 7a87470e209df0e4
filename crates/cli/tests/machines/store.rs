//! A volume on a shared store with two servers, set up as README.md says: the owner is killed,
//! stopped and continued, or unmounted, and the programs of a third machine go on without a
//! remount.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::program::{run, until};
use crate::machines::lab::{Lab, kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};
use crate::machines::store_work::Work;
use crate::machines::world::typed;

/// README's commands. Its machines are one.
const SERVE_A: &str = "pelago serve ~/a --store ~/team --listen 127.0.0.1:7443 --detach";
const SERVE_B: &str = "pelago serve ~/b --store ~/team --listen 127.0.0.1:7444 --detach";
const ALLOW: &str = "pelago key allow $(pelago key show) -V ~/a";
const MOUNT: &str = "pelago mount $(pelago key show -V ~/a)@127.0.0.1:7443 ~/far --detach";

/// The longest time until programs go on after the owner was killed.
const GOES_ON: Duration = Duration::from_secs(30);

/// Two machines with servers of one store, and a third machine that mounts its volume.
struct Store {
    lab: Lab,
    a: Machine,
    b: Machine,
    client: Machine,
}

impl Store {
    /// Returns the machines, with both servers up and the volume mounted from the first; `None` if
    /// this machine cannot have a network.
    fn new() -> Option<Self> {
        let store = Self::unmounted()?;
        store.mount_from(&store.a, "a", 7443);
        Some(store)
    }

    /// Does the same as [`Self::new`] with the store on a disk of 160 MiB.
    fn on_a_small_disk() -> Option<Self> {
        let store = Self::without_servers()?;
        let team = store.lab.root.join("team");
        fs::create_dir(&team).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=160M,mode=700", "none"]).arg(&team);
        run(&mut mount).expect_success();
        store.serve_a();
        store.serve_b();
        store.mount_from(&store.a, "a", 7443);
        Some(store)
    }

    /// Returns the machines, with both servers up.
    fn unmounted() -> Option<Self> {
        let store = Self::without_servers()?;
        store.serve_a();
        store.serve_b();
        Some(store)
    }

    fn without_servers() -> Option<Self> {
        let lab = Lab::new()?;
        let a = lab.machine(1, "first");
        let b = lab.machine(2, "second");
        let client = lab.machine(3, "third");
        Some(Self { lab, a, b, client })
    }

    fn serve_a(&self) -> Pid {
        self.serve(&self.a, SERVE_A, "a")
    }

    fn serve_b(&self) -> Pid {
        self.serve(&self.b, SERVE_B, "b")
    }

    fn serve(&self, machine: &Machine, line: &'static str, dir: &str) -> Pid {
        let team = self.lab.root.join("team");
        let line = typed(line).replace("~/team", team.to_str().unwrap());
        machine.types(&line.replace("127.0.0.1", &machine.address));
        self.pid(machine, dir)
    }

    fn pid(&self, machine: &Machine, dir: &str) -> Pid {
        let pid = lock_holder(&machine.home.join(dir));
        self.lab.ends(pid);
        pid
    }

    fn pid_a(&self) -> Pid {
        self.pid(&self.a, "a")
    }

    fn pid_b(&self) -> Pid {
        self.pid(&self.b, "b")
    }

    /// Mounts the volume by the address of this server.
    fn mount_from(&self, server: &Machine, dir: &str, port: u16) {
        self.client.types("test -e ~/.config/pelago/key || pelago key new; mkdir -p ~/far");
        let own = self.client.types("pelago key show").out;
        self.a.types(&typed(ALLOW).replace("$(pelago key show)", own.trim()));
        let key = server.types(&format!("pelago key show -V ~/{dir}")).out;
        let line = typed(MOUNT).replace("$(pelago key show -V ~/a)", key.trim());
        let line = line.replace("127.0.0.1:7443", &format!("{}:{port}", server.address));
        self.client.types(&line);
        let status = self.client.types("pelago status ~/far --json --timeout 100").json();
        self.lab.ends(pid_of(&status));
    }

    fn status(&self, machine: &Machine, dir: &str) -> Value {
        machine.types(&format!("pelago status ~/{dir} --json --timeout 100")).json()
    }

    fn owns(&self, machine: &Machine, dir: &str) -> bool {
        tried(machine, &format!("pelago status ~/{dir} --json")).out.contains("\"state\":\"up\"")
            || self.status(machine, dir)["state"] == "up"
    }

    /// Runs a line on the client, in the background.
    fn begins(&self, line: &str) -> Child {
        self.client.command("sh").args(["-c", line]).spawn().unwrap()
    }

    /// Unmounts the volume, stops both servers, and checks the store.
    fn finish(self) {
        self.client.types("pelago unmount ~/far --timeout 100");
        for (machine, dir) in [(&self.a, "a"), (&self.b, "b")] {
            machine.types(&format!("pelago unmount -V ~/{dir} --timeout 100"));
            let log = fs::read_to_string(machine.home.join(dir).join("log")).unwrap();
            assert!(!log.contains("panicked"), "{log}");
        }
        let team = self.lab.root.join("team");
        let checked = self.a.types(&format!("pelago check {} --json", team.display())).json();
        assert_eq!(checked["whole"], true, "{checked}");
    }
}

/// Waits for the end of a program of the client, which must succeed.
fn expect_end(mut program: Child, within: Duration) {
    let deadline = Instant::now() + within;
    loop {
        match program.try_wait().unwrap() {
            Some(status) => return assert!(status.success(), "{status}"),
            None if Instant::now() > deadline => {
                program.kill().unwrap();
                panic!("a program does not go on within {within:?}");
            }
            // The program's end is polled, because the wait for it has no time limit.
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Writes numbered lines, each safe before the next one.
const WITNESS: &str = "cd ~/far && exec 3>>log && for i in $(seq 400); do \
                       echo line $i >&3 || exit 1; echo $i > f$i || exit 1; \
                       sync -d log || exit 1; sleep 0.02; done";

fn expect_witness(store: &Store) {
    let lines = store.client.types("cat ~/far/log").out;
    let expected: String = (1..=400).map(|number| format!("line {number}\n")).collect();
    assert_eq!(lines, expected, "each line once");
    let files = store.client.types("cd ~/far && for i in $(seq 400); do cat f$i; done").out;
    assert_eq!(files, (1..=400).map(|number| format!("{number}\n")).collect::<String>());
}

#[test]
fn a_mount_goes_on_when_the_owner_is_killed() {
    let Some(store) = Store::new() else { return };
    assert!(store.owns(&store.a, "a"));
    let standby = store.status(&store.b, "b");
    assert_eq!(standby["state"], "stands by", "{standby}");
    assert_eq!(standby["owner"], store.status(&store.a, "a")["listening"], "{standby}");
    let program = store.begins(WITNESS);
    until("it has begun", || tried(&store.client, "test -e ~/far/f20").code == Some(0));
    store.client.types("head -c 3000000 /dev/urandom > ~/bytes && cp ~/bytes ~/far/large");
    kill(store.pid_a());
    let killed = Instant::now();
    store.client.types("ls ~/far > /dev/null && echo more >> ~/far/more");
    println!("the first answer after {:?}", killed.elapsed());
    assert!(killed.elapsed() < GOES_ON, "{:?}", killed.elapsed());
    expect_end(program, GOES_ON);
    expect_witness(&store);
    store.client.types("cmp ~/bytes ~/far/large");
    assert!(store.owns(&store.b, "b"));
    // The first server comes back, stands by, and takes the volume when the other one is stopped.
    store.serve_a();
    assert_eq!(store.status(&store.a, "a")["state"], "stands by");
    store.b.types("pelago unmount -V ~/b --timeout 100");
    let stopped = Instant::now();
    store.client.types("cat ~/far/more && echo more >> ~/far/more");
    println!("after a clean stop, the first answer after {:?}", stopped.elapsed());
    assert!(stopped.elapsed() < GOES_ON, "{:?}", stopped.elapsed());
    assert_eq!(store.client.types("cat ~/far/more").out, "more\nmore\n");
    store.serve_b();
    store.finish();
}

#[test]
fn an_owner_that_was_stopped_answers_nothing_and_ends() {
    let Some(store) = Store::new() else { return };
    let program = store.begins(WITNESS);
    let large = store.begins(
        "cd ~/far && for i in $(seq 30); do head -c 2000000 /dev/zero | tr '\\0' \"\\\\$(printf \
         '%03o' $((i+32)))\" > large || exit 1; done",
    );
    until("it has begun", || tried(&store.client, "test -e ~/far/f20").code == Some(0));
    let owner = store.pid_a();
    kill_process(owner, Signal::STOP).unwrap();
    let stopped = Instant::now();
    store.client.types("ls ~/far > /dev/null && echo more >> ~/far/more");
    println!("the first answer after {:?}", stopped.elapsed());
    assert!(stopped.elapsed() < GOES_ON, "{:?}", stopped.elapsed());
    assert!(store.owns(&store.b, "b"));
    // Only the clock ends this wait: the owner is to go on long after it counts as dead, and
    // nothing reports that time.
    thread::sleep(Duration::from_secs(20).saturating_sub(stopped.elapsed()));
    kill_process(owner, Signal::CONT).unwrap();
    until("it ends", || fs::metadata(format!("/proc/{}", owner.as_raw_pid())).is_err());
    let log = fs::read_to_string(store.a.home.join("a/log")).unwrap();
    assert!(log.contains("another server"), "{log}");
    expect_end(program, GOES_ON);
    expect_end(large, GOES_ON);
    expect_witness(&store);
    let sum = store.client.types("tr -d '>' < ~/far/large | wc -c; wc -c < ~/far/large").out;
    assert_eq!(sum, "0\n2000000\n", "the last one that was written");
    store.serve_a();
    store.finish();
}

/// A mount that knows only a server which stands by finds the owner, and goes on if that is gone.
#[test]
fn a_mount_by_a_server_that_stands_by_finds_the_owner() {
    let Some(store) = Store::unmounted() else { return };
    store.mount_from(&store.b, "b", 7444);
    store.client.types("echo hello > ~/far/hello");
    kill(store.pid_a());
    let killed = Instant::now();
    assert_eq!(store.client.types("cat ~/far/hello").out, "hello\n");
    store.client.types("echo again > ~/far/again");
    assert!(killed.elapsed() < GOES_ON, "{:?}", killed.elapsed());
    store.serve_a();
    store.finish();
}

/// A line that is cut between the client and the owner moves nothing: the owner lives.
#[test]
fn a_line_that_is_cut_moves_no_volume() {
    let Some(store) = Store::new() else { return };
    store.client.types("echo before > ~/far/before");
    store.lab.network.cut(&store.client);
    // Only the clock ends this wait: it is longer than the time after which a silent server counts
    // as dead, and the owner must not have ended then.
    thread::sleep(Duration::from_secs(20));
    store.lab.network.join(&store.client);
    let joined = Instant::now();
    store.client.types("cat ~/far/before && echo after > ~/far/after");
    assert!(joined.elapsed() < GOES_ON, "{:?}", joined.elapsed());
    assert!(store.owns(&store.a, "a"));
    assert_eq!(store.status(&store.b, "b")["state"], "stands by");
    store.finish();
}

/// Both servers are killed; one of them comes back and has all.
#[test]
fn both_servers_are_killed_and_one_comes_back() {
    let Some(store) = Store::new() else { return };
    let program = store.begins(WITNESS);
    until("it has begun", || tried(&store.client, "test -e ~/far/f20").code == Some(0));
    kill(store.pid_b());
    kill(store.pid_a());
    store.serve_b();
    expect_end(program, GOES_ON + GOES_ON);
    expect_witness(&store);
    store.serve_a();
    store.finish();
}

/// Two programs on two mounts work on their files, while each server is killed, stopped and
/// unmounted in turn. No call of theirs fails, and each byte is what they have put there.
#[test]
fn programs_work_while_servers_come_and_go() {
    let Some(store) = Store::new() else { return };
    let far = store.client.home.join("far");
    let works = [1, 2].map(|seed| Work::begin(&far.join(format!("work{seed}")), seed));
    for round in 0..3 {
        // Not a wait for a condition: the moment of the fault in the work is arbitrary.
        thread::sleep(Duration::from_secs(3));
        let is_a = store.owns(&store.a, "a");
        let owner = if is_a { store.pid_a() } else { store.pid_b() };
        let ended = || fs::metadata(format!("/proc/{}", owner.as_raw_pid())).is_err();
        match round {
            0 => kill(owner),
            1 => {
                kill_process(owner, Signal::STOP).unwrap();
                let other = if is_a { (&store.b, "b") } else { (&store.a, "a") };
                until("the other server owns the volume", || store.owns(other.0, other.1));
                // Only the clock ends this wait: nothing reports that the programs have changed the
                // files which the stopped server was about to write.
                thread::sleep(Duration::from_secs(2));
                kill_process(owner, Signal::CONT).unwrap();
            }
            _ => kill_process(owner, Signal::TERM).unwrap(),
        }
        until("the server has ended", ended);
        if is_a {
            store.serve_a()
        } else {
            store.serve_b()
        };
    }
    for work in works {
        let steps = work.end();
        assert!(steps > 100, "only {steps} steps");
    }
    store.finish();
}

/// The store is full when its owner is killed: the next one has room to take it, and a file can be
/// removed.
#[test]
fn a_full_store_is_taken_over_and_keeps_all() {
    let Some(store) = Store::on_a_small_disk() else { return };
    store.client.types("mkdir ~/far/d && for i in $(seq 100); do echo $i > ~/far/d/$i; done");
    let fill = tried(&store.client, "head -c 400000000 /dev/zero > ~/far/fill");
    assert!(fill.err.contains("No space left"), "{fill:?}");
    kill(store.pid_a());
    let killed = Instant::now();
    store.client.types("rm ~/far/fill");
    assert!(killed.elapsed() < GOES_ON, "{:?}", killed.elapsed());
    until("there is room again", || tried(&store.client, "echo new > ~/far/new").code == Some(0));
    let all = store.client.types("cd ~/far/d && for i in $(seq 100); do cat $i; done").out;
    assert_eq!(all, (1..=100).map(|number| format!("{number}\n")).collect::<String>());
    store.serve_a();
    store.finish();
}
