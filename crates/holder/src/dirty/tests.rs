use super::*;

const ONE: InodeId = InodeId::from_raw(1);
const TWO: InodeId = InodeId::from_raw(2);
const ZERO: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_millis(limits::WRITE_BEHIND_MILLIS);

fn by(open: u64) -> Writer {
    Writer { open: OpenId(open), caller: Caller { uid: 0, gid: 0 }, kill_privileges: false }
}

fn dirty() -> Dirty {
    let mut dirty = Dirty::default();
    dirty.lease(ONE, WriteEra::FIRST, 0);
    dirty.lease(TWO, WriteEra::FIRST, 0);
    dirty
}

fn write(dirty: &mut Dirty, ino: InodeId, offset: u64, bytes: &[u8]) -> Buffered {
    dirty.write(ino, by(1), offset, bytes, ZERO)
}

fn sent(dirty: &mut Dirty, now: Duration) -> Vec<(InodeId, u64, Vec<u8>)> {
    let due = dirty.take_due(now);
    due.into_iter().map(|send| (send.ino, send.offset, send.bytes)).collect()
}

#[test]
fn writes_that_continue_each_other_are_one_request_after_a_while() {
    let mut dirty = dirty();
    assert_eq!(write(&mut dirty, ONE, 0, b"abc"), Buffered::New { size: 3 });
    assert_eq!(write(&mut dirty, ONE, 3, b"def"), Buffered::Joined { size: 6 });
    assert_eq!(write(&mut dirty, ONE, 4, b"EFGH"), Buffered::Joined { size: 8 });
    assert_eq!(write(&mut dirty, ONE, 1, b"B"), Buffered::Joined { size: 8 });
    assert_eq!(dirty.next_due(), Some(LATER));
    assert!(sent(&mut dirty, LATER - Duration::from_millis(1)).is_empty());
    assert_eq!(sent(&mut dirty, LATER), [(ONE, 0, b"aBcdEFGH".to_vec())]);
    assert_eq!((dirty.bytes, dirty.next_due()), (8, None), "they are on their way");
    assert_eq!(dirty.all(), [ONE]);
    dirty.answered(ONE, 1, LATER);
    assert_eq!((dirty.bytes, dirty.all(), dirty.size(ONE)), (0, vec![], Some(8)));
}

#[test]
fn other_opens_users_and_places_are_requests_of_their_own() {
    let mut dirty = dirty();
    write(&mut dirty, ONE, 0, b"ab");
    assert_eq!(dirty.write(ONE, by(2), 2, b"c", ZERO), Buffered::New { size: 3 });
    let other = Writer { caller: Caller { uid: 7, gid: 7 }, ..by(2) };
    assert_eq!(dirty.write(ONE, other, 3, b"d", ZERO), Buffered::New { size: 4 });
    assert_eq!(dirty.write(ONE, other, 9, b"e", ZERO), Buffered::New { size: 10 });
    assert_eq!(sent(&mut dirty, LATER).len(), 4);
}

/// The server carries requests out in any order.
#[test]
fn bytes_that_overlap_go_one_after_the_other() {
    let mut dirty = dirty();
    write(&mut dirty, ONE, 0, b"old");
    assert_eq!(sent(&mut dirty, LATER).len(), 1);
    write(&mut dirty, ONE, 2, b"new");
    write(&mut dirty, ONE, 9, b"behind it");
    assert!(sent(&mut dirty, 2 * LATER).is_empty(), "what it overlaps is on its way");
    dirty.answered(ONE, 1, LATER);
    assert_eq!(sent(&mut dirty, 2 * LATER).len(), 2);
}

#[test]
fn what_waits_for_a_file_has_it_sent_at_once_and_goes_on_after_the_last_answer() {
    let mut dirty = dirty();
    write(&mut dirty, ONE, 0, b"a");
    write(&mut dirty, ONE, 9, b"b");
    write(&mut dirty, TWO, 0, b"c");
    assert!(dirty.flush(ONE, Box::new(|| {})).is_none());
    assert_eq!(sent(&mut dirty, ZERO).len(), 2, "not those of the other file");
    assert!(dirty.answered(ONE, 2, ZERO).is_empty());
    assert_eq!(dirty.answered(ONE, 1, ZERO).len(), 1);
    assert!(dirty.flush(ONE, Box::new(|| {})).is_some(), "nothing is dirty");
    dirty.end_lease(TWO);
    assert_eq!(sent(&mut dirty, ZERO).len(), 1, "without a lease nothing waits");
    assert_eq!(write(&mut dirty, TWO, 1, b"d"), Buffered::Full);
    assert_eq!(dirty.size(TWO), Some(1));
    dirty.answered(TWO, 3, ZERO);
    assert_eq!((dirty.size(TWO), dirty.files.len()), (None, 1));
    dirty.end_all();
    assert_eq!(dirty.files.len(), 0);
}

