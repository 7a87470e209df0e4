use std::collections::VecDeque;

use super::*;

const ONE: InodeId = InodeId::from_raw(1);
const LARGE: u64 = 64 << 20;
/// The bytes of a program's read.
const READ: usize = 128 << 10;
const RTT: Duration = Duration::from_millis(100);

/// A server at the other end of a line, and a program that waits for its reads.
struct World {
    fetched: Fetched<u32>,
    line: Line,
    /// Requests under way, with the time at which each is answered.
    sent: VecDeque<(Duration, Fetch)>,
    now: Duration,
    /// The most requests that were under way.
    most: usize,
    requests: usize,
}

/// A line with a round trip of [`RTT`] on which replies follow each other.
struct Line {
    bytes_per_second: u64,
    /// When the last reply has arrived.
    busy: Duration,
}

impl Line {
    /// Returns when the reply to a request arrives that is sent now.
    fn send(&mut self, now: Duration, bytes: usize) -> Duration {
        let takes = Duration::from_micros(bytes as u64 * 1_000_000 / self.bytes_per_second);
        self.busy = self.busy.max(now + RTT) + takes;
        self.busy
    }
}

impl Default for World {
    fn default() -> Self {
        Self::over(u64::MAX >> 20)
    }
}

/// Returns the bytes of each file from an offset on.
fn content(offset: u64, size: usize) -> Vec<u8> {
    (offset..).take(size).map(|at| (at / 1000) as u8).collect()
}

fn range(ino: InodeId, offset: u64, size: usize) -> Range {
    Range { ino, open: OpenId(1), offset, size }
}

impl World {
    fn over(bytes_per_second: u64) -> Self {
        Self {
            fetched: Fetched::default(),
            line: Line { bytes_per_second, busy: Duration::ZERO },
            sent: VecDeque::new(),
            now: Duration::ZERO,
            most: 0,
            requests: 0,
        }
    }

    /// Reads from a file of this size. Returns whether its bytes were fetched: otherwise the read
    /// goes to the server.
    fn read(&mut self, range: Range, of: u64) -> bool {
        if let Some(bytes) = self.fetched.take(range) {
            self.expect(&bytes, range, of);
            return true;
        }
        loop {
            let time = pelago_wire::Time::default();
            let version = FileVersion { ino: range.ino, size: of, mtime: time, ctime: time };
            self.fetched.begin(version);
            let (path, fetches) = self.fetched.read(range, of, false, self.now);
            for fetch in &fetches {
                self.fetched.note_sent(fetch.number, self.now);
            }
            self.requests += fetches.len();
            for fetch in fetches {
                self.sent.push_back((self.line.send(self.now, fetch.bytes), fetch));
            }
            self.most = self.most.max(self.sent.len());
            match path {
                ReadPath::Here(bytes) => {
                    self.expect(&bytes, range, of);
                    return true;
                }
                ReadPath::ToServer => return false,
                ReadPath::Waits(number) => {
                    self.fetched.wait(number, 7);
                    while self.land() != number {}
                    while self.sent.front().is_some_and(|(then, _)| *then <= self.now) {
                        self.land();
                    }
                }
            }
        }
    }

    /// Takes the next reply. Returns its number.
    fn land(&mut self) -> u64 {
        let (then, fetch) = self.sent.pop_front().unwrap();
        self.now = self.now.max(then);
        let bytes = content(fetch.offset, fetch.bytes);
        assert!(self.fetched.land(fetch.number, Landing::Sent(bytes), self.now).is_here);
        fetch.number
    }

    fn expect(&self, bytes: &[u8], range: Range, of: u64) {
        let size = of.saturating_sub(range.offset).min(range.size as u64) as usize;
        assert!(bytes == content(range.offset, size), "{range:?}");
        self.expect_bounds();
    }

