use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

mod model;

const MIB: u64 = 1 << 20;
const FILE: VersionId = VersionId(1);
const NOW: Duration = Duration::ZERO;
/// Blocks of a file of a bit more than three chunks.
const BLOCKS: u32 = 3 * 4096 + 100;

fn client(number: u64) -> ClientId {
    ClientId(number)
}

/// Returns a machine with memory for `extents` extents, and a file of 64 MiB.
fn deliver(policy: Policy, extents: u64) -> Deliver {
    let mut deliver = Deliver::new(Options::new(policy, extents * MIB));
    deliver.open_file(FILE, 64 * MIB).unwrap();
    deliver
}

/// Reads whatever is wanted; returns the extents.
fn read_all(deliver: &mut Deliver) -> Vec<u32> {
    let mut extents = Vec::new();
    while let Some(read) = deliver.next_read(NOW) {
        extents.push(read.extent);
        deliver.read_done(read.file, read.extent, NOW);
    }
    extents
}

/// Takes and sends blocks until there is none; returns where they begin.
fn take_all(deliver: &mut Deliver, id: ClientId) -> Vec<u64> {
    let mut offsets = Vec::new();
    while let Next::Block(block) = deliver.next_block(id, NOW) {
        offsets.push(block.offset);
        deliver.sent(id, NOW);
    }
    offsets
}

fn ascending(from: u64, to: u64) -> Order {
    Order::Ascending { from, to }
}

/// Each way to change a set of blocks does to it what it does to a tree, also at the borders of
/// chunks and words.
#[test]
fn a_set_of_blocks_is_a_set() {
    let mut set = BlockSet::full(BLOCKS);
    let mut tree: BTreeSet<u32> = (0..BLOCKS).collect();
    for block in [0, 63, 64, 4095, 4096, 8191, BLOCKS - 1] {
        set.remove(block);
        set.remove(block);
        tree.remove(&block);
    }
    assert_eq!(set.len() as usize, tree.len());
    let from = |block| tree.range(block..).next().copied();
    assert!(
        [0, 1, 63, 4095, 4096, BLOCKS - 1, BLOCKS].iter().all(|it| set.next_from(*it) == from(*it))
    );
    set.insert_run(0, BLOCKS);
    assert_eq!((set.len(), set.mixed()), (BLOCKS, 0));
    assert_eq!(set.runs().collect::<Vec<_>>(), [Run { first: 0, count: BLOCKS }]);
    assert_eq!(set.complement(), BlockSet::empty(BLOCKS));
}

proptest! {
    #[test]
    fn a_set_of_blocks_keeps_its_runs(
        blocks in btree_set(0..BLOCKS, 0..200),
        runs in vec((0..BLOCKS, 1..5000_u32), 0..4),
        removed in vec(0..BLOCKS, 0..100),
    ) {
        let mut tree = blocks.clone();
        let mut set = BlockSet::empty(BLOCKS);
        blocks.iter().for_each(|block| set.insert(*block));
        for (first, count) in runs {
            let end = BLOCKS.min(first + count);
            set.insert_run(first, end);
            tree.extend(first..end);
        }
        for block in removed {
            set.remove(block);
            tree.remove(&block);
        }
        prop_assert_eq!(set.len() as usize, tree.len());
        let of_runs = set.runs().flat_map(|run| run.first..run.first + run.count);
        prop_assert!(of_runs.eq(tree.iter().copied()));
        let mut again = BlockSet::empty(BLOCKS);
        set.runs().for_each(|run| again.insert_run(run.first, run.first + run.count));
        prop_assert_eq!(&again, &set);
        prop_assert_eq!(&set.complement().complement(), &set);
    }
}