#[test]
fn the_size_of_a_file_is_not_known_once_all_leases_have_ended() {
    let mut dirty = dirty();
    write(&mut dirty, ONE, 0, b"a");
    dirty.end_all();
    assert_eq!((dirty.size(ONE), dirty.all()), (None, vec![ONE]), "others may write to it");
    assert_eq!(sent(&mut dirty, ZERO).len(), 1);
    dirty.answered(ONE, 1, ZERO);
    dirty.lease(ONE, WriteEra::FIRST, 7);
    assert_eq!(dirty.size(ONE), Some(7));
}

#[test]
fn a_commit_goes_with_bytes_that_are_one_request() {
    let mut dirty = dirty();
    assert!(!dirty.commit(ONE, OpenId(1)), "nothing is dirty");
    write(&mut dirty, ONE, 0, b"a");
    assert!(!dirty.commit(ONE, OpenId(2)), "another open has written them");
    assert!(dirty.commit(ONE, OpenId(1)));
    assert_eq!(write(&mut dirty, ONE, 1, b"b"), Buffered::New { size: 2 }, "it comes behind");
    let due = dirty.take_due(LATER);
    let commits: Vec<bool> = due.iter().map(|send| send.commit).collect();
    assert_eq!(commits, [true, false]);
    write(&mut dirty, ONE, 9, b"c");
    assert!(!dirty.commit(ONE, OpenId(1)), "others are on their way");
}

#[test]
fn dirty_bytes_are_bounded_for_a_file_in_all_and_by_the_pace_of_the_server() {
    let mut dirty = dirty();
    let chunk = vec![0; CHUNK_BYTES];
    let at = |chunks: usize| (chunks * CHUNK_BYTES) as u64;
    assert!(matches!(write(&mut dirty, ONE, 0, &chunk), Buffered::New { .. }));
    assert_eq!(write(&mut dirty, TWO, 0, b"x"), Buffered::Full, "its pace is not known");
    assert_eq!(sent(&mut dirty, ZERO).len(), 1, "a whole request waits for nothing");
    dirty.answered(ONE, 1, Duration::from_millis(10));
    assert_eq!(dirty.limit, limits::DIRTY_BYTES);
    let most = limits::DIRTY_FILE_BYTES / CHUNK_BYTES;
    for chunks in 0..most {
        assert!(matches!(write(&mut dirty, ONE, at(chunks), &chunk), Buffered::New { .. }));
    }
    assert_eq!(write(&mut dirty, ONE, at(most), b"x"), Buffered::Full);
    assert!(matches!(write(&mut dirty, TWO, 0, b"x"), Buffered::New { .. }));
    assert_eq!(sent(&mut dirty, ZERO).len(), most);
    // 1 MiB in 8 s: half of it in the time that a recall may take.
    dirty.answered(ONE, 2, Duration::from_secs(8));
    assert_eq!(dirty.limit, LEAST_BYTES);
    dirty.answered(ONE, 3, Duration::from_secs(2));
    assert_eq!(dirty.limit, 2 * CHUNK_BYTES);
}

/// A recall of a short lease is answered in time too. A larger write is awaited.
#[test]
fn a_session_with_short_leases_holds_back_less_on_a_slow_link() {
    let mut dirty = dirty();
    dirty.set_lease_time(Duration::from_secs(3));
    let chunk = vec![b'x'; CHUNK_BYTES];
    assert!(!dirty.is_too_large(CHUNK_BYTES), "the pace is not known");
    assert!(matches!(write(&mut dirty, ONE, 0, &chunk), Buffered::New { .. }));
    assert_eq!(sent(&mut dirty, ZERO).len(), 1);
    dirty.answered(ONE, 1, Duration::from_millis(2_400));
    assert_eq!(dirty.limit, CHUNK_BYTES / 2, "half of it in 1.2 s");
    assert!(dirty.is_too_large(CHUNK_BYTES));
    let half = &chunk[..CHUNK_BYTES / 2];
    assert!(matches!(write(&mut dirty, ONE, 0, half), Buffered::New { .. }));
    assert_eq!(sent(&mut dirty, LATER).len(), 1);
    dirty.answered(ONE, 2, LATER + Duration::from_secs(60));
    assert_eq!(dirty.limit, LEAST_BYTES * 3 / 10);
}

