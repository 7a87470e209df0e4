//! A volume of several sites: what is of another one is no damage.

use pelago_store::rows::{
    Access, AncestryRow, IntentChange, IntentRow, SeenDir, StayRow, StayState,
};
use pelago_wire::{Attr, Handle, Time};

use super::*;
use crate::Damage;

/// A directory whose home is site 2.
const FOREIGN: u64 = (2 << 48) + 7;

fn foreign() -> InodeId {
    InodeId::from_raw(FOREIGN)
}

/// A name and a parent pointer of a directory of site 2, a directory of ours without a name, and a
/// content file of site 2.
fn with_sites() -> Rig {
    let rig = Rig::new();
    let hash = rig.hasher.hash(b"berlin");
    let link = NameRow::Link { ino: foreign(), kind: FileKind::Directory };
    rig.put(key::name(InodeId::ROOT, hash, b"berlin"), link.encode(STAMP));
    let pointer = key::parent_pointer(foreign(), InodeId::ROOT, hash, b"berlin");
    rig.put(pointer, ParentPointer.encode(STAMP));
    let partition =
        Partition::decode(&rig.table.get(&key::partition(InodeId::ROOT, 0)).unwrap().unwrap())
            .unwrap()
            .1;
    let counted = Partition {
        names: partition.names + 1,
        directories: partition.directories + 1,
        ..partition
    };
    rig.put(key::partition(InodeId::ROOT, 0), counted.encode(STAMP));
    let ino = InodeId::from_raw(rig.dir.attr.ino.raw() + 40);
    let nameless = Rnode { ino, ..Rnode::root(Default::default(), NOW) };
    rig.put(key::inode(ino), nameless.encode(STAMP));
    rig.put(key::high_water(0), HighWater { next: 100 }.encode(STAMP));
    let content = InodeId::from_raw(FOREIGN + 1);
    rig.content.create(content, Generation::FIRST).unwrap().write_at(b"kept", 0).unwrap();
    rig
}

fn found(parts: Parts<'_>) -> Vec<Damage> {
    plan_on(parts).unwrap().findings.iter().map(|finding| finding.damage).collect()
}

#[test]
fn what_is_of_another_site_is_no_damage() {
    let rig = with_sites();
    let parts = Parts { has_sites: true, ..rig.parts() };
    let plan = plan_on(parts).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    assert_eq!(plan.checked.named_elsewhere, 1);
    // Without the feature each of them is damage.
    let damage = found(rig.parts());
    for expected in [Damage::NameOfNothing, Damage::NameMissing, Damage::Lost, Damage::ContentStray]
    {
        assert!(damage.contains(&expected), "{expected:?}: {damage:?}");
    }
}

#[test]
fn a_half_of_a_name_of_another_site_is_damage() {
    let hash = |rig: &Rig| rig.hasher.hash(b"berlin");
    let rig = with_sites();
    rig.delete(key::name(InodeId::ROOT, hash(&rig), b"berlin"));
    let damage = found(Parts { has_sites: true, ..rig.parts() });
    assert!(damage.contains(&Damage::NameMissing), "{damage:?}");
    let rig = with_sites();
    rig.delete(key::parent_pointer(foreign(), InodeId::ROOT, hash(&rig), b"berlin"));
    let damage = found(Parts { has_sites: true, ..rig.parts() });
    assert_eq!(damage, [Damage::NameUnlisted]);
}

#[test]
fn a_table_of_another_site_has_no_root() {
    let rig = with_sites();
    rig.delete(key::inode(InodeId::ROOT));
    let shard = ShardId { site: 3, shard: 0 };
    let damage = found(Parts { has_sites: true, shard, ..rig.parts() });
    assert!(!damage.contains(&Damage::Root), "{damage:?}");
    let damage = found(Parts { has_sites: true, ..rig.parts() });
    assert!(damage.contains(&Damage::Root), "{damage:?}");
}

#[test]
fn what_was_seen_of_another_site_is_no_damage_and_an_own_directory_among_it_is() {
    let seen = AncestryRow {
        parent: None,
        seen: SeenDir::of(&Attr::empty(foreign(), FileKind::Directory)),
        access: Access::Unknown,
        names: vec![],
    };
    let value = seen.encode(STAMP);
    let whole = with_sites();
    whole.put(key::ancestry(foreign()), value.clone());
    assert_eq!(found(Parts { has_sites: true, ..whole.parts() }), []);
    let own = with_sites();
    own.put(key::ancestry(own.dir.attr.ino), value.clone());
    assert_eq!(found(Parts { has_sites: true, ..own.parts() }), [Damage::Row]);
    let cut = with_sites();
    cut.put(key::ancestry(foreign()), value[..value.len() - 1].to_vec());
    assert_eq!(found(Parts { has_sites: true, ..cut.parts() }), [Damage::Row]);
}

