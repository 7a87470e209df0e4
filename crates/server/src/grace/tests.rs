use pelago_trace::RequestSpan;
use pelago_wire::codec::ReplyStamp;
use pelago_wire::{
    Handle, InodeId, OpenId, PlaceFlags, Replayed, RequestId, Time, WriteEra, WriteFlags,
};

use super::*;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);

fn parked(session: SessionId, number: u64, request: Request) -> Parked {
    let context = Context { session, request: RequestId(number), ..Context::direct(0, 0) };
    Parked {
        context,
        request,
        bytes: vec![0; 3],
        done: Box::new(|_| {}),
        span: RequestSpan::default(),
    }
}

fn write() -> Request {
    Request::Write { open: OpenId(1), offset: 0, flags: WriteFlags::NONE }
}

/// Returns a write that its client had kept back.
fn behind() -> Request {
    let flags = WriteFlags { behind: Some(WriteEra::FIRST), ..WriteFlags::NONE };
    Request::Write { open: OpenId(1), offset: 0, flags }
}

/// Returns what the server of another site tells of bytes that it has, or asks.
fn bytes_elsewhere(asks: bool) -> Request {
    let at = InodeId::new(1, 0, 9).unwrap();
    let flags = PlaceFlags { asks, ..PlaceFlags::default() };
    let time = Time::default();
    Request::SetBytes { node: Handle::ROOT, at, size: 1, mtime: time, since: time, flags }
}

fn read() -> Request {
    Request::GetAttr { node: Handle::ROOT }
}

fn numbers(parked: &VecDeque<Parked>) -> Vec<u64> {
    parked.iter().map(|parked| parked.context.request.0).collect()
}

#[test]
fn without_earlier_sessions_it_is_over() {
    let grace = Grace::new(HashSet::new());
    assert!(grace.is_over() && grace.park(parked(SessionId::DIRECT, 1, read()), false).is_some());
}

/// Takes the next step, which must be there already.
fn next(grace: &Grace) -> (Round, Step) {
    grace.next(Duration::from_secs(3600))
}

/// Takes the next step behind the end of all patience.
fn next_late(grace: &Grace) -> (Round, Step) {
    grace.next(Duration::ZERO)
}

/// Takes the next step that repeats something.
fn repeats(grace: &Grace) -> (Round, Vec<u64>) {
    loop {
        match next(grace) {
            (_, Step::EndEras) => {}
            (round, Step::Repeat(repeated)) => return (round, numbers(&repeated)),
            _ => panic!("nothing is repeated"),
        }
    }
}

fn replays(grace: &Grace) -> (Round, Vec<u64>) {
    match next(grace) {
        (round, Step::Replay(replays)) => (round, numbers(&VecDeque::from(replays))),
        _ => panic!("nothing is replayed"),
    }
}

fn all_come_back(grace: &Grace) {
    for session in [ONE, TWO] {
        assert!(!grace.came_back(session));
        grace.flushed(session);
    }
}

/// Takes the last step. Returns the requests of it.
fn ends(grace: &Grace) -> Vec<u64> {
    loop {
        assert!(!grace.is_over());
        match next_late(grace) {
            (_, Step::EndEras) => {}
            (_, Step::Over(others)) => {
                assert!(grace.is_over());
                return numbers(&others);
            }
            _ => panic!("it is not over"),
        }
    }
}

/// Repeated requests go first, once all sessions are back; new ones go after that.
#[test]
fn repeated_writes_go_before_all_others() {
    let grace = Grace::new(HashSet::from([ONE, TWO]));
    for (session, number, request) in
        [(SessionId::DIRECT, 1, write()), (ONE, 2, write()), (ONE, 3, read())]
    {
        assert!(grace.park(parked(session, number, request), false).is_none());
    }
    assert!(!grace.came_back(ONE));
    // New: the session has said that it has repeated all.
    assert!(grace.park(parked(ONE, 4, write()), false).is_none());
    assert_eq!(grace.sessions(), 1);
    assert!(!grace.came_back(TWO));
    [ONE, TWO].into_iter().for_each(|session| grace.flushed(session));
    let (round, repeated) = repeats(&grace);
    assert_eq!(repeated, [2]);
    assert!(grace.park(parked(TWO, 5, write()), false).is_none() && !grace.is_over());
    grace.repeated(round);
    assert_eq!(ends(&grace), [1, 3, 4, 5]);
}

/// Else an append that was never carried out would take the place of one whose bytes are still
/// to be written.
#[test]
fn appends_that_have_a_place_go_before_those_that_have_none() {
    let grace = Grace::new(HashSet::from([ONE, TWO]));
    assert!(grace.park(parked(ONE, 1, write()), false).is_none());
    assert!(grace.park(parked(TWO, 2, write()), true).is_none());
    all_come_back(&grace);
    let (round, placed) = repeats(&grace);
    assert_eq!(placed, [2]);
    grace.repeated(round);
    let (round, repeated) = repeats(&grace);
    assert_eq!(repeated, [1]);
    grace.repeated(round);
    assert!(ends(&grace).is_empty());
}

