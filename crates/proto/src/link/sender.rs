//! The sender's end of a link: when the next datagram may go, and what the reports say.

use std::collections::VecDeque;
use std::time::Duration;

use pelago_wire::datagram::LinkReport;
use pelago_wire::limits;

use super::LinkQuality;
use super::arrivals::REPORT_TIME;
use super::loss::Loss;
use super::phase::{Phase, Round};
use super::rate::{BestRate, LeastTrip, RecentTrip};

/// Bytes that may be under way in any case and without a pace: the window before anything is known.
const LEAST_WINDOW: u64 = 10 * limits::DATAGRAM_BYTES as u64;
/// How much more than it has delivered a link may take that was never full.
const UNKNOWN: u64 = 4;
/// The window of a path that has become longer, in parts of a hundred of what the best rate
/// delivers in a recent round trip. A window of the least one, which is not forgotten for half a
/// minute, would be less than a round trip: the rate would fall again and again until nothing is
/// left. It is below a hundred, so that a queue which is only this sender's own empties.
const LONGER: u64 = 97;
/// The time by which a datagram may be ahead of its pace: sends of several at once cost less.
const AHEAD: Duration = Duration::from_millis(1);
/// The time by which one may be behind it and catch up: the thread that sends was not woken sooner.
const BEHIND: Duration = Duration::from_millis(4);
/// The least time without a report after which what is under way is given up.
const SILENCE: Duration = Duration::from_millis(200);
/// Lengths of runs of losses that one round trip remembers.
const ROUND_RUNS: usize = 128;

/// What a sender may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// A datagram may be sent now.
    Now,
    /// One may be sent at this time.
    At(Duration),
    /// The window is full until a report comes, or [`LinkSender::handle_timeout`] gives up.
    Full,
}

/// The sender's end of a link.
#[derive(Debug)]
pub struct LinkSender {
    /// Datagrams from the highest one that is known to have arrived on.
    sent: VecDeque<Sent>,
    /// The number of the first of them.
    first: u64,
    /// Bytes of all datagrams.
    total: u64,
    /// Bytes of those that are not under way any more.
    over: u64,
    next_at: Duration,
    phase: Phase,
    best: BestRate,
    least: LeastTrip,
    recent: RecentTrip,
    loss: Loss,
    round: RoundTrip,
    /// The last report, or the first datagram after a time without any under way.
    heard: Duration,
    last_trip: Duration,
    /// Runs of losses before this number are known.
    runs_from: u64,
    /// Delivery rates of datagrams before this number do not count.
    counts_from: u64,
    last: Option<Observed>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Duration,
    /// Bytes of all datagrams up to this one.
    total: u64,
}

/// The parts of a report that later ones are compared with.
#[derive(Debug, Clone, Copy)]
struct Observed {
    number: u64,
    sent: Duration,
    arrived: Duration,
    bytes: u64,
    settled: u64,
    lost: u64,
}

/// The round trip that is under way.
#[derive(Debug, Default)]
struct RoundTrip {
    begin: Option<Observed>,
    /// It ends with a report of this number or a higher one.
    end: u64,
    trips: Duration,
    least: Option<Duration>,
    reports: u32,
    /// Nothing was sent in it without more behind it.
    has_backlog: bool,
    /// The one before had a queue, or may have overflowed one: its losses are seen in this one.
    is_in_doubt: bool,
    runs: Vec<u32>,
}

