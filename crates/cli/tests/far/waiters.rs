//! Programs that wait for a server that does not answer can be killed, in whatever operation, and
//! what they asked for is done once or never.
//!
//! Each program of [`PROGRAM`] prepares one operation, and begins it once nothing answers: the
//! server is stopped, or the network is cut, or the disk hangs. All that wait get SIGKILL and must
//! be gone, before anything answers again. Afterwards all mounts must show the same files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pelago_lossfs::{Lossfs, Model};
use pelago_random::{Random, bytes_of};
use rustix::process::{Pid, Signal, kill_process};

use crate::far::forwarder::Forwarder;
use crate::far::stop;
use crate::far::world::World;
use crate::harness::program::until;
use crate::harness::programs::{Program, locker};
use crate::harness::volume::cannot_mount;

/// Prepares an operation in a folder, says so, and begins it at a line. Numbers of system calls are
/// those of x86_64.
const PROGRAM: &str = r#"
use Fcntl;
use POSIX ();
$| = 1;
$SIG{USR1} = sub {};
my ($op, $dir) = split(/ /, $ARGV[0], 2);
chdir($dir) or die "chdir: $!";
my ($file, $other, $list);
my $buffer = "\0" x 4096;
# A system call may not get constants.
my ($f, $key, $value, $here) = ("f", "user.k", "v", ".");
sub opened { sysopen($file, $_[0], $_[1], 0644) or die "$op: open: $!"; }
sub lock_of { return pack("ssx4qqix4", $_[0], 0, 0, 0, 0); }
my %prepare = (
    getattr => sub { opened("f", O_RDONLY) }, read => sub { opened("f", O_RDONLY) },
    map => sub { opened("f", O_RDONLY) }, seek => sub { opened("f", O_RDONLY) },
    write => sub { opened("f", O_WRONLY) }, append => sub { opened("f", O_WRONLY | O_APPEND) },
    ftruncate => sub { opened("f", O_RDWR) }, fallocate => sub { opened("f", O_RDWR) },
    lock => sub { opened("f", O_RDWR) }, getlock => sub { opened("f", O_RDWR) },
    flock => sub { opened("f", O_RDWR) },
    copy => sub { opened("f", O_RDONLY); sysopen($other, "g", O_WRONLY) or die; },
    readdir => sub { opendir($list, ".") or die }, fsyncdir => sub { opened(".", O_RDONLY) },
    removexattr => sub { syscall(188, $f, $key, $value, 1, 0) == 0 or die "setxattr: $!" },
);
for my $with ("close", "fsync", "exit", "killed") {
    $prepare{$with} = sub { opened("f", O_WRONLY); syswrite($file, "new") == 3 or die "$!" };
}
my %act = (
    lookup => sub { stat("absent") }, getattr => sub { stat($file) },
    chmod => sub { chmod(0600, "f") },
    truncate => sub { truncate("f", 3) }, ftruncate => sub { truncate($file, 3) },
    utime => sub { utime(1, 2, "f") },
    open => sub { open($other, "<", "f") }, overwrite => sub { open($other, ">", "f") },
    create => sub { sysopen($other, "made", O_RDWR | O_CREAT) },
    exclusive => sub { sysopen($other, "made", O_RDWR | O_CREAT | O_EXCL) },
    tmpfile => sub { sysopen($other, ".", O_RDWR | 020200000) },
    read => sub { sysread($file, $buffer, 4096) },
    map => sub {
        my $at = syscall(9, 0, 4096, 1, 1, fileno($file), 0);
        pipe(my $from, my $to);
        syscall(1, fileno($to), $at, 1);
    },
    write => sub { syswrite($file, "new") }, append => sub { syswrite($file, "+") },
    readdir => sub { readdir($list) }, opendir => sub { opendir($list, ".") && readdir($list) },
    close => sub { close($file) }, fsync => sub { syscall(74, fileno($file)) == 0 },
    fsyncdir => sub { syscall(74, fileno($file)) == 0 },
    exit => sub { POSIX::_exit(0) }, killed => sub { sleep(600) },
    getxattr => sub { syscall(191, $f, $key, $buffer, 100) },
    setxattr => sub { syscall(188, $f, $key, $value, 1, 0) == 0 },
    listxattr => sub { syscall(194, $f, $buffer, 100) },
    removexattr => sub { syscall(197, $f, $key) == 0 },
    link => sub { link("f", "made") }, symlink => sub { symlink("f", "made") },
    readlink => sub { readlink("to") }, mkdir => sub { mkdir("made") },
    mkfifo => sub { POSIX::mkfifo("made", 0644) }, rmdir => sub { rmdir("sub") },
    unlink => sub { unlink("f") }, rename => sub { rename("f", "made") },
    replace => sub { rename("f", "g") },
    lock => sub { fcntl($file, 7, lock_of(1)) },
    getlock => sub { fcntl($file, 5, my $it = lock_of(1)) },
    flock => sub { flock($file, 2) }, statfs => sub { syscall(137, $here, $buffer) == 0 },
    seek => sub { syscall(8, fileno($file), 0, 4) },
    copy => sub { syscall(326, fileno($file), 0, fileno($other), 0, 1000, 0) },
    fallocate => sub { syscall(285, fileno($file), 0, 0, 40000) == 0 },
    find => sub { opendir($list, ".find/name:f") && readdir($list) },
);
if ($op eq "?") { print join(" ", sort keys %act), "\n"; exit; }
$prepare{$op}->() if $prepare{$op};
# Names that are under a lease are not looked up again.
if ($op ne "lookup") { lstat($_) for ("f", "g", "to", "sub", "made") }
print "ready\n";
<STDIN>;
my $done = $act{$op}->();
print $done ? "yes\n" : "no, " . ($! + 0) . "\n";
<STDIN>;
"#;

