use pelago_wire::{InodeId, Name, Recalled, SessionId, Touched, limits};

use super::*;

mod model;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const FILE: Leased = Leased::Node(InodeId::from_raw(7));
const DIR: Leased = Leased::Names(InodeId::from_raw(1));

fn grantor() -> Grantor {
    Grantor::new(1 << 20)
}

fn node() -> Touched {
    Touched::Node(InodeId::from_raw(7))
}

fn named(text: &str) -> Touched {
    Touched::Name { dir: InodeId::from_raw(1), name: Name::new(text.as_bytes()).unwrap() }
}

/// Grants what was read just now.
fn grant(grantor: &mut Grantor, session: SessionId, on: Leased) -> bool {
    let now = grantor.now();
    grantor.grant(session, on, now)
}

fn recall(session: SessionId, number: u64, touched: &[Touched]) -> Recall {
    Recall { session, number, recalled: Recalled::Things(touched.to_vec()) }
}

fn things(recall: &Recall) -> &[Touched] {
    match &recall.recalled {
        Recalled::Things(touched) => touched,
        Recalled::Everything => panic!("{recall:?}"),
    }
}

fn everything(session: SessionId, number: u64) -> Recall {
    Recall { session, number, recalled: Recalled::Everything }
}

#[test]
fn a_change_waits_for_every_lease_on_what_it_touches() {
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, FILE) && grant(&mut grantor, TWO, FILE));
    assert!(grant(&mut grantor, TWO, DIR));
    let announced = grantor.announce(SessionId::DIRECT, &[node()]);
    let recalls = [recall(ONE, 1, &[node()]), recall(TWO, 1, &[node()])];
    assert_eq!((announced.waits, &announced.recalls[..]), (true, &recalls[..]));
    assert!(!grant(&mut grantor, ONE, FILE), "it changes");
    assert!(grantor.recalled(ONE, 1).is_empty());
    assert_eq!(grantor.recalled(TWO, 1), [announced.change]);
    assert!(!grant(&mut grantor, ONE, FILE), "it is carried out now");
    grantor.end(announced.change);
    assert!(grant(&mut grantor, ONE, FILE));
    assert_eq!(grantor.leases(), 2);
    assert!(grantor.recalled(TWO, 1).is_empty(), "answered twice");
}

/// One name of a directory changes: the lease on the others stays, so that a second change is
/// announced, too.
#[test]
fn a_recalled_name_ends_no_lease_on_the_others() {
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, DIR));
    let first = grantor.announce(TWO, &[named("a")]);
    let second = grantor.announce(TWO, &[named("b"), named("c")]);
    assert_eq!(first.recalls, [recall(ONE, 1, &[named("a")])]);
    assert_eq!(second.recalls, [recall(ONE, 2, &[named("b"), named("c")])]);
    assert_eq!(grantor.recalled(ONE, 2), [second.change]);
    assert_eq!(grantor.recalled(ONE, 1), [first.change]);
    assert_eq!(grantor.leases(), 1);
}

/// The first recall ended the lease; its client may use what it keeps until it has answered.
#[test]
fn a_second_change_waits_for_the_recall_of_the_first() {
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, FILE));
    let first = grantor.announce(TWO, &[node()]);
    let second = grantor.announce(SessionId::DIRECT, &[node()]);
    assert!(second.waits && second.recalls.is_empty());
    grantor.end(first.change);
    assert!(!grant(&mut grantor, ONE, FILE), "the second goes on");
    assert_eq!(grantor.recalled(ONE, 1), [second.change], "the first is not wanted any more");
    grantor.end(second.change);
    assert!(grant(&mut grantor, ONE, FILE));
}

#[test]
fn a_session_whose_time_is_over_delays_nothing() {
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, FILE) && grant(&mut grantor, ONE, DIR));
    let announced = grantor.announce(TWO, &[node(), named("a")]);
    assert_eq!(grantor.expire(ONE), [announced.change]);
    assert_eq!(grantor.leases(), 0);
    grantor.end(announced.change);
    assert!(grantor.is_empty());
    assert!(grant(&mut grantor, ONE, FILE));
    let next = grantor.announce(TWO, &[node()]);
    assert_eq!(next.recalls, [recall(ONE, 2, &[node()])], "a number is used once");
    assert!(grantor.recalled(ONE, 1).is_empty());
    assert_eq!(grantor.forget(ONE), [next.change]);
}

#[test]
fn the_author_of_a_change_keeps_its_names_and_waits_for_no_lease_of_its_own() {
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, FILE) && grant(&mut grantor, ONE, DIR));
    let announced = grantor.announce(ONE, &[node(), named("a")]);
    assert!(!announced.waits && announced.recalls.is_empty());
    assert_eq!(grantor.leases(), 2, "it may not know what its names lead to");
}

