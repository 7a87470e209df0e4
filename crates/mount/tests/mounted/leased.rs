//! Under leases the kernel keeps what it was answered until that is recalled or lost.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use pelago_mount::{Keeps, TTL};
use pelago_wire::{Attr, InodeId, LeaseTimes, LocalCache, Name, Touched};

use super::{Mounted, mounted_with};
use crate::memory::{Memory, spread};

/// Calls of which a kernel that keeps nothing would ask for each, and one under leases for a few:
/// those behind two seconds.
const CALLS: u64 = 1000;
const FEW: u64 = 100;
/// Rounds of a race.
const ROUNDS: u64 = 300;

/// Leases on everything, as long as they last.
struct Leases {
    seconds: AtomicU64,
    memory: OnceLock<Arc<Memory>>,
}

impl Leases {
    fn begin(&self) {
        self.seconds.store(TTL.as_secs(), Ordering::SeqCst);
    }

    fn end(&self) {
        self.seconds.store(0, Ordering::SeqCst);
    }

    fn left(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::SeqCst))
    }
}

impl LeaseTimes for Leases {
    fn attr_left(&self, _ino: InodeId) -> Duration {
        self.left()
    }

    fn attr_holds(&self, attr: &Attr) -> Duration {
        let now = self.memory.get().and_then(|memory| memory.attr_of(attr.ino.raw()));
        if now == Some(*attr) { self.left() } else { Duration::ZERO }
    }

    fn name_left(&self, _dir: InodeId, _name: &Name) -> Duration {
        self.left()
    }
}

struct Leased {
    mounted: Mounted,
    leases: Arc<Leases>,
    cache: Arc<dyn LocalCache>,
}

impl Leased {
    fn new() -> Option<Self> {
        let leases =
            Arc::new(Leases { seconds: AtomicU64::new(TTL.as_secs()), memory: OnceLock::new() });
        let keeps = Keeps::Leased(Arc::clone(&leases) as _);
        let mounted = mounted_with(spread, |options| options.keeps = keeps)?;
        mounted.memory.put("file", b"old");
        let _only_once = leases.memory.set(Arc::clone(&mounted.memory));
        let cache = mounted.mount.local_cache().unwrap();
        Some(Self { mounted, leases, cache })
    }

    fn file(&self) -> std::path::PathBuf {
        self.mounted.path("file")
    }

    fn requests(&self) -> u64 {
        self.mounted.memory.requests.load(Ordering::SeqCst)
    }

    fn transfers(&self) -> u64 {
        self.mounted.memory.transfers.load(Ordering::SeqCst)
    }

    /// Recalls a node and perhaps a name in the root.
    fn recall(&self, ino: u64, name: Option<&str>) {
        let name = name.map(|name| Name::new(name.as_bytes()).unwrap());
        let name = name.map(|name| Touched::Name { dir: InodeId::ROOT, name });
        let node = Touched::Node(InodeId::from_raw(ino));
        let touched: Arc<[Touched]> = [node].into_iter().chain(name).collect();
        let (told, done) = std::sync::mpsc::channel();
        self.cache.begin(&touched, Box::new(move || told.send(()).unwrap()));
        done.recv_timeout(Duration::from_secs(60)).unwrap();
        self.leases.end();
        self.cache.end(&touched);
    }

