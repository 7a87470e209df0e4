use std::collections::BTreeSet;
use std::time::Duration;

use pelago_wire::datagram::{LinkReport, LostRun};
use pelago_wire::limits;
use proptest::prelude::*;

use super::loss::Loss;
use super::*;
use path::Path;

pub(crate) mod path;

const BYTES: usize = limits::DATAGRAM_BYTES;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A sender with as much to send as the link takes, and its receiver.
struct Bulk {
    now: Duration,
    sender: LinkSender,
    arrivals: Arrivals,
    there: Path<u64>,
    back: Path<LinkReport>,
    arrived: u64,
    /// Bytes per second that others put into the bottleneck.
    others: f64,
    others_at: Duration,
}

impl Bulk {
    fn new(megabits: f64, delay: Duration, loss: f64) -> Self {
        Self {
            now: Duration::ZERO,
            sender: LinkSender::new(),
            arrivals: Arrivals::new(),
            there: Path::new(megabits, delay, loss, 7),
            back: Path::new(1000.0, delay, 0.0, 8),
            arrived: 0,
            others: 0.0,
            others_at: Duration::ZERO,
        }
    }

    /// Runs for a time. Returns the bytes per second that arrived.
    fn run(&mut self, time: Duration) -> f64 {
        let end = self.now + time;
        let before = self.arrived;
        while self.now < end {
            self.step();
        }
        (self.arrived - before) as f64 * BYTES as f64 / time.as_secs_f64()
    }

    fn step(&mut self) {
        let now = self.now;
        while self.others > 0.0 && self.others_at <= now {
            self.there.occupy(now, BYTES);
            self.others_at += Duration::from_secs_f64(BYTES as f64 / self.others);
        }
        while self.sender.poll_send(now) == Room::Now {
            let number = self.sender.handle_sent(now, BYTES, true);
            self.there.send(now, BYTES, number);
        }
        self.pass();
    }

    /// Passes what has arrived, and 50 µs.
    fn pass(&mut self) {
        let now = self.now;
        while let Some(number) = self.there.poll(now) {
            self.arrived += u64::from(self.arrivals.handle(now, number, BYTES));
        }
        if let Some(report) = self.arrivals.poll_report(now, 0) {
            self.back.send(now, BYTES, report);
        }
        while let Some(report) = self.back.poll(now) {
            self.sender.handle_report(now, &report);
        }
        self.sender.handle_timeout(now);
        self.now += Duration::from_micros(50);
    }

    fn share(&mut self, time: Duration) -> f64 {
        self.run(time) / self.there.rate
    }
}

/// Returns a report that all datagrams up to a number have arrived.
fn all_arrived(number: u64, bytes: u64) -> LinkReport {
    let settled = number + 1;
    LinkReport {
        highest: number,
        arrived: 0,
        held: 0,
        bytes,
        settled,
        lost: 0,
        complete: 0,
        runs: vec![],
    }
}

/// Whatever is lost at random, the link is full within 30 round trips, and stays so.
#[test]
fn the_rate_is_that_of_the_link() {
    for (megabits, delay) in [(100.0, ms(25)), (20.0, ms(50)), (400.0, ms(10)), (5.0, ms(100))] {
        for loss in [0.0, 0.001, 0.01, 0.03] {
            let mut bulk = Bulk::new(megabits, delay, loss);
            bulk.run(delay * 2 * 30);
            let share = bulk.share(delay * 2 * 100) / (1.0 - loss);
            assert!(share >= 0.95, "{megabits} Mbit/s, {delay:?}, {loss}: {share}");
        }
    }
}

/// The bound for the code follows what the link loses, and the bursts too.
#[test]
fn the_bound_follows_the_losses_of_the_link() {
    for (loss, burst) in [(0.0, 1), (0.001, 1), (0.01, 1), (0.03, 1), (0.001, 8)] {
        let mut bulk = Bulk::new(100.0, ms(25), loss);
        bulk.there.burst = burst;
        bulk.run(ms(10_000));
        let quality = bulk.sender.quality();
        let share = loss * f64::from(burst);
        assert!(quality.loss >= share && quality.loss <= share * 1.7 + 0.001, "{quality:?}");
        if loss > 0.0 {
            assert!(quality.burst.abs_diff(burst) <= 1, "{quality:?}");
        }
    }
}

