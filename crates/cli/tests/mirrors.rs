//! `serve --mirrors` and `site promote`: refusals word for word, and a mirror that becomes a
//! volume.
//!
//! No test here mounts.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pelago_server::{MirrorStore, Options, Server};
use pelago_store::folder::Folder;
use pelago_store::key::{Key, VolumeRow};
use pelago_store::spool::GroupSum;
use pelago_store::table::TableRead as _;
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::volume::{Volume, VolumeOptions};
use pelago_wire::Time;
use pelago_wire::mirror::{GroupKind, GroupPart, Groups, Mirrors as _, RowChange, Via, VolumeFile};
use tempfile::TempDir;

use crate::harness::program::{Ran, pelago, run, until, wait};
use crate::harness::volume::folder;

/// A folder with mirrors, and a process that keeps them.
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

    /// Starts a process that keeps the mirrors of `m`.
    fn serve(&self) -> Child {
        let mut command = pelago(&self.root, SERVE);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("its status", || self.run(&["status", "m"]).code == Some(0));
        child
    }

    fn status(&self) -> serde_json::Value {
        self.run(&["status", "m", "--json"]).expect_success().json()
    }
}

const SERVE: [&str; 5] = ["serve", "m", "--mirrors", "--listen", "127.0.0.1:0"];

/// The rows of a volume in `dir`, as a mirror gets them.
fn rows_of(dir: &Path) -> Vec<GroupPart> {
    let volume = Volume::open(dir).unwrap();
    let table = FjallTable::open_in(volume.table(), fjall::Options::default()).unwrap();
    let mut rows = Vec::new();
    let scanned = table.scan(&[], &[], &mut |key, value| {
        if Key::parse(key) != Some(Key::Volume { row: VolumeRow::Mirror }) {
            let key = key.to_vec();
            let value = Some(value.to_vec());
            rows.push(GroupPart::Rows(vec![RowChange { key, value }]));
        }
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    rows
}

/// Sends a group that becomes safe, and carries it out.
fn send(groups: &mut dyn Groups, number: u64, kind: GroupKind, parts: &[GroupPart]) {
    let cut = Time { seconds: 3_600, nanos: 0 };
    let begin = GroupPart::Begin { number, kind, cut };
    let mut sum = GroupSum::default();
    for part in std::iter::once(&begin).chain(parts) {
        let body = part.encode().unwrap();
        sum.add(&body);
        assert_eq!(groups.take(&body), Ok(None));
    }
    let end = GroupPart::End { sum: sum.value() }.encode().unwrap();
    assert!(groups.take(&end).unwrap().is_some());
    groups.carry_out().unwrap();
}

/// Makes the mirror of a new volume in the folder `m`. Returns its path from the root.
fn mirror(home: &Home) -> String {
    let primary = home.root.join("primary");
    Server::start(&primary, Options::default()).unwrap().stop().unwrap();
    let id = Volume::open(&primary).unwrap().id();
    fs::create_dir(home.root.join("m")).unwrap();
    let store = MirrorStore::open(&Folder::open(&home.root.join("m")).unwrap()).unwrap();
    let mut groups = store.offer(id.0, 1, [1; 16], Via::Primary).unwrap();
    let file = |file, name: &str| {
        let bytes = Some(fs::read(primary.join(name)).unwrap());
        GroupPart::File { file, bytes }
    };
    let mut parts = vec![file(VolumeFile::Format, "format"), file(VolumeFile::Seed, "table/seed")];
    parts.extend(rows_of(&primary));
    send(&mut *groups, 1, GroupKind::Copy, &parts);
    send(&mut *groups, 2, GroupKind::Completion, &[]);
    format!("m/mirrors/{id}")
}

#[test]
fn a_folder_of_mirrors_and_a_volume_are_told_apart() {
    let home = Home::new();
    drop(Volume::create(&home.root.join("vol"), VolumeOptions::default()).unwrap());
    home.golden("mirrors-volume", &["serve", "vol", "--mirrors"]);
    fs::create_dir(home.root.join("foreign")).unwrap();
    fs::write(home.root.join("foreign/letter"), "dear").unwrap();
    home.golden("mirrors-foreign", &["serve", "foreign", "--mirrors"]);
    home.golden("mirrors-read-only", &["serve", "m", "--mirrors", "--read-only"]);
    let mut child = home.serve();
    home.golden("mirrors-up", &["up", "m"]);
    home.golden("mirrors-in-use", &SERVE);
    home.golden("mirrors-no-mirror", &["site", "promote", "m/mirrors/ab", "--force"]);
    let missing = format!("m/mirrors/{}", "ab".repeat(16));
    home.golden("mirrors-missing", &["site", "promote", &missing, "--force"]);
    let key = home.run(&["key", "show", "-V", "m"]).expect_success().out;
    let status = home.status();
    assert!(status["listening"].as_str().unwrap().starts_with(key.trim()), "{status}");
    assert_eq!(status["mirrors"], serde_json::json!([]));
    home.run(&["key", "allow", key.trim(), "-V", "m"]).expect_success();
    assert!(home.run(&["key", "list", "-V", "m"]).expect_success().out.contains(key.trim()));
    home.run(&["unmount", "m"]).expect_success();
    assert_eq!(wait(&mut child), Some(0));
    home.golden("mirrors-down", &["status", "m"]);
    home.golden("mirrors-unmount-again", &["unmount", "m"]);
}

#[test]
fn a_mirror_is_promoted_with_and_without_a_process() {
    for is_kept in [true, false] {
        let home = Home::new();
        let path = mirror(&home);
        let child = is_kept.then(|| home.serve());
        home.golden("mirrors-force", &["site", "promote", &path]);
        let refused = home.run(&["serve", &path]).expect_code(1);
        if is_kept {
            assert_eq!(home.status()["mirrors"][0]["group"], 2);
        }
        assert!(refused.err.contains("is not the primary of its volume"), "{refused:?}");
        let promoted = home.run(&["site", "promote", &path, "--force", "--json"]);
        let promoted = promoted.expect_success().json();
        assert_eq!((&promoted["reign"], &promoted["group"]), (&2.into(), &2.into()));
        assert_eq!(promoted["promoted"], home.root.join(&path).to_str().unwrap());
        let again = home.run(&["site", "promote", &path, "--force"]).expect_code(1);
        assert!(again.err.contains("was promoted before, with the reign 2"), "{again:?}");
        home.run(&["check", &path]).expect_success();
        Server::start(&home.root.join(&path), Options::default()).unwrap().stop().unwrap();
        if let Some(mut child) = child {
            assert_eq!(home.status()["mirrors"][0]["promoted"], 2);
            home.run(&["unmount", "m"]).expect_success();
            assert_eq!(wait(&mut child), Some(0));
        }
    }
}