/// A program that has begun, or is about to begin, an operation.
struct Asker {
    operation: String,
    program: Program,
    /// Where it is in the kernel.
    waits_in: Option<String>,
}

impl Asker {
    /// Returns one that is ready.
    fn ready(root: &Path, operation: &str) -> Self {
        let dir = root.join(operation);
        let program = Program::perl(PROGRAM, format!("{operation} {}", dir.display()));
        assert_eq!(program.hear(), "ready", "{operation}");
        Self { operation: operation.to_owned(), program, waits_in: None }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.program.id() as i32).unwrap()
    }

    /// Returns the function of the file system in which the kernel waits for the mount, if it does.
    fn place(&self) -> Option<String> {
        let stack = fs::read_to_string(format!("/proc/{}/stack", self.program.id())).ok()?;
        let names = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
        let names = names.map(|name| name.split('+').next().unwrap_or_default().to_owned());
        let names: Vec<String> = names.collect();
        let at = names.iter().position(|name| name.contains("request_wait_answer"))?;
        let is_plain = |name: &&String| !name.contains("request");
        names[at..].iter().find(is_plain).cloned().or_else(|| Some("fuse".to_owned()))
    }

    /// Returns whether it has ended.
    fn is_gone(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.program.id()));
        let state = stat
            .ok()
            .and_then(|stat| stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next()));
        matches!(state, None | Some('Z' | 'X'))
    }
}

/// Returns all operations.
fn operations() -> Vec<String> {
    let program = Program::perl(PROGRAM, "? .");
    program.hear().split(' ').map(str::to_owned).collect()
}

/// Makes a folder with the files that each operation needs.
fn prepare(root: &Path, operations: &[String]) {
    for (number, operation) in operations.iter().enumerate() {
        let dir = root.join(operation);
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("f"), bytes_of(number as u64, 30_000)).unwrap();
        fs::write(dir.join("g"), "the other").unwrap();
        std::os::unix::fs::symlink("f", dir.join("to")).unwrap();
    }
}

/// Opens the files for writing whose bytes and attributes a mount would keep under a lease.
fn hold_shared(own: &Path) -> Vec<Program> {
    let operations = ["append", "getattr", "map", "read", "write"];
    operations.iter().map(|operation| locker(&own.join(operation).join("f"))).collect()
}

/// Kills all programs, and returns once they are gone. Nothing answers meanwhile.
fn kill_all(askers: &mut [Asker]) -> Duration {
    let killed = Instant::now();
    for asker in askers.iter() {
        // One may have exited by itself.
        let _gone = kill_process(asker.pid(), Signal::KILL);
    }
    until("each program is gone", || {
        let alive = askers.iter().filter(|asker| !asker.is_gone());
        let alive: Vec<_> = alive.map(|it| (it.operation.clone(), it.place())).collect();
        let late = killed.elapsed() > Duration::from_secs(40);
        assert!(!late || alive.is_empty(), "still there: {alive:?}");
        alive.is_empty()
    });
    killed.elapsed()
}