/// Losses of a full queue do not raise the bound, and lower the rate (execution 25).
#[test]
fn losses_of_a_queue_lower_the_rate_and_not_the_code() {
    let mut bulk = Bulk::new(100.0, ms(25), 0.001);
    bulk.there.queue = ms(20);
    bulk.run(ms(3000));
    let before = bulk.sender.quality();
    assert!(before.loss < 0.003, "{before:?}");
    let dropped = bulk.there.dropped_by_queue;
    // Two round trips of others who take all, long before older delivery rates are forgotten.
    bulk.others = bulk.there.rate;
    bulk.others_at = bulk.now;
    bulk.run(ms(100));
    bulk.others = 0.0;
    bulk.run(ms(100));
    let lowered = bulk.sender.quality();
    assert!(lowered.rate <= before.rate * 7 / 10, "{before:?}, then {lowered:?}");
    assert!(lowered.loss < 0.003, "{before:?}, then {lowered:?}");
    bulk.run(ms(2000));
    bulk.others = bulk.there.rate / 2.0;
    bulk.others_at = bulk.now;
    bulk.run(ms(1500));
    let beside = bulk.sender.quality();
    assert!(bulk.there.dropped_by_queue > dropped + 100, "the queue overflows");
    assert!(beside.rate < before.rate * 3 / 4, "{before:?}, then {beside:?}");
    assert!(beside.loss < 0.003, "{before:?}, then {beside:?}");
    assert!(bulk.share(ms(2000)) > 1.0 / 3.0, "what the others leave");
    bulk.others = 0.0;
    bulk.run(ms(1500));
    assert!(bulk.share(ms(1000)) > 0.9, "the link is found again");
}

/// A window that grows by a packet in each round trip and is halved by a loss fills any queue.
struct Halving {
    window: f64,
    /// When each packet under way is known to have arrived, or to be lost.
    under_way: BTreeSet<(Duration, u64, bool)>,
    next: u64,
    /// Losses of packets before this one have halved the window.
    halved: u64,
    arrived: u64,
}

impl Halving {
    fn new() -> Self {
        let under_way = BTreeSet::new();
        Self { window: 10.0, under_way, next: 0, halved: 0, arrived: 0 }
    }

    fn step(&mut self, now: Duration, path: &mut Path<u64>) {
        while let Some(&(at, number, is_lost)) = self.under_way.first().filter(|it| it.0 <= now) {
            self.under_way.remove(&(at, number, is_lost));
            self.arrived += u64::from(!is_lost);
            match is_lost {
                true if number >= self.halved => {
                    self.window = (self.window / 2.0).max(2.0);
                    self.halved = self.next;
                }
                true => {}
                false => self.window += 1.0 / self.window,
            }
        }
        while (self.under_way.len() as f64) < self.window {
            let is_lost = !path.occupy(now, BYTES);
            self.under_way.insert((path.leaves() + path.delay * 2, self.next, is_lost));
            self.next += 1;
        }
    }
}

/// Beside a stream that fills the queue each of both has its share of the link: the longer trip of
/// the datagrams does not lower their rate more and more, and the stream finds room. (Cubic grows
/// faster than this window.)
#[test]
fn a_window_that_each_loss_halves_and_the_datagrams_share_a_link() {
    for (megabits, delay) in [(20.0, ms(20)), (50.0, ms(10)), (100.0, ms(50))] {
        let mut bulk = Bulk::new(megabits, delay, 0.0);
        bulk.there.queue = delay * 2;
        let mut other = Halving::new();
        // The window opens slowly.
        other.window = megabits * 125_000.0 * delay.as_secs_f64() * 3.0 / BYTES as f64;
        let mut run = |time: Duration| {
            let end = bulk.now + time;
            let before = [bulk.arrived, other.arrived];
            while bulk.now < end {
                other.step(bulk.now, &mut bulk.there);
                bulk.step();
            }
            let share =
                |packets: u64| packets as f64 * BYTES as f64 / time.as_secs_f64() / bulk.there.rate;
            [share(bulk.arrived - before[0]), share(other.arrived - before[1])]
        };
        run(delay * 2 * 100);
        let shares = run(delay * 2 * 300);
        let least = shares[0].min(shares[1]);
        assert!(least >= 0.15, "{megabits} Mbit/s, {delay:?}: {shares:?}");
    }
}