/// A node without a name has the bytes of a file of another site, which are nowhere else.
#[test]
fn bytes_that_stay_here_are_no_damage_and_their_row_is_not_removed() {
    let rig = with_sites();
    let ino = InodeId::from_raw(rig.dir.attr.ino.raw() + 41);
    let like = Rnode::root(Default::default(), NOW);
    let node = Rnode { ino, kind: FileKind::Regular, ..like };
    rig.put(key::inode(ino), node.encode(STAMP));
    let file = Handle::own(foreign());
    let row = StayRow { file, state: StayState::Told, since: Time::default(), told_size: 0 };
    let value = row.encode(STAMP);
    rig.put(key::stay(ino), value.clone());
    let plan = plan_on(Parts { has_sites: true, ..rig.parts() }).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    assert_eq!(plan.checked.stays, 1);
    rig.put(key::stay(ino), value[..value.len() - 1].to_vec());
    let plan = plan_on(Parts { has_sites: true, ..rig.parts() }).unwrap();
    assert_eq!((plan.findings.len(), plan.findings[0].damage), (1, Damage::Row));
    assert!(plan.findings[0].repair.is_none());
    rig.delete(key::stay(ino));
    assert_eq!(found(Parts { has_sites: true, ..rig.parts() }), [Damage::Lost]);
}

/// Loses the name of a file with a row of its own.
fn lose_names(rig: &Rig, names: [(InodeId, &str); 2]) {
    for (dir, text) in names {
        let hash = rig.hasher.hash(text.as_bytes());
        rig.delete(rig.name_key(dir, text));
        rig.delete(key::parent_pointer(rig.linked.handle.ino, dir, hash, text.as_bytes()));
    }
}

/// Returns the directories that are to get names in the root, with their names.
fn asks_for_names(rig: &Rig) -> Vec<(InodeId, String)> {
    let made = rig.keys().into_iter().filter_map(|key| match key::Key::parse(&key) {
        Some(key::Key::Intent { number }) => Some((number, rig.table.get(&key).unwrap().unwrap())),
        _ => None,
    });
    made.map(|(number, value)| {
        let row = IntentRow::decode(&value).unwrap().1;
        assert_eq!((row.change, row.parent), (IntentChange::Make, InodeId::ROOT));
        (InodeId::from_raw(number), String::from_utf8_lossy(row.name.as_bytes()).into_owned())
    })
    .collect()
}

#[test]
fn what_is_lost_at_another_site_gets_a_directory_that_asks_for_a_name() {
    let rig = Rig::at(SITE);
    assert_eq!(found(rig.parts()), []);
    let linked = rig.linked.handle.ino;
    lose_names(&rig, [(rig.top, "one"), (rig.dir.handle.ino, "two")]);
    rig.expect(&[Damage::Lost, Damage::Counts]);
    let asks = asks_for_names(&rig);
    let (dir, text) = asks.first().expect("a directory").clone();
    assert_eq!((asks.len(), text), (1, format!("lost+found.{dir}")));
    assert_eq!(dir.site(), SITE.site);
    assert!(rig.own(dir).kind == FileKind::Directory && rig.own(dir).mode == 0o700);
    let text = format!("lost+found.{linked}");
    assert_eq!(rig.name_row(dir, &text).unwrap().ino(), linked);
    // Until it has its name, all that is lost goes there.
    let below = rig.name_row(rig.dir.handle.ino, "below").unwrap().ino();
    rig.delete(key::inode(rig.dir.handle.ino));
    rig.expect(&[Damage::NameNowhere]);
    let lost = |ino: InodeId| rig.name_row(dir, &format!("lost+found.{ino}")).map(|row| row.ino());
    assert_eq!(lost(below), Some(below), "a directory keeps a name");
    let small = rig.small.handle.ino;
    assert_eq!(asks_for_names(&rig), asks);
    assert_eq!(rig.rnode_at(dir, &format!("lost+found.{small}")).size, 5);
    // From then on it is a directory as any other.
    rig.delete(key::intent(dir.raw()));
    lose_names(&rig, [(dir, &text), (dir, "none")]);
    rig.expect(&[Damage::Lost]);
    let next = asks_for_names(&rig);
    assert!(next.len() == 1 && next[0].0 != dir, "{next:?}");
    assert!(rig.name_row(next[0].0, &text).is_some());
}

/// A mark that is too low would give the directory the id of another one.
#[test]
fn the_directory_of_what_is_lost_gets_a_new_id() {
    for mark in [Some(2), None] {
        let rig = Rig::at(SITE);
        lose_names(&rig, [(rig.top, "one"), (rig.dir.handle.ino, "two")]);
        match mark {
            Some(next) => rig.put(key::high_water(0), HighWater { next }.encode(STAMP)),
            None => rig.delete(key::high_water(0)),
        }
        rig.expect(&[Damage::Lost, Damage::Number]);
        let asks = asks_for_names(&rig);
        assert_eq!(asks.len(), 1);
        let highest = rig.linked.handle.ino.max(rig.large.handle.ino);
        assert!(asks[0].0 > highest, "{asks:?}");
    }
}