/// A thing that was read before a change ended may be old, unless its reader made the change: the
/// client knows that.
#[test]
fn what_was_read_before_a_change_is_granted_to_its_author_only() {
    let mut grantor = grantor();
    let since = grantor.now();
    let change = grantor.announce(ONE, &[node()]).change;
    assert!(grantor.grant(ONE, FILE, since), "its own change is under way");
    let between = grantor.now();
    grantor.end(change);
    assert!(!grantor.grant(TWO, FILE, since) && !grantor.grant(TWO, FILE, between));
    assert!(grantor.grant(ONE, FILE, since));
    let change = grantor.announce(TWO, &[node()]).change;
    grantor.recalled(ONE, 1);
    grantor.end(change);
    let change = grantor.announce(ONE, &[node()]).change;
    grantor.end(change);
    assert!(!grantor.grant(ONE, FILE, since), "another one has changed it in between");
    let since = grantor.now();
    grantor.begin_untold(FILE);
    assert!(!grant(&mut grantor, ONE, FILE), "it changes");
    grantor.end_untold(FILE);
    assert!(!grantor.grant(ONE, FILE, since) && grant(&mut grantor, ONE, FILE));
}

const INO: InodeId = InodeId::from_raw(7);

/// Grants the lease on the bytes of the file as it is now.
fn grant_bytes(grantor: &mut Grantor, session: SessionId) -> bool {
    let now = grantor.now();
    grantor.grant_bytes(session, INO, now)
}

#[test]
fn one_session_has_the_lease_on_the_bytes_of_a_file() {
    let mut grantor = grantor();
    assert!(grant_bytes(&mut grantor, ONE) && grant_bytes(&mut grantor, ONE));
    assert!(!grant_bytes(&mut grantor, TWO) && grantor.is_written_by_other(TWO, INO));
    assert!(!grantor.is_written_by_other(ONE, INO) && !grantor.begin_write(TWO, INO));
    // Its own changes recall nothing.
    let own = grantor.announce(ONE, &[node()]);
    assert!(!own.waits && grantor.begin_write(ONE, INO));
    grantor.end(own.change);
    assert_eq!((grantor.end_write(ONE, INO), grantor.writers()), (vec![], 1));
    // Another one looks at the file.
    let look = grantor.announce(TWO, &[node()]);
    assert_eq!(look.recalls, [recall(ONE, 1, &[node()])]);
    assert!(grantor.begin_write(ONE, INO), "the client sends what it has kept back");
    assert!(grantor.end_write(ONE, INO).is_empty());
    assert!(!grant_bytes(&mut grantor, ONE), "it is recalled");
    let second = grantor.announce(SessionId::DIRECT, &[node()]);
    assert!(second.waits && second.recalls.is_empty());
    assert_eq!(grantor.recalled(ONE, 1), [look.change, second.change]);
    assert!(!grantor.begin_write(ONE, INO) && grantor.writers() == 0);
    grantor.end(look.change);
    grantor.end(second.change);
    assert!(grantor.is_empty());
    assert!(grant_bytes(&mut grantor, TWO));
    grantor.end_bytes(TWO, INO);
    assert!(grantor.is_empty());
}

/// The client is silent, and its time is over: what it has sent before must not be written after
/// what others write.
#[test]
fn writes_under_a_lease_that_ended_are_waited_for() {
    let mut grantor = grantor();
    assert!(grant_bytes(&mut grantor, ONE));
    assert!(grantor.begin_write(ONE, INO) && grantor.begin_write(ONE, INO));
    let first = grantor.announce(TWO, &[node()]);
    assert!(grantor.expire(ONE).is_empty(), "two writes run");
    assert!(!grantor.begin_write(ONE, INO), "it has no lease any more");
    let second = grantor.announce(SessionId::DIRECT, &[node()]);
    assert!(second.waits && second.recalls.is_empty());
    assert!(!grant_bytes(&mut grantor, ONE), "its old writes run");
    assert!(grantor.end_write(ONE, INO).is_empty());
    assert_eq!(grantor.end_write(ONE, INO), [first.change, second.change]);
    grantor.end(first.change);
    grantor.end(second.change);
    assert!(grantor.is_empty());
    // Without a change that waits nothing is left either.
    assert!(grant_bytes(&mut grantor, ONE) && grantor.begin_write(ONE, INO));
    assert!(grantor.expire(ONE).is_empty() && grantor.writers() == 1);
    assert!(grantor.end_write(ONE, INO).is_empty() && grantor.is_empty());
}

