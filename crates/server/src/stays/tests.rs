//! The gate before changes of bytes that stay here, and what their homes are told.

use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_wire::{LocalCache, NameHash, OpenId, SessionId, Touched};

use super::*;
use crate::testing::Rig;
use crate::upstream::{KeptDirectories, OwnKernel};

const FILE: Handle = Handle {
    ino: InodeId::from_raw(9 << 48 | 5),
    dir: InodeId::from_raw(9 << 48 | 5),
    hash: NameHash(0),
};

/// Returns news of a node by which no user without privilege has written.
fn news(node: InodeId) -> News {
    News { node, row: row(), kills_privileges: false, may_arrive: false }
}

fn row() -> StayRow {
    StayRow { file: FILE, state: StayState::New, since: Time::default(), told_size: 0 }
}

fn remote(flags: OpenFlags) -> RemoteOpen {
    RemoteOpen { file: FILE, flags, is_own_mount: true, empty_since: None, has_lost: false }
}

/// Returns stays with one node, to which one open writes.
fn one() -> (Arc<Stays>, InodeId) {
    let shard = Rig::new().shard;
    let node = shard.make_stay(&row(), Time::default()).unwrap();
    let stays = Arc::new(Stays::new(shard, Vec::new()));
    let open = OpenKey { session: SessionId::DIRECT, open: OpenId(1) };
    let flags = OpenFlags::WRITE;
    assert_eq!(stays.add_open(open, remote(flags), Some(Time::default())), None);
    assert!(matches!(stays.first_change(open, true), FirstChange::Makes(_)));
    assert_eq!(stays.first_change(open, true), FirstChange::Waits(FILE.ino));
    assert_eq!(stays.add(node, row()), [(open, flags)]);
    stays.end_making(FILE.ino, true);
    assert_eq!(stays.first_change(open, true), FirstChange::Stays);
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
    assert_eq!(stays.begin_change(node), Gate::Begun(None));
    assert_eq!(stays.begin_change(node), Gate::Begun(None));
    assert!(stays.close_gate(node, count_quiet()));
    assert_eq!(stays.begin_change(node), Gate::Closed);
    stays.when_open(node, count_parked());
    assert!(!stays.close_gate(node, count_quiet()), "it is closed");
    stays.end_change(node, false);
    assert_eq!(quiet.load(Ordering::SeqCst), 0, "one is under way");
    stays.end_change(node, false);
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
    stays.end(node).unwrap();
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
    let (begun, none) = stays.begin_telling(node, on_told());
    assert!(begun.is_some() && none.is_none());
    let first = stays.take_waiting(node);
    assert_eq!(stays.begin_change(node), Gate::Begun(None));
    stays.end_change(node, false);
    let (begun, none) = stays.begin_telling(node, on_told());
    assert!(begun.is_none() && none.is_none(), "it waits for its turn");
    let (row, next) = stays.end_telling(news(node), Some(10));
    first.into_iter().for_each(|then| then(Ok(())));
    assert!(row.is_none(), "a program still writes");
    assert_eq!(next.unwrap().row.state, StayState::Changing);
    stays.take_waiting(node).into_iter().for_each(|then| then(Ok(())));
    assert_eq!(told.load(Ordering::SeqCst), 2);
    // The last writer leaves before the answer: the answer settles it.
    assert!(stays.remove_writer(node).is_none());
    let (row, next) = stays.end_telling(news(node), Some(20));
    let row = row.unwrap();
    assert_eq!((row.state, row.told_size, next), (StayState::Told, 20, None));
    let (begun, then) = stays.begin_telling(node, on_told());
    assert!(begun.is_none() && then.is_some(), "there is nothing to tell");
}

#[test]
fn what_could_not_be_told_is_told_again() {
    let (stays, node) = one();
    let (begun, _none) = stays.begin_telling(node, Box::new(|_told| {}));
    assert!(begun.is_some());
    assert_eq!(stays.take_waiting(node).len(), 1);
    assert!(stays.remove_writer(node).is_none());
    let (row, next) = stays.end_telling(news(node), None);
    assert_eq!((row, next), (None, None));
    assert_eq!(stays.untold(|_site, _open| true), [node]);
    assert_eq!(stays.keep(node).unwrap().state, StayState::Kept);
    assert!(stays.untold(|_site, _open| true).is_empty() && stays.give(node).is_none());
    assert_eq!(stays.status(), StayStatus { files: 0, untold: 0, kept: 1 });
}