    fn expect_bounds(&self) {
        let Fetched { files, by_read, flights, bytes, .. } = &self.fetched;
        assert!(*bytes <= limits::FETCHED_BYTES, "{bytes}");
        assert!(flights.len() <= UNDER_WAY && files.len() <= limits::FETCHED_FILES);
        assert_eq!(files.len(), by_read.len());
        let here = |block: &Block| match block {
            Block::Here(bytes) => bytes.len(),
            Block::UnderWay(_) => 0,
        };
        let sum = |file: &File| file.blocks.values().map(here).sum::<usize>();
        assert!(files.values().all(|file| file.bytes == sum(file)));
        assert_eq!(files.values().map(sum).sum::<usize>(), *bytes);
    }
}

#[test]
fn a_small_file_is_fetched_once_and_kept() {
    let mut world = World::default();
    for _ in 0..3 {
        assert!(world.read(range(ONE, 0, READ), 4000));
        assert!(world.read(range(ONE, 4000, READ), 4000), "the end of the file");
        assert!(world.read(range(ONE, 1000, 10), 4000));
    }
    assert_eq!((world.requests, world.now), (1, RTT));
    assert!(world.read(range(InodeId::from_raw(2), 0, READ), 0), "an empty file");
    assert_eq!(world.requests, 1);
    assert_eq!(world.fetched.files.len(), 1, "nothing is kept of an empty file");
}

#[test]
fn a_file_that_is_read_in_order_is_fetched_ahead() {
    let mut world = World::default();
    for at in 0..LARGE / READ as u64 {
        assert!(world.read(range(ONE, at * READ as u64, READ), LARGE));
    }
    assert_eq!(world.requests as u64, LARGE / BLOCK as u64);
    assert_eq!(world.most, UNDER_WAY);
    // With all of them under way 256 blocks take 16 round trips, and there is a beginning.
    assert!(world.now < 28 * RTT, "{:?}", world.now);
    assert!(world.fetched.bytes <= 2 * limits::FETCH_AHEAD_BYTES, "{}", world.fetched.bytes);
}

/// The server has little memory.
#[test]
fn a_file_that_is_read_in_order_is_fetched_ahead_by_half_of_what_is_kept() {
    const BLOCKS: usize = 8;
    let mut world = World::default();
    world.fetched.set_most_bytes(BLOCKS * BLOCK);
    for at in 0..LARGE / READ as u64 {
        assert!(world.read(range(ONE, at * READ as u64, READ), LARGE));
        assert!(world.fetched.bytes <= BLOCKS * BLOCK, "{}", world.fetched.bytes);
    }
    assert_eq!(world.requests as u64, LARGE / BLOCK as u64, "none is fetched twice");
    assert_eq!(world.most, BLOCKS / 2);
}

/// As of an archive whose index is at its end.
#[test]
fn a_file_whose_end_was_read_first_is_fetched_ahead() {
    for size in [SMALL, LARGE] {
        let mut world = World::default();
        world.read(range(ONE, size - 100, 100), size);
        let before = world.requests;
        for at in 0..3 {
            world.read(range(ONE, at * 100_000, 100_000), size);
        }
        assert!(world.requests > before + 1, "{size}: the next block is under way");
    }
}

#[test]
fn two_programs_that_read_one_file_do_not_drop_the_blocks_of_each_other() {
    let mut world = World::default();
    let blocks = LARGE / BLOCK as u64;
    let half = LARGE / 2;
    for at in 0..half / READ as u64 {
        let offset = at * READ as u64;
        assert!(world.read(range(ONE, offset, READ), LARGE));
        let second = Range { open: OpenId(2), ..range(ONE, half + offset, READ) };
        // The first read is not at the beginning, and goes to the server.
        assert!(world.read(second, LARGE) || at == 0);
    }
    // The first one has fetched ahead what the second one had passed.
    let twice = world.requests as u64 - blocks;
    assert!(twice <= UNDER_WAY as u64, "{twice} of {blocks} blocks");
    assert!(world.fetched.bytes <= 3 * limits::FETCH_AHEAD_BYTES, "{}", world.fetched.bytes);
}