/// A client sends it at its own pace: all else waits until it has the last answer.
#[test]
fn what_was_kept_back_goes_before_all_others() {
    let grace = Grace::new(HashSet::from([ONE, TWO]));
    let keep = |session, number, request| {
        assert!(grace.park(parked(session, number, request), false).is_none());
    };
    keep(ONE, 1, behind());
    assert!(!grace.came_back(ONE));
    keep(ONE, 2, behind());
    keep(ONE, 3, write());
    keep(ONE, 8, bytes_elsewhere(false));
    keep(ONE, 9, bytes_elsewhere(true));
    // It had waited for a recall of what the other one had kept back.
    keep(TWO, 7, write());
    assert!(!grace.came_back(TWO));
    grace.flushed(TWO);
    keep(TWO, 4, behind());
    let flushes = || match next(&grace) {
        (round, Step::Repeat(writes)) => (round, numbers(&writes)),
        _ => panic!("nothing was kept back"),
    };
    let (round, writes) = flushes();
    assert_eq!(writes, [1, 2, 8]);
    keep(ONE, 5, behind());
    assert_eq!(flushes().1, [5], "although others run");
    (0..4).for_each(|_| grace.repeated(round));
    grace.flushed(ONE);
    assert!(matches!(next(&grace), (_, Step::EndEras)));
    keep(ONE, 6, behind());
    let (round, repeated) = repeats(&grace);
    assert_eq!(repeated, [7]);
    grace.repeated(round);
    let (_, Step::Over(others)) = next(&grace) else { panic!("it is not over") };
    assert_eq!(numbers(&others), [3, 9, 4, 6]);
}

/// Neither one that sends nothing, nor one that sends without end.
#[test]
fn a_client_with_more_than_it_can_have_kept_back_does_not_hold_others_up() {
    let grace = Grace::new(HashSet::from([ONE]));
    assert!(!grace.came_back(ONE));
    assert!(grace.park(parked(ONE, 1, behind()), false).is_none());
    let (before, Step::Repeat(repeated)) = next(&grace) else { panic!("one was kept back") };
    assert!(grace.park(parked(ONE, 2, behind()), false).is_none());
    let (_, Step::Repeat(more)) = next_late(&grace) else { panic!("it came in time") };
    assert_eq!((numbers(&repeated), numbers(&more)), (vec![1], vec![2]));
    assert!(grace.park(parked(ONE, 3, behind()), false).is_none());
    assert!(matches!(next_late(&grace), (_, Step::EndEras)), "although two do not end");
    grace.repeated(before);
    assert_eq!(ends(&grace), [3]);
    let silent = Grace::new(HashSet::from([ONE]));
    assert!(!silent.came_back(ONE));
    assert!(ends(&silent).is_empty());
}

/// A session that comes later than the others waited for it gets nothing back: they may have
/// had what it held.
#[test]
fn only_a_session_that_is_waited_for_gets_its_locks_back() {
    let grace = Grace::new(HashSet::from([ONE, TWO]));
    assert!(grace.waits_for(ONE) && !grace.waits_for(SessionId(3)));
    assert!(!grace.came_back(ONE));
    assert!(!grace.waits_for(ONE) && grace.waits_for(TWO));
    let (round, Step::Late(late)) = next_late(&grace) else { panic!("one is late") };
    assert_eq!(late, [TWO]);
    assert!(!grace.waits_for(TWO) && !grace.is_over());
    assert!(grace.give_up_late(round).is_empty());
    assert!(!grace.waits_for(TWO) && ends(&grace).is_empty());
    assert!(grace.came_back(TWO), "the next run must be told of it");
}

/// It comes back while the row of its session is deleted.
#[test]
fn a_late_session_that_comes_back_is_named() {
    let grace = Grace::new(HashSet::from([ONE]));
    let (round, Step::Late(_)) = next_late(&grace) else { panic!("it is late") };
    assert!(!grace.came_back(ONE), "its row may not be deleted yet");
    assert_eq!(grace.give_up_late(round), [ONE]);
    assert!(ends(&grace).is_empty());
}

const fn stamp(epoch: u32, sequence: u64) -> ReplyStamp {
    ReplyStamp { epoch, sequence }
}

fn replay(session: SessionId, number: u64, stamp: ReplyStamp) -> Parked {
    let mut parked = parked(session, number, write());
    parked.context.replayed = Some(Replayed { stamp, node: None, time: None });
    parked
}

