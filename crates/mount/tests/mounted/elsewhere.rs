//! Directories of another site, which the kernel keeps under leases of the server until a change of
//! them is announced, or all leases of that site end. The whole tree is that of the other site.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use pelago_mount::Keeps;
use pelago_wire::{
    Attr, Bulk, Context, DirectoryCache, DirectoryLeases, Handle, InodeId, Name, RenameFlags,
    Reply, Request, Service, SetAttr, Touched,
};
use rustix::fs::stat;

use super::{Mounted, mounted_with};
use crate::memory::{Memory, spread};

/// The own site. The tree is that of site 0.
const OWN: u16 = 7;
/// Calls of which a kernel that keeps nothing would ask for each.
const CALLS: u64 = 1000;
const FEW: u64 = 100;
/// Rounds of a race.
const ROUNDS: u64 = 300;

/// Leases on all directories, as long as they last.
struct Leases {
    millis: AtomicU64,
    memory: OnceLock<Arc<Memory>>,
}

impl Leases {
    fn left(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::SeqCst))
    }
}

impl DirectoryLeases for Leases {
    fn attr_holds(&self, attr: &Attr) -> Duration {
        let now = self.memory.get().and_then(|memory| memory.attr_of(attr.ino.raw()));
        if now == Some(*attr) { self.left() } else { Duration::ZERO }
    }

    fn name_holds(&self, _dir: InodeId, _name: &Name, _target: InodeId) -> Duration {
        self.left()
    }

    fn has_names(&self, _dir: InodeId, name: &Name) -> bool {
        !name.as_bytes().starts_with(b"unleased")
    }
}

/// A mount with the directories `one/two`, and another session that changes them.
struct Tree {
    mounted: Mounted,
    leases: Arc<Leases>,
    cache: Arc<dyn DirectoryCache>,
}

impl Tree {
    fn new() -> Option<Self> {
        let millis = AtomicU64::new(60_000);
        let leases = Arc::new(Leases { millis, memory: OnceLock::new() });
        let keeps = Keeps::EverythingOfSite(OWN, Arc::clone(&leases) as _);
        let mounted = mounted_with(spread, |options| options.keeps = keeps)?;
        let _only_once = leases.memory.set(Arc::clone(&mounted.memory));
        let cache = mounted.mount.directory_cache().unwrap();
        fs::create_dir_all(mounted.path("one/two")).unwrap();
        fs::write(mounted.path("one/two/file"), "old").unwrap();
        Some(Self { mounted, leases, cache })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.path(name)
    }

    /// Returns how many requests `walk` makes.
    fn requests(&self, walk: impl FnOnce()) -> u64 {
        let requests = &self.mounted.memory.requests;
        let before = requests.load(Ordering::SeqCst);
        walk();
        requests.load(Ordering::SeqCst) - before
    }

    /// Has the other session change something, once the kernel has dropped what that touches.
    fn others(&self, touched: &[Touched], change: impl FnOnce()) {
        let touched: Arc<[Touched]> = touched.into();
        let (told, done) = mpsc::channel();
        self.cache.begin(&touched, Box::new(move || told.send(()).unwrap()));
        done.recv_timeout(Duration::from_secs(60)).unwrap();
        change();
        self.cache.end(&touched);
    }

    fn drop_site(&self, site: u16) {
        let (told, done) = mpsc::channel();
        self.cache.drop_site(site, Box::new(move || told.send(()).unwrap()));
        done.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    fn ask(&self, request: Request) -> Reply {
        let owner = Context::direct(rustix::process::geteuid().as_raw(), 0);
        let answer = self.mounted.memory.ask(&owner, request, Bulk::None, &mut || unreachable!());
        answer.unwrap().unwrap()
    }

    /// Has the other session move a directory in the root.
    fn others_move(&self, from: &str, to: &str) {
        self.others(&[in_root(from), in_root(to), Touched::Node(InodeId::ROOT)], || {
            self.move_unseen(from, to);
        });
    }

    /// Moves a directory in the root without an announcement.
    fn move_unseen(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| Name::new(name.as_bytes()).unwrap());
        self.ask(Request::Rename {
            from_dir: Handle::ROOT,
            from,
            to_dir: Handle::ROOT,
            to,
            flags: RenameFlags::NoReplace,
        });
    }
}

fn in_root(name: &str) -> Touched {
    Touched::Name { dir: InodeId::ROOT, name: Name::new(name.as_bytes()).unwrap() }
}

fn looks(path: &Path) {
    for _ in 0..CALLS {
        let _found = stat(path);
    }
}

fn exists(path: &Path) -> bool {
    match stat(path) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(std::io::Error::from(error).kind(), ErrorKind::NotFound);
            false
        }
    }
}

#[test]
fn directories_are_not_asked_for_again_and_files_are() {
    let Some(tree) = Tree::new() else { return };
    let walk = |name: &str| {
        let path = tree.path(name);
        move || looks(&path)
    };
    let requests = tree.requests(walk("one/two"));
    assert!(requests < FEW, "{requests}");
    let requests = tree.requests(walk("one/two/absent"));
    assert!((CALLS..CALLS + FEW).contains(&requests), "{requests}: absence is not kept");
    let requests = tree.requests(walk("one/two/file"));
    assert!((2 * CALLS..2 * CALLS + FEW).contains(&requests), "{requests}: no file is kept");
    tree.leases.millis.store(0, Ordering::SeqCst);
    tree.drop_site(0);
    let requests = tree.requests(walk("one/two"));
    assert!(requests >= 3 * CALLS, "{requests}: there is no lease");
}

