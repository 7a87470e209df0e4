//! A volume and its mirror at another site, set up as README.md says: the site burns, a line is
//! cut, each end is killed, and the mirror has all changes that it has confirmed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::program::{run, until};
use crate::harness::volume::detach_all;
use crate::machines::hands::Hands;
use crate::machines::lab::{Lab, kill, pid_of};
use crate::machines::network::{Machine, tried};
use crate::machines::world::typed;

/// README's commands.
const KEEP: &str = "pelago serve ~/mirrors --mirrors --listen 127.0.0.1:7442 --detach";
const UP: &str = "pelago up ~/pelago --detach --passthrough never";
const ALLOW: &str = "pelago key allow $(pelago key show -V ~/pelago) -V ~/mirrors";
const MIRROR: &str =
    "pelago site mirror $(pelago key show -V ~/mirrors)@127.0.0.1:7442 -V ~/pelago";
const WAIT: &str = "pelago wait ~/pelago/files --level remote";
const PROMOTE: &str = "pelago site promote ~/mirrors/mirrors/* --force";

/// The longest time until all goes on after both ends and the line are back.
const BACK: Duration = Duration::from_secs(30);

/// The site of a volume, and the site of its mirror.
pub(super) struct Sites {
    pub(super) lab: Lab,
    pub(super) home: Machine,
    pub(super) there: Machine,
}

impl Sites {
    /// Returns both sites, with a mirror; `None` if this machine cannot have a network.
    pub(super) fn new() -> Option<Self> {
        Self::on(&[])
    }

    /// Does the same as [`Self::new`], but first runs these commands at the site of the mirror.
    fn on(before: &[&str]) -> Option<Self> {
        let lab = Lab::new()?;
        let home = lab.machine(1, "home");
        let there = lab.machine(2, "there");
        let sites = Self { lab, home, there };
        before.iter().for_each(|line| drop(sites.there.types(line)));
        sites.keep();
        sites.up();
        let key = sites.home.types("pelago key show -V ~/pelago").out;
        let allow = typed(ALLOW).replace("$(pelago key show -V ~/pelago)", key.trim());
        sites.there.types(&allow);
        sites.home.types(&sites.mirror_line());
        Some(sites)
    }

    fn mirror_line(&self) -> String {
        let key = self.there.types("pelago key show -V ~/mirrors").out;
        let line = typed(MIRROR).replace("$(pelago key show -V ~/mirrors)", key.trim());
        line.replace("127.0.0.1", &self.there.address)
    }

    pub(super) fn keep(&self) {
        self.there.types(&typed(KEEP).replace("127.0.0.1", &self.there.address));
        self.lab.ends(self.keeper());
    }

    pub(super) fn up(&self) {
        self.home.types(typed(UP));
        self.lab.ends(self.primary());
    }

    pub(super) fn primary(&self) -> Pid {
        pid_of(&self.home.types("pelago status ~/pelago --json").json())
    }

    pub(super) fn keeper(&self) -> Pid {
        pid_of(&self.there.types("pelago status ~/mirrors --json").json())
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.home.home.join("pelago/files")
    }

    pub(super) fn wait(&self) {
        self.home.types(typed(WAIT));
    }

    /// Returns the state of the mirror that the primary reports.
    fn mirror(&self) -> Value {
        self.home.types("pelago status ~/pelago --json --timeout 100").json()["mirror"].clone()
    }

    /// Returns the path of the mirror.
    pub(super) fn image(&self) -> PathBuf {
        let mut found = fs::read_dir(self.there.home.join("mirrors/mirrors")).unwrap();
        found.next().unwrap().unwrap().path()
    }

    /// Kills the primary as a fire would, promotes the mirror, checks and mounts it. Returns its
    /// tree.
    pub(super) fn burn(&self) -> PathBuf {
        kill(self.primary());
        self.promote()
    }

