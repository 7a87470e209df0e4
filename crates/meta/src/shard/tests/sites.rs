//! Directories whose name is at one site and whose rows are at another.
//!
//! A tree of two sites is made of two shards. What the server of one asks the other, the test asks
//! it.

use pelago_store::key;
use pelago_store::rows::{
    Access, AncestryRow, IntentChange, IntentRow, Row as _, SeenDir, Stamp, StayRow, StayState,
};
use pelago_store::table::{Batch, Table as _};
use pelago_store::volume::VolumeId;
use pelago_wire::{Attr, Error, limits};

use super::*;
use crate::recovery::{self, FirstRows};
use crate::shard::{Ancestors, Inherited, NameThere, Stepped};

const REPLACE: RenameFlags = RenameFlags::Replace;

/// The deletion of a record may be lost with the power, after programs have used the directory.
#[test]
fn a_record_that_cannot_be_finished_is_given_up() {
    let own = site(3);
    let other = site(0);
    let dir = dir_there(&own, &other, ROOT, "berlin");
    own.file(dir, "file", 1);
    let record = |change| {
        let NameThere { parent, name } = in_root();
        IntentRow { change, parent, name }.encode(Stamp { epoch: 1, sequence: 1 })
    };
    let absent = InodeId::new(3, 0, 99).unwrap().raw();
    let mut batch = Batch::new();
    batch.put(key::intent(dir.ino.raw()), record(IntentChange::Remove));
    batch.put(key::intent(absent), record(IntentChange::Make));
    own.table.write(&batch).unwrap();
    let cold = Rig { shard: Shard::new(parts_of(&own, 3)), table: own.table.clone() };
    cold.shard.set_has_sites();
    assert_eq!(cold.shard.take_up_intents().unwrap(), []);
    assert!(!cold.shard.is_closed(dir.ino));
    cold.file(dir, "another", 2);
    assert_eq!(cold.shard.intent(dir.ino).unwrap(), None);
}

/// The table has lost the batch that closed the directory, or the one that opened it.
#[test]
fn a_table_that_is_opened_again_tells_what_is_closed() {
    let own = site(3);
    let other = site(0);
    let dir = dir_there(&own, &other, ROOT, "berlin");
    own.table.persist().unwrap();
    own.shard.close_dir(dir, &in_root(), at(3)).unwrap();
    own.table.fail_sync();
    assert!(own.table.persist().is_err());
    assert!(own.shard.reopen().unwrap());
    assert!(!own.shard.is_closed(dir.ino));
    own.shard.close_dir(dir, &in_root(), at(4)).unwrap();
    own.table.persist().unwrap();
    own.shard.forget_intent(dir.ino).unwrap();
    own.table.fail_sync();
    assert!(own.table.persist().is_err());
    assert!(own.shard.reopen().unwrap());
    assert!(own.shard.is_closed(dir.ino));
    assert_eq!(own.shard.take_up_intents().unwrap().len(), 1);
}

/// A run of the shard of a site.
fn site(number: u16) -> Rig {
    let table = FakeTable::new();
    let id = ShardId { site: number, shard: 0 };
    let begun =
        recovery::begin(&table, VolumeId([7; 16]), id, &FirstRows::default(), at(1)).unwrap();
    let shard = Shard::new(Parts {
        id,
        table: Arc::new(table.clone()),
        hasher: NameHasher::new(u128::from(number)),
        durability: Arc::new(Durability::default()),
        epoch: begun.epoch,
        next_id: begun.next_id,
        cache_bytes: 1 << 20,
        started: at(1),
    });
    shard.set_has_sites();
    Rig { table, shard }
}

/// Makes a directory of `own` with a name in a directory of `other`, as its server does.
fn dir_there(own: &Rig, other: &Rig, parent: Handle, text: &str) -> Handle {
    let new = NewInode::directory(NewMode::exactly(0o755));
    let inherited = Inherited { parent: other.shard.attr(parent).unwrap(), default_acl: None };
    let place = NameThere { parent: parent.ino, name: name(text) };
    let made = own.shard.make_nameless_dir(&CALLER, new, &inherited, &place, at(2)).unwrap();
    let ino = made.handle.ino;
    other.shard.add_dir(&CALLER, parent, &name(text), ino, at(2)).unwrap();
    own.shard.forget_intent(ino).unwrap();
    made.handle
}