/// The kernel counts from the arrival of the reply, and the lease from before it.
#[test]
fn no_lifetime_is_given_at_the_end_of_a_lease() {
    let Some(tree) = Tree::new() else { return };
    tree.leases.millis.store(50, Ordering::SeqCst);
    tree.drop_site(0);
    let path = tree.path("one");
    let requests = tree.requests(|| looks(&path));
    assert!(requests >= CALLS, "{requests}");
}

#[test]
fn a_change_by_others_is_seen_by_the_next_call() {
    let Some(tree) = Tree::new() else { return };
    for round in 0..ROUNDS {
        let [here, there] = ["one", "moved"].map(|name| tree.path(name).join("two"));
        assert!(exists(&here) && !exists(&there));
        tree.others_move("one", "moved");
        assert!(exists(&there) && !exists(&here), "round {round}");
        tree.others_move("moved", "one");
        let mode = 0o700 + u16::try_from(round % 64).unwrap();
        let ino = stat(tree.path("one")).unwrap().st_ino;
        let node = Handle::own(InodeId::from_raw(ino));
        tree.others(&[Touched::Node(node.ino)], || {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            tree.ask(Request::SetAttr { node, open: None, set });
        });
        assert_eq!(stat(tree.path("one")).unwrap().st_mode & 0o777, u32::from(mode));
    }
}

/// Replies are on their way while a change is announced and made.
#[test]
fn a_change_by_others_is_seen_beside_programs_that_look_all_the_time() {
    let Some(tree) = Tree::new() else { return };
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for name in ["one/two", "moved/two"] {
            let path = tree.path(name);
            let ends = &ends;
            scope.spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    let _found = stat(&path);
                }
            });
        }
        for round in 0..ROUNDS {
            tree.others_move("one", "moved");
            let seen = ["one/two", "moved/two"].map(|name| exists(&tree.path(name)));
            if seen != [false, true] {
                ends.store(true, Ordering::SeqCst);
            }
            assert_eq!(seen, [false, true], "round {round}");
            tree.others_move("moved", "one");
        }
        ends.store(true, Ordering::SeqCst);
    });
}

/// The program has the lock of the directory, and the answer that it waits for may come only after
/// the change.
#[test]
fn a_change_of_a_name_that_was_not_walked_waits_for_no_program_in_its_directory() {
    let Some(tree) = Tree::new() else { return };
    tree.mounted.memory.holds_dirs.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let makes = scope.spawn(|| fs::create_dir(tree.path("made")));
        until(|| tree.mounted.memory.held_requests() == 1);
        let began = Instant::now();
        let names = tree.mounted.mount.notices().names;
        tree.others(&[in_root("other"), Touched::Node(InodeId::ROOT)], || {});
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(tree.mounted.mount.notices().names, names, "the kernel has no such name");
        // One that was walked: all names are invalidated at once.
        tree.others(&[in_root("one"), Touched::Node(InodeId::ROOT)], || {});
        assert!(began.elapsed() < Duration::from_secs(1));
        tree.mounted.memory.let_requests_go();
        makes.join().unwrap().unwrap();
    });
}

/// The kernel moves a name with its lifetime. The server is told of changes of the new one, or has
/// no lease on it.
#[test]
fn a_name_that_this_mount_has_moved_is_seen_where_it_is() {
    let Some(tree) = Tree::new() else { return };
    for round in 0..ROUNDS {
        for mine in ["mine", "unleased"] {
            assert!(exists(&tree.path("one/two")));
            let epochs = tree.mounted.mount.notices().epochs;
            fs::rename(tree.path("one"), tree.path(mine)).unwrap();
            if mine == "mine" {
                assert_eq!(tree.mounted.mount.notices().epochs, epochs, "own names stay");
                tree.others_move("mine", "other");
            } else {
                tree.move_unseen("unleased", "other");
            }
            assert!(!exists(&tree.path(mine)), "round {round}");
            tree.others_move("other", "one");
        }
    }
}

#[test]
fn when_all_leases_of_a_site_have_ended_nothing_of_before_is_used() {
    let Some(tree) = Tree::new() else { return };
    for round in 0..ROUNDS {
        assert!(exists(&tree.path("one/two")));
        tree.drop_site(1);
        tree.move_unseen("one", "moved");
        tree.drop_site(0);
        assert!(!exists(&tree.path("one/two")), "round {round}");
        assert!(exists(&tree.path("moved/two")));
        tree.drop_site(0);
        tree.move_unseen("moved", "one");
        assert!(exists(&tree.path("one")));
    }
}

/// Names cannot be invalidated all at once: what is mounted below would be detached.
#[test]
fn when_all_leases_of_a_site_have_ended_a_mount_below_stays() {
    let Some(tree) = Tree::new() else { return };
    let below = tree.path("one/two/below");
    fs::create_dir(&below).unwrap();
    let run = |arguments: &[&str]| {
        let status = Command::new(arguments[0]).args(&arguments[1..]).arg(&below).status();
        status.is_ok_and(|status| status.success())
    };
    if !run(&["mount", "--bind", "/proc"]) {
        return println!("skipped: nothing can be mounted below");
    }
    assert!(exists(&below.join("self")));
    let began = Instant::now();
    tree.drop_site(0);
    assert!(began.elapsed() > Duration::from_secs(1), "it waits until the lifetimes are over");
    assert!(exists(&below.join("self")), "it is mounted");
    fs::rename(tree.path("one"), tree.path("mine")).unwrap();
    assert!(exists(&tree.path("mine/two/below/self")), "it is mounted");
    assert!(Command::new("umount").arg("-l").arg(tree.path("mine/two/below")).status().is_ok());
    tree.move_unseen("mine", "other");
    tree.drop_site(0);
    assert!(!exists(&tree.path("mine")) && exists(&tree.path("other/two")));
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "it did not come about");
        thread::yield_now();
    }
}
