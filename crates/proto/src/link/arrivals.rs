//! The receiver's end of a link: what has arrived, and the reports of it.

use std::collections::VecDeque;
use std::time::Duration;

use pelago_wire::datagram::{LinkReport, LostRun};
use pelago_wire::limits;

use super::replay::ReplayWindow;

/// The time between two reports, while datagrams arrive.
pub const REPORT_TIME: Duration = Duration::from_millis(2);
/// Numbers by which a datagram may be late before it counts as lost.
const REORDERED: u64 = 32;

/// The datagrams that have arrived.
#[derive(Debug, Default)]
pub struct Arrivals {
    window: ReplayWindow,
    /// When the highest number arrived.
    at: Duration,
    bytes: u64,
    /// Numbers before this one have arrived or are lost.
    settled: u64,
    lost: u64,
    runs: VecDeque<LostRun>,
    reported: Option<Duration>,
    /// Something has arrived since the last report.
    has_news: bool,
}

impl Arrivals {
    /// Returns the receiver of a link on which nothing has arrived.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether a number is new: whether it is worth to open its seal.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        self.window.is_new(number)
    }

    /// Takes a datagram whose seal was opened, with its sealed bytes. Returns whether it is new;
    /// another one must be dropped.
    pub fn handle(&mut self, now: Duration, number: u64, bytes: usize) -> bool {
        let next = self.window.next();
        // Before the bits of the oldest numbers are used again.
        if number >= next {
            let settled = (number + 1).saturating_sub(REORDERED);
            self.settle(settled.min(next));
            self.lose(settled);
        }
        if !self.window.insert(number) {
            return false;
        }
        if number >= next {
            self.at = now;
        } else if number < self.settled {
            // It was only late.
            self.lost = self.lost.saturating_sub(1);
        }
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.has_news = true;
        true
    }

    /// Has the next report made though nothing has arrived since the last one: what it says of the
    /// decoder has changed otherwise. Nothing is made before the first datagram.
    pub fn ask_report(&mut self) {
        self.has_news |= self.reported.is_some();
    }

    /// Returns a report, if it is time for one and something has arrived since the last one.
    /// `complete` is that of the decoder.
    pub fn poll_report(&mut self, now: Duration, complete: u64) -> Option<LinkReport> {
        if self.poll_timeout()? > now {
            return None;
        }
        self.has_news = false;
        self.reported = Some(now);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let held = micros(now.saturating_sub(self.at));
        Some(LinkReport {
            highest: self.window.next().saturating_sub(1),
            arrived: micros(self.at),
            held: u32::try_from(held).unwrap_or(u32::MAX),
            bytes: self.bytes,
            settled: self.settled,
            lost: self.lost,
            complete,
            runs: self.runs.iter().copied().collect(),
        })
    }

    /// Returns when [`Arrivals::poll_report`] has a report; never if nothing has arrived since the
    /// last one.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let due = self.reported.map_or(Duration::ZERO, |reported| reported + REPORT_TIME);
        self.has_news.then_some(due)
    }

    /// Settles the numbers before one, none of which is above all that have arrived.
    fn settle(&mut self, end: u64) {
        while self.settled < end {
            if self.window.has(self.settled) {
                self.settled += 1;
            } else {
                self.lose(self.settled + 1);
            }
        }
    }

    /// Counts the numbers from those that are settled on, before `end`, as lost.
    fn lose(&mut self, end: u64) {
        let Some(length) = end.checked_sub(self.settled).filter(|length| *length > 0) else {
            return;
        };
        self.lost = self.lost.saturating_add(length);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        match self.runs.back_mut() {
            Some(run) if run.first + u64::from(run.length) == self.settled => {
                run.length = run.length.saturating_add(length);
            }
            Some(_) | None => {
                if self.runs.len() == limits::REPORT_RUNS {
                    self.runs.pop_front();
                }
                self.runs.push_back(LostRun { first: self.settled, length });
            }
        }
        self.settled = end;
    }
}
