//! Locks that the file system keeps, and signals to programs that wait for them.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use pelago_fuse::init::{Capabilities, InitOptions};
use pelago_fuse::operation::{FileLock, FileLockKind};
use pelago_fuse::{Errno, SessionOptions};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Flock, FlockOffsetType, FlockType, Pid, Signal, fcntl_getlk, kill_process};

use crate::{Mounted, init_options, mounted_with, until};

/// Waits for an `fcntl` lock. `handle` survives the signal, and reports `EINTR` as 42.
const WAIT: &str = r#"
    use Fcntl;
    my ($path, $signal) = @ARGV;
    $SIG{ALRM} = sub {} if $signal eq "handle";
    open(my $file, "+<", $path) or exit 1;
    my $lock = pack("s s x4 q q i x4", F_WRLCK, 0, 0, 0, 0);
    fcntl($file, F_SETLKW, $lock) and exit 0;
    exit($!{EINTR} ? 42 : 2);
"#;

/// Takes a lock of each kind through each of two opens, and tells by a line when it has them.
const EACH: &str = r#"
    use Fcntl qw(:DEFAULT :flock);
    use constant F_OFD_SETLK => 37;
    open(my $one, "+<", $ARGV[0]) or die;
    open(my $two, "+<", $ARGV[0]) or die;
    my $lock = sub { pack("s s x4 q q i x4", F_RDLCK, 0, $_[0], 10, 0) };
    for my $file ($one, $two) {
        flock($file, LOCK_SH) or die;
        fcntl($file, F_SETLK, $lock->(100)) or die;
        fcntl($file, F_OFD_SETLK, $lock->(200)) or die;
    }
    $| = 1;
    print "locked\n";
    readline(STDIN);
"#;

/// Mounts with locks that the file system keeps.
pub(crate) fn locking() -> Option<Mounted> {
    let mounted = mounted_with(options())?;
    assert!(mounted.negotiated.capabilities.has(LOCKS));
    mounted.tree.put("file", b"bytes");
    Some(mounted)
}

const LOCKS: Capabilities = Capabilities(Capabilities::POSIX_LOCKS.0 | Capabilities::FLOCK_LOCKS.0);

/// Options of a session with such locks.
pub(crate) fn options() -> SessionOptions {
    let capabilities = init_options().capabilities | LOCKS;
    let init_options = InitOptions { capabilities, ..init_options() };
    SessionOptions { threads: 4, clone_device: true, ring: crate::ring_is_wanted(), init_options }
}

fn open(mounted: &Mounted) -> File {
    File::options().read(true).write(true).open(mounted.path("file")).unwrap()
}