/// A loop keeps its names until the directory is there that gets one of it.
#[test]
fn a_loop_at_another_site_is_cut() {
    let rig = Rig::at(SITE);
    let dir = rig.dir.handle.ino;
    let below = rig.name_row(dir, "below").unwrap().ino();
    let move_below = |from: InodeId| {
        let hash = rig.hasher.hash(b"dir");
        rig.delete(rig.name_key(from, "dir"));
        rig.delete(key::parent_pointer(dir, from, hash, b"dir"));
        let link = NameRow::Link { ino: dir, kind: FileKind::Directory };
        rig.put(rig.name_key(below, "dir"), link.encode(STAMP));
        rig.put(key::parent_pointer(dir, below, hash, b"dir"), ParentPointer.encode(STAMP));
    };
    move_below(rig.top);
    rig.expect(&[Damage::Loop]);
    let asks = asks_for_names(&rig);
    let lost = [dir, below].map(|ino| rig.name_row(asks[0].0, &format!("lost+found.{ino}")));
    assert_eq!(lost.iter().flatten().count(), 1);
}

/// Bytes of a file of another site get a new row for their node, and no name here.
#[test]
fn bytes_that_stay_here_survive_the_loss_of_the_row_of_their_node() {
    let rig = Rig::at(SITE);
    let large = rig.large.handle.ino;
    let row = StayRow {
        file: Handle::own(InodeId::from_raw(99)),
        state: StayState::Told,
        since: Time::default(),
        told_size: 10_000,
    };
    rig.put(key::stay(large), row.encode(STAMP));
    rig.put(rig.name_key(rig.dir.handle.ino, "renamed"), b"damaged".to_vec());
    rig.expect(&[Damage::Row]);
    assert_eq!((rig.own(large).size, asks_for_names(&rig)), (10_000, vec![]));
    assert!(rig.table.get(&key::stay(large)).unwrap().is_some());
}

/// Adds the name of a directory of site 2 to the directory of a rig.
fn add_foreign(rig: &Rig) -> [Vec<u8>; 2] {
    let dir = rig.dir.handle.ino;
    let hash = rig.hasher.hash(b"berlin");
    let link = NameRow::Link { ino: foreign(), kind: FileKind::Directory };
    let name = key::name(dir, hash, b"berlin");
    let pointer = key::parent_pointer(foreign(), dir, hash, b"berlin");
    rig.put(name.clone(), link.encode(STAMP));
    rig.put(pointer.clone(), ParentPointer.encode(STAMP));
    [name, pointer]
}

/// Its own site does not notice that its only name is lost.
#[test]
fn a_directory_of_another_site_keeps_a_name() {
    let named = |rig: &Rig, dir: InodeId, text: &str| rig.name_row(dir, text).map(|row| row.ino());
    for site in [ShardId::FIRST, SITE] {
        let at = || {
            let rig = Rig::at(site);
            let keys = add_foreign(&rig);
            (rig, keys)
        };
        let repaired = |rig: &Rig| {
            let parts = Parts { has_sites: true, ..rig.parts() };
            let applied = apply_on(parts).unwrap();
            assert_eq!(applied.after.findings, []);
        };
        // The row of its name cannot be read, or is gone.
        for row in [Some(b"damaged".to_vec()), None] {
            let (rig, [name, _]) = at();
            match row {
                Some(row) => rig.put(name, row),
                None => rig.delete(name),
            }
            repaired(&rig);
            assert_eq!(named(&rig, rig.dir.handle.ino, "berlin"), Some(foreign()));
        }
        // The directory is gone in which it has its name, with that name or without it.
        for has_name in [true, false] {
            let (rig, [name, _]) = at();
            rig.delete(key::inode(rig.dir.handle.ino));
            if !has_name {
                rig.delete(name);
            }
            repaired(&rig);
            let found = match site == SITE {
                true => asks_for_names(&rig)[0].0,
                false => InodeId::ROOT,
            };
            let text = format!("lost+found.{}", foreign());
            assert_eq!(named(&rig, found, &text), Some(foreign()), "{has_name}");
        }
    }
}

/// A repair that is cut short before the directory is there has removed nothing.
#[test]
fn nothing_is_repaired_before_the_directory_of_what_is_lost_is_there() {
    let rig = Rig::at(SITE);
    for text in ["small", "renamed"] {
        rig.put(rig.name_key(rig.dir.handle.ino, text), b"damaged".to_vec());
    }
    let before = rig.keys();
    let plan = plan_on(rig.parts()).unwrap();
    assert_eq!(crate::rebuild::apply(rig.parts(), &plan).unwrap(), 0);
    let after = rig.keys();
    assert!(before.iter().all(|key| after.contains(key)));
    assert_eq!(asks_for_names(&rig).len(), 1);
    rig.expect(&[Damage::Row]);
    let found = asks_for_names(&rig)[0].0;
    for file in [rig.small.handle.ino, rig.large.handle.ino] {
        assert_eq!(rig.name_row(found, &format!("lost+found.{file}")).unwrap().ino(), file);
    }
}