/// The name `berlin` in the root.
fn in_root() -> NameThere {
    NameThere { parent: InodeId::ROOT, name: name("berlin") }
}

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().map(|error| error.code)
}

#[test]
fn a_table_of_another_site_has_no_root() {
    let rig = site(3);
    assert_eq!(code(rig.shard.attr(ROOT)), Some(Code::Stale));
    let new = NewInode::directory(NewMode::exactly(0o755));
    let parent = Attr::empty(InodeId::ROOT, FileKind::Directory);
    let inherited = Inherited { parent, default_acl: None };
    let made = rig.shard.make_nameless_dir(&CALLER, new, &inherited, &in_root(), at(2)).unwrap();
    assert_eq!(made.handle.ino.site(), 3);
    assert_eq!((made.attr.links, made.attr.uid), (2, CALLER.uid));
    // It has no name, and can be used all the same: its own names are here.
    let file = rig.file(made.handle, "file", 3);
    assert_eq!(file.handle.ino.site(), 3);
    assert_eq!(rig.names(made.handle), strings(&["file"]));
    assert_eq!(code(rig.shard.parent(made.handle)), Some(Code::Elsewhere));
    let cold = Rig { shard: Shard::new(parts_of(&rig, 3)), table: rig.table.clone() };
    assert_eq!(cold.names(made.handle), strings(&["file"]));
    let ino = made.handle.ino;
    assert_eq!(code(rig.shard.remove_nameless_dir(ino, at(4))), Some(Code::NotEmpty));
    rig.shard.unlink(made.handle, &name("file"), at(4)).unwrap();
    let attr = rig.shard.remove_nameless_dir(ino, at(4)).unwrap();
    assert_eq!((attr.links, attr.ctime), (0, at(4)));
    assert_eq!(code(rig.shard.attr(made.handle)), Some(Code::Stale));
    assert_eq!(rig.shard.take_up_intents().unwrap(), []);
}

#[test]
fn a_new_directory_is_to_get_its_name_until_it_has_it() {
    let own = site(3);
    let other = site(0);
    let new = NewInode::directory(NewMode::exactly(0o755));
    let inherited = Inherited { parent: other.shard.attr(ROOT).unwrap(), default_acl: None };
    let made = own.shard.make_nameless_dir(&CALLER, new, &inherited, &in_root(), at(2)).unwrap();
    let ino = made.handle.ino;
    let cold = Rig { shard: Shard::new(parts_of(&own, 3)), table: own.table.clone() };
    let NameThere { parent, name: text } = in_root();
    let row = IntentRow { change: IntentChange::Make, parent, name: text };
    assert_eq!(cold.shard.take_up_intents().unwrap(), [(ino, row)]);
    // It is not being removed: it can be used.
    cold.file(made.handle, "file", 3);
    // The name is added once, however often it is asked for, and wherever it has moved.
    for _ in 0..2 {
        other.shard.add_dir(&CALLER, ROOT, &name("berlin"), ino, at(2)).unwrap();
    }
    other.rename(ROOT, "berlin", ROOT, "b", REPLACE).unwrap();
    other.shard.add_dir(&CALLER, ROOT, &name("berlin"), ino, at(4)).unwrap();
    assert_eq!(other.names(ROOT), strings(&["b"]));
    cold.shard.forget_intent(ino).unwrap();
    assert_eq!(cold.shard.take_up_intents().unwrap(), []);
}