#[test]
fn the_lease_on_bytes_is_granted_only_to_who_is_alone() {
    let mut grantor = grantor();
    let since = grantor.now();
    assert!(grant(&mut grantor, TWO, FILE));
    assert!(!grant_bytes(&mut grantor, ONE), "another one has a lease on the file");
    let change = grantor.announce(ONE, &[node()]).change;
    assert!(!grant_bytes(&mut grantor, ONE), "and is not done with it");
    grantor.recalled(TWO, 1);
    assert!(grant_bytes(&mut grantor, ONE), "its own change is under way");
    grantor.end_bytes(ONE, INO);
    grantor.end(change);
    let change = grantor.announce(TWO, &[node()]).change;
    assert!(!grant_bytes(&mut grantor, ONE), "another one changes it");
    grantor.end(change);
    assert!(!grantor.grant_bytes(ONE, INO, since), "its size may have changed");
    assert!(grant_bytes(&mut grantor, ONE));
}

#[test]
fn leases_are_bounded_by_session_and_in_all() {
    let node = |number| Leased::Node(InodeId::from_raw(number));
    let most = limits::SESSION_LEASES as u64;
    let mut grantor = grantor();
    assert!((0..most).all(|number| grant(&mut grantor, ONE, node(number))));
    assert!(!grant(&mut grantor, ONE, node(most)));
    assert!(grant(&mut grantor, ONE, node(0)), "it has that one");
    assert!(grant(&mut grantor, TWO, node(most)));
    let recalls = grantor.make_room(ONE);
    assert!(!recalls.is_empty() && recalls.iter().all(|recall| recall.session == ONE));
    let taken: usize = recalls.iter().map(|recall| things(recall).len()).sum();
    assert_eq!(grantor.leases(), limits::SESSION_LEASES + 1 - taken);
    assert!(grant(&mut grantor, ONE, node(most)), "there is room");
    assert!(grantor.make_room(TWO).is_empty(), "there was");
    let mut grantor = Grantor::new(1);
    assert!(grant(&mut grantor, ONE, FILE) && !grant(&mut grantor, TWO, FILE));
    grantor.take_back(ONE, FILE);
    assert!(grant(&mut grantor, TWO, FILE));
}

/// A session that works with less than its limit again and again loses none of it, whatever it
/// had before.
#[test]
fn the_leases_that_were_granted_first_are_recalled_first() {
    let node = |number| Leased::Node(InodeId::from_raw(number));
    let most = limits::SESSION_LEASES as u64;
    let mut grantor = grantor();
    assert!((0..most).all(|number| grant(&mut grantor, ONE, node(number))));
    let mut ask = |number| {
        let has = grantor.has(ONE, node(number));
        if !has && !grant(&mut grantor, ONE, node(number)) {
            grantor.make_room(ONE);
            assert!(grant(&mut grantor, ONE, node(number)), "there is room");
        }
        has
    };
    let rounds: Vec<u64> = (0..3)
        .map(|_| (most..most + most / 2).filter(|number| !ask(*number)).count() as u64)
        .collect();
    assert_eq!(rounds, [most / 2, 0, 0], "leases that are granted anew in each round");
    assert!((most / 2 + 512..most).all(ask), "the newest of those from before are left");
}

/// The lease on the bytes of a file ends with a recall, and only an open grants it again.
#[test]
fn leases_on_files_that_are_written_are_not_taken_for_others() {
    let node = |number| Leased::Node(InodeId::from_raw(number));
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, Leased::Node(INO)) && grant_bytes(&mut grantor, ONE));
    let others = (1_000_000..).take(limits::SESSION_LEASES - 1);
    assert!(others.clone().all(|number| grant(&mut grantor, ONE, node(number))));
    for _ in 0..=limits::SESSION_LEASES / 512 {
        grantor.make_room(ONE);
        let more = (2_000_000..).filter(|number| !grantor.has(ONE, node(*number)));
        let more: Vec<u64> = more.take(512).collect();
        assert!(more.iter().all(|number| grant(&mut grantor, ONE, node(*number))));
    }
    assert!(grantor.has(ONE, Leased::Node(INO)));
    assert!(!others.clone().any(|number| grantor.has(ONE, node(number))), "all others were taken");
}

#[test]
fn leases_on_bytes_count_in_the_limit() {
    let mut grantor = Grantor::new(2);
    let now = grantor.now();
    assert!(grantor.grant_bytes(ONE, INO, now));
    let other = |number: u64| InodeId::from_raw(100 + number);
    assert!(grantor.grant(ONE, Leased::Node(other(0)), now));
    assert!(!grantor.grant_bytes(ONE, other(1), now));
    assert!(!grantor.grant(ONE, Leased::Node(other(1)), now));
    grantor.end_bytes(ONE, INO);
    assert!(grantor.grant_bytes(ONE, other(1), now));
}