#[test]
fn reads_at_random_of_a_large_file_go_to_the_server() {
    let mut world = World::default();
    for at in [7, 3, 200, 90] {
        assert!(!world.read(range(ONE, at * BLOCK as u64 + 5, 4096), LARGE));
    }
    assert_eq!(world.requests, 0);
    // One that continues the last one does not.
    assert!(world.read(range(ONE, 90 * BLOCK as u64 + 5 + 4096, 4096), LARGE));
}

/// Each read is fetched, because it is at the beginning or continues the last one, and none of them
/// passes what is here.
#[test]
fn memory_is_bounded_however_files_are_read() {
    let mut world = World::default();
    let blocks = LARGE / BLOCK as u64;
    for block in (0..blocks).rev() {
        for open in [1, 2] {
            let of = |offset| Range { open: OpenId(open), ..range(ONE, offset, 4096) };
            world.read(of(block * BLOCK as u64), LARGE);
            world.read(of(block * BLOCK as u64 + 4096), LARGE);
            world.expect_bounds();
        }
    }
    let mut world = World::default();
    for ino in 1..3 * limits::FETCHED_FILES as u64 {
        world.read(range(InodeId::from_raw(2 * ino), 0, 10), ino % 3);
        world.read(range(InodeId::from_raw(2 * ino + 1), LARGE / 2, 10), LARGE);
        world.expect_bounds();
    }
}

#[test]
fn what_lands_after_the_end_of_the_lease_is_not_shown() {
    let mut fetched = Fetched::<u32>::default();
    let range = range(ONE, 0, 10);
    let (path, fetches) = fetched.read(range, 100, false, RTT);
    assert_eq!(path, ReadPath::Waits(1));
    fetched.wait(1, 5);
    fetched.end(ONE);
    // A block of the next lease is another one.
    let (path, again) = fetched.read(range, 100, false, RTT);
    assert_eq!(path, ReadPath::Waits(2));
    let landed = fetched.land(fetches[0].number, Landing::Sent(vec![1; 100]), RTT);
    assert_eq!((landed.is_here, landed.waiting), (false, vec![5]));
    assert_eq!(fetched.take(range), None);
    assert!(fetched.land(again[0].number, Landing::Sent(vec![2; 100]), RTT).is_here);
    assert_eq!(fetched.take(range), Some(vec![2; 10]));
    fetched.end_all();
    assert_eq!((fetched.take(range), fetched.bytes), (None, 0));
}

#[test]
fn an_error_or_a_short_reply_is_not_kept() {
    for reply in [Landing::Failed, Landing::Sent(vec![1; 99]), Landing::Copied(vec![1; 99])] {
        let mut fetched = Fetched::<u32>::default();
        let range = range(ONE, 0, 10);
        fetched.read(range, 100, false, RTT);
        fetched.wait(1, 5);
        let landed = fetched.land(1, reply, RTT);
        assert_eq!((landed.is_here, landed.waiting), (false, vec![5]));
        // The next read fetches it again.
        assert_eq!(fetched.read(range, 100, false, RTT).1.len(), 1);
    }
}

#[test]
fn a_read_that_is_cancelled_waits_no_more() {
    let mut fetched = Fetched::<u32>::default();
    fetched.read(range(ONE, 0, 10), 100, false, RTT);
    fetched.wait(1, 5);
    assert_eq!((fetched.cancel(|it| *it == 4), fetched.cancel(|it| *it == 5)), (None, Some(5)));
    assert!(fetched.land(1, Landing::Sent(vec![0; 100]), RTT).waiting.is_empty());
}

/// All that is under way is ahead of each other request on the line.
#[test]
fn on_a_slow_line_little_is_under_way() {
    // A block takes 0.5, 2 or 4 s. Of the slowest line a request may fail if three are under way.
    for (halves, most) in [(1, 4), (4, 2), (8, 2)] {
        let mut world = World::over(2 * BLOCK as u64 / halves);
        for at in 0..100 {
            world.read(range(ONE, at * READ as u64, READ), LARGE);
        }
        assert!(world.most <= most, "{halves}: {}", world.most);
    }
}