/// Two first writes of a file are one file here, although the kernel sends both at once.
#[test]
fn a_second_first_write_waits_for_the_node_of_the_first() {
    let shard = Rig::new().shard;
    let stays = Arc::new(Stays::new(shard, Vec::new()));
    let open = OpenKey { session: SessionId::DIRECT, open: OpenId(1) };
    let since = Some(Time::default());
    assert_eq!(stays.add_open(open, remote(OpenFlags::WRITE), since), None);
    assert!(matches!(stays.first_change(open, true), FirstChange::Makes(_)));
    let (made, count_made) = counter();
    assert_eq!(stays.first_change(open, false), FirstChange::Waits(FILE.ino));
    stays.when_made(FILE.ino, count_made());
    // A recall waits, too: what the first write is about to do must be told before its answer.
    let (recalled, count_recalled) = counter();
    let touched: Arc<[Touched]> = Arc::new([Touched::Node(FILE.ino)]);
    let kept = Arc::new(KeptDirectories::new(0, OwnKernel::default()));
    let recalls = RecalledStays { stays: Arc::clone(&stays), site: 0, kept };
    recalls.begin(&touched, count_recalled());
    assert_eq!(made.load(Ordering::SeqCst) + recalled.load(Ordering::SeqCst), 0);
    stays.end_making(FILE.ino, false);
    assert_eq!(stays.first_change(open, true), FirstChange::GoesHome, "it is written there");
    assert_eq!(made.load(Ordering::SeqCst) + recalled.load(Ordering::SeqCst), 2);
    stays.when_made(FILE.ino, count_made());
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

/// A telling while a change is under way may be without it: it is told again.
#[test]
fn a_change_that_ends_after_a_telling_is_told() {
    let (stays, node) = one();
    assert_eq!(stays.begin_change(node), Gate::Begun(None));
    let (begun, _none) = stays.begin_telling(node, Box::new(|_told| {}));
    assert_eq!(stays.take_waiting(node).len(), 1);
    assert_eq!(stays.end_telling(begun.unwrap(), Some(10)), (None, None));
    stays.end_change(node, true);
    let (begun, _none) = stays.begin_telling(node, Box::new(|_told| {}));
    assert!(begun.unwrap().kills_privileges);
}

/// Bytes that were given are told still, if the home did not hear of them before.
#[test]
fn what_is_given_is_told_still() {
    let (stays, node) = one();
    assert_eq!(stays.begin_change(node), Gate::Begun(None));
    stays.end_change(node, false);
    assert_eq!(stays.give(node).unwrap().state, StayState::Given);
    assert_eq!(stays.untold(|_site, _open| true), [node]);
    assert_eq!(stays.node_of(FILE.ino), None);
    let (begun, _none) = stays.begin_telling(node, Box::new(|_told| {}));
    assert_eq!(begun.unwrap().row.state, StayState::Given);
}

/// After bytes were sent the home may have them: what is written later is new again.
#[test]
fn what_is_written_after_sent_bytes_is_new() {
    let (stays, node) = one();
    assert_eq!(stays.set_sent(node, true).unwrap().state, StayState::Sent);
    let Gate::Begun(Some(row)) = stays.begin_change(node) else { panic!("no row is written") };
    assert_eq!(row.state, StayState::New);
    assert!(stays.set_sent(node, false).is_none());
}

/// After a start those are told that may have changed, and those whose size is another one.
#[test]
fn a_start_knows_what_to_tell() {
    let shard = Rig::new().shard;
    let made =
        [StayState::New, StayState::Changing, StayState::Told, StayState::Given, StayState::Sent];
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
    let mut untold = stays.untold(|_site, _open| true);
    untold.sort_unstable();
    let mut expected = vec![rows[0].0, rows[1].0, rows[4].0, node];
    expected.sort_unstable();
    assert_eq!(untold, expected);
    let quiet: Vec<InodeId> = stays.quiet().iter().map(|news| news.node).collect();
    assert_eq!(quiet.len(), 2);
    assert!(quiet.contains(&rows[2].0) && quiet.contains(&rows[3].0));
}

/// The journal of the last epoch was not safe: a node that was made in it is gone.
#[test]
fn a_row_that_is_lost_with_its_epoch_is_reported_to_its_writers() {
    let (stays, node) = one();
    let heard = Arc::new(Mutex::new(None));
    let of_told = Arc::clone(&heard);
    let on_told: OnTold = Box::new(move |result| *of_told.lock() = Some(result));
    assert!(stays.begin_telling(node, on_told).0.is_some());
    stays.begin_epoch(Vec::new());
    assert_eq!(*heard.lock(), Some(Err(Code::Io.into())));
    let open = OpenKey { session: SessionId::DIRECT, open: OpenId(1) };
    assert!(stays.take_loss(open), "it is reported");
    assert!(!stays.take_loss(open), "once");
    assert_eq!((stays.node_of(FILE.ino), stays.begin_change(node)), (None, Gate::Gone));
}

#[test]
fn a_row_that_is_there_in_the_next_epoch_is_told_again() {
    let (stays, node) = one();
    stays.begin_epoch(vec![(node, row())]);
    let open = OpenKey { session: SessionId::DIRECT, open: OpenId(1) };
    assert!(!stays.take_loss(open));
    assert_eq!(stays.node_of(FILE.ino), Some(node));
    assert!(stays.begin_telling(node, Box::new(drop)).0.is_some());
}