fn perl(script: &str, path: &Path) -> Command {
    let mut perl = Command::new("perl");
    perl.args(["-e", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    perl
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_program_that_waits_for_a_lock_ends_with_a_signal() {
    let Some(mut mounted) = locking() else { return };
    let file = open(&mounted);
    fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    let cases = [(Signal::KILL, "end"), (Signal::ALARM, "end"), (Signal::ALARM, "handle")];
    for (round, (number, how)) in (1..).zip(cases) {
        let mut child = perl(WAIT, &mounted.path("file")).arg(how).spawn().unwrap();
        mounted.tree.locks.when(|locks| (locks.count_waiting() == 1).then_some(()));
        signal(&child, number);
        let status = child.wait().unwrap();
        match how {
            "handle" => assert_eq!(status.code(), Some(42), "the program sees EINTR"),
            _ => assert_eq!(status.signal(), Some(number.as_raw())),
        }
        mounted.tree.locks.when(|locks| (locks.interrupted == round).then_some(()));
        assert_eq!(mounted.tree.locks.waiting(), 0);
    }
    drop(file);
    mounted.end().unwrap();
}

/// Wherever the signal finds the request: before the kernel sends it, on its way, or waiting.
#[test]
fn a_program_can_be_killed_at_any_moment() {
    let Some(mut mounted) = locking() else { return };
    let file = open(&mounted);
    flock(&file, FlockOperation::LockExclusive).unwrap();
    for round in 0..200 {
        let mut waiter = Command::new("flock");
        let mut waiter = waiter.arg(mounted.path("file")).arg("true").spawn().unwrap();
        (0..round * 20).for_each(|_| thread::yield_now());
        signal(&waiter, Signal::KILL);
        let mut status = None;
        until(|| {
            status = waiter.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.signal()), Some(Signal::KILL.as_raw()));
    }
    assert_eq!(mounted.tree.locks.waiting(), 0);
    drop(file);
    mounted.end().unwrap();
}

#[test]
fn a_lock_is_granted_when_its_holder_ends_it() {
    let Some(mut mounted) = locking() else { return };
    let file = open(&mounted);
    let other = open(&mounted);
    fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    let mut child = perl(WAIT, &mounted.path("file")).arg("end").spawn().unwrap();
    mounted.tree.locks.when(|locks| (locks.count_waiting() == 1).then_some(()));
    // A close of any descriptor of the file ends the locks of the process.
    drop(other);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let refused = flock(open(&mounted), FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::AGAIN));
    drop(file);
    let again = open(&mounted);
    until(|| flock(&again, FlockOperation::NonBlockingLockExclusive).is_ok());
    drop(again);
    mounted.end().unwrap();
}

#[test]
fn kinds_of_locks_arrive_distinguishable() {
    let Some(mut mounted) = locking() else { return };
    let mut child = perl(EACH, &mounted.path("file")).spawn().unwrap();
    let set = mounted.tree.locks.when(|locks| (locks.set.len() == 6).then(|| locks.set.clone()));
    assert!(set.iter().all(|(pid, set)| *pid == child.id() && set.lock.pid == child.id()));
    let [flock_1, posix_1, ofd_1, flock_2, posix_2, ofd_2] = [0, 1, 2, 3, 4, 5].map(|at| set[at].1);
    let kind = FileLockKind::Read;
    let whole = FileLock { kind, start: 0, end: i64::MAX.unsigned_abs(), pid: child.id() };
    for flock in [flock_1, flock_2] {
        assert!(flock.is_flock);
        assert_eq!(flock.lock, whole);
    }
    for (other, start) in [(posix_1, 100), (posix_2, 100), (ofd_1, 200), (ofd_2, 200)] {
        assert!(!other.is_flock);
        assert_eq!(other.lock, FileLock { start, end: start + 9, ..whole });
    }
    assert_eq!(posix_1.owner, posix_2.owner, "a process");
    assert_eq!((flock_1.owner, flock_2.owner), (ofd_1.owner, ofd_2.owner), "an open");
    assert!(flock_1.owner != flock_2.owner && posix_1.owner != flock_1.owner);

    assert_eq!(held_by(&open(&mounted), 105), Some((child.id(), 100, 10)));
    assert_eq!(held_by(&open(&mounted), 150), None);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let by = |owner| {
        move |locks: &mut crate::lock_table::Locks| {
            let has = locks.released.iter().any(|release| release.flock_owner == Some(owner));
            (has && locks.flushed.contains(&posix_1.owner)).then_some(())
        }
    };
    mounted.tree.locks.when(by(flock_1.owner));
    mounted.tree.locks.when(by(flock_2.owner));
    mounted.end().unwrap();
}

/// Returns process, start and length of the lock that prevents writing one byte.
fn held_by(file: &File, start: u64) -> Option<(u32, u64, u64)> {
    let typ = FlockType::WriteLock;
    let wanted = Flock { start, length: 1, pid: None, typ, offset_type: FlockOffsetType::Set };
    let held = fcntl_getlk(file, &wanted).unwrap()?;
    let pid = held.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
    Some((u32::try_from(pid).unwrap(), held.start, held.length))
}

/// An open without `flock` names no owner when it is released.
#[test]
fn a_release_names_an_owner_only_after_flock() {
    let Some(mut mounted) = locking() else { return };
    fs::write(mounted.path("file"), b"1").unwrap();
    let released = mounted.tree.locks.when(|locks| locks.released.pop());
    assert_eq!((released.flock_owner, released.flush), (None, false));
    mounted.end().unwrap();
}
