//! Writes that fail (I-1): they change nothing, in memory or in the table, so that the same
//! operation can be tried again.

use pelago_store::table;

use super::*;

/// The root with a directory `d` and a file `f`, and an open file without a name.
struct Scene {
    rig: Rig,
    dir: Handle,
    file: Handle,
    unnamed: Handle,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::new();
        let dir = rig.dir(ROOT, "d", 110).handle;
        let file = rig.file(ROOT, "f", 111).handle;
        let unnamed = rig.unnamed(112).handle;
        Self { rig, dir, file, unnamed }
    }

    /// Runs an operation while the table fails.
    fn assert_unchanged_by<T>(&self, run: impl FnOnce(&Shard) -> Result<T, pelago_wire::Error>) {
        let seen = || {
            let attr = |handle| self.rig.shard.attr(handle).unwrap();
            (self.rig.names(ROOT), attr(ROOT), attr(self.file), attr(self.unnamed))
        };
        let before = seen();
        self.rig.table.fail_at(0, table::Error::NoSpace);
        let failed = run(&self.rig.shard).map(drop);
        assert_eq!(failed.unwrap_err().code, Code::NoSpace);
        assert_eq!(seen(), before);
    }
}

fn new_file() -> NewInode {
    NewInode::file(NewMode::exactly(0))
}

#[test]
fn a_failed_create_changes_nothing() {
    let scene = Scene::new();
    scene.assert_unchanged_by(|shard| {
        shard.create_open(&CALLER, ROOT, &name("x"), new_file(), at(200))
    });
    scene.assert_unchanged_by(|shard| shard.create_unnamed(&CALLER, ROOT, new_file(), at(200)));
    scene.rig.file(ROOT, "x", 210);
}

#[test]
fn a_failed_removal_changes_nothing() {
    let scene = Scene::new();
    scene.assert_unchanged_by(|shard| shard.unlink(ROOT, &name("f"), at(200)));
    scene.assert_unchanged_by(|shard| shard.remove_dir(ROOT, &name("d"), at(200)));
}

#[test]
fn a_failed_rename_changes_nothing() {
    let scene = Scene::new();
    let from = name("f");
    let to = name("g");
    let names = Move { from_dir: ROOT, from: &from, to_dir: scene.dir, to: &to };
    for flags in [RenameFlags::Replace, RenameFlags::Whiteout { replace: true }] {
        scene.assert_unchanged_by(|shard| shard.rename(&CALLER, names, flags, at(200)));
    }
}

#[test]
fn a_failed_link_changes_nothing() {
    let scene = Scene::new();
    for file in [scene.file, scene.unnamed] {
        scene.assert_unchanged_by(|shard| shard.link(file, ROOT, &name("l"), at(200)));
    }
}

#[test]
fn a_failed_change_of_attributes_changes_nothing() {
    let scene = Scene::new();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let time = SetAttr { mtime: Some(SetTime::To(at(9))), ..SetAttr::default() };
    scene.assert_unchanged_by(|shard| shard.set_attr(scene.file, &mode, at(200)));
    scene.assert_unchanged_by(|shard| shard.set_attr(ROOT, &time, at(200)));
}

#[test]
fn counts_that_could_not_be_written_are_written_the_next_time() {
    let scene = Scene::new();
    scene.assert_unchanged_by(|shard| shard.write_counts());
    scene.rig.shard.write_counts().unwrap();
    let root = scene.rig.shard.attr(ROOT).unwrap();
    assert_eq!(scene.rig.cold().shard.attr(ROOT).unwrap(), root);
}

#[test]
fn a_file_whose_link_failed_stays_an_orphan_until_it_is_linked() {
    let scene = Scene::new();
    let ino = scene.unnamed.ino;
    let is_orphan = || scene.rig.table.get(&key::orphan(ino)).unwrap().is_some();
    scene.assert_unchanged_by(|shard| shard.link(scene.unnamed, ROOT, &name("l"), at(200)));
    assert!(is_orphan());
    scene.rig.shard.link(scene.unnamed, ROOT, &name("l"), at(220)).unwrap();
    assert!(!is_orphan());
    assert!(!scene.rig.shard.release(ino), "it has a name");
}
