//! Work of two offices and a machine of one of them in the same folders, while servers and the
//! machine's mount are killed and the line is cut: nothing that was answered is lost, no byte is
//! wrong, and nothing hangs.
//!
//! `PELAGO_SOAK_SECONDS` sets how long the faults go on, by default 60.
//!
//! The contents of files follow from their numbers, so that each can be checked without a copy.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::harness::program::until;
use crate::machines::lab::{kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};
use crate::two_offices::office::Offices;

const SECONDS: u64 = 60;
/// The work between two faults.
const BETWEEN: Duration = Duration::from_secs(3);
/// A cut that ends no lease, one that ends all, and a long one.
const SHORT_CUT: Duration = Duration::from_secs(3);
const CUT: Duration = Duration::from_secs(12);
const LONG_CUT: Duration = Duration::from_secs(60);
/// The faults of which one is the long cut: more than there are in a minute.
const LONG_CUT_EACH: u64 = 15;
/// The longest time of a call: a change may wait for a lease of an office that is cut off, and then
/// for an answer.
const LONGEST_CALL: f64 = 40.0;

/// The bytes of a file, which follow from its number.
const CONTENT: &str = r#"
sub content { my $n = $_[0]; return "$n " x (1 + $n * 7919 % 30_000); }
"#;

/// Makes, renames and removes files of its own in each folder until it is told to stop. It says
/// what it is about to do to a name, and what was answered: the first letter of a line is `?` if
/// the outcome is in doubt, `+` if the name is there, `-` if it is not.
const WORKER: &str = r#"
use Fcntl; use Time::HiRes qw(time sleep);
$| = 1;
my ($root, $who, $stop, @folders) = @ARGV;
my $n = 0;
my ($slow, $what) = (0, "");
sub timed {
    my ($name, $call) = @_;
    my $began = time();
    my $done = $call->();
    my $took = time() - $began;
    ($slow, $what) = ($took, $name) if $took > $slow;
    return $done;
}
sub written {
    my ($path, $bytes) = @_;
    sysopen(my $file, $path, O_WRONLY|O_CREAT|O_EXCL, 0644) or return 0;
    for (my $at = 0; $at < length($bytes);) {
        my $count = syswrite($file, $bytes, 70_000, $at);
        if (!defined($count)) { close($file); return 0; }
        $at += $count;
    }
    return close($file);
}
while (!-e $stop) {
    # All files are read from each place in the end.
    sleep(0.03);
    $n++;
    my $folder = $folders[$n % @folders];
    my $name = "$folder/$who.$n";
    print "? $name\n";
    if (!timed("write", sub { written("$root/$name", content($n)) })) { sleep(0.2); next; }
    print "+ $name\n";
    my $last = $name;
    if ($n % 3 == 0) {
        print "? $name\n? $name.moved\n";
        if (!timed("rename", sub { rename("$root/$name", "$root/$name.moved") })) {
            sleep(0.2);
            next;
        }
        print "- $name\n+ $name.moved\n";
        $last = "$name.moved";
    }
    if ($n % 4 == 0) {
        print "? $last\n";
        if (!timed("unlink", sub { unlink("$root/$last") })) { sleep(0.2); next; }
        print "- $last\n";
    }
}
print "slowest $slow $what\n";
"#;

/// Replaces a large file again and again.
const WRITER: &str = r#"
use Fcntl; use Time::HiRes qw(sleep);
my ($root, $stop, $name) = @ARGV;
for (my $n = 0; !-e $stop; $n++) {
    my $bytes = sprintf("%08d", $n % 100_000_000) x 500_000;
    unlink("$root/$name.new");
    if (open(my $file, ">", "$root/$name.new")) {
        my $is_written = print $file $bytes;
        rename("$root/$name.new", "$root/$name") if close($file) && $is_written;
    }
    sleep(0.5);
}
"#;

/// Reads that file again and again: all of it is of one version, and no version is followed by an
/// older one. Says how often it was read whole, and what was wrong.
const READER: &str = r#"
use Time::HiRes qw(sleep);
my ($root, $stop, $name) = @ARGV;
my ($whole, $last) = (0, 0);
while (!-e $stop) {
    sleep(0.1);
    open(my $file, "<", "$root/$name") or next;
    my ($bytes, $failed) = ("", 0);
    while (1) {
        my $count = sysread($file, $bytes, 131_072, length($bytes));
        if (!defined($count)) { $failed = 1; last; }
        last if $count == 0;
    }
    close($file);
    next if $failed;
    my $first = substr($bytes, 0, 8);
    if ($bytes ne $first x 500_000) { print "wrong: ", length($bytes), " bytes of $first\n"; }
    print "wrong: $first after $last\n" if $first < $last;
    $last = $first;
    $whole++;
}
print "whole $whole\n";
"#;

