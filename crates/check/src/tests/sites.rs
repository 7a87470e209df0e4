//! A volume of several sites: what is of another one is no damage.

use pelago_store::rows::{Access, AncestryRow, SeenDir, StayRow, StayState};
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
