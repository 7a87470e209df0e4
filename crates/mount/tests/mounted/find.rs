//! The hidden names: the control file and the folders of queries, over a server whose answers
//! depend on the asker.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_client::Files;
use pelago_mount::{Mount, MountError, mount};
use pelago_wire::{
    Bulk, Context, Done, Error, FileKind, Hit, InodeId, Reply, Request, Search, SearchAt,
    SearchPage, SearchPlace, Service, Time, limits,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::memory::{Memory, spread};
use crate::options;
use crate::prune::cannot_prune;

const NOBODY: u32 = 65_534;

/// A server in memory, whose answer to every query is a list, the same for all but `NOBODY`.
struct Searched {
    memory: Memory,
    hits: Mutex<Vec<Hit>>,
    /// What `NOBODY` may read of it.
    of_nobody: Mutex<Vec<Hit>>,
    searches: Mutex<Vec<(Context, Search)>>,
    /// While set, searches have empty pages without end.
    is_endless: AtomicBool,
}

impl Service for Searched {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let Request::Search { search, .. } = request else {
            return self.memory.ask(context, request, bulk, later);
        };
        self.searches.lock().push((*context, search.clone()));
        let as_of = Time { seconds: 1_700_000_000, nanos: 7 };
        let place = |rank| Some(SearchPlace { now: as_of, at: SearchAt::Rank(rank) });
        if self.is_endless.load(Ordering::SeqCst) {
            let done = later();
            let page = SearchPage { hits: Vec::new(), as_of, after: place(0), examined: 10 };
            let answer = move || {
                // An endless answer is not to fill the memory of the test.
                thread::sleep(Duration::from_millis(5));
                done(Ok(Reply::Found(page)));
            };
            thread::Builder::new().spawn(answer).unwrap();
            return None;
        }
        let all = if context.uid == NOBODY { &self.of_nobody } else { &self.hits };
        let all = all.lock();
        // Two files on a page.
        let from = match search.after {
            Some(SearchPlace { at: SearchAt::Rank(rank), .. }) => rank as usize,
            _ => 0,
        };
        let to = all.len().min(from + 2);
        let after = if to < all.len() { place(to as u32) } else { None };
        let page = SearchPage { hits: all[from..to].to_vec(), as_of, after, examined: 2 };
        Some(Ok(Reply::Found(page)))
    }
}

struct Fixture {
    mount: Mount,
    server: Arc<Searched>,
    _folder: TempDir,
}

impl Fixture {
    /// Mounts, or prints why not and returns `None`.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = Arc::new(Searched {
            memory: Memory::new(spread),
            hits: Mutex::default(),
            of_nobody: Mutex::default(),
            searches: Mutex::default(),
            is_endless: AtomicBool::new(false),
        });
        match mount(Files::new(Arc::clone(&server) as Arc<dyn Service>), &options(&folder)) {
            Ok(mount) => Some(Self { mount, server, _folder: folder }),
            Err(
                error @ (MountError::NoDevice | MountError::NoPermission(_) | MountError::NoHelper),
            ) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn path(&self, path: impl AsRef<OsStr>) -> PathBuf {
        self.mount.point().join(Path::new(path.as_ref()))
    }

    /// Makes files that all find, each with its path as its text.
    fn fill(&self, paths: &[&[u8]]) {
        for path in paths {
            let path = self.path(OsStr::from_bytes(path));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, path.as_os_str().as_bytes()).unwrap();
        }
        *self.server.hits.lock() = paths.iter().map(|path| self.hit(path)).collect();
    }

    fn hit(&self, path: &[u8]) -> Hit {
        let ino = fs::metadata(self.path(OsStr::from_bytes(path))).unwrap().ino();
        Hit { ino: InodeId::from_raw(ino), kind: FileKind::Regular, path: path.to_vec() }
    }

    fn names(&self, folder: &str) -> BTreeSet<Vec<u8>> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect()
    }

    /// Runs a script at the top of the mount as `NOBODY`, and returns what it printed.
    fn as_nobody(&self, script: &str) -> String {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
            "-c",
            script,
        ]);
        let output = command.current_dir(self.mount.point()).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

fn set(names: &[&str]) -> BTreeSet<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