/// A directory moves away from what a guest may read: nothing below it is named by a request.
#[test]
fn a_change_of_rights_recalls_everything_and_lets_no_lease_across() {
    let mut grantor = grantor();
    let other = Leased::Node(InodeId::from_raw(9));
    assert!(grant(&mut grantor, ONE, FILE) && grant(&mut grantor, ONE, DIR));
    assert!(grant(&mut grantor, TWO, FILE));
    let before = grantor.now();
    let moved = grantor.announce_barring(SessionId::DIRECT, &[], &[ONE]);
    assert_eq!((moved.waits, &moved.recalls[..]), (true, &[everything(ONE, 1)][..]));
    assert!(!grant(&mut grantor, ONE, other), "it has no right to know of yet");
    assert!(grant(&mut grantor, TWO, other), "others are not concerned");
    assert_eq!(grantor.recalled(ONE, 1), [moved.change]);
    assert!(!grant(&mut grantor, ONE, other), "it is carried out now");
    grantor.end(moved.change);
    assert!(!grantor.grant(ONE, other, before), "it was read under the old rights");
    assert!(grant(&mut grantor, ONE, other));
}

/// The client may use what it has until it has answered, whatever changes meanwhile.
#[test]
fn later_changes_wait_for_the_recall_of_everything() {
    let mut grantor = grantor();
    assert!(grant(&mut grantor, ONE, FILE) && grant(&mut grantor, ONE, DIR));
    let rights = grantor.announce_barring(SessionId::DIRECT, &[], &[ONE]);
    let of_node = grantor.announce(TWO, &[node()]);
    let of_name = grantor.announce(TWO, &[named("a")]);
    let again = grantor.announce_barring(TWO, &[node()], &[ONE]);
    for announced in [&of_node, &of_name, &again] {
        assert!(announced.waits && announced.recalls.is_empty());
    }
    let mut ready = grantor.recalled(ONE, 1);
    ready.sort();
    assert_eq!(ready, [rights.change, of_node.change, of_name.change, again.change]);
    grantor.end(rights.change);
    assert!(!grant(&mut grantor, ONE, DIR), "its rights change once more");
    for announced in [of_node, of_name, again] {
        grantor.end(announced.change);
    }
    assert!(grant(&mut grantor, ONE, DIR) && grant(&mut grantor, ONE, FILE));
    assert!(!grantor.expire(ONE).contains(&rights.change));
    assert!(grantor.is_empty());
}

#[test]
fn a_session_without_leases_is_barred_without_a_recall() {
    let mut grantor = grantor();
    let moved = grantor.announce_barring(SessionId::DIRECT, &[], &[ONE]);
    assert!(!moved.waits && moved.recalls.is_empty());
    assert!(grantor.expire(ONE).is_empty());
    assert!(!grant(&mut grantor, ONE, FILE), "also after its leases have ended");
    grantor.end(moved.change);
    assert!(grant(&mut grantor, ONE, FILE));
}

/// A named recall that is not answered: its client may still use what it names.
#[test]
fn a_change_of_rights_waits_for_earlier_recalls_and_for_the_bytes() {
    let mut grantor = grantor();
    let ino = InodeId::from_raw(7);
    let now = grantor.now();
    assert!(grantor.grant_bytes(ONE, ino, now) && grant(&mut grantor, ONE, DIR));
    let named = grantor.announce(TWO, &[named("a")]);
    let rights = grantor.announce_barring(TWO, &[], &[ONE]);
    assert_eq!(rights.recalls, [everything(ONE, 2)]);
    assert!(grantor.begin_write(ONE, ino), "it sends what it has held back");
    assert!(grantor.recalled(ONE, 2).is_empty());
    assert_eq!(grantor.recalled(ONE, 1), [named.change]);
    assert_eq!(grantor.end_write(ONE, ino), [rights.change]);
    assert!(!grantor.has_writes(ONE));
}

/// A change of rights does not know of it, and its end must not find a lease that was granted.
#[test]
fn a_session_that_comes_during_a_change_of_rights_has_no_lease_before_its_end() {
    let mut grantor = grantor();
    let ino = InodeId::from_raw(9);
    assert!(grant(&mut grantor, ONE, FILE));
    let before = grantor.now();
    let moved = grantor.announce_barring(SessionId::DIRECT, &[], &[ONE]);
    assert!(!grantor.has_begun(TWO));
    assert!(!grant(&mut grantor, TWO, DIR) && !grantor.grant_bytes(TWO, ino, before));
    assert!(!grantor.has_begun(TWO), "it is refused again");
    let now = grantor.now();
    assert!(!grantor.grant_bytes(ONE, ino, now), "bytes are no exception");
    assert_eq!(grantor.recalled(ONE, 1), [moved.change]);
    grantor.end(moved.change);
    assert!(!grantor.grant_bytes(ONE, ino, before) && !grantor.grant(TWO, DIR, before));
    let now = grantor.now();
    assert!(grantor.grant_bytes(ONE, ino, now) && grantor.grant(TWO, DIR, now));
}