/// Requests that had been answered go before those that had not, in the order in which they were
/// done; two with one stamp in the order in which they came.
#[test]
fn replays_go_first_in_the_order_of_their_stamps() {
    let grace = Grace::new(HashSet::from([ONE, TWO]));
    assert!(grace.park(replay(ONE, 1, stamp(3, 8)), false).is_none());
    assert!(grace.park(parked(ONE, 2, write()), false).is_none());
    assert!(grace.park(replay(ONE, 3, stamp(3, 8)), false).is_none());
    assert!(grace.park(replay(TWO, 4, stamp(3, 7)), false).is_none());
    assert!(grace.park(replay(TWO, 5, stamp(2, 9)), false).is_none());
    all_come_back(&grace);
    let (round, replayed) = replays(&grace);
    assert_eq!(replayed, [5, 4, 1, 3]);
    assert!(!grace.is_over());
    grace.replayed(round);
    let (round, repeated) = repeats(&grace);
    assert_eq!(repeated, [2]);
    grace.repeated(round);
    assert!(ends(&grace).is_empty());
}

/// Patience begins anew with each phase: sessions that came late do not cut off those that
/// repeat their requests.
#[test]
fn it_ends_without_requests_that_hang() {
    let grace = Grace::new(HashSet::from([ONE, TWO]));
    assert!(grace.park(replay(ONE, 1, stamp(1, 1)), false).is_none());
    assert!(grace.park(parked(ONE, 2, write()), false).is_none());
    assert!(grace.park(parked(ONE, 3, read()), false).is_none());
    let (round, Step::Late(_)) = next_late(&grace) else { panic!("both are late") };
    assert!(grace.give_up_late(round).is_empty());
    let (_, replayed) = replays(&grace);
    assert_eq!(replayed, [1]);
    grace.replayed(round);
    let (_, repeated) = repeats(&grace);
    assert_eq!(repeated, [2]);
    assert_eq!(ends(&grace), [3], "the repeated one does not end");
    grace.repeated(round);
}

/// Requests of its sessions are dropped, as they repeat them; what the server's own mount has
/// asked waits for them. What still runs of before ends nothing.
#[test]
fn it_begins_again_with_the_sessions_that_there_are() {
    let grace = Grace::new(HashSet::from([ONE]));
    assert!(grace.needs_thread() && !grace.needs_thread());
    grace.has_no_thread();
    assert!(grace.needs_thread(), "none could be had");
    assert!(grace.park(parked(ONE, 1, write()), false).is_none());
    assert!(grace.park(parked(ONE, 2, write()), false).is_none());
    assert!(grace.park(parked(SessionId::DIRECT, 3, write()), false).is_none());
    assert!(!grace.came_back(ONE));
    grace.flushed(ONE);
    let (before, repeated) = repeats(&grace);
    assert_eq!(repeated, [1, 2]);
    assert!(grace.begin_again(HashSet::from([ONE, TWO])).is_empty());
    assert!(!grace.needs_thread(), "there is one");
    grace.repeated(before);
    assert!(grace.park(parked(ONE, 1, write()), false).is_none());
    assert!(grace.park(parked(TWO, 4, read()), false).is_none());
    all_come_back(&grace);
    let (round, repeated) = repeats(&grace);
    assert_eq!(repeated, [1]);
    grace.repeated(before);
    assert!(!grace.is_over());
    grace.repeated(round);
    assert_eq!(ends(&grace), [3, 4]);

    assert!(grace.begin_again(HashSet::from([TWO])).is_empty());
    assert!(!grace.is_over() && grace.waits_for(TWO) && grace.needs_thread());
    assert!(grace.park(parked(TWO, 5, read()), false).is_none());
    let dropped = grace.begin_again(HashSet::from([TWO]));
    assert_eq!(numbers(&VecDeque::from(dropped)), [5]);
    assert!(grace.stop().is_empty());
    assert!(matches!(next_late(&grace), (_, Step::Over(others)) if others.is_empty()));
}

/// A change that may have been carried out is not called interrupted.
#[test]
fn a_request_that_changes_nothing_can_be_cancelled() {
    let grace = Grace::new(HashSet::from([ONE]));
    let own = parked(SessionId::DIRECT, 1, write());
    let mut change = parked(ONE, 2, write());
    change.context.mutation = 1;
    let of_own = own.context;
    let of_change = change.context;
    assert!(grace.park(own, false).is_none() && grace.park(change, false).is_none());
    assert_eq!(grace.cancel(&of_own).map(|parked| parked.context), Some(of_own));
    assert!(grace.cancel(&of_own).is_none() && grace.cancel(&of_change).is_none());
    assert_eq!(numbers(&grace.stop()), [2]);
    assert!(grace.is_over());
}