    /// Promotes the mirror, checks and mounts it. Returns its tree.
    pub(super) fn promote(&self) -> PathBuf {
        let promoted = self.there.types(typed(PROMOTE)).out;
        assert!(promoted.contains("reign 2"), "{promoted}");
        let image = self.image();
        let checked = self.there.types(&format!("pelago check {} --json", image.display()));
        assert_eq!(checked.json()["whole"], true, "{checked:?}");
        self.there.types(&format!("pelago up {} --detach", image.display()));
        let status = self.there.types(&format!("pelago status {} --json", image.display()));
        self.lab.ends(pid_of(&status.json()));
        image.join("files")
    }

    pub(super) fn logs_are_quiet(&self) {
        for log in [self.home.home.join("pelago/log"), self.there.home.join("mirrors/log")] {
            let text = fs::read_to_string(log).unwrap();
            assert!(!text.contains("panicked"), "{text}");
        }
    }
}

/// Returns the names of a tree with the sums of its files.
pub(super) fn sums(machine: &Machine, tree: &Path) -> BTreeMap<String, String> {
    let line =
        format!("cd {} && find . -type f -exec md5sum {{}} +; find . -type d", tree.display());
    let lines = tried(machine, &line).expect_success().out;
    lines.lines().map(|line| (line.to_owned(), String::new())).collect()
}

/// Returns the types, modes, link counts, sizes, times and inode numbers of all files in a tree.
pub(super) fn listed(machine: &Machine, tree: &Path) -> String {
    let list = "find . ! -name . -printf '%p %y %m %n %s %T@ %i\\n' | sort";
    tried(machine, &format!("cd {} && {list}", tree.display())).expect_success().out
}

#[test]
fn a_site_burns_and_the_mirror_has_what_was_waited_for() {
    let Some(sites) = Sites::new() else { return };
    let tree = sites.tree();
    let line = "cd ~/pelago/files && mkdir -p a/b && \
                for i in $(seq 200); do echo $i > a/$i; done && \
                head -c 3000000 /dev/urandom > a/b/large && ln a/7 a/b/linked && \
                mv a/8 a/b/moved && ln -s ../7 a/b/link && rm a/9 && cp a/b/large copied && \
                truncate -s 1000000 copied && pelago tag a/7 project=apollo && \
                truncate -s 20000000 sparse && \
                printf x | dd of=sparse bs=1 seek=15000000 conv=notrunc status=none";
    tried(&sites.home, line).expect_success();
    sites.wait();
    let before = sums(&sites.home, &tree);
    let listed_before = listed(&sites.home, &tree);
    assert_eq!(sites.mirror()["follows"], true, "{}", sites.mirror());
    let after = sites.burn();
    assert_eq!(sums(&sites.there, &after), before);
    assert_eq!(listed(&sites.there, &after), listed_before);
    let tagged = format!("pelago find project=apollo {}", after.display());
    assert_eq!(
        tried(&sites.there, &tagged).expect_success().out.lines().count(),
        2,
        "by both names"
    );
    // It can be changed, and no inode number of the site that burnt is given out again.
    let new = format!(
        "cd {} && echo new > new && stat -c %i new && stat -c %i a/b/large",
        after.display()
    );
    let numbers = tried(&sites.there, &new).expect_success().out;
    let numbers: Vec<u64> = numbers.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers[0] > numbers[1] + (1 << 29), "{numbers:?}");
    sites.logs_are_quiet();
}

#[test]
fn an_old_primary_that_comes_back_stops() {
    let Some(sites) = Sites::new() else { return };
    tried(&sites.home, "echo one > ~/pelago/files/one").expect_success();
    sites.wait();
    sites.burn();
    detach_all(&sites.home.home);
    sites.home.types(typed(UP));
    until("it has stopped", || {
        let status = tried(&sites.home, "pelago status ~/pelago --json").json();
        status["state"] == "down"
    });
    let again = tried(&sites.home, typed(UP));
    assert!(again.err.contains("is not the primary of its volume"), "{again:?}");
    assert!(fs::read_dir(sites.home.home.join("pelago/table")).unwrap().count() > 1, "it is kept");
    let log = fs::read_to_string(sites.home.home.join("pelago/log")).unwrap();
    assert!(log.contains("it is served here no more"), "{log}");
}