#[test]
fn what_cannot_be_delivered_is_refused() {
    let mut deliver = deliver(Policy::Relevance, 4);
    let error = deliver.open_file(VersionId(2), 1 << 45).unwrap_err();
    assert_eq!(error, DeliverError::TooLong { length: 1 << 45 });
    deliver.open_file(VersionId(2), 1 << 44).unwrap();
    assert_eq!(deliver.open_file(VersionId(2), 1), Err(DeliverError::Exists));
    let mut join = |file, order, have| deliver.join(file, client(1), order, have);
    assert_eq!(join(VersionId(3), Order::Any, None), Err(DeliverError::NoFile));
    let from = 0;
    let to = 64 * MIB + 1;
    assert_eq!(join(FILE, ascending(from, to), None), Err(DeliverError::BadRange { from, to }));
    let other = BlockSet::empty(7);
    assert_eq!(join(FILE, Order::Any, Some(&other)), Err(DeliverError::OtherLength { blocks: 7 }));
    let mut scattered = BlockSet::empty(1 << 28);
    (0..300).for_each(|chunk| scattered.insert(chunk * 4096));
    assert_eq!(join(VersionId(2), Order::Any, Some(&scattered)), Err(DeliverError::TooScattered));
    join(FILE, Order::Any, None).unwrap();
    assert_eq!(join(FILE, Order::Any, None), Err(DeliverError::Exists));
}

#[test]
fn an_empty_file_and_an_empty_range_are_finished() {
    let mut deliver = deliver(Policy::Relevance, 4);
    deliver.open_file(VersionId(2), 0).unwrap();
    deliver.join(VersionId(2), client(1), Order::Any, None).unwrap();
    deliver.join(FILE, client(2), ascending(5, 5), None).unwrap();
    assert_eq!([1, 2].map(|it| deliver.next_block(client(it), NOW)), [Next::Finished; 2]);
    assert_eq!(deliver.next_read(NOW), None);
}

#[test]
fn a_range_gets_its_bytes_and_no_others() {
    for policy in [Policy::Sequential, Policy::Circus(Circus::default()), Policy::Relevance] {
        let mut deliver = deliver(policy, 4);
        deliver.join(FILE, client(1), ascending(100, MIB + 5), None).unwrap();
        let mut at = 100;
        let mut turns = 0;
        loop {
            match deliver.next_block(client(1), NOW) {
                Next::Block(block) => {
                    assert_eq!(block.offset, at);
                    at += u64::from(block.len);
                    deliver.sent(client(1), NOW);
                }
                Next::Finished => break,
                _ => drop(read_all(&mut deliver)),
            }
            turns += 1;
            assert!(turns < 100);
        }
        assert_eq!(at, MIB + 5);
    }
}

/// A client that takes nothing has what it was lent, and no more is read for it.
#[test]
fn a_stalled_client_pins_nothing() {
    let mut deliver = deliver(Policy::Relevance, 4);
    deliver.join(FILE, client(1), Order::Any, None).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    read_all(&mut deliver);
    assert_eq!(deliver.poll_woken(), Some(client(1)));
    assert!(matches!(deliver.next_block(client(1), NOW), Next::Block(_)));
    assert!(matches!(deliver.next_block(client(1), NOW), Next::Block(_)));
    assert_eq!(deliver.next_block(client(1), NOW), Next::Full);
    read_all(&mut deliver);
    // Another client reads the whole file meanwhile.
    deliver.join(FILE, client(2), Order::Any, None).unwrap();
    let mut taken = 0;
    while deliver.next_block(client(2), NOW) != Next::Finished {
        deliver.sent(client(2), NOW);
        taken += 1 + take_all(&mut deliver, client(2)).len();
        read_all(&mut deliver);
        assert!(deliver.extents() <= 4 && taken < 3000);
    }
    assert_eq!(deliver.clients[&client(1)].missing.len(), 1022);
}