/// A queue of two milliseconds cannot be seen. The probes that overflow it say nothing of the link.
#[test]
fn probes_do_not_count_as_losses_of_the_link() {
    let mut bulk = Bulk::new(100.0, ms(25), 0.0);
    bulk.there.queue = ms(2);
    bulk.run(ms(10_000));
    assert!(bulk.there.dropped_by_queue > 0);
    let quality = bulk.sender.quality();
    assert!(quality.loss < 0.002, "{quality:?}");
    assert!(bulk.share(ms(1000)) > 0.93);
}

/// One round trip with losses in a queue lowers the rate once, by a third.
#[test]
fn the_rate_falls_by_a_third() {
    let mut best = rate::BestRate::default();
    best.add(9_000_000, true);
    best.add(6_000_000, true);
    best.lower();
    assert_eq!(best.best(), 6_000_000);
    best.add(5_000_000, false);
    (0..9).for_each(|_| best.add(1_000_000, true));
    assert_eq!(best.best(), 4_000_000, "what had no backlog did not count");
    best.add(1_000_000, true);
    assert_eq!(best.best(), 1_000_000, "ten round trips later it is forgotten");
}

/// A link is not probed without a backlog, and few messages do not lower the rate.
#[test]
fn only_a_backlog_probes() {
    let mut bulk = Bulk::new(100.0, ms(25), 0.0);
    bulk.run(ms(2000));
    let before = bulk.sender.quality().rate;
    let mut most = 0;
    for _ in 0..200 {
        let number = bulk.sender.handle_sent(bulk.now, BYTES, false);
        bulk.there.send(bulk.now, BYTES, number);
        for _ in 0..600 {
            bulk.pass();
        }
        most = most.max(bulk.sender.window());
    }
    let after = bulk.sender.quality().rate;
    assert!(after >= before * 9 / 10, "{before}, then {after}");
    let delivered = before as f64 * 0.052;
    assert!(most as f64 <= delivered * 2.0, "the window is 1.9 round trips: {most}");
}

/// Another way to the same place, four times as long: half a minute passes until the least round
/// trip is forgotten, and the window must not shrink with it.
#[test]
fn a_path_that_becomes_longer_keeps_most_of_its_rate() {
    let mut bulk = Bulk::new(20.0, ms(25), 0.0);
    bulk.run(ms(5000));
    bulk.there.delay = ms(100);
    bulk.back.delay = ms(100);
    bulk.there.queue = ms(100);
    bulk.run(ms(3000));
    let least = (0..12).map(|_| bulk.run(ms(5000))).fold(f64::INFINITY, f64::min);
    assert!(least >= 0.5 * bulk.there.rate, "{least} of {}", bulk.there.rate);
}

/// A link that is dead for a while is taken up again.
#[test]
fn a_silent_link_is_found_again() {
    let mut bulk = Bulk::new(100.0, ms(25), 0.0);
    bulk.run(ms(2000));
    bulk.there.loss = 1.0;
    bulk.run(ms(3000));
    assert!(bulk.sender.quality().rate < 6_000_000);
    bulk.there.loss = 0.0;
    bulk.run(ms(3000));
    assert!(bulk.share(ms(1000)) > 0.9, "{:?}", bulk.sender);
}

#[test]
fn no_more_than_the_window_is_under_way() {
    let mut sender = LinkSender::new();
    let mut sent = 0;
    while sender.poll_send(ms(0)) == Room::Now {
        sender.handle_sent(ms(0), BYTES, true);
        sent += 1;
    }
    assert_eq!((sent, sender.poll_send(ms(0))), (10, Room::Full));
    assert!(sender.handle_report(ms(10), &all_arrived(3, 4 * BYTES as u64)));
    assert_eq!(sender.poll_send(ms(10)), Room::Now);
    assert_eq!(sender.in_flight(), 6 * BYTES as u64);
    assert!(!sender.handle_report(ms(11), &all_arrived(2, 3 * BYTES as u64)), "it is late");
    assert!(!sender.handle_report(ms(11), &all_arrived(10, 1)), "nothing has this number");
    let settled = LinkReport { settled: 9, ..all_arrived(5, 6 * BYTES as u64) };
    assert!(!sender.handle_report(ms(11), &settled), "more is settled than has arrived");
}

