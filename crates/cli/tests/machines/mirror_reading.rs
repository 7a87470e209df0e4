//! A mirror that is mounted on its machine before it is promoted.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::mirror::{Sites, listed, sums};
use crate::harness::program::until;
use crate::harness::volume::detach_all;
use crate::machines::lab::{kill, pid_of};
use crate::machines::network::tried;

/// The longest time for which a mount that does not answer holds up a group, and some more: its
/// leases end after ten seconds.
const HELD_UP: Duration = Duration::from_secs(20);

/// A mount of a mirror.
struct Mounted {
    sites: Sites,
    point: PathBuf,
    pid: Pid,
}

impl Mounted {
    /// Mounts the mirror of a volume for which this was typed; `None` if this machine cannot have a
    /// network.
    fn after(line: &str) -> Option<Self> {
        let sites = Sites::new()?;
        tried(&sites.home, &format!("cd ~/pelago/files && {line}")).expect_success();
        sites.wait();
        let point = sites.there.home.join("read");
        fs::create_dir(&point).unwrap();
        let image = sites.image();
        let mount = format!("pelago mount {} {}", image.display(), point.display());
        sites.there.types(&format!("{mount} --read-only --detach"));
        let status = format!("pelago status {} --json", point.display());
        let pid = pid_of(&sites.there.types(&status).json());
        sites.lab.ends(pid);
        Some(Self { sites, point, pid })
    }

    /// Changes the volume, and waits until the mirror has the change.
    fn change(&self, line: &str) {
        tried(&self.sites.home, &format!("cd ~/pelago/files && {line}")).expect_success();
        self.sites.wait();
    }

    /// Waits until the mount shows what the volume has.
    fn shows(&self, what: &str) {
        let home = sums(&self.sites.home, &self.sites.tree());
        until(what, || sums(&self.sites.there, &self.point) == home);
    }
}

/// The mount outlives the process that keeps the mirror, and the promotion.
#[test]
fn a_mounted_mirror_shows_each_group() {
    let line = "mkdir -p a/b && echo one > a/b/f && ln -s b/f a/soft && \
                head -c 1000000 /dev/urandom > large && pelago tag a/b/f project=apollo";
    let Some(mounted) = Mounted::after(line) else { return };
    mounted.shows("the mirror");
    let Mounted { sites, point, .. } = &mounted;
    let image = sites.image();
    let refused = format!("pelago mount {} {}", image.display(), image.display());
    let refused = tried(&sites.there, &refused);
    assert!(refused.err.contains("mount it with `--read-only`"), "{refused:?}");
    for refused in ["up", "check"] {
        let refused = tried(&sites.there, &format!("pelago {refused} {}", image.display()));
        assert_ne!(refused.code, Some(0), "{refused:?}");
    }
    assert_eq!(listed(&sites.there, point), listed(&sites.home, &sites.tree()));
    let tagged = format!("ls {}/.find/project=apollo/", point.display());
    assert_eq!(tried(&sites.there, &tagged).expect_success().out.lines().count(), 1);
    let written = tried(&sites.there, &format!("touch {}/new", point.display()));
    assert!(written.err.contains("Read-only file system"), "{written:?}");
    let keeper = sites.there.types("pelago status ~/mirrors --json").json();
    assert_eq!(keeper["mirrors"][0]["readers"], 1, "{keeper}");
    // What the kernel has cached is moved, replaced and removed.
    mounted.change("mkdir c && mv a/b c/b && mv c a/b && rm large && echo two > a/b/b/f");
    mounted.shows("the next group");
    kill(sites.keeper());
    sites.keep();
    mounted.change("echo three > large");
    mounted.shows("what came after the kill");
    let before = sums(&sites.home, &sites.tree());
    let after = sites.burn();
    assert_eq!(sums(&sites.there, &after), before);
    assert_eq!(sums(&sites.there, point), before, "the mount goes on");
    let line = format!("echo five > {}/five", after.display());
    tried(&sites.there, &line).expect_success();
    let line = format!("cat {}/five", point.display());
    assert_eq!(tried(&sites.there, &line).expect_success().out, "five\n");
    sites.there.types(&format!("pelago unmount {}", point.display()));
    sites.logs_are_quiet();
}

#[test]
fn a_file_that_a_group_removes_is_read_to_its_end() {
    let line = "head -c 3000000 /dev/zero | tr '\\0' x > large && echo small > small";
    let Some(mounted) = Mounted::after(line) else { return };
    let mut large = File::open(mounted.point.join("large")).unwrap();
    let mut small = File::open(mounted.point.join("small")).unwrap();
    let mut bytes = vec![0; 10_000];
    large.read_exact(&mut bytes).unwrap();
    mounted.change("rm large small && echo other > small");
    mounted.shows("that the file is gone");
    large.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 3_000_000);
    assert!(bytes.iter().all(|byte| *byte == b'x'));
    assert_eq!(large.metadata().unwrap().len(), 3_000_000);
    let mut text = String::new();
    small.read_to_string(&mut text).unwrap();
    assert_eq!(text, "small\n");
    drop((large, small));
    // The primary compares all, and the mount stays.
    kill(mounted.sites.primary());
    detach_all(&mounted.sites.home.home);
    mounted.sites.up();
    mounted.change("echo again > again && mv small moved");
    mounted.shows("what came after the comparison");
    mounted.sites.logs_are_quiet();
}

#[test]
fn a_mount_that_does_not_answer_holds_a_group_up_for_a_term() {
    let Some(mounted) = Mounted::after("echo one > file && mkdir dir") else { return };
    mounted.shows("the mirror");
    kill_process(mounted.pid, Signal::STOP).unwrap();
    let began = Instant::now();
    mounted.change("echo two > file");
    // This one is taken after the first one is carried out.
    mounted.change("echo three > file && rmdir dir");
    let waited = began.elapsed();
    kill_process(mounted.pid, Signal::CONT).unwrap();
    assert!(waited < HELD_UP, "{waited:?}");
    mounted.shows("what came meanwhile");
    mounted.sites.logs_are_quiet();
}