#[test]
fn a_directory_that_is_being_removed_is_closed_also_after_a_start() {
    let own = site(3);
    let other = site(0);
    let dir = dir_there(&own, &other, ROOT, "berlin");
    own.file(dir, "file", 1);
    let close = |rig: &Rig| rig.shard.close_dir(dir, &in_root(), at(3));
    assert_eq!(code(close(&own)), Some(Code::NotEmpty));
    own.shard.unlink(dir, &name("file"), at(3)).unwrap();
    assert_eq!(close(&own).unwrap().ino, dir.ino);
    assert_eq!(code(close(&own)), Some(Code::Busy));
    let is_closed = |rig: &Rig| {
        let create = NewInode::file(NewMode::exactly(0o644));
        let made = rig.shard.create(&CALLER, dir, &name("late"), create, at(4));
        assert_eq!(code(made), Some(Code::NotFound));
        let sub = NewInode::directory(NewMode::exactly(0o755));
        let made = rig.shard.create(&CALLER, dir, &name("late"), sub, at(4));
        assert_eq!(code(made), Some(Code::NotFound));
        assert_eq!(code(rig.shard.lookup(dir, &name("late"))), Some(Code::NotFound));
        // It is still there.
        assert_eq!(rig.shard.attr(dir).unwrap().links, 2);
    };
    is_closed(&own);
    let cold = Rig { shard: Shard::new(parts_of(&own, 3)), table: own.table.clone() };
    assert_eq!(cold.shard.take_up_intents().unwrap().len(), 1);
    is_closed(&cold);
    cold.shard.forget_intent(dir.ino).unwrap();
    // Until that is safe.
    assert_eq!(code(close(&cold)), Some(Code::Busy));
    assert!(cold.shard.is_closed(dir.ino));
    cold.shard.open_dir(dir.ino);
    cold.file(dir, "file", 5);
    cold.shard.unlink(dir, &name("file"), at(6)).unwrap();
    close(&cold).unwrap();
    // Another name, and a name that leads to another directory, are not removed.
    let dropped = |text: &str, ino| other.shard.drop_dir(&CALLER, ROOT, &name(text), ino, at(7));
    assert_eq!(code(dropped("munich", dir.ino)), Some(Code::NotFound));
    let second = dir_there(&own, &other, ROOT, "second");
    assert_eq!(code(dropped("second", dir.ino)), Some(Code::NotFound));
    dropped("berlin", dir.ino).unwrap();
    assert_eq!(other.names(ROOT), strings(&["second"]));
    assert_eq!(other.shard.attr(ROOT).unwrap().links, 3);
    assert_eq!(code(other.shard.step_up(dir)), Some(Code::Elsewhere));
    assert_eq!(cold.shard.remove_nameless_dir(dir.ino, at(8)).unwrap().links, 0);
    assert_eq!(code(cold.shard.attr(dir)), Some(Code::Stale));
    assert_eq!(cold.shard.take_up_intents().unwrap(), []);
    assert_eq!(cold.shard.intent(dir.ino).unwrap(), None);
    // One that has its name here is removed by that.
    let local = own.dir(second, "local", 9);
    assert_eq!(code(own.shard.close_dir(local.handle, &in_root(), at(9))), Some(Code::Invalid));
}

fn parts_of(rig: &Rig, number: u16) -> Parts {
    Parts {
        id: ShardId { site: number, shard: 0 },
        table: Arc::new(rig.table.clone()),
        hasher: NameHasher::new(u128::from(number)),
        durability: Arc::new(Durability::default()),
        epoch: 9,
        next_id: 9000,
        cache_bytes: 1 << 20,
        started: at(900),
    }
}

#[test]
fn a_name_leads_to_a_directory_of_another_site() {
    let first = site(0);
    let berlin = site(1);
    let dir = dir_there(&berlin, &first, ROOT, "berlin");
    assert_eq!(first.lookup(ROOT, "berlin"), Err(Code::Elsewhere));
    let stepped = first.shard.step(ROOT, &name("berlin")).unwrap();
    assert_eq!(stepped, Stepped { node: dir, attr: None });
    assert_eq!(first.names(ROOT), strings(&["berlin"]));
    assert_eq!(first.links(ROOT), 3, "its `..` counts");
    // The way up is asked where the name is.
    assert_eq!(first.shard.step_up(dir).unwrap().node, ROOT);
    assert_eq!(code(berlin.shard.step_up(dir)), Some(Code::Elsewhere));
    assert_eq!(code(berlin.shard.step_up(ROOT)), Some(Code::Elsewhere));
}