fn refused<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

fn control(dir: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(dir.join(".pelago-find")).unwrap()
}

#[test]
fn an_answer_is_read_from_the_control_file() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.fill(&[b"a", b"d/b\n\xff", b"d/c"]);
    let dir = fixture.mount.point();
    assert_eq!(fixture.names(""), set(&["a", "d"]), "it is in no listing");
    let found = fs::metadata(dir.join(".pelago-find")).unwrap();
    assert!(found.is_file() && InodeId::from_raw(found.ino()).is_of_mount());
    assert_eq!((found.mode() & 0o777, found.len()), (0o666, 0));

    let mut open = control(dir);
    let mut text = Vec::new();
    assert_eq!(refused(open.read_to_end(&mut text)), Errno::INVAL, "nothing was asked");
    assert_eq!(refused(open.write_all(b"size>many")), Errno::INVAL);
    open.read_to_end(&mut text).unwrap();
    assert!(text.starts_with(b"error ") && text.ends_with(b"\0"));
    assert_eq!(refused(open.write_all(&[b' '; 5000])), Errno::TOOBIG);

    open.write_all(b"a=b and c=d").unwrap();
    let mut other = control(&dir.join("d"));
    other.write_all(b"e=f").unwrap();
    for open in [&mut open, &mut other] {
        text.clear();
        open.read_to_end(&mut text).unwrap();
        let [a, b, c] = [&b"a"[..], b"d/b\n\xff", b"d/c"].map(|path| {
            let number = format!("hit file {} ", fixture.hit(path).ino);
            [number.as_bytes(), path, b"\0"].concat()
        });
        let rest = b"end 1700000000.000000007 4\0";
        assert_eq!(text, [&a[..], &b, b"progress 2\0", &c, rest].concat());
    }
    let searches = std::mem::take(&mut *fixture.server.searches.lock());
    assert_eq!(searches.len(), 4);
    assert_eq!(searches[0].1.query, b"a=b c=d");
    assert_eq!(searches[0].1.asker.reads_all, geteuid().is_root());
    assert_eq!(searches[0].0.uid, geteuid().as_raw());

    for result in [
        fs::set_permissions(dir.join(".pelago-find"), fs::Permissions::from_mode(0o600)),
        open.set_len(0),
    ] {
        assert_eq!(refused(result), Errno::PERM);
    }
    assert_eq!(refused(fs::remove_file(dir.join(".pelago-find"))), Errno::ROFS);
    assert_eq!(refused(fs::rename(dir.join(".pelago-find"), dir.join("x"))), Errno::ROFS);
    assert_eq!(refused(fs::hard_link(dir.join(".pelago-find"), dir.join("x"))), Errno::ROFS);
    assert_eq!(refused(File::create_new(dir.join(".pelago-find"))), Errno::EXIST);
}

#[test]
fn a_folder_has_a_link_to_each_file_that_its_query_means() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.fill(&[b"a", b"sub/dir/x", b"other/x", b"sub/b\n\xff"]);
    let number = |path: &[u8]| format!("x~{}", fixture.hit(path).ino);
    let first = number(b"sub/dir/x");
    let second = number(b"other/x");
    let expected: BTreeSet<Vec<u8>> =
        [b"a".to_vec(), first.clone().into(), second.clone().into(), b"b\n\xff".to_vec()].into();
    for folder in [".find/a=b", ".find/a=b/", "./sub/../.find/size>1/k=v%2Fw"] {
        assert_eq!(fixture.names(folder), expected, "{folder}");
    }
    let queries: Vec<_> =
        fixture.server.searches.lock().iter().map(|(_, search)| search.query.clone()).collect();
    assert_eq!(queries.last().unwrap(), b"size>1 k=v/w");
    let link = fixture.path(".find/a=b").join(&first);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../sub/dir/x"));
    let text = fs::read(&link).unwrap();
    assert_eq!(text, fixture.path("sub/dir/x").as_os_str().as_bytes());
    let nested = fixture.path(".find/a=b/c=d/e=f").join(OsStr::from_bytes(b"b\n\xff"));
    assert_eq!(fs::read_link(&nested).unwrap().as_os_str().as_bytes(), b"../../../../sub/b\n\xff");
    assert!(fs::read(&nested).is_ok() && fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!fs::metadata(&link).unwrap().file_type().is_fifo());

    assert_eq!(fixture.names(".find"), BTreeSet::new());
    assert_eq!(fixture.names(""), set(&["a", "sub", "other"]));
    assert_eq!(refused(fs::metadata(fixture.path(".find/nonsense"))), Errno::NOENT);
    assert_eq!(refused(fs::metadata(fixture.path(".find/a=b/x"))), Errno::NOENT);
    let long = format!(".find/a={}", "b".repeat(254));
    assert_eq!(refused(fs::metadata(fixture.path(long))), Errno::NAMETOOLONG);
    let deep = format!(".find/{}", "a=b/".repeat(65));
    assert_eq!(refused(fs::metadata(fixture.path(deep))), Errno::NOENT);
}