/// The contents of a folder: kinds, modes, sizes, links, bytes.
fn shown(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut shown = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let mut text = format!("{:o} {}", found.permissions().mode(), found.nlink());
            if found.is_dir() {
                folders.push(path.clone());
            } else if found.is_file() {
                let bytes = fs::read(&path).unwrap();
                let sum =
                    bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
                let _fits = write!(text, " {} {} {sum:x}", found.len(), found.mtime());
            }
            shown.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
    shown
}

/// Asserts that an operation was carried out once or never, where that can be seen.
fn check_operation(root: &Path, operation: &str, before: &[u8]) {
    let dir = root.join(operation);
    let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
    let bytes = fs::read(dir.join("f")).ok();
    let links = || fs::metadata(dir.join("f")).unwrap().nlink();
    let good = match operation {
        "append" => {
            let once = [before, b"+"].concat();
            bytes.is_some_and(|bytes| bytes == before || bytes == once)
        }
        "rename" => has("f") != has("made"),
        "replace" => has("g") && (has("f") || fs::read(dir.join("g")).unwrap() == before),
        "link" => links() == if has("made") { 2 } else { 1 },
        "unlink" => !has("f") || links() == 1,
        "write" | "close" | "fsync" | "exit" | "killed" => {
            let bytes = bytes.unwrap();
            bytes.len() == before.len() && bytes[3..] == before[3..]
        }
        "truncate" | "ftruncate" => {
            let bytes = bytes.unwrap();
            bytes == before || bytes == before[..3]
        }
        _ => has("g") && has("to"),
    };
    assert!(good, "{operation}");
}

/// The way in which nothing answers, for a while.
trait Fault {
    fn begin(&self);
    fn end(&self);
}

/// Runs all operations on a mount, kills their programs while nothing answers, and looks at what
/// was done, from each mount. Returns how many waited.
fn kill_waiters(world: &World, root: &Path, name: &str, fault: &dyn Fault) -> usize {
    let operations = operations();
    let own = world.volume.files().join(name);
    fs::create_dir(&own).unwrap();
    prepare(&own, &operations);
    let holders = hold_shared(&own);
    let root = root.join(name);
    let mut askers: Vec<Asker> =
        operations.iter().map(|operation| Asker::ready(&root, operation)).collect();
    fault.begin();
    askers.iter_mut().for_each(|asker| asker.program.tell("go"));
    // Those that are answered from what is kept say so.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        for asker in &mut askers {
            asker.waits_in = asker.place().or_else(|| asker.waits_in.take());
        }
        // A signal that a program has a handler for changes nothing.
        for asker in &askers {
            let _gone = kill_process(asker.pid(), Signal::USR1);
        }
        thread::sleep(Duration::from_millis(100));
    }
    let took = kill_all(&mut askers);
    let waited: Vec<String> = askers
        .iter()
        .filter_map(|it| it.waits_in.as_ref().map(|place| format!("{} {place}", it.operation)))
        .collect();
    println!("{name}: gone after {took:?}; {} of {} waited:", waited.len(), askers.len());
    println!("  {}", waited.join(", "));
    drop(askers);
    fault.end();
    drop(holders);
    settle(world, name);
    for (number, operation) in operations.iter().enumerate() {
        check_operation(&own, operation, &bytes_of(number as u64, 30_000));
    }
    waited.len()
}

/// Waits until nothing is open, and all mounts show the same.
fn settle(world: &World, name: &str) {
    until("what was opened for dead programs is closed", || {
        let status = world.status();
        status["open_files"] == 0 && status["pending_closes"] == 0
    });
    let roots = world.roots();
    let expected = shown(&roots[0].join(name));
    for root in &roots[1..] {
        let found = shown(&root.join(name));
        for (path, text) in &expected {
            assert_eq!(found.get(path), Some(text), "{} by {}", path.display(), root.display());
        }
        assert_eq!(found.len(), expected.len(), "{:?}", found.keys());
    }
}

/// The server is stopped.
struct Stopped(Pid);

impl Fault for Stopped {
    fn begin(&self) {
        stop(self.0);
    }