impl LinkSender {
    /// Returns the sender of a link of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sent: VecDeque::new(),
            first: 0,
            total: 0,
            over: 0,
            next_at: Duration::ZERO,
            phase: Phase::START,
            best: BestRate::default(),
            least: LeastTrip::default(),
            recent: RecentTrip::default(),
            loss: Loss::new(),
            round: RoundTrip { has_backlog: true, ..RoundTrip::default() },
            heard: Duration::ZERO,
            last_trip: Duration::ZERO,
            runs_from: 0,
            counts_from: 0,
            last: None,
        }
    }

    /// Returns whether a datagram may be sent, or when.
    #[must_use]
    pub fn poll_send(&self, now: Duration) -> Room {
        if self.in_flight() >= self.window() || self.sent.len() >= limits::FLIGHT_PACKETS {
            return Room::Full;
        }
        // A message of a few datagrams does not wait for a pace (RFC 6928).
        if self.in_flight() < LEAST_WINDOW {
            return Room::Now;
        }
        match self.next_at.saturating_sub(AHEAD) {
            at if at > now => Room::At(at),
            _ => Room::Now,
        }
    }

    /// Records a datagram of so many sealed bytes, and returns its number. `has_more` says that
    /// more is there to be sent: without that the link is not measured.
    pub fn handle_sent(&mut self, now: Duration, bytes: usize, has_more: bool) -> u64 {
        let number = self.next();
        if self.in_flight() == 0 {
            self.heard = now;
            self.next_at = self.next_at.max(now);
        }
        let is_paced = self.in_flight() >= LEAST_WINDOW;
        self.next_at = self.next_at.max(now.saturating_sub(BEHIND));
        self.total += bytes as u64;
        self.sent.push_back(Sent { at: now, total: self.total });
        self.round.has_backlog &= has_more;
        if is_paced {
            let rate = self.best.best().saturating_mul(self.phase.pace()) / 100;
            let nanos = (bytes as u64).saturating_mul(1_000_000_000) / rate.max(1);
            self.next_at += Duration::from_nanos(nanos);
        }
        number
    }

    /// Takes a report. Returns whether it says something new; one that is late, or of numbers that
    /// were not sent, says nothing.
    pub fn handle_report(&mut self, now: Duration, report: &LinkReport) -> bool {
        let number = report.highest;
        let is_late = self.last.is_some_and(|last| {
            number < last.number || report.bytes < last.bytes || report.settled < last.settled
        });
        let is_sent = number.checked_sub(self.first).and_then(|at| self.sent.get(at as usize));
        let Some(&sent) = is_sent.filter(|_| !is_late && report.settled <= number + 1) else {
            return false;
        };
        self.heard = now;
        self.over = self.over.max(sent.total);
        self.sent.drain(..(number - self.first) as usize);
        self.first = number;
        let held = Duration::from_micros(report.held.into());
        if let Some(trip) = now.saturating_sub(sent.at).checked_sub(held) {
            let trip = trip.max(Duration::from_micros(1));
            self.least.add(now, trip);
            self.last_trip = trip;
            self.round.trips += trip;
            self.round.least = Some(self.round.least.map_or(trip, |least| least.min(trip)));
            self.round.reports += 1;
        }
        self.note_runs(report);
        let seen = Observed {
            number,
            sent: sent.at,
            arrived: Duration::from_micros(report.arrived),
            // No more than was sent.
            bytes: report.bytes.min(sent.total),
            settled: report.settled,
            lost: report.lost,
        };
        self.last = Some(seen);
        if number >= self.round.end {
            self.end_round(seen);
        }
        true
    }

    /// Gives up what is under way, if no report has come for a long time: all of it may be lost,
    /// and the window would stay full.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        // A last datagram that is lost says nothing of the rate.
        if self.in_flight() >= self.window() {
            self.best.lower();
        }
        self.over = self.total;
        self.heard = now;
        if self.sent.len() > 1 {
            let gone = self.sent.len() - 1;
            self.sent.drain(..gone);
            self.first += gone as u64;
        }
        self.restart_round(self.last);
    }

    /// Returns when [`LinkSender::handle_timeout`] gives up; never if nothing is under way.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        (self.in_flight() > 0).then(|| self.heard + SILENCE.max(self.last_trip * 3))
    }

    /// Returns what is known of the link, for the encoder.
    #[must_use]
    pub fn quality(&self) -> LinkQuality {
        let best = self.best.best();
        self.loss.quality(if self.phase.is_startup() { best.saturating_mul(UNKNOWN) } else { best })
    }

    /// Returns the least round trip; `None` before the first report.
    #[must_use]
    pub fn least_trip(&self) -> Option<Duration> {
        self.least.get()
    }

    /// Returns the bytes that may be under way.
    #[must_use]
    pub fn window(&self) -> u64 {
        let Some(least) = self.least.get() else { return LEAST_WINDOW };
        let of_trip = |trip: Duration, percent: u64| {
            // Reports come some time after what they are of.
            let micros = (trip + REPORT_TIME).as_micros().min(u128::from(u64::MAX)) as u64;
            let delivered = self.best.best().saturating_mul(micros) / 1_000_000;
            delivered.saturating_mul(percent) / 100
        };
        let of_recent = self.recent.get().map_or(0, |trip| of_trip(trip, LONGER));
        of_trip(least, self.phase.window()).max(of_recent).max(LEAST_WINDOW)
    }

    /// Returns the bytes of datagrams of which nothing is known.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.total - self.over
    }

    /// Returns the number of the next datagram.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Notes the lengths of runs that were not known.
    fn note_runs(&mut self, report: &LinkReport) {
        for run in &report.runs {
            if run.first >= self.runs_from && self.round.runs.len() < ROUND_RUNS {
                self.round.runs.push(run.length);
            }
        }
        // A run that ends there may grow.
        self.runs_from = self.runs_from.max(report.settled);
    }

    fn end_round(&mut self, seen: Observed) {
        let Some(begin) = self.round.begin else {
            self.restart_round(Some(seen));
            return;
        };
        let has_queue = self.has_queue();
        self.recent.add(self.round.least);
        let settled = seen.settled - begin.settled;
        let lost = seen.lost.saturating_sub(begin.lost);
        let has_overflowed = has_queue && self.loss.is_more(settled, lost);
        let may_overflow = self.round.has_backlog && self.phase.may_overflow();
        if !has_queue && !self.round.is_in_doubt && !may_overflow {
            self.loss.add(settled, lost, &self.round.runs);
        }
        if begin.number >= self.counts_from {
            self.best.add(rate(begin, seen), self.round.has_backlog);
        }
        if has_overflowed && !self.phase.is_startup() && begin.number >= self.counts_from {
            self.best.lower();
            self.counts_from = self.next();
        }
        let has_backlog = self.round.has_backlog;
        let best = self.best.best();
        let was_startup = self.phase.is_startup();
        self.phase = self.phase.after(Round { best, has_backlog, has_queue, has_overflowed });
        if was_startup && !self.phase.is_startup() {
            // What is under way was sent at twice the rate of the link, and its losses say so.
            self.counts_from = self.next();
        }
        self.restart_round(Some(seen));
        self.round.is_in_doubt = has_queue || may_overflow;
    }

    fn restart_round(&mut self, begin: Option<Observed>) {
        let is_in_doubt = self.round.is_in_doubt;
        let end = self.next();
        self.round =
            RoundTrip { begin, end, has_backlog: true, is_in_doubt, ..RoundTrip::default() };
    }

    /// Returns whether the round trip took longer than one without a queue.
    fn has_queue(&self) -> bool {
        let mean = self.round.trips.checked_div(self.round.reports).unwrap_or_default();
        let least = self.least.get().unwrap_or_default();
        mean > least + least / 10 + Duration::from_millis(1)
    }
}

impl Default for LinkSender {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the bytes per second that were delivered between two reports. The longer one of both
/// times counts: reports that come at once, and datagrams that were sent at once, say nothing.
fn rate(begin: Observed, end: Observed) -> u64 {
    let sent = end.sent.saturating_sub(begin.sent);
    let arrived = end.arrived.saturating_sub(begin.arrived);
    let micros = sent.max(arrived).as_micros().max(1);
    let bytes = u128::from(end.bytes.saturating_sub(begin.bytes)) * 1_000_000;
    u64::try_from(bytes / micros).unwrap_or(u64::MAX)
}
