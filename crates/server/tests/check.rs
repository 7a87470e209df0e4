//! `check`, and starts, over damaged volumes on a disk: damage is found, reported and repaired, and
//! never spreads.

use std::fs;
use std::path::Path;

use pelago_check::{self as check, Damage};
use pelago_server::{Options, Server, StartError};
use pelago_store::hash::NameHasher;
use pelago_store::key;
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::table::{Batch, Table};
use pelago_store::volume::{Volume, VolumeError};
use pelago_wire::{Code, Entry, Handle, InodeId, Kind};

use crate::harness::requests;

fn put(server: &Server, text: &str, bytes: &[u8]) {
    requests::put(server, Handle::ROOT, text, bytes).unwrap();
}

fn lookup(server: &Server, text: &str) -> Result<Entry, Code> {
    requests::lookup(server, Handle::ROOT, text)
}

/// A volume with a small file and a large one, stopped cleanly.
fn volume(dir: &Path) -> InodeId {
    let server = Server::start(dir, Options::default()).unwrap();
    put(&server, "small", b"bytes");
    put(&server, "large", &[1; 100_000]);
    let large = lookup(&server, "large").unwrap().attr.ino;
    server.stop().unwrap();
    large
}

fn with_table(dir: &Path, change: impl FnOnce(NameHasher, &mut Batch)) {
    let volume = Volume::open(dir).unwrap();
    let table = FjallTable::open(&volume.table_dir(), fjall::Options::default()).unwrap();
    let mut batch = Batch::new();
    change(volume.hasher(), &mut batch);
    table.write(&batch).unwrap();
    table.persist().unwrap();
    table.close().unwrap();
}

#[test]
fn a_volume_is_whole_however_it_was_left() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("volume");
    volume(&dir);
    assert!(check::plan(&dir).unwrap().findings.is_empty());
    let server = Server::start(&dir, Options::default()).unwrap();
    assert!(server.status().started_clean);
    put(&server, "more", &[2; 50_000]);
    assert!(matches!(check::plan(&dir), Err(check::CheckError::Volume(VolumeError::InUse { .. }))));
    drop(server);
    let plan = check::plan(&dir).unwrap();
    assert!(plan.is_whole(), "{:?}", plan.findings);
    let server = Server::start(&dir, Options::default()).unwrap();
    assert!(!server.status().started_clean);
    assert_eq!(lookup(&server, "more").unwrap().attr.size, 50_000);
    server.stop().unwrap();
    assert!(check::plan(&dir).unwrap().findings.is_empty());
}

#[test]
fn damage_on_the_disk_is_found_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("volume");
    let large = volume(&dir);
    with_table(&dir, |hasher, batch| {
        let key = key::name(InodeId::ROOT, hasher.hash(b"large"), b"large");
        batch.put(key, b"damaged".to_vec());
    });
    // A server says so for that file, and serves the others.
    let server = Server::start(&dir, Options::default()).unwrap();
    assert_eq!(lookup(&server, "large").err(), Some(Code::Corrupt));
    assert_eq!(lookup(&server, "small").unwrap().attr.size, 5);
    server.stop().unwrap();
    let plan = check::plan(&dir).unwrap();
    assert!(plan.findings.iter().any(|finding| finding.damage == Damage::Row), "{plan:?}");
    assert!(!plan.is_whole());
    let applied = check::apply(&dir).unwrap();
    assert!(applied.after.findings.is_empty(), "{:?}", applied.after.findings);
    assert!(check::plan(&dir).unwrap().findings.is_empty());
    let server = Server::start(&dir, Options::default()).unwrap();
    assert!(server.status().started_clean);
    let found = lookup(&server, &format!("lost+found.{large}")).unwrap();
    assert_eq!((found.attr.ino, found.attr.size), (large, 100_000));
    server.stop().unwrap();
}

#[test]
fn a_volume_that_cannot_be_served_says_why_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("volume");
    volume(&dir);
    let second = Server::start(&dir, Options::default()).unwrap();
    let error = Server::start(&dir, Options::default()).err().unwrap();
    assert!(matches!(error, StartError::Volume(VolumeError::InUse { .. })), "{error}");
    second.stop().unwrap();
    drop(second);
    with_table(&dir, |_, batch| {
        batch.put(key::high_water(0), b"damaged".to_vec());
    });
    let error = Server::start(&dir, Options::default()).err().unwrap();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.to_string().contains("pelago check"), "{error}");
    assert!(!check::apply(&dir).unwrap().before.is_whole());
    Server::start(&dir, Options::default()).unwrap().stop().unwrap();

    let other = folder.path().join("other");
    volume(&other);
    fs::rename(dir.join("table"), folder.path().join("aside")).unwrap();
    fs::rename(other.join("table"), dir.join("table")).unwrap();
    let error = Server::start(&dir, Options::default()).err().unwrap();
    assert!(matches!(error, StartError::ForeignTable { .. }), "{error}");
    assert!(matches!(check::apply(&dir), Err(check::CheckError::Foreign { .. })));
}
