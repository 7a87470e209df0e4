use pelago_client::At;
use pelago_wire::{Attr, Handle, Name};

use super::super::{Lifetimes, Sample as AnySample};
use super::*;
use crate::attr_ttl::AttrTtl;
use crate::init::TTL;
use crate::options::Keeps;

/// A directory of another site, and a file of this one.
const DIR: InodeId = InodeId::from_raw(7 << 48 | 5);
const OWN_FILE: InodeId = InodeId::from_raw(9);

/// Leases on everything that last for so long.
struct Left(Duration);

impl DirectoryLeases for Left {
    fn attr_holds(&self, _attr: &Attr) -> Duration {
        self.0
    }

    fn name_holds(&self, _dir: InodeId, _name: &Name, _target: InodeId) -> Duration {
        self.0
    }

    fn has_names(&self, _dir: InodeId, name: &Name) -> bool {
        name.as_bytes() != b"unleased"
    }
}

struct Mount {
    lifetimes: Lifetimes,
    attr_ttl: AttrTtl,
}

/// Samples of a directory, and of a name in it.
#[derive(Clone, Copy)]
struct Samples {
    node: AnySample,
    name: AnySample,
}

impl Mount {
    fn new(left: Duration) -> Self {
        let lifetimes = Lifetimes::new(Keeps::EverythingOfSite(0, Arc::new(Left(left))));
        Self { lifetimes, attr_ttl: AttrTtl::default() }
    }

    fn samples(&self) -> Samples {
        let epoch = self.attr_ttl.epoch();
        Samples {
            node: self.lifetimes.sample(epoch, DIR),
            name: self.lifetimes.sample_name(epoch, &at()),
        }
    }

    /// Returns the lifetimes of attributes of a node of this kind in a reply to GETATTR, and of a
    /// name that leads to it. No other reply gets one.
    fn given(&self, Samples { node, name }: Samples, kind: FileKind) -> [Duration; 2] {
        let attr = Attr::empty(DIR, kind);
        let entry = Entry { handle: Handle::own(DIR), attr };
        let at = self.lifetimes.leased_name(&at()).expect("it has leases");
        let guard = self.lifetimes.reply_guard(&self.attr_ttl);
        let others = [
            guard.name(&name),
            guard.name_at(&name, Some(&at)),
            guard.name_listed(&node, &at.name),
            guard.unversioned_attr(&attr, &name),
            guard.created_attr(&entry, &name),
            guard.found_attr(&entry, &name),
        ];
        assert_eq!(others, [Duration::ZERO; 6]);
        [guard.attr(&attr, &node), guard.found_name(&name, Some(&at), &entry)]
    }

    fn keeps(&self) -> [usize; 2] {
        let touching = self.lifetimes.mark_elsewhere(&[node(), name()]);
        self.lifetimes.unmark_elsewhere(&[node(), name()]);
        assert_eq!(touching.names_until.is_some(), !touching.names.is_empty());
        [touching.nodes.len(), touching.names.len()]
    }
}

fn at() -> At {
    At::new(Handle::own(DIR), Name::new(b"name").unwrap())
}

fn node() -> Touched {
    Touched::Node(DIR)
}

fn name() -> Touched {
    Touched::Name { dir: DIR, name: at().name }
}

#[test]
fn directories_get_the_rest_of_their_leases_and_files_get_nothing() {
    let second = Duration::from_secs(1);
    for (left, given) in [
        (second, second.saturating_sub(SLACK)),
        (9 * second, LEASED_TTL),
        (SLACK, Duration::ZERO),
        (Duration::ZERO, Duration::ZERO),
    ] {
        for shared in [false, true] {
            let mount = Mount::new(left);
            mount.lifetimes.set_shared(shared);
            assert_eq!(mount.given(mount.samples(), FileKind::Regular), [Duration::ZERO; 2]);
            assert_eq!(mount.given(mount.samples(), FileKind::Directory), [given; 2]);
            let own = mount.lifetimes.sample(mount.attr_ttl.epoch(), OWN_FILE);
            let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
            assert_eq!(guard.attr(&Attr::empty(OWN_FILE, FileKind::Regular), &own), TTL);
        }
    }
}

/// The sample is that of another node, or of a name.
#[test]
fn attributes_that_were_not_asked_for_get_nothing() {
    let mount = Mount::new(TTL);
    let Samples { node, name } = mount.samples();
    let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
    let other = Attr::empty(InodeId::from_raw(DIR.raw() + 1), FileKind::Directory);
    let own = Attr::empty(OWN_FILE, FileKind::Directory);
    for (attr, sample) in [(other, &node), (other, &name), (own, &name)] {
        assert_eq!(guard.attr(&attr, sample), Duration::ZERO);
    }
}

