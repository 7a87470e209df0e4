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
        while self.sender.poll_send(now) == Room::Now {
            let number = self.sender.handle_sent(now, BYTES, true);
            self.there.send(now, BYTES, number);
        }
        self.now += Duration::from_micros(50);
    }

    fn share(&mut self, time: Duration) -> f64 {
        self.run(time) / self.there.rate
    }
}

/// Whatever is lost at random, the link is full within 30 round trips, and stays so.
#[test]
fn the_rate_is_that_of_the_link() {
    for (megabits, delay) in [(100.0, ms(25)), (20.0, ms(50)), (400.0, ms(10)), (5.0, ms(100))] {
        for loss in [0.0, 0.001, 0.01, 0.03] {
            let mut bulk = Bulk::new(megabits, delay, loss);
            bulk.run(delay * 2 * 30);
            let share = bulk.share(delay * 2 * 100);
            eprintln!(
                "{megabits} {delay:?} {loss}: {share} {:?} q {}",
                bulk.sender.quality(),
                bulk.there.dropped_by_queue
            );
        }
    }
}