    fn end(&self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

impl Fault for Forwarder {
    fn begin(&self) {
        self.cut(true);
    }

    fn end(&self) {
        self.cut(false);
    }
}

/// After so long a disk answers again, also if no test says so: what waits for it cannot be killed
/// if the code under test is wrong.
const LONGEST_HANG: Duration = Duration::from_secs(60);

/// Each change of the disk waits.
struct Stuck {
    lossfs: Lossfs,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Stuck {
    fn new(lossfs: Lossfs) -> Self {
        let until = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&until);
        lossfs.control().watch(move |_| {
            while seen.lock().unwrap().is_some_and(|until| Instant::now() < until) {
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { lossfs, until }
    }

    fn set(&self, until: Option<Instant>) {
        *self.until.lock().unwrap() = until;
    }
}

impl Fault for Stuck {
    fn begin(&self) {
        self.set(Some(Instant::now() + LONGEST_HANG));
    }

    fn end(&self) {
        self.set(None);
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.set(None);
        self.lossfs.control().unwatch();
    }
}

/// The deadline of a test on a disk that hangs again and again.
const DISK_WATCH: Duration = Duration::from_secs(250);

/// Returns a volume that is up on a disk that can hang.
fn on_disk(io_uring: Option<&'static str>) -> (World, Stuck) {
    let mut fault = None;
    let world = World::prepared("never", DISK_WATCH, |volume| {
        volume.io_uring = io_uring;
        fs::create_dir(&volume.dir).unwrap();
        let lossfs = Lossfs::mount(&volume.dir, Model::new()).unwrap();
        fault = Some(Stuck::new(lossfs));
    });
    (world, fault.unwrap())
}

/// Returns the reason to skip these tests, if there is one.
fn cannot() -> Option<String> {
    let known = cfg!(target_arch = "x86_64");
    let numbers = "not here: the numbers of the system calls are those of x86_64";
    cannot_mount().or_else(|| (!known).then(|| numbers.to_owned()))
}

#[test]
fn programs_that_wait_for_a_stopped_server_can_be_killed() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let world = World::new("auto");
    let far = world.mount_tls("tls");
    let fault = Stopped(world.volume.pid().unwrap());
    let waited = kill_waiters(&world, &far.point, "stop", &fault);
    assert!(waited > 30, "only {waited} operations waited");
    world.finish();
}

#[test]
fn programs_that_wait_for_a_server_that_is_cut_off_can_be_killed() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let world = World::new("auto");
    let forwarder = Forwarder::to(world.tcp());
    let far = world.mount(&world.address_at(forwarder.port), "tls", &[]);
    let waited = kill_waiters(&world, &far.point, "cut", &forwarder);
    assert!(waited > 30, "only {waited} operations waited");
    world.finish();
}

/// By a mount of another process: threads of the server hang with the disk, and with them what its
/// own mount asks.
#[test]
fn programs_that_wait_for_a_stuck_disk_can_be_killed() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let (world, fault) = on_disk(None);
    let far = world.mount_tls("tls");
    let waited = kill_waiters(&world, &far.point, "disk", &fault);
    assert!(waited > 0, "no operation waited");
    world.finish();
}

/// The calls that hang are those of the threads that read what the mount asks, one after the other;
/// then no thread is left that reads the closes.
#[test]
fn programs_of_the_own_mount_that_wait_for_a_stuck_disk_can_be_killed() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let (world, fault) = on_disk(Some("never"));
    world.mount_tls("tls");
    let files = world.volume.files();
    // A close that is read late ends the locks of its program all the same.
    fs::write(files.join("locked"), "").unwrap();
    let mut holder = locker(&files.join("locked"));
    assert_eq!(holder.ask("try fcntl write 0 10"), "yes");
    let until_killed = HeldLock { fault: &fault, holder: Mutex::new(Some(holder)) };
    let waited = kill_waiters(&world, &files, "own", &until_killed);
    assert!(waited > 30, "only {waited} operations waited");
    let mut other = locker(&files.join("locked"));
    assert_eq!(other.ask("try fcntl write 0 10"), "yes");
    drop(other);
    // What was read in reserve leaves nothing behind that keeps the next hang from ending well.
    let waited = kill_waiters(&world, &files, "again", &fault);
    assert!(waited > 30, "only {waited} operations waited");
    world.finish();
}

/// Each operation is the first that hangs, in the call of the thread that has read it, and its
/// program is killed before the next one begins.
#[test]
fn each_operation_of_the_own_mount_can_be_killed_alone() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let (world, fault) = on_disk(Some("never"));
    world.mount_tls("tls");
    let root = world.volume.files().join("alone");
    fs::create_dir(&root).unwrap();
    let operations = operations();
    prepare(&root, &operations);
    let mut waited = Vec::new();
    for operation in &operations {
        let mut asker = Asker::ready(&root, operation);
        fault.begin();
        asker.program.tell("go");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            asker.waits_in = asker.place().or_else(|| asker.waits_in.take());
            thread::sleep(Duration::from_millis(20));
        }
        let mut askers = [asker];
        kill_all(&mut askers);
        let [asker] = askers;
        waited.extend(asker.waits_in.as_ref().map(|place| format!("{operation} {place}")));
        drop(asker);
        fault.end();
        until(&format!("what was opened for {operation} is closed"), || {
            world.status()["open_files"] == 0
        });
    }
    println!("{} of {} waited: {}", waited.len(), operations.len(), waited.join(", "));
    assert!(waited.len() > 15, "only {waited:?}");
    settle(&world, "alone");
    for (number, operation) in operations.iter().enumerate() {
        check_operation(&root, operation, &bytes_of(number as u64, 30_000));
    }
    world.finish();
}

