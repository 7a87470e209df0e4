//! A volume from before tags had rows, on a disk: it is served at once, gets the rows while it is
//! in use, and records in its format that they are complete.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use pelago_check::{self as check, Damage};
use pelago_server::{Options, Server};
use pelago_store::key::{self, RowKind};
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::table::{Batch, Table, TableRead};
use pelago_store::volume::{Format, Volume};
use pelago_wire::{Handle, Request, XattrFlags};

use crate::harness::requests;
use crate::harness::rig::DEADLINE;

const FILES: usize = 300;

fn tag(server: &Server, text: &str, value: &[u8]) {
    let node = requests::lookup(server, Handle::ROOT, text).unwrap().handle;
    let name = b"user.tag.project".to_vec();
    let value = value.to_vec();
    let flags = XattrFlags::Any;
    let request = Request::SetXattr { node, name, value, flags, kill_setgid: false };
    requests::call(server, request, &[]).unwrap();
}

/// Makes a volume with tagged files, as a program leaves it that knows no rows of tags.
fn volume_from_before(dir: &Path) {
    let server = Server::start(dir, Options::default()).unwrap();
    for at in 0..FILES {
        requests::put(&server, Handle::ROOT, &format!("f{at}"), b"").unwrap();
        tag(&server, &format!("f{at}"), b"reef");
    }
    server.stop().unwrap();
    let volume = Volume::open(dir).unwrap();
    assert!(volume.format().tags_are_complete(), "a new volume");
    let format = Format { needed_features: 0, ..*volume.format() };
    fs::write(dir.join("format"), format.encode()).unwrap();
    let table = FjallTable::open(&volume.table_dir(), fjall::Options::default()).unwrap();
    let mut batch = Batch::new();
    let range = key::all(RowKind::Tag);
    let visit = &mut |key: &[u8], _: &[u8]| {
        batch.delete(key.to_vec());
        ControlFlow::Continue(())
    };
    table.scan(&range.from, &range.to, visit).unwrap();
    assert_eq!(batch.changes().len(), FILES);
    table.write(&batch).unwrap();
    table.persist().unwrap();
    table.close().unwrap();
}

fn is_complete(dir: &Path) -> bool {
    let format = fs::read(dir.join("format")).unwrap();
    Format::decode(&format).unwrap().tags_are_complete()
}

#[test]
fn a_volume_from_before_gets_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("volume");
    volume_from_before(&dir);
    // Nothing is missing before the volume says that all are there.
    assert!(check::plan(&dir).unwrap().findings.is_empty());
    let server = Server::start(&dir, Options::default()).unwrap();
    let began = Instant::now();
    let mut at = 0;
    while !is_complete(&dir) {
        assert!(began.elapsed() < DEADLINE, "{:?}", server.status().workers);
        tag(&server, &format!("f{}", at % FILES), b"atoll");
        at += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let worker = server.status().workers.into_iter().find(|worker| worker.name == "tags").unwrap();
    assert!(worker.items > 0, "{worker:?}");
    drop(server);
    let plan = check::plan(&dir).unwrap();
    assert!(plan.is_whole(), "{:?}", plan.findings);
    // The next start has nothing to do.
    let server = Server::start(&dir, Options::default()).unwrap();
    assert!(server.status().workers.iter().all(|worker| worker.name != "tags"));
    server.stop().unwrap();
}

/// Nothing changes in a volume that is served read-only.
#[test]
fn a_volume_that_is_read_only_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("volume");
    volume_from_before(&dir);
    let server = Server::start(&dir, Options { read_only: true, ..Options::default() }).unwrap();
    assert!(server.status().workers.iter().all(|worker| worker.name != "tags"));
    server.stop().unwrap();
    check::apply(&dir).unwrap();
    assert!(!is_complete(&dir));
}

#[test]
fn a_row_that_is_missing_on_the_disk_is_found_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("volume");
    volume_from_before(&dir);
    let volume = Volume::open(&dir).unwrap();
    pelago_store::volume::set_tags_complete(volume.folder()).unwrap();
    drop(volume);
    let plan = check::plan(&dir).unwrap();
    let missing = plan.findings.iter().filter(|finding| finding.damage == Damage::TagMissing);
    assert_eq!((missing.count(), plan.damage), (FILES, FILES as u64));
    let applied = check::apply(&dir).unwrap();
    assert!(applied.after.findings.is_empty(), "{:?}", applied.after.findings);
}