#[test]
fn a_directory_gets_one_name_and_only_of_another_site() {
    let first = site(0);
    let berlin = site(1);
    let dir = dir_there(&berlin, &first, ROOT, "berlin");
    let add = |text: &str, ino| code(first.shard.add_dir(&CALLER, ROOT, &name(text), ino, at(3)));
    assert_eq!(add("berlin", InodeId::new(1, 0, 99).unwrap()), Some(Code::Exists));
    assert_eq!(add("again", dir.ino), None);
    assert_eq!(first.names(ROOT), strings(&["berlin"]), "it has its name");
    assert_eq!(add("own", InodeId::new(0, 0, 99).unwrap()), Some(Code::Invalid));
    let of_mount = InodeId::new(InodeId::MOUNT_SITE, 0, 99).unwrap();
    assert_eq!(add("mount", of_mount), Some(Code::Invalid));
    let file = first.file(ROOT, "file", 3).handle;
    let in_file = first.shard.add_dir(&CALLER, file, &name("x"), of_mount, at(3));
    assert!(in_file.is_err());
    assert_eq!(first.names(ROOT), strings(&["berlin", "file"]));
}

#[test]
fn what_would_need_both_sites_is_refused() {
    let first = site(0);
    let berlin = site(1);
    dir_there(&berlin, &first, ROOT, "berlin");
    let own = first.dir(ROOT, "own", 3).handle;
    first.file(ROOT, "file", 3);
    assert_eq!(code(first.shard.unlink(ROOT, &name("berlin"), at(4))), Some(Code::IsDirectory));
    assert_eq!(code(first.shard.remove_dir(ROOT, &name("berlin"), at(4))), Some(Code::Elsewhere));
    let onto = |from, flags| first.rename(ROOT, from, ROOT, "berlin", flags).map(drop);
    assert_eq!(onto("own", REPLACE), Err(Code::Elsewhere));
    assert_eq!(onto("file", REPLACE), Err(Code::IsDirectory));
    assert_eq!(onto("own", RenameFlags::NoReplace), Err(Code::Exists));
    for (from, to) in [("own", "berlin"), ("berlin", "own"), ("file", "berlin")] {
        let exchanged = first.rename(ROOT, from, ROOT, to, RenameFlags::Exchange);
        assert_eq!(exchanged.map(drop), Err(Code::Elsewhere), "{from} {to}");
    }
    first.file(own, "x", 4);
    let replaced = first.rename(ROOT, "berlin", ROOT, "own", REPLACE);
    assert_eq!(replaced.map(drop), Err(Code::NotEmpty));
    assert_eq!(first.names(ROOT), strings(&["berlin", "file", "own"]));
}

#[test]
fn the_name_of_a_directory_of_another_site_moves() {
    let first = site(0);
    let berlin = site(1);
    let dir = dir_there(&berlin, &first, ROOT, "berlin");
    let below = first.dir(ROOT, "below", 3).handle;
    let empty = first.dir(ROOT, "empty", 3).handle;
    first.rename(ROOT, "berlin", below, "bonn", REPLACE).unwrap();
    assert_eq!(first.shard.step(below, &name("bonn")).unwrap().node, dir);
    assert_eq!(first.shard.step_up(dir).unwrap().node, below);
    assert_eq!((first.links(ROOT), first.links(below)), (4, 3));
    // Over an empty directory of the own site.
    first.rename(below, "bonn", ROOT, "empty", REPLACE).unwrap();
    assert_eq!(first.shard.step_up(dir).unwrap().node, ROOT);
    assert_eq!(code(first.shard.attr(empty)), Some(Code::Stale));
    assert_eq!(first.names(ROOT), strings(&["below", "empty"]));
    let cold = first.cold();
    cold.shard.set_has_sites();
    assert_eq!(cold.names(ROOT), strings(&["below", "empty"]));
}