/// Each end is killed, and the line is cut, while a witness writes lines and waits: none of those
/// that were waited for is missing after the fire.
#[test]
fn kills_and_a_cut_lose_nothing_that_was_waited_for() {
    let Some(sites) = Sites::new() else { return };
    let mut waited = 0;
    for round in 0..4 {
        let mut hands = Hands::on(&sites.tree());
        hands.does(&format!("log lines-{round}"));
        for line in 0..40 {
            hands.does(&format!("add lines-{round} {line}"));
        }
        hands.does(&format!("make large-{round}"));
        hands.does(&format!("put-at large-{round} 100000 {round}"));
        match round {
            0 => {
                kill(sites.keeper());
                sites.keep();
            }
            1 => {
                sites.lab.network.cut(&sites.there);
                hands.does("log while-cut");
                hands.does("add while-cut on");
                // Only the clock ends this wait: it is longer than the connection lives in silence,
                // at either end, and the keeper does not report its end.
                thread::sleep(Duration::from_secs(5));
                sites.lab.network.join(&sites.there);
            }
            2 => {
                drop(hands);
                kill(sites.primary());
                detach_all(&sites.home.home);
                sites.up();
                hands = Hands::on(&sites.tree());
            }
            _ => {
                kill(sites.keeper());
                drop(hands);
                kill(sites.primary());
                detach_all(&sites.home.home);
                sites.up();
                sites.keep();
                hands = Hands::on(&sites.tree());
            }
        }
        let began = Instant::now();
        hands.does(&format!("log after-{round}"));
        hands.does(&format!("add after-{round} line"));
        sites.wait();
        assert!(began.elapsed() < BACK, "{:?}", began.elapsed());
        waited = round;
        drop(hands);
    }
    let tree = sites.tree();
    let before = sums(&sites.home, &tree);
    let after = sites.burn();
    assert_eq!(sums(&sites.there, &after), before);
    assert_eq!(waited, 3);
    sites.logs_are_quiet();
}

/// The mirror is killed at any moment while the primary works hard; after each the mirror is whole.
#[test]
fn a_mirror_that_is_killed_at_any_moment_is_whole() {
    let Some(sites) = Sites::new() else { return };
    sites.wait();
    let line = "cd ~/pelago/files && i=0; while [ ! -e stop ]; do i=$((i+1)); \
                head -c 300000 /dev/urandom > big$((i%20)); echo $i > small$i; \
                mv small$i moved$((i%50)); rm -f big$(((i+7)%20)); done";
    let mut working = sites.home.command("sh").args(["-c", line]).spawn().unwrap();
    for round in 0..6 {
        // Not a wait for a condition: each round kills the mirror at another moment of its work.
        thread::sleep(Duration::from_millis(150 + 90 * round));
        kill(sites.keeper());
        let image = sites.image();
        sites.keep();
        // A mirror is no volume to be served, and is opened by its keeper only.
        let served = tried(&sites.there, &format!("pelago up {} --detach", image.display()));
        assert!(served.err.contains("is not the primary of its volume"), "{served:?}");
    }
    tried(&sites.home, "touch ~/pelago/files/stop").expect_success();
    assert!(working.wait().unwrap().success());
    sites.wait();
    let before = sums(&sites.home, &sites.tree());
    let after = sites.burn();
    assert_eq!(sums(&sites.there, &after), before);
    sites.logs_are_quiet();
}