/// The extents that a stalled client lacks, and those read for it, make room for extents of others,
/// although it is nearly done.
#[test]
fn a_stalled_client_that_is_nearly_done_keeps_nothing_in_memory() {
    let mut deliver = deliver(Policy::Relevance, 4);
    let mut have = BlockSet::full(1024);
    have.remove_run(5 * 16, 5 * 16 + 3);
    have.remove_run(8 * 16, 8 * 16 + 3);
    deliver.join(FILE, client(1), Order::Any, Some(&have)).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    assert_eq!(read_all(&mut deliver), [5, 8]);
    assert!(matches!(deliver.next_block(client(1), NOW), Next::Block(_)));
    let later = Duration::from_secs(60);
    let mut have = BlockSet::full(1024);
    have.remove_run(0, 48);
    deliver.join(FILE, client(2), Order::Any, Some(&have)).unwrap();
    let mut evicted = Vec::new();
    loop {
        match deliver.next_block(client(2), later) {
            Next::Block(_) => deliver.sent(client(2), later),
            Next::Finished => break,
            _ => {}
        }
        while let Some(read) = deliver.next_read(later) {
            evicted.extend(read.evicted);
            deliver.read_done(read.file, read.extent, later);
        }
    }
    assert!(evicted.iter().all(|(_, extent)| [5, 8].contains(extent)), "{evicted:?}");
    assert!(!evicted.is_empty());
}

#[test]
fn an_extent_that_cannot_be_read_is_named_and_others_go_on() {
    let mut deliver = deliver(Policy::Relevance, 8);
    let mut have = BlockSet::full(1024);
    (160..176).for_each(|block| have.remove(block));
    deliver.join(FILE, client(1), Order::Any, Some(&have)).unwrap();
    (48..52).for_each(|block| have.remove(block));
    deliver.join(FILE, client(2), Order::Any, Some(&have)).unwrap();
    deliver.join(FILE, client(3), ascending(10 * MIB, 11 * MIB), None).unwrap();
    deliver.join(FILE, client(4), ascending(9 * MIB, 11 * MIB), None).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    assert_eq!(deliver.next_block(client(2), NOW), Next::Wait);
    let read = deliver.next_read(NOW).unwrap();
    assert_eq!(read.extent, 10);
    assert_eq!(deliver.read_failed(FILE, 10), [1, 2, 3].map(client));
    assert_eq!(deliver.poll_woken(), Some(client(1)));
    assert_eq!(deliver.next_block(client(1), NOW), Next::Finished);
    assert_eq!(read_all(&mut deliver), [3]);
    let offsets: Vec<u64> = (48..52).map(|block| block << 16).collect();
    assert_eq!(take_all(&mut deliver, client(2)), offsets);
}

/// Of two extents, the one that more clients lack is read, and the other one is dropped.
#[test]
fn what_most_clients_want_is_read_and_kept() {
    let mut deliver = deliver(Policy::Relevance, 2);
    let lacking = |extents: &[u32]| {
        let mut have = BlockSet::full(1024);
        let blocks = extents.iter().flat_map(|extent| extent * 16..extent * 16 + 16);
        blocks.for_each(|block| have.remove(block));
        have
    };
    deliver.join(FILE, client(1), Order::Any, Some(&lacking(&[5, 30]))).unwrap();
    deliver.join(FILE, client(2), Order::Any, Some(&lacking(&[30, 40]))).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    assert_eq!(deliver.next_read(NOW).unwrap().extent, 30);
    deliver.read_done(FILE, 30, NOW);
    assert_eq!(take_all(&mut deliver, client(1)).len(), 16);
    assert_eq!(deliver.next_read(NOW).unwrap().extent, 5);
    deliver.read_done(FILE, 5, NOW);
    assert_eq!(take_all(&mut deliver, client(1)).len(), 16);
    deliver.leave(client(1));
    assert_eq!(take_all(&mut deliver, client(2)).len(), 16);
    let read = deliver.next_read(NOW).unwrap();
    assert_eq!((read.extent, read.evicted), (40, Some((FILE, 5))));
}

/// Between two readers in order that are close to each other, what the first one has read stays for
/// the second one, although others want something else.
#[test]
fn what_lies_between_two_close_readers_stays() {
    let mut deliver = deliver(Policy::Relevance, 8);
    for id in [1, 2] {
        deliver.join(FILE, client(id), ascending(0, 64 * MIB), None).unwrap();
    }
    let mut now = NOW;
    let mut reads = 0;
    let mut behind = 0;
    for step in 0..2000 {
        now += Duration::from_millis(10);
        let ids = if step < 40 { &[1][..] } else { &[1, 2][..] };
        for id in ids {
            if let Next::Block(block) = deliver.next_block(client(*id), now) {
                deliver.sent(client(*id), now + Duration::from_millis(10));
                behind = if *id == 2 { block.extent } else { behind };
            }
        }
        while let Some(read) = deliver.next_read(now) {
            reads += 1;
            deliver.read_done(read.file, read.extent, now);
        }
    }
    assert_eq!((reads, behind), (64, 63));
}