/// `/berlin/rome/inner`: berlin and inner of site 1, rome of site 0.
#[test]
fn no_move_makes_a_loop_of_two_sites() {
    let first = site(0);
    let berlin = site(1);
    let top = dir_there(&berlin, &first, ROOT, "berlin");
    let rome = dir_there(&first, &berlin, top, "rome");
    let inner = dir_there(&berlin, &first, rome, "inner");
    let plain = first.dir(ROOT, "plain", 3).handle;
    first.dir(plain, "deep", 3);
    first.file(first.lookup(plain, "deep").unwrap().handle, "x", 3);
    berlin.dir(top, "a", 3);
    let within = berlin.dir(top, "b", 3).handle;
    berlin.file(berlin.lookup(top, "a").unwrap().handle, "x", 3);
    // Within one part of the tree of a site directories move.
    berlin.rename(top, "a", within, "a", REPLACE).unwrap();
    berlin.rename(within, "a", top, "a", REPLACE).unwrap();
    // berlin, a directory of the other site, does not move below itself.
    let moved = first.rename(ROOT, "berlin", rome, "berlin", REPLACE);
    assert_eq!(moved.map(drop), Err(Code::CrossHome));
    // Nor does anything move to a part that other directories separate from its own.
    let moved = first.rename(ROOT, "plain", rome, "plain", REPLACE);
    assert_eq!(moved.map(drop), Err(Code::CrossHome));
    let moved = berlin.rename(top, "a", inner, "a", REPLACE);
    assert_eq!(moved.map(drop), Err(Code::CrossHome));
    let moved = berlin.rename(top, "rome", inner, "rome", REPLACE);
    assert_eq!(moved.map(drop), Err(Code::CrossHome));
    // Out of it, to where the root is reached at this site, it may.
    first.rename(rome, "inner", plain, "inner", REPLACE).unwrap();
    assert_eq!(first.shard.step_up(inner).unwrap().node, plain);
    let other = first.dir(rome, "other", 3).handle;
    first.file(other, "x", 3);
    let there = first.rename(plain, "deep", rome, "other", RenameFlags::Exchange);
    assert_eq!(there.map(drop), Err(Code::CrossHome));
    let back = first.rename(rome, "other", plain, "deep", RenameFlags::Exchange);
    assert_eq!(back.map(drop), Err(Code::CrossHome));
}

/// A long way up that leaves the site is climbed without the lock, and ends the same.
#[test]
fn a_long_way_up_leaves_the_site_too() {
    let first = site(0);
    let berlin = site(1);
    let [one, other] = ["one", "other"].map(|text| dir_there(&berlin, &first, ROOT, text));
    let chain = |top: Handle| {
        let mut here = top;
        for _ in 0..3 * limits::CLIMB_STEPS {
            here = berlin.dir(here, "d", 3).handle;
        }
        here
    };
    let deep = chain(one);
    let far = chain(other);
    let moved = berlin.dir(one, "moved", 3).handle;
    berlin.file(moved, "x", 3);
    berlin.rename(one, "moved", deep, "moved", REPLACE).unwrap();
    let across = berlin.rename(deep, "moved", far, "moved", REPLACE);
    assert_eq!(across.map(drop), Err(Code::CrossHome));
    let below = berlin.rename(one, "d", deep, "d", REPLACE);
    assert_eq!(below.map(drop), Err(Code::WouldLoop));
}

#[test]
fn a_directory_inherits_from_one_of_another_site() {
    let first = site(0);
    let berlin = site(1);
    let parent = first.dir(ROOT, "team", 3).handle;
    let set = SetAttr { mode: Some(0o2775), gid: Some(77), ..SetAttr::default() };
    first.shard.set_attr(parent, &set, at(4)).unwrap();
    let dir = dir_there(&berlin, &first, parent, "berlin");
    let attr = berlin.shard.attr(dir).unwrap();
    assert_eq!((attr.gid, attr.mode & 0o7777), (77, 0o2755));
    let acl = b"garbage".to_vec();
    let inherited = Inherited { parent: first.shard.attr(parent).unwrap(), default_acl: Some(acl) };
    let place = NameThere { parent: parent.ino, name: name("berlin") };
    let new = NewInode::directory(NewMode::exactly(0o755));
    let made = berlin.shard.make_nameless_dir(&CALLER, new, &inherited, &place, at(5));
    assert!(made.is_err(), "{made:?}");
}