    fn names(&self) -> Vec<String> {
        names(self.mounted.mount.point())
    }
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: Result<fs::DirEntry, _>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn names_and_attributes_under_a_lease_are_not_asked_for_again() {
    let Some(leased) = Leased::new() else { return };
    let asked = || {
        let before = leased.requests();
        for _ in 0..CALLS {
            assert_eq!(fs::metadata(leased.file()).unwrap().len(), 3);
            let absent = fs::metadata(leased.mounted.path("absent")).unwrap_err();
            assert_eq!(absent.kind(), ErrorKind::NotFound);
        }
        leased.requests() - before
    };
    let requests = asked();
    assert!(requests < FEW, "{requests}");
    leased.recall(fs::metadata(leased.file()).unwrap().ino(), Some("absent"));
    let requests = asked();
    assert!(requests >= CALLS, "{requests}: there is no lease");
}

/// A look-up has brought the attributes.
#[test]
fn attributes_of_an_entry_are_not_asked_for() {
    let Some(leased) = Leased::new() else { return };
    for number in 0..CALLS {
        leased.mounted.memory.put(&format!("{number}"), b"some");
    }
    let before = leased.requests();
    for number in 0..CALLS {
        // Not `fs::metadata`: it asks for the time of birth, which no entry has.
        let path = leased.mounted.path(&number.to_string());
        assert_eq!(rustix::fs::stat(&path).unwrap().st_size, 4);
    }
    let requests = leased.requests() - before;
    assert!(requests < CALLS + FEW, "{requests}");
}

/// A program that has made a file asks for it.
#[test]
fn attributes_of_a_new_file_are_not_asked_for() {
    let Some(leased) = Leased::new() else { return };
    let before = leased.requests();
    for number in 0..CALLS {
        let path = leased.mounted.path(&number.to_string());
        let made = File::create_new(&path).unwrap();
        assert_eq!(rustix::fs::stat(&path).unwrap().st_size, 0);
        made.write_all_at(b"four", 0).unwrap();
        assert_eq!(rustix::fs::stat(&path).unwrap().st_size, 4);
    }
    // The directory's attributes, a lookup and a create; a write and the attributes behind it; a
    // flush and a release.
    let requests = leased.requests() - before;
    assert!(requests < 7 * CALLS + FEW, "{requests}");
}

/// A program looks a file up while another session changes it: its entry may be installed after the
/// invalidation of attributes, and must not hold then.
#[test]
fn an_entry_on_its_way_does_not_outlast_a_recall() {
    let Some(leased) = Leased::new() else { return };
    for round in 0..ROUNDS {
        let name = format!("on-its-way-{round}");
        leased.mounted.memory.put(&name, b"old");
        leased.leases.begin();
        let path = leased.mounted.path(&name);
        let ino = leased.mounted.memory.ino(&name);
        thread::scope(|scope| {
            let looks = scope.spawn(|| rustix::fs::stat(&path).unwrap().st_size);
            leased.recall(ino, None);
            leased.mounted.memory.append(&name, b"er");
            leased.leases.begin();
            assert_eq!(rustix::fs::stat(&path).unwrap().st_size, 5, "round {round}");
            looks.join().unwrap();
        });
        assert_eq!(rustix::fs::stat(&path).unwrap().st_size, 5, "round {round}");
    }
}

#[test]
fn what_is_recalled_is_asked_for_again() {
    let Some(leased) = Leased::new() else { return };
    let absent = leased.mounted.path("new");
    let ino = fs::metadata(leased.file()).unwrap().ino();
    assert!(fs::metadata(&absent).is_err());
    leased.recall(ino, Some("new"));
    leased.mounted.memory.append("file", b"er");
    leased.mounted.memory.put("new", b"");
    leased.leases.begin();
    assert_eq!(fs::metadata(leased.file()).unwrap().len(), 5);
    assert!(fs::metadata(&absent).is_ok());
}

#[test]
fn when_all_leases_have_ended_nothing_of_before_is_used() {
    let Some(leased) = Leased::new() else { return };
    let absent = leased.mounted.path("new");
    let file = File::open(leased.file()).unwrap();
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let ino = InodeId::from_raw(file.metadata().unwrap().ino());
    assert!(fs::metadata(&absent).is_err());
    leased.leases.end();
    leased.mounted.memory.replace("file", b"new");
    leased.mounted.memory.put("new", b"");
    leased.cache.drop_all(&[ino, InodeId::ROOT]);
    leased.leases.begin();
    assert!(fs::metadata(&absent).is_ok());
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"new");
}

#[test]
fn bytes_under_a_lease_are_read_once_and_without_one_each_time() {
    let Some(leased) = Leased::new() else { return };
    let reads = || {
        let before = leased.transfers();
        for _ in 0..10 {
            assert_eq!(fs::read(leased.file()).unwrap(), b"old");
        }
        leased.transfers() - before
    };
    assert_eq!(reads(), 1, "pages stay from one open to the next");
    leased.leases.end();
    leased.cache.drop_all(&[]);
    assert!(reads() >= 10);
}

/// Size and time of the bytes are the same, which the kernel would compare.
#[test]
fn pages_of_another_version_are_not_used_by_the_next_open() {
    let Some(leased) = Leased::new() else { return };
    assert_eq!(fs::read(leased.file()).unwrap(), b"old");
    let ino = fs::metadata(leased.file()).unwrap().ino();
    leased.recall(ino, None);
    leased.mounted.memory.replace("file", b"new");
    leased.leases.begin();
    assert_eq!(fs::read(leased.file()).unwrap(), b"new");
}

#[test]
fn pages_of_an_open_file_are_dropped_when_its_lease_has_ended_or_is_on_another_version() {
    let Some(leased) = Leased::new() else { return };
    let file = File::open(leased.file()).unwrap();
    let ino = file.metadata().unwrap().ino();
    let read = || {
        let mut bytes = [0; 3];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(&read(), b"old");
    for (bytes, is_leased) in [(b"one", false), (b"two", true), (b"six", false)] {
        leased.recall(ino, None);
        leased.mounted.memory.replace("file", bytes);
        if is_leased {
            leased.leases.begin();
        }
        assert_eq!(&read(), bytes);
    }
}

#[test]
fn a_reader_with_pages_sees_what_the_same_mount_writes_past_them() {
    let Some(leased) = Leased::new() else { return };
    let reader = File::open(leased.file()).unwrap();
    let writer = OpenOptions::new().write(true).open(leased.file()).unwrap();
    let appender = OpenOptions::new().append(true).open(leased.file()).unwrap();
    for round in 0..100_u8 {
        writer.write_all_at(&[round; 3], 0).unwrap();
        let mut bytes = [0; 3];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [round; 3]);
        std::io::Write::write_all(&mut &appender, &[round]).unwrap();
        reader.read_exact_at(&mut bytes[..1], 3 + u64::from(round)).unwrap();
        assert_eq!(bytes[0], round);
    }
}

/// The time of the directory's bytes is the same, which the kernel would compare.
#[test]
fn a_listing_is_kept_under_the_leases_of_one_version_only() {
    let Some(leased) = Leased::new() else { return };
    for _ in 0..3 {
        assert_eq!(leased.names(), ["file"]);
    }
    let lists = leased.mounted.memory.lists.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(leased.names(), ["file"]);
    }
    assert_eq!(leased.mounted.memory.lists.load(Ordering::SeqCst), lists);
    for (name, is_leased) in [("leased", true), ("without", false), ("zz", true)] {
        leased.recall(1, None);
        leased.mounted.memory.put_unseen(name);
        if is_leased {
            leased.leases.begin();
        }
        assert!(leased.names().iter().any(|listed| listed == name), "{name}");
    }
}
