//! A search index beside the rows.

use pelago_wire::ShardId;
use std::fs;
use std::ops::ControlFlow;

use pelago_index::{Covered, Document, Names, Origin};
use pelago_store::folder::Folder;
use pelago_store::rows::{HalfCommits, IndexCommits};

use super::*;

/// The number of the commit of the index.
const COMMIT: u64 = 5;

/// Builds an index of all names but those of which `is_left_out` says so, in the folder of a
/// volume.
fn build(rig: &Rig, volume: &Folder, is_left_out: impl Fn(&[u8]) -> bool) {
    let names = HalfCommits { last: COMMIT, before: 0 };
    let commits = IndexCommits { names, texts: HalfCommits::default() };
    rig.put(key::index_commits(ShardId::FIRST.shard), commits.encode(STAMP));
    let names = Names::open(&volume.create_folder("index").unwrap()).unwrap();
    let all = key::all(RowKind::Name);
    rig.table
        .scan(&all.from, &all.to, &mut |key, value| {
            let (dir, hash, name) = key::parse_name(key).unwrap();
            let (_, row) = NameRow::decode(value).unwrap();
            let (handle, attr) = match &row {
                NameRow::Rnode(rnode) => (Handle::at(rnode.ino, dir, hash), rnode.attr()),
                NameRow::Link { ino, kind } => {
                    (Handle::own(*ino), pelago_wire::Attr::empty(*ino, *kind))
                }
            };
            let document = Document {
                handle,
                name: name.to_vec(),
                kind: attr.kind,
                size: attr.size,
                mtime: attr.mtime,
                uid: attr.uid,
            };
            let mut documents = names.documents_of(handle.ino).unwrap();
            documents.extend((!is_left_out(name)).then_some(document));
            names.replace(handle.ino, &documents).unwrap();
            names.commit(&covered(u64::MAX)).unwrap();
            ControlFlow::Continue(())
        })
        .unwrap();
}

fn covered(sequence: u64) -> Covered {
    let origin = Origin { volume: [7; 16], commit: COMMIT };
    Covered { origin, epoch: 1, sequence, as_of: NOW, is_complete: true }
}

fn folder() -> (tempfile::TempDir, Folder) {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    (place, folder)
}

fn damage(rig: &Rig, volume: &Folder) -> Vec<Damage> {
    let plan = plan_on(Parts { index: Some(volume), ..rig.parts() }).unwrap();
    plan.findings.iter().map(|finding| finding.damage).collect()
}

#[test]
fn an_index_that_lacks_a_name_is_removed() {
    let rig = Rig::new();
    let (_place, folder) = folder();
    assert!(damage(&rig, &folder).is_empty(), "there is none");
    build(&rig, &folder, |_| false);
    assert!(damage(&rig, &folder).is_empty());
    folder.remove_tree("index").unwrap();
    build(&rig, &folder, |name| name == b"small");
    assert_eq!(damage(&rig, &folder), [Damage::Index]);
    let applied = apply_on(Parts { index: Some(&folder), ..rig.parts() }).unwrap();
    assert_eq!((applied.repaired, applied.after.is_whole()), (1, true));
    assert!(!folder.contains("index").unwrap());
}

#[test]
fn an_index_may_be_older_than_the_rows() {
    let rig = Rig::new();
    let (_place, folder) = folder();
    build(&rig, &folder, |name| name == b"small");
    let names = Names::open(&folder.open_folder("index").unwrap()).unwrap();
    names.commit(&covered(0)).unwrap();
    drop(names);
    assert!(damage(&rig, &folder).is_empty());
}

/// As after one of both was put back.
#[test]
fn an_index_of_another_commit_or_volume_is_found() {
    let rig = Rig::new();
    let (_place, folder) = folder();
    build(&rig, &folder, |_| false);
    let names = |last, before| IndexCommits {
        names: HalfCommits { last, before },
        texts: HalfCommits::default(),
    };
    let found = |commits: IndexCommits| {
        rig.put(key::index_commits(ShardId::FIRST.shard), commits.encode(STAMP));
        damage(&rig, &folder)
    };
    assert!(found(names(COMMIT + 1, COMMIT)).is_empty(), "a crash before the commit");
    assert_eq!(found(names(COMMIT + 2, COMMIT + 1)), [Damage::Index]);
    assert_eq!(found(IndexCommits::default()), [Damage::Index]);
    assert!(found(names(COMMIT, 0)).is_empty());
    let index = folder.open_folder("index").unwrap();
    let origin = Origin { volume: [8; 16], commit: COMMIT };
    Names::open(&index).unwrap().commit(&Covered { origin, ..covered(0) }).unwrap();
    assert_eq!(damage(&rig, &folder), [Damage::Index]);
}

#[test]
fn a_damaged_index_is_found() {
    let rig = Rig::new();
    let (place, folder) = folder();
    build(&rig, &folder, |_| false);
    for entry in fs::read_dir(place.path().join("index/names")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "idx" || end == "term") {
            fs::write(&path, b"not these bytes").unwrap();
        }
    }
    assert_eq!(damage(&rig, &folder), [Damage::Index]);
}

/// A file that another user could have put there is left alone.
#[test]
fn a_link_in_place_of_the_index_is_not_followed() {
    let rig = Rig::new();
    let (place, folder) = folder();
    std::os::unix::fs::symlink(place.path(), place.path().join("index")).unwrap();
    assert!(damage(&rig, &folder).is_empty());
    assert_eq!(folder.entries().unwrap(), ["index"]);
}