#[test]
fn a_reply_gets_nothing_if_its_lease_was_recalled_meanwhile_or_all_have_ended() {
    let mount = Mount::new(TTL);
    let changes = [node(), name()];
    let nothing = [Duration::ZERO; 2];
    let before = mount.samples();
    let touching = mount.lifetimes.mark_elsewhere(&changes);
    assert!(touching.nodes.is_empty() && touching.names.is_empty());
    let during = mount.samples();
    for samples in [before, during] {
        assert_eq!(mount.given(samples, FileKind::Directory), nothing);
    }
    mount.lifetimes.unmark_elsewhere(&changes);
    for samples in [before, during] {
        assert_eq!(mount.given(samples, FileKind::Directory), nothing);
    }
    let before = mount.samples();
    let lost = mount.lifetimes.lose_elsewhere(7);
    assert!(lost.nodes.is_empty() && lost.names_until.is_none());
    assert_eq!(mount.given(before, FileKind::Directory), nothing);
    assert_eq!(mount.given(mount.samples(), FileKind::Directory), [LEASED_TTL; 2]);
}

/// Own replies on their way do not lose their lifetimes by it.
#[test]
fn changes_elsewhere_are_none_here() {
    let mount = Mount::new(TTL);
    mount.lifetimes.set_shared(true);
    let own = mount.lifetimes.sample(mount.attr_ttl.epoch(), OWN_FILE);
    let _touching = mount.lifetimes.mark_elsewhere(&[node(), name(), Touched::Node(OWN_FILE)]);
    mount.lifetimes.unmark_elsewhere(&[node(), name(), Touched::Node(OWN_FILE)]);
    let _lost = mount.lifetimes.lose_elsewhere(7);
    let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
    assert_eq!(guard.attr(&Attr::empty(OWN_FILE, FileKind::Regular), &own), TTL);
}

#[test]
fn only_what_got_a_lifetime_is_invalidated() {
    let mount = Mount::new(TTL);
    assert_eq!(mount.given(mount.samples(), FileKind::Regular), [Duration::ZERO; 2]);
    assert_eq!(mount.keeps(), [0, 0]);
    assert_eq!(mount.given(mount.samples(), FileKind::Directory), [LEASED_TTL; 2]);
    assert_eq!(mount.keeps(), [1, 1]);
    let lost = mount.lifetimes.lose_elsewhere(6);
    assert!(lost.nodes.is_empty() && lost.names_until.is_none(), "it is of another site");
    let lost = mount.lifetimes.lose_elsewhere(7);
    assert_eq!(lost.nodes, [DIR]);
    assert!(lost.names_until.is_some());
}

#[test]
fn a_moved_name_is_kept_under_both_names() {
    let mount = Mount::new(TTL);
    assert_eq!(mount.given(mount.samples(), FileKind::Directory), [LEASED_TTL; 2]);
    let named = |name: &[u8]| At::new(Handle::own(DIR), Name::new(name).unwrap());
    let other = named(b"other");
    let unleased = named(b"unleased");
    assert!(!mount.lifetimes.keeps_elsewhere([&other, &unleased]));
    mount.lifetimes.moves_elsewhere([&at(), &other]);
    assert!(mount.lifetimes.keeps_elsewhere([&other, &unleased]));
    mount.lifetimes.moves_elsewhere([&unleased, &other]);
    assert!(mount.lifetimes.keeps_elsewhere([&unleased, &unleased]), "they are exchanged");
    assert!(!mount.lifetimes.is_unleased_elsewhere([&at(), &other]));
    assert!(mount.lifetimes.is_unleased_elsewhere([&at(), &unleased]));
    let own = At::new(Handle::own(OWN_FILE), unleased.name);
    assert!(!mount.lifetimes.is_unleased_elsewhere([&own, &own]), "it is of this site");
}

#[test]
fn records_that_are_over_make_room_and_without_room_nothing_is_given() {
    let mut kept = Kept::new();
    let over = Instant::now().checked_sub(INSTALLS).unwrap();
    kept.until.extend((0..MOST_KEPT).map(|number| (number, over)));
    kept.sweep_at = MOST_KEPT;
    assert_eq!(kept.give(MOST_KEPT, LEASED_TTL), Duration::ZERO, "it was swept just now");
    kept.swept = over;
    assert_eq!(kept.give(MOST_KEPT, LEASED_TTL), LEASED_TTL);
    assert_eq!((kept.until.len(), kept.sweep_at), (1, SWEEP_FROM));
    let later = Instant::now() + LEASED_TTL;
    kept.until.extend((0..MOST_KEPT).map(|number| (number, later)));
    assert_eq!(kept.give(MOST_KEPT + 1, LEASED_TTL), Duration::ZERO);
    assert_eq!(kept.until(&(MOST_KEPT + 1), Instant::now()), None);
}