/// A line of 100 Mbit/s: a queue of 4 MiB would be 0.3 s long.
#[test]
fn a_long_line_is_filled() {
    let mut world = World::over(12_500_000);
    for at in 0..LARGE / READ as u64 {
        assert!(world.read(range(ONE, at * READ as u64, READ), LARGE));
    }
    let ideal = Duration::from_millis(LARGE * 1000 / 12_500_000);
    assert!(world.now < ideal + 10 * RTT, "{:?} of {ideal:?}", world.now);
}

/// A reply that is small, failed or late says nothing of the line.
#[test]
fn only_whole_blocks_tell_the_pace() {
    let mut fetched = Fetched::<u32>::default();
    let small = fetched.read(range(InodeId::from_raw(2), 0, 10), 100, false, RTT).1;
    fetched.land(small[0].number, Landing::Sent(vec![0; 100]), RTT);
    let failed = fetched.read(range(ONE, 0, 10), LARGE, false, RTT).1;
    fetched.land(failed[0].number, Landing::Failed, RTT);
    let mut now = RTT;
    for _ in 0..10 {
        let blocks = fetched.read(range(ONE, 0, 2 * BLOCK), LARGE, false, now).1;
        for block in &blocks {
            fetched.note_sent(block.number, now);
        }
        now += 5 * RTT;
        for block in blocks {
            fetched.land(block.number, Landing::Sent(vec![0; BLOCK]), now);
        }
        fetched.end_all();
    }
    assert_eq!(fetched.pace.most(), 4, "two blocks in the time of one");
}

#[test]
fn files_that_were_read_last_are_kept() {
    let mut world = World::default();
    let files = 2 * limits::FETCHED_BYTES as u64 / SMALL;
    for ino in 1..=files {
        for at in 0..SMALL / BLOCK as u64 {
            world.read(range(InodeId::from_raw(ino), at * BLOCK as u64, BLOCK), SMALL);
        }
    }
    let requests = world.requests;
    world.read(range(InodeId::from_raw(files), 0, BLOCK), SMALL);
    assert_eq!(world.requests, requests);
    world.read(range(ONE, 0, BLOCK), SMALL);
    assert!(world.requests > requests);
}

/// A read of which there are copies needs nothing else, wherever it is in the file.
#[test]
fn copies_are_used_for_reads_in_any_order() {
    let mut fetched = Fetched::<u32>::default();
    let version = FileVersion {
        ino: ONE,
        size: LARGE,
        mtime: pelago_wire::Time::default(),
        ctime: pelago_wire::Time::default(),
    };
    fetched.begin(version);
    for offset in [LARGE / 2 + 5, 0, LARGE - 100] {
        let range = range(ONE, offset, 50);
        let (path, fetches) = fetched.read(range, LARGE, true, RTT);
        assert_eq!(fetches.len(), 1);
        let fetch = &fetches[0];
        assert_eq!(path, ReadPath::Waits(fetch.number));
        assert_eq!(fetch.version, Some(version));
        assert!(fetched.is_leased(ONE, fetch.lease));
        let block = content(fetch.offset, fetch.bytes);
        assert!(fetched.land(fetch.number, Landing::Copied(block), RTT).is_here);
        assert_eq!(fetched.take(range), Some(content(offset, 50)));
    }
    // One without copies goes to the server, as before.
    let (path, fetches) = fetched.read(range(ONE, LARGE / 3, 50), LARGE, false, RTT);
    assert_eq!((path, fetches.len()), (ReadPath::ToServer, 0));
}

/// A block that was fetched under an earlier lease on the file is told from one of this lease.
#[test]
fn a_lease_has_a_number() {
    let mut fetched = Fetched::<u32>::default();
    let first = fetched.read(range(ONE, 0, 10), 100, false, RTT).1[0].lease;
    assert!(fetched.is_leased(ONE, first));
    fetched.end(ONE);
    assert!(!fetched.is_leased(ONE, first));
    let second = fetched.read(range(ONE, 0, 10), 100, false, RTT).1[0].lease;
    assert!(!fetched.is_leased(ONE, first) && fetched.is_leased(ONE, second));
    fetched.end_all();
    assert!(!fetched.is_leased(ONE, second));
}