/// A stop of the primary waits for a silent mirror for a few seconds, and the mirror can be checked
/// once its keeper has stopped.
#[test]
fn a_silent_mirror_holds_no_stop_up() {
    let Some(sites) = Sites::new() else { return };
    tried(&sites.home, "echo one > ~/pelago/files/one").expect_success();
    sites.wait();
    let keeper = sites.keeper();
    kill_process(keeper, Signal::STOP).unwrap();
    tried(&sites.home, "head -c 3000000 /dev/urandom > ~/pelago/files/two").expect_success();
    let late = tried(&sites.home, "pelago wait ~/pelago/files --level remote --timeout 1");
    assert_eq!(late.code, Some(8), "{late:?}");
    let began = Instant::now();
    sites.home.types("pelago unmount -V ~/pelago --timeout 100");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    kill_process(keeper, Signal::CONT).unwrap();
    sites.up();
    sites.wait();
    sites.there.types("pelago unmount ~/mirrors");
    let image = sites.image();
    let checked = sites.there.types(&format!("pelago check {} --json", image.display()));
    assert_eq!(checked.json()["whole"], true, "{checked:?}");
    let repaired = tried(&sites.there, &format!("pelago check {} --apply", image.display()));
    assert!(repaired.err.contains("is not the primary of its volume"), "{repaired:?}");
    // Without its keeper too it is promoted.
    kill(sites.primary());
    sites.there.types(typed(PROMOTE));
    sites.there.types(&format!("pelago up {} --detach", image.display()));
    let status = sites.there.types(&format!("pelago status {} --json", image.display())).json();
    sites.lab.ends(pid_of(&status));
    let names = tried(&sites.there, &format!("ls {}", image.join("files").display()));
    assert_eq!(names.out, "one\ntwo\n");
}

/// A disk, until dropped.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _gone = run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// A group for which the mirror's disk has no room is refused whole: the state before it stays,
/// both sides say why, and it goes on once there is room.
#[test]
fn a_full_mirror_keeps_its_state_and_goes_on() {
    let small = "mkdir ~/mirrors && chmod 700 ~/mirrors && \
                 mount -t tmpfs -o size=200M,mode=700 none ~/mirrors";
    let Some(sites) = Sites::on(&[small]) else { return };
    let _disk = Disk(sites.there.home.join("mirrors"));
    tried(&sites.home, "echo one > ~/pelago/files/one").expect_success();
    sites.wait();
    // The mirror's table takes 75 MB: neither fits, in however many groups it comes.
    for bytes in [130_000_000, 150_000_000] {
        let fill = format!("head -c {bytes} /dev/urandom > ~/pelago/files/big");
        tried(&sites.home, &fill).expect_success();
        tried(&sites.home, "echo two > ~/pelago/files/two").expect_success();
        until("the mirror is full", || {
            let mirror = sites.mirror();
            let state = mirror["state"].as_str().unwrap();
            state.contains("room for a group") || state.contains("No space left")
        });
        let kept = sites.there.types("pelago status ~/mirrors").out;
        assert!(kept.contains("room for a group") || kept.contains("No space left"), "{kept}");
        tried(&sites.home, "rm ~/pelago/files/big").expect_success();
        sites.wait();
    }
    let fill = "head -c 150000000 /dev/urandom > ~/pelago/files/big && echo three > \
                ~/pelago/files/three";
    tried(&sites.home, fill).expect_success();
    until("the mirror is full again", || sites.mirror()["follows"] == false);
    let after = sites.burn();
    let names = tried(&sites.there, &format!("ls {}", after.display())).out;
    let names: Vec<&str> = names.lines().collect();
    // A group may have been cut while the large file was written.
    assert!(names.contains(&"one") && names.contains(&"two"), "{names:?}");
    assert!(!names.contains(&"three"), "what was done after it is not there: {names:?}");
}

