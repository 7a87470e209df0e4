//! Connections that end, or stand still, while many requests are under way.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use pelago_fuse::{Errno, Session};
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::alone::{again, ended};
use crate::callers::caller;
use crate::connection::Connection;
use crate::locks::{locking, options};
use crate::stuck::open;
use crate::tree::Tree;
use crate::{attach, until};

/// Callers of each kind whose requests are under way.
const SYNCS: usize = 200;
const LOOKUPS: usize = 20;
const WAITERS: usize = 20;
const ALL: usize = SYNCS + LOOKUPS + WAITERS;

/// Starts callers that wait for replies. The first lock is had, so that others wait for it.
fn callers<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    folder: &Path,
) -> Vec<ScopedJoinHandle<'scope, io::Result<()>>> {
    let path = |name: String| folder.join(name);
    let syncs = (0..SYNCS).map(|number| path(format!("sync-{number}")));
    let syncs = syncs.map(|path| caller(scope, move || File::open(path)?.sync_all()));
    let lookups = (0..LOOKUPS).map(|number| path(format!("held-{number}")));
    let lookups = lookups.map(|path| caller(scope, move || fs::metadata(path).map(drop)));
    let waiters = (0..WAITERS).map(|_| path("file".to_owned()));
    let waiters = waiters.map(|path| {
        caller(scope, move || Ok(flock(File::open(path)?, FlockOperation::LockExclusive)?))
    });
    syncs.chain(lookups).chain(waiters).collect()
}

/// Waits until all callers have got an error. `ECANCELED` is that of a request on its way to a
/// thread of a ring that is killed.
fn all_fail(callers: Vec<ScopedJoinHandle<'_, io::Result<()>>>) {
    for caller in callers {
        let error = caller.join().unwrap().unwrap_err();
        let error = Errno::from_io_error(&error);
        let expected = [Errno::CONNABORTED, Errno::NOTCONN, Errno::CANCELED];
        assert!(error.is_some_and(|error| expected.contains(&error)), "{error:?}");
    }
}

/// Puts the files of the callers there, and holds replies to syncs back.
fn fill(tree: &Tree) {
    tree.put("file", b"bytes");
    for number in 0..SYNCS {
        tree.put(&format!("sync-{number}"), b"");
    }
    tree.held.hold_syncs();
}

#[test]
fn an_abort_fails_all_requests_and_ends_all_threads() {
    let Some(mut mounted) = locking() else { return };
    let Some(connection) = Connection::of(mounted.folder.path()) else { return };
    fill(&mounted.tree);
    let file = open(&mounted, "file");
    flock(&file, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        let callers = callers(scope, mounted.folder.path());
        mounted.tree.held.wait_for_syncs(SYNCS);
        mounted.tree.locks.when(|locks| (locks.count_waiting() == WAITERS).then_some(()));
        until(|| connection.waiting() == Some(ALL));
        connection.abort().unwrap();
        all_fail(callers);
    });
    until(|| mounted.session.as_ref().is_some_and(JoinHandle::is_finished));
    // Replies after the end do no harm.
    mounted.tree.held.take_syncs().into_iter().for_each(|reply| reply.ok(&()));
    drop(file);
    mounted.end().unwrap();
    assert_eq!(mounted.tree.seen.ends.load(Ordering::Relaxed), 1);
    assert!(!is_mounted(mounted.folder.path()));
}

pub(crate) fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.split(' ').any(|field| Path::new(field) == folder)
}

/// Where another process mounts its tree.
const POINT: &str = "PELAGO_TEST_MOUNT_POINT";

/// A process that serves a mount.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    /// Starts one, or returns `None` if nothing can be mounted here.
    fn start() -> Option<Self> {
        drop(locking()?);
        let folder = tempfile::tempdir().unwrap();
        let mut child = again("cut_off::serves_until_it_is_killed");
        child.env(POINT, folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let server = Self { child, folder };
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("serves")));
        Some(server)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        let unmounted = unmount(self.folder.path(), UnmountFlags::DETACH);
        // A test may have unmounted it.
        if !matches!(unmounted, Ok(()) | Err(Errno::INVAL)) {
            println!("{}: {killed:?}, {unmounted:?}", self.folder.path().display());
        }
    }
}

/// No test of its own: what the others start. It does nothing otherwise.
#[test]
fn serves_until_it_is_killed() {
    let Some(point) = std::env::var_os(POINT).map(PathBuf::from) else { return };
    let session = Session::start(attach(&point).unwrap(), options()).unwrap();
    let tree = Arc::new(Tree::new());
    fill(&tree);
    let served = Arc::clone(&tree);
    let run = move || session.run(served);
    let session = thread::Builder::new().spawn(run).unwrap();
    println!("serves");
    // Until it is killed, or its parent is gone.
    io::stdin().lines().for_each(drop);
    drop(session);
}

/// Whether requests wait, or are on their way.
#[test]
fn a_killed_server_fails_all_requests() {
    for _ in 0..5 {
        let Some(mut server) = Server::start() else { return };
        let folder = server.folder.path().to_owned();
        let Some(connection) = Connection::of(&folder) else { return };
        let file = File::open(folder.join("file")).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        thread::scope(|scope| {
            let callers = callers(scope, &folder);
            until(|| connection.waiting() == Some(ALL));
            let busy: Vec<_> =
                (0..4).map(|_| caller(scope, || ask_until_an_error(&folder))).collect();
            thread::sleep(Duration::from_millis(20));
            server.signal(Signal::KILL);
            ended(&mut server.child);
            all_fail(callers);
            all_fail(busy);
        });
        drop(file);
        until(|| unmount(&folder, UnmountFlags::empty()) != Err(Errno::BUSY));
        assert!(!is_mounted(&folder));
    }
}

fn ask_until_an_error(folder: &Path) -> io::Result<()> {
    loop {
        statvfs(folder)?;
    }
}

#[test]
fn callers_of_a_stopped_server_wait_until_it_goes_on() {
    let Some(server) = Server::start() else { return };
    let folder = server.folder.path();
    let is_stopped = &AtomicBool::new(true);
    let early = &AtomicBool::new(false);
    thread::scope(|scope| {
        server.signal(Signal::STOP);
        until(|| all_are_stopped(&server.child));
        let ask = move |number: usize| {
            let absent = fs::metadata(folder.join(format!("absent-{number}")));
            early.fetch_or(is_stopped.load(Ordering::SeqCst), Ordering::SeqCst);
            assert_eq!(absent.unwrap_err().kind(), io::ErrorKind::NotFound);
            File::create_new(folder.join(format!("new-{number}")))
        };
        let callers: Vec<_> = (0..100).map(|number| caller(scope, move || ask(number))).collect();
        thread::sleep(Duration::from_millis(200));
        is_stopped.store(false, Ordering::SeqCst);
        server.signal(Signal::CONT);
        for caller in callers {
            caller.join().unwrap().unwrap();
        }
    });
    assert!(!early.load(Ordering::SeqCst), "an answer from a stopped process");
}

/// Returns whether all threads of a process are stopped.
fn all_are_stopped(child: &Child) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    })
}