/// A message of nine datagrams on a link that was idle is sent at once, and 30 of them per second
/// are not limited by what they were seen to need: the link may take far more.
#[test]
fn a_message_does_not_wait_for_a_pace() {
    let mut bulk = Bulk::new(100.0, ms(25), 0.0);
    for _ in 0..60 {
        for left in (0..9).rev() {
            assert_eq!(bulk.sender.poll_send(bulk.now), Room::Now);
            let number = bulk.sender.handle_sent(bulk.now, BYTES, left > 0);
            bulk.there.send(bulk.now, BYTES, number);
        }
        for _ in 0..1100 {
            bulk.pass();
        }
    }
    assert!(bulk.sender.quality().rate >= 3 * 9 * 18 * BYTES as u64, "{:?}", bulk.sender.quality());
}

/// A peer that claims more than it was sent gets no more than that.
#[test]
fn no_rate_exceeds_that_of_the_sends() {
    let mut sender = LinkSender::new();
    let mut now = ms(0);
    for round in 0..20 {
        for _ in 0..5 {
            sender.handle_sent(now, BYTES, true);
        }
        now += ms(50);
        let lie = LinkReport { arrived: round, held: 49_999, ..all_arrived(round * 5 + 4, 0) };
        let bytes = (round + 1) << 50;
        assert!(sender.handle_report(now, &LinkReport { bytes, ..lie }));
    }
    assert!(sender.quality().rate <= 4 * 120_000, "{:?}", sender.quality());
}

#[test]
fn the_bound_of_few_losses_is_above_them() {
    let mut loss = Loss::new();
    assert!((0.009..0.011).contains(&loss.quality(1).loss), "{:?}", loss.quality(1));
    loss.add(100_000, 0, &[]);
    assert!(loss.quality(1).loss < 0.0002);
    let mut loss = Loss::new();
    loss.add(10_000, 100, &[1; 100]);
    assert!((0.0105..0.0125).contains(&loss.quality(1).loss), "{:?}", loss.quality(1));
    assert_eq!(loss.quality(1).burst, 1);
    assert!(loss.is_more(1000, 23) && !loss.is_more(1000, 15));
    loss.add(0, 0, &[9; 7]);
    assert_eq!(loss.quality(1).burst, 9, "of 107 runs 7 are that long");
    loss.add(1000, 2000, &[]);
    assert!(loss.quality(1).loss <= 1.0);
}

#[test]
fn a_report_counts_what_is_lost() {
    let mut arrivals = Arrivals::new();
    for number in (0..200).filter(|number| ![0, 50, 51, 52, 100].contains(number)) {
        assert!(arrivals.handle(ms(number), number, 1000));
    }
    assert!(!arrivals.handle(ms(200), 150, 1000), "it has arrived");
    let report = arrivals.poll_report(ms(200), 7).unwrap();
    let run = |first, length| LostRun { first, length };
    assert_eq!(report.runs, [run(0, 1), run(50, 3), run(100, 1)]);
    assert_eq!((report.highest, report.settled, report.lost), (199, 168, 5));
    assert_eq!((report.arrived, report.held, report.complete), (199_000, 1000, 7));
    assert_eq!(report.bytes, 195_000);
    assert_eq!(arrivals.poll_report(ms(300), 7), None, "nothing has arrived since");
    assert!(arrivals.handle(ms(300), 51, 1000), "it was late");
    assert_eq!(arrivals.poll_report(ms(300), 7).unwrap().lost, 4);
    arrivals.handle(ms(301), 200, 1000);
    assert_eq!(arrivals.poll_report(ms(301), 7), None, "it is too early");
    assert_eq!(arrivals.poll_timeout(), Some(ms(302)));
}