#[test]
fn the_directories_above_a_part_of_another_site_are_not_known() {
    let first = site(0);
    let berlin = site(1);
    let top = dir_there(&berlin, &first, ROOT, "berlin");
    let dir = berlin.dir(top, "dir", 3).handle;
    let file = berlin.file(dir, "file", 3).handle;
    let position = berlin.shard.placement(file, false).unwrap();
    assert_eq!(*position.dirs, [dir.ino]);
    let found = berlin.shard.ancestors(dir.ino, position.directory_moves).unwrap();
    let dirs = vec![top.ino, dir.ino];
    assert_eq!(found, Ancestors { dirs, is_complete: false, has_more: false });
    assert_eq!(*berlin.shard.placement(top, false).unwrap().dirs, [top.ino]);
}

#[test]
fn what_was_seen_of_another_site_is_there_in_the_next_run() {
    let rig = site(1);
    let row = |names| AncestryRow {
        parent: None,
        seen: SeenDir::of(&Attr::empty(InodeId::ROOT, FileKind::Directory)),
        access: Access::ModeOnly,
        names,
    };
    let own = InodeId::new(1, 0, 9).unwrap();
    let other = InodeId::new(0, 0, 9).unwrap();
    let root = row(vec![(name("berlin"), own)]);
    let rows = [(InodeId::ROOT, Some(root.clone())), (other, Some(row(vec![])))];
    rig.shard.put_ancestry(&rows).unwrap();
    let next = Shard::new(parts_of(&rig, 1));
    assert_eq!(next.ancestry(), Ok(vec![(InodeId::ROOT, root.clone()), (other, row(vec![]))]));
    next.put_ancestry(&[(other, None)]).unwrap();
    assert_eq!(next.ancestry(), Ok(vec![(InodeId::ROOT, root)]));
    // A damaged row costs itself alone.
    let mut batch = Batch::new();
    batch.put(key::ancestry(InodeId::ROOT), b"damage".to_vec());
    rig.table.write(&batch).unwrap();
    assert_eq!(next.ancestry(), Ok(vec![]));
}

/// A node for bytes of another site's file has no name, and goes once it is not open.
#[test]
fn a_node_for_bytes_of_another_site_outlives_its_opens() {
    let own = site(3);
    let file = Handle::at(InodeId::new(0, 0, 5).unwrap(), ROOT.ino, NameHash(7));
    let row = StayRow { file, state: StayState::New, since: at(1), told_size: 0 };
    let node = own.shard.make_stay(&row, at(2)).unwrap();
    own.shard.acquire(Handle::own(node)).unwrap();
    assert!(!own.shard.release(node), "the worker has nothing to remove");
    let told = StayRow { state: StayState::Told, told_size: 9, ..row };
    own.shard.put_stay(node, &told).unwrap();
    let next = Shard::new(parts_of(&own, 3));
    assert_eq!(next.stays(), Ok(vec![(node, told)]));
    assert_eq!(next.attr(Handle::own(node)).unwrap().links, 1);
    assert_eq!(next.dirs_named_elsewhere(9), Ok(vec![]));
    // While it is open its rows stay, and then the worker removes them.
    next.acquire(Handle::own(node)).unwrap();
    assert_eq!(next.end_stay(node, at(3)), Ok(false));
    assert_eq!(next.stays(), Ok(vec![]));
    assert!(next.remove_unnamed(node).unwrap().is_none());
    assert!(next.release(node));
    assert!(next.remove_unnamed(node).unwrap().is_some());
    assert_eq!(next.end_stay(node, at(4)).map_err(|error| error.code), Err(Code::Stale));
}