/// A promotion while the primary works and is connected: the mirror is whole, has a state that the
/// primary had, and the primary stops.
#[test]
fn a_promotion_while_the_primary_works_stops_it() {
    let Some(sites) = Sites::new() else { return };
    sites.wait();
    let line = "cd ~/pelago/files && i=0; while i=$((i+1)); [ $i -lt 5000 ]; do \
                echo $i > f$i || exit 0; done";
    let mut working = sites.home.command("sh").args(["-c", line]).spawn().unwrap();
    until("the primary is in the middle of its work", || sites.tree().join("f100").exists());
    sites.there.types(typed(PROMOTE));
    until("the primary has stopped", || {
        tried(&sites.home, "pelago status ~/pelago --json").json()["state"] == "down"
    });
    working.kill().unwrap();
    working.wait().unwrap();
    let image = sites.image();
    let checked = sites.there.types(&format!("pelago check {} --json", image.display()));
    assert_eq!(checked.json()["whole"], true, "{checked:?}");
    sites.there.types(&format!("pelago up {} --detach", image.display()));
    let status = sites.there.types(&format!("pelago status {} --json", image.display())).json();
    sites.lab.ends(pid_of(&status));
    // A prefix of what was done.
    let names = tried(&sites.there, &format!("ls {}", image.join("files").display()));
    let mut numbers: Vec<u32> =
        names.expect_success().out.lines().map(|name| name[1..].parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
    sites.logs_are_quiet();
}

#[test]
fn what_cannot_be_a_mirror_is_refused_with_one_line() {
    let Some(sites) = Sites::new() else { return };
    let key = sites.there.types("pelago key show -V ~/mirrors").out;
    let key = key.trim();
    let set = |address: &str, volume: &str| {
        tried(&sites.home, &format!("pelago site mirror {address} -V {volume}"))
    };
    let other = format!("{key}@{}:7443", sites.there.address);
    let refused = set(&other, "~/pelago");
    assert!(refused.err.contains("has a mirror already"), "{refused:?}");
    // A volume with passthrough.
    sites.home.types("pelago up ~/second --detach");
    let status = sites.home.types("pelago status ~/second --json").json();
    sites.lab.ends(pid_of(&status));
    let at = format!("{key}@{}:7442", sites.there.address);
    let refused = set(&at, "~/second");
    assert!(refused.err.contains("--passthrough never"), "{refused:?}");
    // A volume whose server is not listed there, until it is.
    let third = "pelago up ~/third --detach --passthrough never";
    sites.home.types(third);
    let status = sites.home.types("pelago status ~/third --json").json();
    sites.lab.ends(pid_of(&status));
    let refused = set(&at, "~/third");
    assert!(refused.err.contains("pelago key allow"), "{refused:?}");
    let own = sites.home.types("pelago key show -V ~/third").out;
    sites.there.types(&format!("pelago key allow {} -V ~/mirrors --name third", own.trim()));
    set(&at, "~/third").expect_success();
    sites.home.types("pelago wait --level remote -V ~/third");
    let kept = sites.there.types("pelago status ~/mirrors --json").json();
    assert_eq!(kept["mirrors"].as_array().unwrap().len(), 2, "two volumes in one folder: {kept}");
    let waits = tried(&sites.home, "pelago wait --level remote -V ~/second");
    assert!(waits.err.contains("has no mirror"), "{waits:?}");
    // A server that is none of mirrors.
    let none = set(&format!("{key}@{}:9", sites.there.address), "~/second");
    assert_eq!(none.code, Some(1), "{none:?}");
    let mounts =
        tried(&sites.home, &format!("pelago key new; mkdir -p ~/m; pelago mount {at} ~/m"));
    assert!(mounts.err.contains("keeps mirrors only"), "{mounts:?}");
    // A mirror that is given up: what another machine keeps may be the next one.
    let stop = "pelago site mirror --stop -V ~/third";
    sites.home.types(stop);
    assert!(tried(&sites.home, stop).err.contains("has no mirror"));
    let status = sites.home.types("pelago status ~/third --json").json();
    assert_eq!(status["mirror"], Value::Null, "{status}");
    sites.home.types("echo more > ~/third/files/more");
    set(&at, "~/third").expect_success();
    sites.home.types("pelago wait --level remote -V ~/third");
    // A deadline.
    sites.lab.network.cut(&sites.there);
    tried(&sites.home, "echo more > ~/pelago/files/more").expect_success();
    let late = tried(&sites.home, "pelago wait ~/pelago/files --level remote --timeout 1");
    assert_eq!(late.code, Some(8), "{late:?}");
    sites.lab.network.join(&sites.there);
    sites.wait();
}

/// The site is left as planned, and taken up again: nothing is lost either way, and the mirror is
/// proved equal in between.
#[test]
fn a_volume_is_handed_over_and_comes_back() {
    let Some(sites) = Sites::new() else { return };
    let tree = sites.tree();
    tried(&sites.home, "cd ~/pelago/files && mkdir a && seq 100000 > a/large && echo x > a/small")
        .expect_success();
    sites.wait();
    let verified = sites.home.types("pelago verify ~/pelago/files").out;
    assert!(verified.starts_with("equal"), "{verified}");
    let busy = tried(&sites.home, "cd ~/pelago/files && pelago site promote -V ~/pelago");
    assert!(busy.err.contains("is in use"), "{busy:?}");
    tried(&sites.home, "echo last > ~/pelago/files/last").expect_success();
    let before = sums(&sites.home, &tree);
    let handed = sites.home.types("pelago site promote -V ~/pelago").out;
    assert!(handed.contains("reign 2"), "{handed}");
    let again = tried(&sites.home, typed(UP));
    assert!(again.err.contains("is not the primary of its volume"), "{again:?}");

    let image = sites.image();
    let line = format!("pelago up {} --detach --passthrough never", image.display());
    sites.there.types(&line);
    let status = sites.there.types(&format!("pelago status {} --json", image.display()));
    sites.lab.ends(pid_of(&status.json()));
    assert_eq!(sums(&sites.there, &image.join("files")), before);
    tried(&sites.there, &format!("echo there > {}/files/there", image.display())).expect_success();

    // The way back: the first site keeps the mirror now.
    sites.home.types(&typed(KEEP).replace("127.0.0.1", &sites.home.address));
    sites.lab.ends(pid_of(&sites.home.types("pelago status ~/mirrors --json").json()));
    let key = sites.there.types(&format!("pelago key show -V {}", image.display())).out;
    sites.home.types(&format!("pelago key allow {} -V ~/mirrors", key.trim()));
    let keeper = sites.home.types("pelago key show -V ~/mirrors").out;
    let at = format!("{}@{}:7442", keeper.trim(), sites.home.address);
    sites.there.types(&format!("pelago site mirror {at} -V {}", image.display()));
    sites.there.types(&format!("pelago wait {}/files --level remote", image.display()));
    let after = sums(&sites.there, &image.join("files"));
    let handed = sites.there.types(&format!("pelago site promote -V {}", image.display())).out;
    assert!(handed.contains("reign 3"), "{handed}");
    sites.home.types("pelago up ~/mirrors/mirrors/* --detach");
    let status = sites.home.types("pelago status ~/mirrors/mirrors/* --json");
    sites.lab.ends(pid_of(&status.json()));
    let back = fs::read_dir(sites.home.home.join("mirrors/mirrors")).unwrap();
    let back = back.last().unwrap().unwrap().path();
    assert_eq!(sums(&sites.home, &back.join("files")), after);
    sites.logs_are_quiet();
}

/// `fsync` of level *remote* is at the mirror when it returns, and goes on while the line is cut.
#[test]
fn what_a_program_has_synced_at_level_remote_is_at_the_mirror() {
    let Some(sites) = Sites::new() else { return };
    sites.wait();
    sites.home.types("setfattr -n user.pelago.level -v remote ~/pelago/files");
    let sync = |name: &str| {
        format!(
            "dd if=/dev/zero of=$HOME/pelago/files/{name} bs=64k count=4 conv=fsync status=none"
        )
    };
    sites.home.types(&sync("before"));
    let level = sites.home.types("pelago status ~/pelago").out;
    assert!(level.contains("level     remote\n"), "{level}");
    kill(sites.keeper());
    sites.home.types(&sync("cut"));
    let level = sites.home.types("pelago status ~/pelago").out;
    assert!(
        level.contains("the mirror is cut off, so fsync of level network or remote goes on"),
        "{level}"
    );
    sites.home.types("pelago wait ~/pelago/files --level local");
    let waits = tried(&sites.home, "pelago wait ~/pelago/files --level remote --timeout 1");
    assert!(waits.err.contains("does not have all"), "{waits:?}");
    sites.keep();
    sites.wait();
    sites.home.types(&sync("after"));
    kill(sites.primary());
    let tree = sites.promote();
    for name in ["before", "cut", "after"] {
        assert_eq!(fs::metadata(tree.join(name)).unwrap().len(), 256 << 10, "{name}");
    }
}

/// The groups travel in datagrams, also after the mirror was killed.
#[test]
fn a_mirror_gets_its_groups_in_datagrams() {
    let Some(sites) = Sites::new() else { return };
    sites.home.types("pelago unmount -V ~/pelago");
    sites.home.types("pelago up ~/pelago --detach --passthrough never --repair auto");
    sites.lab.ends(sites.primary());
    tried(
        &sites.home,
        "cd ~/pelago/files && seq 200000 > large && for i in $(seq 50); do echo $i > $i; done",
    )
    .expect_success();
    sites.wait();
    let link = sites.mirror()["link"].as_str().unwrap().to_owned();
    assert!(link.contains("packets"), "{link}");
    assert!(sites.mirror()["datagrams"]["data"].as_u64() > Some(0), "{}", sites.mirror());
    let of_file = sites.home.types("pelago verify ~/pelago/files/large").out;
    assert!(of_file.starts_with("equal     1 files"), "{of_file}");
    assert!(sites.mirror()["verified"].is_null(), "only that file was compared");
    let verified = sites.home.types("pelago verify ~/pelago/files").out;
    assert!(verified.starts_with("equal"), "{verified}");
    assert_eq!(sites.mirror()["verified"]["differences"], 0);
    kill(sites.keeper());
    sites.keep();
    tried(&sites.home, "echo more > ~/pelago/files/more").expect_success();
    sites.wait();
    let before = sums(&sites.home, &sites.tree());
    assert_eq!(sums(&sites.there, &sites.burn()), before);
    sites.logs_are_quiet();
}

/// A revocation is at the mirror when the command ends, or the command says that it is not.
#[test]
fn a_revocation_is_at_the_mirror_or_a_line_says_that_it_is_not() {
    const NOT_YET: &str = "not yet   at the mirror";
    let Some(sites) = Sites::new() else { return };
    sites.home.types("pelago key new");
    let guest = "pelago key new --path ~/guest && touch ~/pelago/files/shared && \
                 pelago share ~/pelago/files/shared --to $(pelago key show --path ~/guest) \
                 > ~/cred";
    sites.home.types(guest);
    sites.wait();
    let revoke = |number: usize| {
        let line = format!(
            "pelago key new --path ~/key{number} && \
             pelago revoke $(pelago key show --path ~/key{number}) -V ~/pelago"
        );
        tried(&sites.home, &line).expect_success()
    };
    let revoked = revoke(1);
    assert!(revoked.out.contains("revoked   ") && revoked.err.is_empty(), "{revoked:?}");
    assert_eq!(sites.mirror()["bytes_at_risk"], 0);
    kill(sites.keeper());
    let revoked = revoke(2);
    assert_eq!(revoked.err.lines().count(), 1, "{revoked:?}");
    assert!(revoked.err.starts_with(NOT_YET), "{revoked:?}");
    sites.keep();
    sites.wait();
    assert_eq!(revoke(3).err, "");
    sites.home.types("pelago site mirror --stop -V ~/pelago");
    assert_eq!(revoke(4).err, "", "it has no mirror");
}
