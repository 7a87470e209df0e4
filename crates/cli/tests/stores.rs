//! `serve --store`: refusals word for word, after which nothing was created, and the output of a
//! server.
//!
//! No test here mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pelago_store::volume::{Volume, VolumeOptions};
use tempfile::TempDir;

use crate::harness::program::{Ran, pelago, run, until, wait};
use crate::harness::volume::folder;

/// A folder with stores and the folders of their servers.
struct Home {
    root: PathBuf,
    _folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let (folder, root) = folder();
        Self { root, _folder: folder }
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut pelago(&self.root, args))
    }

    fn golden(&self, name: &str, args: &[&str]) {
        crate::harness::golden::expect_golden(name, &self.root, &self.run(args));
    }

    /// Starts a server of the store `s` in the folder `dir`.
    fn serve(&self, dir: &str) -> Child {
        let mut command = pelago(&self.root, &serve(dir, "s")[..]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("its status", || self.run(&["status", dir]).code == Some(0));
        child
    }

    fn state(&self, dir: &str) -> String {
        let status = self.run(&["status", dir, "--json"]).expect_success().json();
        status["state"].as_str().unwrap().to_owned()
    }

    fn stop(&self, dir: &str, mut server: Child) {
        self.run(&["unmount", dir]).expect_success();
        assert_eq!(wait(&mut server), Some(0));
    }

    fn names(&self) -> Vec<String> {
        names(&self.root)
    }
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(|it| name(it.unwrap())).collect();
    names.sort();
    names
}

fn serve<'a>(dir: &'a str, store: &'a str) -> [&'a str; 6] {
    ["serve", dir, "--store", store, "--listen", "127.0.0.1:0"]
}

#[test]
fn a_folder_that_does_not_fit_is_refused_and_nothing_is_made() {
    let home = Home::new();
    fs::create_dir(home.root.join("other")).unwrap();
    fs::write(home.root.join("other/file"), "mine").unwrap();
    drop(Volume::create(&home.root.join("v"), VolumeOptions::default()).unwrap());
    home.golden("store-shards", &["serve", "a", "--store", "s", "--shards", "4"]);
    home.golden("store-shards-alone", &["serve", "a", "--shards", "1"]);
    home.golden("store-in-own-folder", &serve("other", "s"));
    home.golden("store-in-own-volume", &serve("v", "s"));
    home.golden("store-foreign", &serve("a", "other"));
    home.golden("store-volume", &serve("a", "v"));
    assert_eq!(home.names(), ["other", "v"], "nothing is made");
    assert_eq!(names(&home.root.join("other")), ["file"]);
}

#[test]
fn two_stores_are_not_mixed_up() {
    let home = Home::new();
    let first = home.serve("a");
    home.stop("a", first);
    // Its server is of the store that it has served.
    home.golden("store-other", &serve("a", "t"));
    assert_eq!(home.names(), ["a", "s"], "nothing is made");
    home.golden("store-up", &["up", "s"]);
    home.golden("store-up-server", &["up", "a"]);
    home.golden("store-down", &["status", "a"]);
    home.golden("store-check-apply", &["check", "s", "--apply"]);
    home.golden("store-check", &["check", "a"]);
}

/// The file system of the store is not mounted, or another one is in its place.
#[test]
fn a_store_that_is_gone_is_not_made_again() {
    let home = Home::new();
    let first = home.serve("a");
    home.stop("a", first);
    let at = |name: &str| home.root.join(name);
    fs::rename(at("s"), at("moved")).unwrap();
    fs::create_dir(at("s")).unwrap();
    home.golden("store-gone", &serve("a", "s"));
    assert!(names(&at("s")).is_empty(), "nothing is made");
    fs::remove_dir(at("s")).unwrap();
    home.golden("store-missing", &serve("a", "s"));
    let other = home.serve("b");
    home.stop("b", other);
    let refused = home.run(&serve("a", "s"));
    assert!(refused.err.contains("and this server belongs to"), "{refused:?}");
    home.golden("store-inside", &serve("c", "c/s"));
    assert!(!at("c").exists(), "nothing is made");
}

/// A store that is moved away under a server that stands by is not made again when it takes over.
#[test]
fn a_store_that_moves_away_is_not_made_again_by_a_takeover() {
    let home = Home::new();
    let mut first = home.serve("a");
    let second = home.serve("b");
    fs::rename(home.root.join("s"), home.root.join("moved")).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    until("it says why it does not take it", || {
        home.run(&["status", "b"]).out.contains("trouble   ")
    });
    assert!(!home.root.join("s").exists(), "nothing is made");
    fs::rename(home.root.join("moved"), home.root.join("s")).unwrap();
    until("it owns the volume", || home.state("b") == "up");
    home.stop("b", second);
}

#[test]
fn a_folder_of_a_server_has_one_server() {
    let home = Home::new();
    let server = home.serve("a");
    assert_eq!(home.state("a"), "up");
    let again = home.run(&serve("a", "s"));
    assert!(again.err.contains("is in use by process"), "{again:?}");
    let checked = home.run(&["check", "s"]);
    assert!(checked.err.contains("a server owns the volume"), "{checked:?}");
    home.stop("a", server);
}

#[test]
fn a_second_server_stands_by_until_the_first_one_is_stopped() {
    let home = Home::new();
    let first = home.serve("a");
    let second = home.serve("b");
    assert_eq!((home.state("a"), home.state("b")), ("up".to_owned(), "stands by".to_owned()));
    let refused = home.run(&["site", "invite", "berlin", "-V", "b"]);
    assert!(refused.err.contains("this server stands by"), "{refused:?}");
    home.stop("a", first);
    until("the second one owns the volume", || home.state("b") == "up");
    home.stop("b", second);
    assert_eq!(names(&home.root.join("s/alive")), [""; 0], "each has taken its file away");
    let shard = names(&home.root.join("s/shard/0"));
    assert_eq!(shard.len(), 3, "a released baton, one folder, and that it has begun: {shard:?}");
}

/// A restart of the same server takes the volume at once, also after a kill.
#[test]
fn a_server_that_was_killed_takes_its_volume_again_at_once() {
    let home = Home::new();
    let mut first = home.serve("a");
    first.kill().unwrap();
    first.wait().unwrap();
    let again = home.serve("a");
    assert_eq!(home.state("a"), "up", "without a wait for its own death");
    home.stop("a", again);
    assert!(home.run(&["check", "s"]).expect_success().out.contains("whole"));
}