#[test]
fn nothing_in_a_folder_can_be_changed() {
    let Some(fixture) = Fixture::new() else { return };
    if !geteuid().is_root() {
        return println!("skipped: the kernel refuses it to others by the modes");
    }
    fixture.fill(&[b"a", b"sub/x"]);
    let [folder, queries] = [".find/a=b", ".find"].map(|path| fixture.path(path));
    let [link, file] = [folder.join("x"), fixture.path("a")];
    let results = [
        fs::remove_file(&link),
        fs::create_dir(folder.join("new")),
        fs::create_dir(queries.join("new")),
        fs::write(folder.join("new"), b"x"),
        fs::rename(&link, fixture.path("x")),
        fs::rename(&file, folder.join("new")),
        fs::hard_link(&file, folder.join("new")),
        std::os::unix::fs::symlink("x", folder.join("new")),
        fs::remove_dir(&folder),
        fs::remove_dir(&queries),
    ];
    for (index, result) in results.into_iter().enumerate() {
        assert_eq!(refused(result), Errno::ROFS, "{index}");
    }
    let mode = fs::Permissions::from_mode(0o777);
    assert_eq!(refused(fs::set_permissions(&folder, mode)), Errno::PERM);
    assert!(fs::read(&file).is_ok());
}

#[test]
fn a_real_file_wins() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.fill(&[b"a", b"real/inside"]);
    let find = fixture.path(".find");
    assert_eq!(fixture.names(".find/a=b"), set(&["a", "inside"]));
    assert_eq!(refused(fs::create_dir(&find)), Errno::EXIST);
    fs::rename(fixture.path("real"), &find).unwrap();
    assert_eq!(fixture.names(".find"), set(&["inside"]));
    assert_eq!(fixture.names(""), set(&["a", ".find"]));
    fs::create_dir(find.join("new")).unwrap();
    fs::rename(&find, fixture.path("real")).unwrap();
    assert_eq!(fixture.names(".find/a=b"), set(&["a", "inside"]), "it is back");
    assert_eq!(fixture.names(".find"), BTreeSet::new());

    let control = fixture.path(".pelago-find");
    fs::metadata(&control).unwrap();
    fs::rename(fixture.path("a"), &control).unwrap();
    assert!(fs::read(&control).unwrap().ends_with(b"/a"));
    fs::remove_file(&control).unwrap();
    assert_eq!(fs::read(&control).map_err(|error| error.kind()).ok(), None);
    assert!(fs::metadata(&control).is_ok());
}

