use std::sync::Arc;

use pelago_wire::{FileKind, Handle, LeaseTimes, Name, NameHash};

use super::*;

const DIR: InodeId = InodeId::ROOT;
const FILE: InodeId = InodeId::from_raw(9);

/// Leases that last for so long.
struct Left {
    attr: Duration,
    name: Duration,
}

impl LeaseTimes for Left {
    fn attr_left(&self, _ino: InodeId) -> Duration {
        self.attr
    }

    fn attr_holds(&self, attr: &Attr) -> Duration {
        if attr.size == 0 { self.attr } else { Duration::ZERO }
    }

    fn name_left(&self, _dir: InodeId, name: &Name) -> Duration {
        assert_eq!(name.as_bytes(), b"a");
        self.name
    }
}

fn leased(attr: Duration, name: Duration) -> Mount {
    Mount::new(Keeps::Leased(Arc::new(Left { attr, name })))
}

/// A sample of a file and one of a name.
#[derive(Clone, Copy)]
struct Samples {
    node: Sample,
    name: Sample,
}

/// A mount that has no file open.
struct Mount {
    lifetimes: Lifetimes,
    attr_ttl: AttrTtl,
}

impl Mount {
    fn new(keeps: Keeps) -> Self {
        Self { lifetimes: Lifetimes::new(keeps), attr_ttl: AttrTtl::default() }
    }

    /// Samples a file and a name.
    fn sample(&self, ino: InodeId, text: &str) -> Samples {
        let epoch = self.attr_ttl.epoch();
        Samples {
            node: self.lifetimes.sample(epoch, ino),
            name: self.lifetimes.sample_name(epoch, &at(text)),
        }
    }

    /// Returns the lifetimes of attributes and of a name.
    fn given(&self, Samples { node, name }: Samples) -> (Duration, Duration) {
        let guard = self.lifetimes.reply_guard(&self.attr_ttl);
        (guard.attr(&attr(), &node), guard.name(&name))
    }

    /// Returns the lifetimes of attributes, of a name, and of that name in a listing.
    fn given_of_lease(&self, Samples { node, name }: Samples) -> [Duration; 3] {
        let guard = self.lifetimes.reply_guard(&self.attr_ttl);
        let at = self.lifetimes.leased_name(&at("a"));
        let listed = guard.name_listed(&node, &at.as_ref().expect("it has leases").name);
        [guard.attr(&attr(), &node), guard.name_at(&name, at.as_deref()), listed]
    }

    /// Returns the lifetime of attributes that ride on an entry.
    fn given_on_entry(&self, name: Sample) -> Duration {
        self.lifetimes.reply_guard(&self.attr_ttl).unversioned_attr(&attr(), &name)
    }
}

fn at(text: &str) -> At {
    At::new(Handle::own(DIR), Name::new(text.as_bytes()).unwrap())
}

fn attr() -> Attr {
    Attr::empty(FILE, FileKind::Regular)
}

#[test]
fn alone_everything_holds_and_with_keeps_nothing_does() {
    for (keeps, ttl) in [(Keeps::Everything, TTL), (Keeps::Nothing, Duration::ZERO)] {
        let mount = Mount::new(keeps);
        let sample = mount.sample(FILE, "a");
        assert_eq!((mount.given(sample), mount.given_on_entry(sample.name)), ((ttl, ttl), ttl));
    }
}

#[test]
fn a_mount_that_keeps_nothing_gives_no_lifetime() {
    let mount = Mount::new(Keeps::Nothing);
    let Samples { node, name } = mount.sample(DIR, "a");
    let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
    let dir = Attr::empty(DIR, FileKind::Directory);
    assert_eq!(
        (guard.attr(&dir, &node), guard.unversioned_attr(&dir, &name)),
        (Duration::ZERO, Duration::ZERO)
    );
    assert_eq!(guard.name(&name), Duration::ZERO);
    assert_eq!(guard.attr(&attr(), &node), Duration::ZERO, "a file");
}

#[test]
fn a_reply_on_its_way_when_the_first_session_begins_or_the_last_ends_holds_nothing() {
    let mount = Mount::new(Keeps::Everything);
    for shared in [true, false] {
        let sample = mount.sample(FILE, "a");
        mount.lifetimes.set_shared(shared);
        assert_eq!(mount.given(sample), Default::default());
    }
}

#[test]
fn beside_other_sessions_names_and_versioned_attributes_hold() {
    let mount = Mount::new(Keeps::Everything);
    mount.lifetimes.set_shared(true);
    let sample = mount.sample(FILE, "a");
    assert_eq!(mount.given(sample), (TTL, TTL));
    assert_eq!(mount.given_on_entry(sample.name), Duration::ZERO);
}

/// A change of its node that ends before the entry is sent has found no inode at the kernel.
#[test]
fn beside_other_sessions_attributes_of_an_entry_hold_unless_a_node_has_changed_meanwhile() {
    let mount = Mount::new(Keeps::Everything);
    mount.lifetimes.set_shared(true);
    let one = Entry { handle: Handle::at(FILE, DIR, NameHash(1)), attr: attr() };
    let linked = Entry { handle: Handle::own(FILE), ..one };
    for of_entry in [ReplyGuard::created_attr, ReplyGuard::found_attr] {
        let given = |entry: &Entry, sample: Samples| {
            let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
            of_entry(&guard, entry, &sample.name)
        };
        let node = [Touched::Node(FILE)];
        let before = mount.sample(FILE, "a");
        assert_eq!(given(&one, before), ENTRY_TTL);
        assert_eq!(given(&linked, before), Duration::ZERO, "its references are not counted");
        mount.lifetimes.mark(&node);
        let during = mount.sample(FILE, "a");
        assert_eq!(given(&one, during), Duration::ZERO);
        mount.lifetimes.unmark(&node);
        for old in [before, during] {
            assert_eq!(given(&one, old), Duration::ZERO);
        }
        assert_eq!(given(&one, mount.sample(FILE, "a")), ENTRY_TTL);
    }
}

