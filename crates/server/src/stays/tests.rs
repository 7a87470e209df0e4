//! The gate before changes of bytes that stay here, and what their homes are told.

use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_wire::{NameHash, OpenId};

use super::*;
use crate::testing::Rig;

const FILE: Handle = Handle {
    ino: InodeId::from_raw(9 << 48 | 5),
    dir: InodeId::from_raw(9 << 48 | 5),
    hash: NameHash(0),
};

fn row() -> StayRow {
    StayRow { file: FILE, state: StayState::New, since: Time::default(), told_size: 0 }
}

/// Returns stays with one node, to which one open writes.
fn one() -> (Arc<Stays>, InodeId) {
    let shard = Rig::new().shard;
    let node = shard.make_stay(&row(), Time::default()).unwrap();
    let stays = Arc::new(Stays::new(shard, Vec::new()));
    let open = OpenKey { session: SessionId::DIRECT, open: OpenId(1) };
    let flags = OpenFlags::WRITE;
    let remote = RemoteOpen { file: FILE, flags, empty_since: Some(Time::default()) };
    assert_eq!(stays.add_open(open, remote), None);
    assert!(stays.empty_open(open).is_some());
    assert_eq!(stays.add(node, row()), [(open, flags)]);
    assert!(stays.empty_open(open).is_none());
    (stays, node)
}

fn counter() -> (Arc<AtomicUsize>, impl Fn() -> Then) {
    let calls = Arc::new(AtomicUsize::new(0));
    let of_calls = Arc::clone(&calls);
    let call = move || -> Then {
        let calls = Arc::clone(&of_calls);
        Box::new(move || {
            calls.fetch_add(1, Ordering::SeqCst);
        })
    };
    (calls, call)
}

/// Execution 19: the bytes are given only when no write is under way, and none begins meanwhile.
#[test]
fn a_gate_closes_after_the_changes_under_way() {
    let (stays, node) = one();
    let (quiet, count_quiet) = counter();
    let (parked, count_parked) = counter();
    assert_eq!(stays.begin_change(node), Gate::Begun);
    assert_eq!(stays.begin_change(node), Gate::Begun);
    assert!(stays.close_gate(node, count_quiet()));
    assert_eq!(stays.begin_change(node), Gate::Closed);
    stays.when_open(node, count_parked());
    assert!(!stays.close_gate(node, count_quiet()), "it is closed");
    stays.end_change(node);
    assert_eq!(quiet.load(Ordering::SeqCst), 0, "one is under way");
    stays.end_change(node);
    assert_eq!(quiet.load(Ordering::SeqCst), 1);
    assert_eq!(stays.give(node).unwrap().state, StayState::Given);
    assert_eq!(parked.load(Ordering::SeqCst), 0);
    stays.open_gate(node);
    assert_eq!(parked.load(Ordering::SeqCst), 1);
    assert_eq!(stays.begin_change(node), Gate::Gone, "it is written at home from now on");
    stays.when_open(node, count_parked());
    assert_eq!(parked.load(Ordering::SeqCst), 2);
}

#[test]
fn what_waits_at_a_gate_goes_on_if_the_node_is_removed() {
    let (stays, node) = one();
    let (parked, count_parked) = counter();
    assert!(stays.close_gate(node, Box::new(|| {})));
    stays.when_open(node, count_parked());
    stays.remove(node);
    assert_eq!(parked.load(Ordering::SeqCst), 1);
    assert_eq!((stays.node_of(FILE.ino), stays.begin_change(node)), (None, Gate::Gone));
}

/// What is written while the home is told is told by a second request, after the first.
#[test]
fn a_home_is_told_by_one_request_at_a_time() {
    let (stays, node) = one();
    let told = Arc::new(AtomicUsize::new(0));
    let on_told = || -> OnTold {
        let told = Arc::clone(&told);
        Box::new(move |result| {
            assert_eq!(result, Ok(()));
            told.fetch_add(1, Ordering::SeqCst);
        })
    };
    let (news, none) = stays.begin_telling(FILE.ino, on_told());
    assert!(news.is_some() && none.is_none());
    let first = stays.take_waiting(node);
    assert_eq!(stays.begin_change(node), Gate::Begun);
    stays.end_change(node);
    let (news, none) = stays.begin_telling(FILE.ino, on_told());
    assert!(news.is_none() && none.is_none(), "it waits for its turn");
    let (row, next) = stays.end_telling(node, Some(10));
    first.into_iter().for_each(|then| then(Ok(())));
    assert!(row.is_none(), "a program still writes");
    assert_eq!(next.unwrap().row.state, StayState::Changing);
    stays.take_waiting(node).into_iter().for_each(|then| then(Ok(())));
    assert_eq!(told.load(Ordering::SeqCst), 2);
    // The last writer leaves before the answer: the answer settles it.
    assert!(stays.remove_writer(node).is_none());
    let (row, next) = stays.end_telling(node, Some(20));
    let row = row.unwrap();
    assert_eq!((row.state, row.told_size, next), (StayState::Told, 20, None));
    let (news, then) = stays.begin_telling(FILE.ino, on_told());
    assert!(news.is_none() && then.is_some(), "there is nothing to tell");
}

#[test]
fn what_could_not_be_told_is_told_again() {
    let (stays, node) = one();
    let (news, _none) = stays.begin_telling(FILE.ino, Box::new(|_told| {}));
    assert!(news.is_some());
    assert_eq!(stays.take_waiting(node).len(), 1);
    assert!(stays.remove_writer(node).is_none());
    let (row, next) = stays.end_telling(node, None);
    assert_eq!((row, next), (None, None));
    assert_eq!(stays.untold(), [FILE.ino]);
    assert_eq!(stays.keep(node).unwrap().state, StayState::Kept);
    assert!(stays.untold().is_empty() && stays.give(node).is_none());
    assert_eq!(stays.status(), StayStatus { files: 0, untold: 0, kept: 1 });
}

/// After a start those are told that may have changed, and those whose size is another one.
#[test]
fn a_start_knows_what_to_tell() {
    let shard = Rig::new().shard;
    let made = [StayState::New, StayState::Changing, StayState::Told, StayState::Given];
    let rows = made.map(|state| {
        let node = shard.make_stay(&row(), Time::default()).unwrap();
        let file = Handle::own(InodeId::from_raw(FILE.ino.raw() + node.raw()));
        (node, StayRow { state, file, ..row() })
    });
    let node = shard.make_stay(&row(), Time::default()).unwrap();
    let cut = StayRow { state: StayState::Told, told_size: 7, ..row() };
    let mut all = rows.to_vec();
    all.push((node, cut));
    let stays = Stays::new(shard, all);
    let mut untold = stays.untold();
    untold.sort_unstable();
    let mut expected = vec![rows[0].1.file.ino, rows[1].1.file.ino, FILE.ino];
    expected.sort_unstable();
    assert_eq!(untold, expected);
    let quiet: Vec<InodeId> = stays.quiet().iter().map(|news| news.node).collect();
    assert_eq!(quiet.len(), 2);
    assert!(quiet.contains(&rows[2].0) && quiet.contains(&rows[3].0));
}