/// The kernel has one cache of names for all users: what it knows of one must help no other.
#[test]
fn a_user_sees_only_what_that_user_may_find() {
    let Some(fixture) = Fixture::new() else { return };
    if !geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    fixture.fill(&[b"secret", b"public", b"d/twin", b"e/twin"]);
    *fixture.server.of_nobody.lock() = vec![fixture.hit(b"public"), fixture.hit(b"e/twin")];
    let list = "ls -1 .find/a=b; cat .find/a=b/secret; stat -c %N .find/a=b/twin";
    for _ in 0..20 {
        assert_eq!(fixture.names(".find/a=b").len(), 4);
        let held = File::open(fixture.path(".find/a=b/secret")).unwrap();
        fs::symlink_metadata(fixture.path(".find/a=b/secret")).unwrap();
        let said = fixture.as_nobody(list).replace('\'', "");
        assert!(said.starts_with("public\ntwin\n.find/a=b/twin -> ../../e/twin\n"), "{said}");
        assert!(said.contains("secret: No such file or directory"), "{said}");
        assert_eq!(refused(fs::symlink_metadata(fixture.path(".find/a=b/twin"))), Errno::NOENT);
        drop(held);
    }
    // While another user looks up the same name over and over.
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                fs::symlink_metadata(fixture.path(".find/a=b/secret")).unwrap();
                assert_eq!(fixture.names(".find/a=b").len(), 4);
            }
        });
        let tries =
            "for n in $(seq 2000); do test -L .find/a=b/secret && echo $n; done; ls .find/a=b";
        let said = fixture.as_nobody(tries);
        ends.store(true, Ordering::Relaxed);
        assert_eq!(said, "public\ntwin\n");
    });
    let asked = fixture.server.searches.lock();
    let of_nobody = asked.iter().find(|(context, _)| context.uid == NOBODY).unwrap();
    assert!(!of_nobody.1.asker.reads_all && of_nobody.1.asker.groups.is_empty());
}

/// A namespace gives capabilities, but not over the files of others.
#[test]
fn root_of_a_user_namespace_reads_no_more_than_before() {
    let Some(fixture) = Fixture::new() else { return };
    if !geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    fixture.fill(&[b"secret"]);
    *fixture.server.of_nobody.lock() = Vec::new();
    let said = fixture.as_nobody("unshare -Ur sh -c 'id -u; ls -1 .find/a=b'");
    if !said.starts_with("0\n") {
        return println!("skipped: no user namespaces: {said}");
    }
    assert_eq!(said, "0\n");
    let asked = fixture.server.searches.lock();
    let (context, search) = asked.last().unwrap();
    assert_eq!((context.uid, search.asker.reads_all), (NOBODY, false));
}

#[test]
fn what_the_kernel_forgets_is_freed() {
    let Some(fixture) = Fixture::new() else { return };
    if let Some(reason) = cannot_prune() {
        return println!("skipped: {reason}");
    }
    let names: Vec<String> = (0..500).map(|n| format!("top/d/{n}")).collect();
    fixture.fill(&names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
    for query in 0..50 {
        fixture.names(&format!("top/.find/a={query}/b=c"));
        drop(control(&fixture.path("top/d")));
    }
    let held = File::open(fixture.path("top/.find/a=b/c=d")).unwrap();
    // Twice as many links as the table has room for: the kernel keeps each until it is asked
    // to forget it.
    let most = limits::FIND_NODES_BYTES / 256;
    for number in 0..2 * most / 500 {
        for name in 0..500 {
            fs::read_link(fixture.path(format!("top/.find/a={number}/{name}"))).unwrap();
        }
    }
    assert!(fixture.mount.hidden_files() < most, "{}", fixture.mount.hidden_files());
    assert_eq!(held.metadata().unwrap().mode() & 0o777, 0o555);
    drop(held);
    // With a directory the kernel forgets what is hidden in it.
    fs::remove_dir_all(fixture.path("top")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fixture.mount.hidden_files() > 0 {
        assert!(Instant::now() < deadline, "{} are left", fixture.mount.hidden_files());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_long_search_can_be_ended() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.server.is_endless.store(true, Ordering::SeqCst);
    let mut open = control(fixture.mount.point());
    open.write_all(b"a=b").unwrap();
    let mut some = [0; 100];
    for count in 1..5 {
        let read = open.read(&mut some).unwrap();
        assert_eq!(some[..read], *format!("progress {}\0", 10 * count).as_bytes());
    }
    let asked = || fixture.server.searches.lock().len();
    let before = asked();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut child = Command::new("ls").arg(fixture.path(".find/a=b")).spawn().unwrap();
    while asked() < before + 3 {
        assert!(Instant::now() < deadline, "ls does not ask");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // A search that went on would have its next page within 5 ms.
    loop {
        let before = asked();
        thread::sleep(Duration::from_millis(100));
        if asked() == before {
            break;
        }
        assert!(Instant::now() < deadline, "it goes on");
    }
}