/// A mirror that has held a report back says so once its disk has taken enough.
#[test]
fn a_report_that_is_asked_for_says_what_is_new() {
    let mut arrivals = Arrivals::new();
    arrivals.ask_report();
    assert_eq!(arrivals.poll_report(ms(1), 0), None, "nothing has ever arrived");
    arrivals.handle(ms(1), 0, 1000);
    let before = arrivals.poll_report(ms(1), 0).unwrap();
    arrivals.ask_report();
    let after = arrivals.poll_report(ms(3), 1).unwrap();
    assert_eq!((before.complete, after.complete, after.highest), (0, 1, before.highest));
    assert_eq!((after.arrived, after.held), (1000, 2000));
}

/// Numbers far apart cost no time and no memory, and what is between them is lost.
#[test]
fn a_leap_of_numbers_is_one_run() {
    let mut arrivals = Arrivals::new();
    arrivals.handle(ms(0), 0, 1);
    arrivals.handle(ms(0), 1 << 60, 1);
    let report = arrivals.poll_report(ms(1), 0).unwrap();
    assert_eq!(report.lost, (1 << 60) + 1 - 32 - 1);
    assert_eq!(report.runs, [LostRun { first: 1, length: u32::MAX }]);
    assert!(!arrivals.is_new(1), "it is too old");
    for number in (2 << 60..).step_by(40).take(1000) {
        arrivals.handle(ms(2), number, 1);
    }
    let runs = arrivals.poll_report(ms(9), 0).unwrap().runs;
    assert_eq!(runs.len(), limits::REPORT_RUNS);
}

proptest! {
    /// The window refuses each number that it has seen, or that is too old, and no other one.
    #[test]
    fn no_number_arrives_twice(
        steps in prop::collection::vec((0..3_u64, 0..10_000_u64), 1..400),
    ) {
        let mut window = ReplayWindow::new();
        let mut seen = BTreeSet::new();
        let mut highest = 0;
        for (kind, by) in steps {
            let number = match kind {
                0 => highest + by % 70,
                1 => highest + by,
                _ => highest.saturating_sub(by),
            };
            let is_old = number + limits::REPLAY_NUMBERS as u64 <= highest;
            let is_new = !is_old && !seen.contains(&number);
            prop_assert_eq!(window.is_new(number), is_new);
            prop_assert_eq!(window.insert(number), is_new);
            if is_new {
                seen.insert(number);
                highest = highest.max(number);
            }
        }
    }

    /// Whatever order and losses: each number before `settled` has arrived or is counted as lost.
    #[test]
    fn what_is_settled_has_arrived_or_is_lost(
        leaps in prop::collection::vec((1..5_u64, 0..20_u64), 1..600),
    ) {
        let mut arrivals = Arrivals::new();
        let mut seen = BTreeSet::new();
        let mut highest = 0_u64;
        for (leap, late) in leaps {
            let number = (highest + leap).saturating_sub(if late == 0 { 40 } else { 0 });
            if arrivals.handle(ms(1), number, 10) {
                seen.insert(number);
            }
            highest = highest.max(number);
        }
        let report = arrivals.poll_report(ms(5), 0).unwrap();
        let before = seen.range(..report.settled).count() as u64;
        prop_assert_eq!(report.settled - before, report.lost);
        prop_assert_eq!(report.bytes, seen.len() as u64 * 10);
    }

    /// No report, in any order and with any numbers, ends the sender or frees it of its bounds.
    #[test]
    fn any_report_is_borne(
        reports in prop::collection::vec(
            (0..300_u64, any::<u64>(), any::<u32>(), any::<u64>(), 0..400_u64, any::<u64>()),
            1..60,
        ),
    ) {
        let mut sender = LinkSender::new();
        let mut now = ms(0);
        for (highest, arrived, held, bytes, settled, lost) in reports {
            for _ in 0..7 {
                sender.handle_sent(now, BYTES, true);
            }
            now += ms(3);
            let runs = vec![LostRun { first: lost, length: held.max(1) }];
            let report =
                LinkReport { highest, arrived, held, bytes, settled, lost, complete: lost, runs };
            sender.handle_report(now, &report);
            sender.handle_timeout(now);
            let quality = sender.quality();
            prop_assert!((0.0..=1.0).contains(&quality.loss) && quality.burst > 0);
            prop_assert!(sender.in_flight() <= sender.next() * BYTES as u64);
            prop_assert!(sender.window() > 0);
            let _room = sender.poll_send(now);
        }
    }
}