/// Prints each name in the folders, and `whole` or `other` for its bytes.
const LOOK: &str = r#"
my ($root, @folders) = @ARGV;
for my $folder (@folders) {
    opendir(my $dir, "$root/$folder") or die("$folder: $!");
    for my $name (readdir($dir)) {
        next if $name !~ /^\w+\.(\d+)(\.moved)?$/;
        my $n = $1;
        open(my $file, "<", "$root/$folder/$name") or die("$folder/$name: $!");
        local $/;
        my $is_whole = (<$file> // "") eq content($n);
        print "$folder/$name ", ($is_whole ? "whole" : "other"), "\n";
    }
}
"#;

/// Files that each worker makes at least.
const LEAST: usize = 30;

/// A folder of each office.
const FOLDERS: [&str; 2] = ["common", "theirs"];

/// The expected state of a name in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    There,
    Gone,
    InDoubt,
}

/// A program, and the file that has what it says.
struct Worker<'a> {
    machine: &'a Machine,
    log: &'static str,
    child: Child,
}

impl<'a> Worker<'a> {
    fn start(
        machine: &'a Machine,
        log: &'static str,
        script: &str,
        root: &str,
        words: &[&str],
    ) -> Self {
        let said = File::create(machine.home.join(log)).unwrap();
        let root = machine.home.join(root);
        let stop = machine.home.join("stop");
        let mut command = machine.command("perl");
        command.arg("-e").arg(format!("{CONTENT}{script}")).arg(root);
        match script == WORKER {
            true => command.arg(words[0]).arg(stop).args(&words[1..]),
            false => command.arg(stop).args(words),
        };
        let child = command.stdout(Stdio::from(said)).spawn().unwrap();
        Self { machine, log, child }
    }

    /// Waits for its end, and returns what it has said.
    fn ended(mut self) -> String {
        until("a program ends", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success(), "{}", self.log);
        fs::read_to_string(self.machine.home.join(self.log)).unwrap()
    }
}

/// The offices, and a machine with a mount of the second one.
struct World {
    offices: Offices,
    laptop: Machine,
    mount: String,
}

impl World {
    fn new(time: Duration) -> Option<Self> {
        // The last fault may be the long cut.
        let offices = Offices::lasting(time + LONG_CUT)?;
        offices.first.types("mkdir ~/pelago/files/common");
        offices.berlin.types("mkdir ~/berlin/files/theirs");
        let laptop = offices.lab.machine(3, "laptop");
        laptop.types("pelago key new && mkdir ~/far");
        let key = laptop.types("pelago key show").out;
        offices.berlin.types(&format!("pelago key allow {} -V ~/berlin", key.trim()));
        let server = offices.berlin.types("pelago key show -V ~/berlin").out;
        let at = format!("{}@{}:7441", server.trim(), offices.berlin.address);
        let world = Self { offices, laptop, mount: format!("pelago mount {at} ~/far --detach") };
        world.mounts();
        Some(world)
    }

    fn mounts(&self) {
        self.laptop.types(&self.mount);
        self.offices.lab.ends(self.mount_pid());
    }

    fn mount_pid(&self) -> rustix::process::Pid {
        pid_of(&self.laptop.types("pelago status ~/far --json --timeout 100").json())
    }

    fn cuts(&self, time: Duration) {
        self.offices.lab.network.cut(&self.offices.first);
        std::thread::sleep(time);
        self.offices.lab.network.join(&self.offices.first);
    }

    /// Does one of the faults, and undoes it.
    fn disturb(&self, number: u64) {
        let Offices { first, berlin, .. } = &self.offices;
        match number % LONG_CUT_EACH {
            0 | 10 => self.cuts(CUT),
            1 | 6 | 11 => {
                kill(lock_holder(&berlin.home.join("berlin")));
                self.offices.up_there();
            }
            2 | 7 | 12 => {
                kill(self.mount_pid());
                self.mounts();
            }
            3 | 8 | 13 => {
                kill(lock_holder(&first.home.join("pelago")));
                self.offices.up();
            }
            14 => self.cuts(LONG_CUT),
            _ => self.cuts(SHORT_CUT),
        }
    }

