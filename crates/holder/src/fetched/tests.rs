use super::*;

const ONE: InodeId = InodeId::from_raw(1);
const LARGE: u64 = 64 << 20;
/// The bytes of a program's read.
const READ: usize = 128 << 10;

/// A server whose replies take a time each, and a program that waits for its reads.
#[derive(Default)]
struct World {
    fetched: Fetched<u32>,
    /// Requests under way, with the time at which each is answered.
    sent: Vec<(Duration, Fetch)>,
    now: Duration,
    /// The most requests that were under way.
    most: usize,
    requests: usize,
}

/// Returns the bytes of each file from an offset on.
fn content(offset: u64, size: usize) -> Vec<u8> {
    (offset..).take(size).map(|at| (at / 1000) as u8).collect()
}

impl World {
    fn read(&mut self, ino: InodeId, offset: u64, size: usize, of: u64, takes: Duration) -> bool {
        let range = Range { ino, offset, size };
        if let Some(bytes) = self.fetched.take(range) {
            self.expect(&bytes, range, of);
            return true;
        }
        loop {
            let (answer, fetches) = self.fetched.read(range, of, self.now);
            self.requests += fetches.len();
            self.sent.extend(fetches.into_iter().map(|fetch| (self.now + takes, fetch)));
            self.most = self.most.max(self.sent.len());
            match answer {
                ReadPath::Here(bytes) => {
                    self.expect(&bytes, range, of);
                    return true;
                }
                ReadPath::ToServer => return false,
                ReadPath::Waits(number) => {
                    self.fetched.wait(number, 7);
                    loop {
                        let first = self.sent.iter().enumerate().min_by_key(|(_, sent)| sent.0);
                        let first = first.map(|(at, _)| at).unwrap();
                        let (then, fetch) = self.sent.swap_remove(first);
                        self.now = self.now.max(then);
                        let bytes = content(fetch.offset, fetch.bytes);
                        let landed = self.fetched.land(fetch.number, Some(bytes), self.now);
                        assert!(landed.is_here);
                        if fetch.number == number {
                            assert_eq!(landed.waiting, [7]);
                            break;
                        }
                    }
                }
            }
        }
    }

    fn expect(&self, bytes: &[u8], range: Range, of: u64) {
        let size = of.saturating_sub(range.offset).min(range.size as u64) as usize;
        assert!(bytes == content(range.offset, size), "{range:?}");
        assert!(self.fetched.bytes <= limits::FETCHED_BYTES + limits::FETCH_AHEAD_BYTES);
        let here: usize = self.fetched.files.values().map(File::bytes).sum();
        assert_eq!(here, self.fetched.bytes);
    }
}

const RTT: Duration = Duration::from_millis(100);

#[test]
fn a_small_file_is_fetched_once_and_kept() {
    let mut world = World::default();
    for _ in 0..3 {
        assert!(world.read(ONE, 0, READ, 4000, RTT));
        assert!(world.read(ONE, 4000, READ, 4000, RTT), "the end of the file");
        assert!(world.read(ONE, 1000, 10, 4000, RTT));
    }
    assert_eq!((world.requests, world.now), (1, RTT));
    assert!(world.read(InodeId::from_raw(2), 0, READ, 0, RTT), "an empty file");
    assert_eq!(world.requests, 1);
}

#[test]
fn a_file_that_is_read_in_order_is_fetched_ahead() {
    let mut world = World::default();
    for at in 0..LARGE / READ as u64 {
        assert!(world.read(ONE, at * READ as u64, READ, LARGE, RTT));
    }
    assert_eq!(world.requests as u64, LARGE / BLOCK as u64);
    assert_eq!(world.most, AHEAD + 1, "the block of the read, and those ahead");
    // With all of them under way 256 blocks take 8 round trips, and there is a beginning.
    assert!(world.now < 20 * RTT, "{:?}", world.now);
    assert!(world.fetched.bytes <= limits::FETCH_AHEAD_BYTES, "{}", world.fetched.bytes);
}

#[test]
fn reads_at_random_of_a_large_file_go_to_the_server() {
    let mut world = World::default();
    for at in [7, 3, 200, 90] {
        assert!(!world.read(ONE, at * BLOCK as u64 + 5, 4096, LARGE, RTT));
    }
    assert_eq!(world.requests, 0);
    // One that continues the last one does not.
    assert!(world.read(ONE, 90 * BLOCK as u64 + 5 + 4096, 4096, LARGE, RTT));
}

#[test]
fn what_lands_after_the_end_of_the_lease_is_not_shown() {
    let mut fetched = Fetched::<u32>::default();
    let range = Range { ino: ONE, offset: 0, size: 10 };
    let (answer, fetches) = fetched.read(range, 100, RTT);
    assert_eq!(answer, ReadPath::Waits(1));
    fetched.wait(1, 5);
    fetched.end(ONE);
    // A block of the next lease is another one.
    let (answer, again) = fetched.read(range, 100, RTT);
    assert_eq!(answer, ReadPath::Waits(2));
    let landed = fetched.land(fetches[0].number, Some(vec![1; 100]), RTT);
    assert_eq!((landed.is_here, landed.waiting), (false, vec![5]));
    assert_eq!(fetched.take(range), None);
    assert!(fetched.land(again[0].number, Some(vec![2; 100]), RTT).is_here);
    assert_eq!(fetched.take(range), Some(vec![2; 10]));
    fetched.end_all();
    assert_eq!((fetched.take(range), fetched.bytes), (None, 0));
}

#[test]
fn an_error_or_a_short_reply_is_not_kept() {
    for reply in [None, Some(vec![1; 99])] {
        let mut fetched = Fetched::<u32>::default();
        let range = Range { ino: ONE, offset: 0, size: 10 };
        fetched.read(range, 100, RTT);
        fetched.wait(1, 5);
        let landed = fetched.land(1, reply, RTT);
        assert_eq!((landed.is_here, landed.waiting), (false, vec![5]));
        // The next read fetches it again.
        assert_eq!(fetched.read(range, 100, RTT).1.len(), 1);
    }
}

#[test]
fn a_read_that_is_cancelled_waits_no_more() {
    let mut fetched = Fetched::<u32>::default();
    fetched.read(Range { ino: ONE, offset: 0, size: 10 }, 100, RTT);
    fetched.wait(1, 5);
    assert_eq!((fetched.cancel(|it| *it == 4), fetched.cancel(|it| *it == 5)), (None, Some(5)));
    assert!(fetched.land(1, Some(vec![0; 100]), RTT).waiting.is_empty());
}

#[test]
fn late_replies_are_followed_by_fewer_requests() {
    let mut world = World::default();
    world.read(ONE, 0, READ, LARGE, RTT);
    for at in 1..100 {
        world.read(ONE, at * READ as u64, READ, LARGE, 5 * RTT);
    }
    assert_eq!(world.fetched.line.most, 1);
    assert!(world.sent.len() <= 2, "{}", world.sent.len());
}

#[test]
fn files_that_were_read_last_are_kept() {
    let mut world = World::default();
    let files = 2 * limits::FETCHED_BYTES as u64 / SMALL;
    for ino in 1..=files {
        for at in 0..SMALL / BLOCK as u64 {
            world.read(InodeId::from_raw(ino), at * BLOCK as u64, BLOCK, SMALL, RTT);
        }
    }
    let requests = world.requests;
    world.read(InodeId::from_raw(files), 0, BLOCK, SMALL, RTT);
    assert_eq!(world.requests, requests);
    world.read(ONE, 0, BLOCK, SMALL, RTT);
    assert_eq!(world.requests, requests + 1);
}
