//! A search index beside the rows.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use pelago_index::{Covered, Document, Names};

use super::*;

/// Builds an index of all names but those of which `is_left_out` says so.
fn build(rig: &Rig, folder: &Path, is_left_out: impl Fn(&[u8]) -> bool) {
    let names = Names::open(folder).unwrap();
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
    Covered { epoch: 1, sequence, as_of: NOW, is_complete: true }
}

fn damage(rig: &Rig, folder: &Path) -> Vec<Damage> {
    let plan = plan_on(Parts { index: Some(folder), ..rig.parts() }).unwrap();
    plan.findings.iter().map(|finding| finding.damage).collect()
}

#[test]
fn an_index_that_lacks_a_name_is_removed() {
    let rig = Rig::new();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("index");
    assert!(damage(&rig, &folder).is_empty(), "there is none");
    fs::create_dir(&folder).unwrap();
    build(&rig, &folder, |_| false);
    assert!(damage(&rig, &folder).is_empty());
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    build(&rig, &folder, |name| name == b"small");
    assert_eq!(damage(&rig, &folder), [Damage::Index]);
    let applied = apply_on(Parts { index: Some(&folder), ..rig.parts() }).unwrap();
    assert_eq!((applied.repaired, applied.after.is_whole()), (1, true));
    assert!(!folder.exists());
}

#[test]
fn an_index_may_be_older_than_the_rows() {
    let rig = Rig::new();
    let folder = tempfile::tempdir().unwrap();
    build(&rig, folder.path(), |name| name == b"small");
    let names = Names::open(folder.path()).unwrap();
    names.commit(&covered(0)).unwrap();
    drop(names);
    assert!(damage(&rig, folder.path()).is_empty());
}

#[test]
fn a_damaged_index_is_found() {
    let rig = Rig::new();
    let folder = tempfile::tempdir().unwrap();
    build(&rig, folder.path(), |_| false);
    for entry in fs::read_dir(folder.path().join("names")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "idx" || end == "term") {
            fs::write(&path, b"not these bytes").unwrap();
        }
    }
    assert_eq!(damage(&rig, folder.path()), [Damage::Index]);
}