    /// The three places from which the tree is seen.
    fn places(&self) -> [(&Machine, &'static str); 3] {
        let Offices { first, berlin, .. } = &self.offices;
        [(first, "pelago/files"), (berlin, "berlin/files"), (&self.laptop, "far")]
    }
}

/// Reads what a worker has said of each name.
fn fates(said: &str) -> BTreeMap<String, Fate> {
    let mut fates = BTreeMap::new();
    for line in said.lines() {
        let fate = match line.split_at(2) {
            ("? ", name) => (name, Fate::InDoubt),
            ("+ ", name) => (name, Fate::There),
            ("- ", name) => (name, Fate::Gone),
            _ => continue,
        };
        fates.insert(fate.0.to_owned(), fate.1);
    }
    fates
}

/// Returns the longest time of a call of a worker, in seconds.
fn slowest(said: &str) -> f64 {
    let line = said.lines().last().unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn nothing_that_was_answered_is_lost() {
    let seconds = std::env::var("PELAGO_SOAK_SECONDS").ok().and_then(|it| it.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let Some(world) = World::new(time) else { return };
    let end = Instant::now() + time;
    let [first, berlin, laptop] = world.places();
    let mut workers = Vec::new();
    for ((machine, root), who) in [first, berlin, laptop].into_iter().zip(["a", "b", "c"]) {
        let words = [who, FOLDERS[0], FOLDERS[1]];
        workers.push(Worker::start(machine, "worker.log", WORKER, root, &words));
    }
    let copies = [(first, berlin, "large-a"), (berlin, first, "large-b")];
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for ((machine, root), (other, other_root), name) in copies {
        let path = format!("{}/{name}", if name == "large-a" { FOLDERS[0] } else { FOLDERS[1] });
        writers.push(Worker::start(machine, "writer.log", WRITER, root, &[&path]));
        readers.push(Worker::start(other, "reader.log", READER, other_root, &[&path]));
    }
    let mut fault = 0;
    while Instant::now() < end {
        std::thread::sleep(BETWEEN);
        world.disturb(fault);
        fault += 1;
    }
    for (machine, root) in world.places() {
        until("all see the tree again", || {
            FOLDERS.iter().all(|dir| tried(machine, &format!("ls ~/{root}/{dir}")).code == Some(0))
        });
        fs::write(machine.home.join("stop"), "").unwrap();
    }
    writers.into_iter().for_each(|writer| drop(writer.ended()));
    for reader in readers {
        let said = reader.ended();
        assert!(!said.contains("wrong"), "{said}");
        println!("a large file was read {said}");
        assert!(!said.contains("whole 0\n"), "it was never read");
    }
    let mut expected = BTreeMap::new();
    for worker in workers {
        let said = worker.ended();
        assert!(slowest(&said) < LONGEST_CALL, "{}", said.lines().last().unwrap());
        let fates = fates(&said);
        let there = fates.values().filter(|it| **it == Fate::There).count();
        assert!(there >= LEAST, "a worker made {there} files");
        expected.extend(fates);
    }
    let count = |fate| expected.values().filter(|it| **it == fate).count();
    println!(
        "{fault} faults; {} files are there, {} were removed, {} are in doubt",
        count(Fate::There),
        count(Fate::Gone),
        count(Fate::InDoubt)
    );
    for (machine, root) in world.places() {
        let mut look = machine.command("perl");
        look.arg("-e").arg(format!("{CONTENT}{LOOK}")).arg(machine.home.join(root)).args(FOLDERS);
        let seen = crate::harness::program::run(&mut look).expect_success().out;
        let seen: BTreeMap<&str, &str> =
            seen.lines().map(|it| it.split_once(' ').unwrap()).collect();
        for (name, fate) in &expected {
            match (fate, seen.get(name.as_str())) {
                (Fate::There, Some(&"whole")) | (Fate::Gone, None) | (Fate::InDoubt, _) => {}
                (fate, found) => panic!("{root}: {name} is {found:?}, and was answered: {fate:?}"),
            }
        }
        let unknown = seen.keys().find(|name| !expected.contains_key(**name));
        assert_eq!(unknown, None, "nobody has made it");
    }
    world.laptop.types("pelago unmount ~/far --timeout 100");
    world.offices.finish();
}