/// A file with one client that asks gets as many reads as another's client, however many those are.
#[test]
fn files_share_the_disk_by_their_clients() {
    let mut options = Options::new(Policy::Sequential, 64 * MIB);
    options.queue = 64;
    let mut deliver = Deliver::new(options);
    deliver.open_file(FILE, 512 * MIB).unwrap();
    deliver.open_file(VersionId(2), 512 * MIB).unwrap();
    let clients = (1..=9).map(|id| (client(id), if id == 9 { VersionId(2) } else { FILE }));
    for (id, file) in clients {
        let from = id.0 * 16 * MIB;
        deliver.join(file, id, ascending(from, from + 16 * MIB), None).unwrap();
        assert_eq!(deliver.next_block(id, NOW), Next::Wait);
    }
    let mut files = Vec::new();
    while let Some(read) = deliver.next_read(NOW) {
        files.push(read.file);
        deliver.read_done(read.file, read.extent, NOW);
    }
    let second = files.iter().position(|file| *file == VersionId(2)).unwrap();
    let rounds = files.iter().take(18).filter(|file| **file == VersionId(2)).count();
    assert!(second <= 8 && rounds == 2, "{files:?}");
}

#[test]
fn a_file_that_is_closed_takes_everything_with_it() {
    let mut deliver = deliver(Policy::Relevance, 4);
    deliver.join(FILE, client(1), Order::Any, None).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    let read = deliver.next_read(NOW).unwrap();
    deliver.close_file(FILE);
    assert_eq!((deliver.clients(), deliver.askers(), deliver.next_read(NOW)), (0, 0, None));
    assert_eq!(deliver.extents(), 1);
    deliver.read_done(FILE, read.extent, NOW);
    assert_eq!((deliver.extents(), deliver.poll_woken()), (0, None));
}

/// A client of a file of 16 TiB that lacks something everywhere begins no further chunk.
#[test]
fn a_scattered_client_stays_within_its_limit() {
    let mut deliver = deliver(Policy::Relevance, 4);
    deliver.open_file(VersionId(2), 1 << 44).unwrap();
    let mut have = BlockSet::empty(1 << 28);
    (100..356).for_each(|chunk| have.insert(chunk * 4096));
    deliver.join(VersionId(2), client(1), Order::Any, Some(&have)).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    for _ in 0..50 {
        let extents = read_all(&mut deliver);
        assert!(extents.iter().all(|extent| (100 * 256..356 * 256).contains(extent)));
        assert!(!take_all(&mut deliver, client(1)).is_empty());
        assert!(deliver.clients[&client(1)].missing.mixed() <= 256);
    }
}

/// A client in order whose blocks are elsewhere requests no read. At their end it requests one. A
/// read ahead may be skipped then, but not a read for which it waits.
#[test]
fn what_a_client_in_order_has_elsewhere_is_not_read() {
    let mut deliver = deliver(Policy::Relevance, 4);
    deliver.join(FILE, client(1), ascending(0, 3 * MIB), None).unwrap();
    for block in 0..16 {
        let absent = deliver.next_absent(client(1)).unwrap();
        assert_eq!((absent.offset, absent.len), (block << 16, 1 << 16));
        deliver.take_absent(client(1), &absent, NOW);
        assert_eq!(deliver.next_read(NOW), None);
        deliver.sent(client(1), NOW);
    }
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    let read = deliver.next_read(NOW).unwrap();
    assert_eq!((read.extent, read.is_awaited), (1, true));
    deliver.read_done(FILE, 1, NOW);
    assert_eq!(deliver.poll_woken(), Some(client(1)));
    assert_eq!(deliver.next_absent(client(1)), None);
    let mut ahead = None;
    while ahead.is_none() {
        assert!(matches!(deliver.next_block(client(1), NOW), Next::Block(_)));
        deliver.sent(client(1), NOW);
        ahead = deliver.next_read(NOW);
    }
    let ahead = ahead.unwrap();
    assert_eq!((ahead.extent, ahead.is_awaited), (2, false));
    deliver.read_skipped(FILE, 2);
    assert_eq!(deliver.extents(), 1);
    // It is not asked for again, until it is missed.
    let rest = take_all(&mut deliver, client(1));
    assert_eq!(
        (rest.last(), deliver.next_absent(client(1)).map(|it| it.extent)),
        (Some(&(31 << 16)), Some(2))
    );
    let read = deliver.next_read(NOW).unwrap();
    assert_eq!((read.extent, read.is_awaited), (2, true));
    // Another one that comes meanwhile waits, and looks for itself once the read is skipped.
    deliver.join(FILE, client(2), ascending(2 * MIB, 3 * MIB), None).unwrap();
    assert_eq!(deliver.next_block(client(2), NOW), Next::Wait);
    deliver.read_skipped(FILE, 2);
    assert_eq!([(); 2].map(|()| deliver.poll_woken()), [1, 2].map(|id| Some(client(id))));
}