/// A reply that was asked for before, during or after a change holds only in the last case.
#[test]
fn what_changes_holds_only_if_it_was_asked_for_after_the_change() {
    let mount = Mount::new(Keeps::Everything);
    mount.lifetimes.set_shared(true);
    let changes = [Touched::Node(FILE), Touched::Name { dir: DIR, name: Name::new(b"a").unwrap() }];
    let sample = || mount.sample(FILE, "a");
    let before = sample();
    mount.lifetimes.mark(&changes);
    mount.lifetimes.mark(&changes);
    let during = sample();
    assert_eq!((mount.given(before), mount.given(during)), Default::default());
    let other = mount.given(mount.sample(DIR, "b"));
    assert_eq!(other, (TTL, TTL), "nothing else is touched");
    mount.lifetimes.unmark(&changes);
    assert_eq!(mount.given(sample()), Default::default(), "one of two changes goes on");
    mount.lifetimes.unmark(&changes);
    assert_eq!((mount.given(before), mount.given(during)), Default::default());
    assert_eq!(mount.given(sample()), (TTL, TTL));
    assert!(mount.lifetimes.may_have_changed(FILE));
}

#[test]
fn under_leases_replies_hold_as_long_as_these_and_two_seconds_at_most() {
    let [short, long] = [50, 10_000].map(Duration::from_millis);
    for (attr, name) in [(short, long), (long, short), (Duration::ZERO, long)] {
        let mount = leased(attr, name);
        let sample = mount.sample(FILE, "a");
        let left = [attr, name, name].map(|left| left.min(LEASED_TTL));
        assert_eq!(mount.given_of_lease(sample), left);
        assert_eq!(mount.given(sample).1, Duration::ZERO, "it is not said which name");
        assert_eq!(mount.given_on_entry(sample.name), Duration::ZERO);
        let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
        let handle = Handle::at(FILE, DIR, NameHash(1));
        let one = Entry { handle, attr: self::attr() };
        let linked = Handle::own(FILE);
        for of_entry in [ReplyGuard::created_attr, ReplyGuard::found_attr] {
            assert_eq!(of_entry(&guard, &one, &sample.name), left[0]);
            let linked = Entry { handle: linked, ..one };
            assert_eq!(of_entry(&guard, &linked, &sample.name), Duration::ZERO, "not counted");
            let other = Entry { attr: Attr { size: 1, ..one.attr }, ..one };
            assert_eq!(
                of_entry(&guard, &other, &sample.name),
                Duration::ZERO,
                "not what is leased"
            );
        }
        drop(guard);
        mount.attr_ttl.write_opened(FILE, false);
        let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
        assert_eq!(guard.created_attr(&one, &sample.name), left[0], "the kernel sees its writes");
        assert_eq!(guard.found_attr(&one, &sample.name), Duration::ZERO);
    }
}

#[test]
fn under_leases_volatile_attributes_and_those_of_a_file_that_is_written_hold_nothing() {
    let mount = leased(TTL, TTL);
    let sample = mount.sample(FILE, "a");
    let volatile = Attr { volatile: true, ..attr() };
    let guard = mount.lifetimes.reply_guard(&mount.attr_ttl);
    assert_eq!(guard.attr(&volatile, &sample.node), Duration::ZERO);
    assert_eq!(mount.lifetimes.leased_version(&volatile), None);
    assert_eq!(mount.lifetimes.leased_version(&attr()), Some(attr().ctime));
    mount.attr_ttl.write_opened(FILE, false);
    assert_eq!(guard.attr(&attr(), &sample.node), Duration::ZERO);
}

/// By then the same may be under a new lease.
#[test]
fn what_is_recalled_or_lost_while_a_reply_is_on_its_way_holds_nothing() {
    let mount = leased(TTL, TTL);
    let name = Touched::Name { dir: FILE, name: Name::new(b"a").unwrap() };
    let sample = mount.sample(FILE, "a");
    mount.lifetimes.mark(std::slice::from_ref(&name));
    assert_eq!(mount.lifetimes.leased_version(&attr()), None, "a listing has the name");
    mount.lifetimes.unmark(&[name]);
    assert_eq!(mount.given_of_lease(sample)[2], Duration::ZERO, "a listing has the name");
    let node = [Touched::Node(FILE)];
    let sample = mount.sample(FILE, "a");
    let cool = [LEASED_TTL, LEASED_TTL, Duration::ZERO];
    assert_eq!(mount.given_of_lease(sample), cool, "others change names of this directory");
    mount.lifetimes.mark(&node);
    mount.lifetimes.unmark(&node);
    assert_eq!(mount.given_of_lease(sample)[0], Duration::ZERO);
    let sample = mount.sample(FILE, "a");
    mount.lifetimes.lose();
    assert_eq!(mount.given_of_lease(sample), [Duration::ZERO; 3]);
    mount.lifetimes.set_shared(false);
    assert!(mount.lifetimes.is_shared(), "there are always others");
    assert_eq!(mount.given_of_lease(mount.sample(FILE, "a")), cool);
}