/// A server of a new epoch takes them as numbered requests, and their number is limited.
#[test]
fn writes_of_all_files_are_bounded() {
    let mut dirty = Dirty::default();
    let inode = |number: usize| InodeId::from_raw(1 + number as u64);
    let most = limits::DIRTY_WRITES;
    (0..=most).for_each(|number| dirty.lease(inode(number), WriteEra::FIRST, 0));
    for number in 0..most {
        let buffered = write(&mut dirty, inode(number), 0, b"x");
        assert_eq!(buffered, Buffered::New { size: 1 });
    }
    assert_eq!(write(&mut dirty, inode(most), 0, b"x"), Buffered::Full);
    assert_eq!(dirty.size(inode(most)), Some(0));
    assert_eq!(write(&mut dirty, inode(0), 1, b"y"), Buffered::Joined { size: 2 });
    assert_eq!(sent(&mut dirty, ZERO).len(), AT_ONCE, "they are due, as there are many");
    dirty.answered(inode(0), 1, ZERO);
    assert_eq!(write(&mut dirty, inode(most), 0, b"x"), Buffered::New { size: 1 });
}

#[test]
fn many_writes_that_do_not_continue_each_other_do_not_wait() {
    let mut dirty = dirty();
    for number in 0..=CHUNKS as u64 {
        assert!(sent(&mut dirty, ZERO).is_empty(), "{number}");
        assert_eq!(
            write(&mut dirty, ONE, 2 * number, b"x"),
            Buffered::New { size: 2 * number + 1 }
        );
    }
    assert_eq!(sent(&mut dirty, ZERO).len(), 1, "the oldest one beyond the limit");
}

/// Sends what is due, with the times of the answers at this pace, until nothing is dirty. Returns
/// the longest time that a request took.
fn drain(dirty: &mut Dirty, bytes_per_second: u64) -> Duration {
    let mut now = LATER;
    let mut under_way = VecDeque::new();
    let mut longest = ZERO;
    // The line is busy until then.
    let mut busy = now;
    loop {
        for send in dirty.take_due(now) {
            let takes =
                Duration::from_micros(send.bytes.len() as u64 * 1_000_000 / bytes_per_second);
            busy = busy.max(now) + takes;
            under_way.push_back((busy, now, send));
        }
        let Some((answered, since, send)) = under_way.pop_front() else { return longest };
        now = answered;
        longest = longest.max(now - since);
        dirty.answered(send.ino, send.number, now);
    }
}

/// A request of 1 MiB would take longer than its deadline.
#[test]
fn bytes_for_a_slow_line_go_with_small_requests() {
    for bytes_per_second in [30_000, 100_000, 10_000_000] {
        let mut dirty = dirty();
        dirty.set_deadline(Duration::from_secs(10));
        for round in 0..4 {
            let write = write(&mut dirty, ONE, round << 20, &vec![7; CHUNK_BYTES]);
            assert_eq!(write, Buffered::New { size: (round + 1) << 20 });
            assert!(!dirty.is_too_large(CHUNK_BYTES));
            let longest = drain(&mut dirty, bytes_per_second);
            assert!(longest < Duration::from_secs(5), "{bytes_per_second} B/s: {longest:?}");
        }
        assert_eq!((dirty.bytes, dirty.chunks, dirty.under_way.count), (0, 0, 0));
    }
}

#[test]
fn the_parts_of_a_write_have_all_of_its_bytes() {
    let mut dirty = dirty();
    dirty.set_deadline(Duration::from_secs(10));
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 1000) as u8).collect();
    write(&mut dirty, ONE, 5, &bytes);
    assert!(!dirty.commit(ONE, OpenId(1)), "a commit goes after all parts");
    let mut whole = vec![0; 300_005];
    loop {
        let due = dirty.take_due(LATER);
        if due.is_empty() {
            break;
        }
        for send in due {
            let at = usize::try_from(send.offset).unwrap();
            whole[at..at + send.bytes.len()].copy_from_slice(&send.bytes);
            dirty.answered(ONE, send.number, LATER + Duration::from_secs(1));
        }
    }
    assert!(whole[5..] == bytes);
}

/// A commit is for all bytes of its request. The server may become slow before that is sent.
#[test]
fn bytes_with_a_commit_are_not_divided() {
    let mut dirty = dirty();
    dirty.set_deadline(Duration::from_secs(10));
    write(&mut dirty, TWO, 0, &[0; PACE_BYTES]);
    assert_eq!(dirty.take_due(LATER).len(), 1);
    dirty.answered(TWO, 1, LATER + Duration::from_millis(1));
    write(&mut dirty, ONE, 0, &vec![7; CHUNK_BYTES]);
    assert!(dirty.commit(ONE, OpenId(1)));
    write(&mut dirty, TWO, 0, &[0; PACE_BYTES]);
    assert!(dirty.flush(TWO, Box::new(|| {})).is_none());
    dirty.limit = LEAST_BYTES_BY_DEADLINE;
    let due = loop {
        let due = dirty.take_due(2 * LATER);
        for send in &due {
            dirty.answered(send.ino, send.number, 2 * LATER + Duration::from_secs(5));
        }
        if let Some(send) = due.into_iter().find(|send| send.ino == ONE) {
            break send;
        }
    };
    assert_eq!((due.bytes.len(), due.commit), (CHUNK_BYTES, true));
}