/// Nothing is read ahead for one client in the place of what two others lack; once it waits it is
/// read for.
#[test]
fn what_is_read_ahead_takes_no_place_of_what_more_clients_lack() {
    let mut deliver = deliver(Policy::Relevance, 2);
    let lacking = |extents: &[u32]| {
        let mut have = BlockSet::full(1024);
        extents.iter().for_each(|extent| have.remove_run(extent * 16, extent * 16 + 16));
        have
    };
    deliver.join(FILE, client(1), Order::Any, Some(&lacking(&[5, 6, 7]))).unwrap();
    for other in [2, 3] {
        deliver.join(FILE, client(other), Order::Any, Some(&lacking(&[5, 6]))).unwrap();
    }
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    assert_eq!(read_all(&mut deliver), [5]);
    // It takes what the others lack too, and would need more soon.
    for _ in 0..16 {
        assert!(matches!(deliver.next_block(client(1), NOW), Next::Block(_)));
        deliver.sent(client(1), NOW);
    }
    assert_eq!(read_all(&mut deliver), [6]);
    for _ in 0..16 {
        assert!(matches!(deliver.next_block(client(1), NOW), Next::Block(_)));
        deliver.sent(client(1), NOW);
        assert_eq!(deliver.next_read(NOW), None);
    }
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    let read = deliver.next_read(NOW).unwrap();
    assert_eq!((read.extent, read.is_awaited), (7, true));
    deliver.read_done(FILE, 7, NOW);
    assert_eq!(take_all(&mut deliver, client(1)).len(), 16);
}

/// A client of Circus has chosen its next blocks, so it lacks them no longer, and waits for them
/// all the same.
#[test]
fn a_client_that_waits_for_what_it_has_chosen_is_woken_by_a_read_that_is_skipped() {
    let mut deliver = deliver(Policy::Circus(Circus::default()), 4);
    let mut have = BlockSet::full(1024);
    have.remove_run(0, 18);
    deliver.join(FILE, client(1), Order::Any, Some(&have)).unwrap();
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    let read = deliver.next_read(NOW).unwrap();
    assert!(read.is_awaited);
    deliver.read_done(FILE, read.extent, NOW);
    assert_eq!(deliver.poll_woken(), Some(client(1)));
    let mut ahead = None;
    loop {
        match deliver.next_block(client(1), NOW) {
            Next::Block(_) => deliver.sent(client(1), NOW),
            next => break assert_eq!(next, Next::Wait),
        }
        ahead = ahead.or_else(|| deliver.next_read(NOW));
    }
    let ahead = ahead.unwrap();
    assert!(!ahead.is_awaited);
    deliver.read_skipped(FILE, ahead.extent);
    assert_eq!(deliver.poll_woken(), Some(client(1)));
    assert_eq!(deliver.next_block(client(1), NOW), Next::Wait);
    let again = deliver.next_read(NOW).unwrap();
    assert_eq!((again.extent, again.is_awaited), (ahead.extent, true));
}
