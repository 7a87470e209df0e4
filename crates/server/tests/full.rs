//! A medium that fills up: what was taken stays, names can go, and then there is room again.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::path::Path;

use pelago_server::{Options, Server, check};
use pelago_wire::{Code, Handle};

use harness::disk;

#[path = "harness/all.rs"]
mod harness;

/// A file system of its own, detached when dropped.
struct Medium<'a>(&'a Path);

impl Drop for Medium<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn on_a_full_medium_names_can_go_and_files_can_be_committed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    std::fs::create_dir(&path).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount("none", &path, "tmpfs", flags, c"size=200m") {
        println!("skipped: cannot mount a file system that fills up: {error}");
        return;
    }
    let _medium = Medium(&path);
    let dir = path.join("volume");
    let server = Server::start(&dir, Options::default()).unwrap();
    assert!(server.status().space.unwrap().holds_reserve);
    disk::put(&server, Handle::ROOT, "small", b"before").unwrap();
    let (_, open) = disk::create(&server, Handle::ROOT, "open").unwrap();
    disk::write(&server, open, 0, b"bytes").unwrap();

    let filler = vec![7; 4 << 20];
    let mut files = 0;
    let code = loop {
        match disk::put(&server, Handle::ROOT, &format!("f{files}"), &filler) {
            Ok(()) => files += 1,
            Err(code) => break code,
        }
        assert!(files < 100, "the medium does not fill up");
    };
    assert_eq!(code, Code::NoSpace);
    assert!(files > 10, "{files}");
    // A file that was open is committed, and everything can go.
    disk::close(&server, open).unwrap();
    for file in 0..files {
        disk::unlink(&server, Handle::ROOT, &format!("f{file}")).unwrap();
    }
    disk::unlink(&server, Handle::ROOT, &format!("f{files}")).ok();
    harness::until("there is room again", || {
        disk::put(&server, Handle::ROOT, "again", &filler).is_ok()
    });
    harness::until("the reserve is held again", || server.status().space.unwrap().holds_reserve);
    server.stop().unwrap();
    drop(server);
    let plan = check::plan(&dir).unwrap();
    assert!(plan.is_whole(), "{:?}", plan.findings);
    let server = Server::start(&dir, Options::default()).unwrap();
    assert_eq!(disk::lookup(&server, Handle::ROOT, "small").unwrap().attr.size, 6);
    assert_eq!(disk::lookup(&server, Handle::ROOT, "open").unwrap().attr.size, 5);
    server.stop().unwrap();
}