/// A fault under which a program is killed that has a lock, as all others are.
struct HeldLock<'a> {
    fault: &'a Stuck,
    holder: Mutex<Option<Program>>,
}

impl Fault for HeldLock<'_> {
    fn begin(&self) {
        self.fault.begin();
    }

    fn end(&self) {
        // It is gone once the drop returns.
        drop(self.holder.lock().unwrap().take());
        self.fault.end();
    }
}

/// Signals of a round of the next test.
const SIGNALS: usize = 200;

/// Rounds of the next test: an environment variable asks for more.
fn rounds() -> usize {
    let rounds = std::env::var("PELAGO_TEST_WAITERS").ok().and_then(|rounds| rounds.parse().ok());
    rounds.unwrap_or(1)
}

/// Signals of any kind at any moment while the network is cut or not, to programs that go on.
#[test]
fn random_signals_leave_each_change_done_once_or_never() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let mut random = Random::new(32);
    for round in 0..rounds() {
        // A volume of its own: a mount that is cut off may delay the others for a term.
        let world = World::new("auto");
        let forwarder = Forwarder::to(world.tcp());
        let far = world.mount(&world.address_at(forwarder.port), "tls", &[]);
        random_round(&world, &far.point, &format!("round{round}"), &forwarder, &mut random);
        world.finish();
    }
}

/// The same while the disk below the server's own mount hangs or not.
#[test]
fn random_signals_under_a_disk_that_hangs_leave_each_change_done_once_or_never() {
    if let Some(reason) = cannot() {
        return println!("skipped: {reason}");
    }
    let mut random = Random::new(33);
    for round in 0..rounds() {
        let (world, fault) = on_disk(Some("never"));
        world.mount_tls("tls");
        let files = world.volume.files();
        random_round(&world, &files, &format!("round{round}"), &fault, &mut random);
        world.finish();
    }
}

/// One round by the mount at `root`.
fn random_round(world: &World, root: &Path, name: &str, fault: &dyn Fault, random: &mut Random) {
    let operations = operations();
    let own = world.volume.files().join(name);
    fs::create_dir(&own).unwrap();
    prepare(&own, &operations);
    let holders = hold_shared(&own);
    let root = root.join(name);
    let ready = |operation: &String| Asker::ready(&root, operation);
    let mut askers: Vec<Asker> = operations.iter().map(ready).collect();
    let turn = |random: &mut Random, one_in| {
        if random.below(one_in) == 0 {
            match random.below(2) {
                0 => fault.begin(),
                _ => fault.end(),
            }
        }
    };
    for asker in &mut askers {
        turn(random, 8);
        asker.program.tell("go");
    }
    fault.begin();
    let mut sent = 0;
    for _ in 0..SIGNALS {
        let asker = &askers[random.below(askers.len() as u64) as usize];
        let signals = [Signal::USR1, Signal::USR1, Signal::TERM, Signal::INT, Signal::KILL];
        let signal = signals[random.below(signals.len() as u64) as usize];
        sent += usize::from(kill_process(asker.pid(), signal).is_ok());
        thread::sleep(Duration::from_millis(random.below(10)));
        turn(random, 40);
    }
    fault.begin();
    let took = kill_all(&mut askers);
    println!("{name}: gone after {took:?}, {sent} signals before");
    drop(askers);
    fault.end();
    drop(holders);
    settle(world, name);
    for (number, operation) in operations.iter().enumerate() {
        check_operation(&own, operation, &bytes_of(number as u64, 30_000));
    }
}
