//! The data packets that the mirror does not have yet, and those of them that are sent again.
//!
//! The code rebuilds what is lost without a question. It cannot rebuild everything: of a block that
//! no caller waits for it has one repair packet, and a burst may take more of a block than all. So
//! a packet that a report counts as lost is sent again once the code had its chance, a round trip
//! after the report, if it is still missing then. It costs no more of the link than the link loses.
//!
//! Losses show by what arrives after them. If nothing is sent after a packet, its time decides: two
//! round trips or so after it was sent, as in TCP (RFC 6298), it is sent again, each time after
//! twice that. The first packet that is missing is always sent again after such a time, whatever
//! the reports seem to say of it, so no lost report and no error in the books stops the stream.

use std::collections::VecDeque;
use std::time::Duration;

use pelago_wire::datagram::{DataPacket, LinkReport};
use pelago_wire::limits;

/// The time after which a packet is sent again before the first round trip is known.
const FIRST_TIME: Duration = Duration::from_millis(250);
/// The least such time, besides the round trip: the other end reports each 2 ms, and may be slow.
const LEAST_SLACK: Duration = Duration::from_millis(10);
/// The longest time between two of the same packet.
const MOST_TIME: Duration = Duration::from_secs(1);

/// The data packets from the first one on that the mirror does not have.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The sequence number of the first of them.
    first: u64,
    packets: VecDeque<KeptPacket>,
    bytes: usize,
    /// The content of each numbered datagram, from `first_number` on.
    sent: VecDeque<Sent>,
    first_number: u64,
    /// Numbers below it have arrived or are lost.
    settled: u64,
    /// Packets that were reported as lost, in the order in which that was heard.
    lost: VecDeque<(Duration, u64)>,
    trip: Trip,
    /// Since when the first packet is the first one, or when it was sent again.
    since: Duration,
    /// Times that the first packet was sent again without being reported as lost.
    tries: u32,
    /// Data packets that were sent again.
    again: u64,
}

#[derive(Debug)]
struct KeptPacket {
    offset: u64,
    bytes: Vec<u8>,
    /// The number under which it was sent last.
    number: u64,
    /// Times that it was sent again.
    tries: u32,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Duration,
    /// The sequence number, if it carried a data packet.
    sequence: Option<u64>,
}

/// The round trip, smoothed, and how much it varies (RFC 6298).
#[derive(Debug, Default)]
struct Trip {
    mean: Option<Duration>,
    spread: Duration,
}

impl Trip {
    fn add(&mut self, trip: Duration) {
        match self.mean {
            Some(mean) => {
                self.spread = (self.spread * 3 + mean.abs_diff(trip)) / 4;
                self.mean = Some((mean * 7 + trip) / 8);
            }
            None => (self.mean, self.spread) = (Some(trip), trip / 2),
        }
    }

    /// Returns the time after which a datagram would have been reported.
    fn time(&self) -> Duration {
        let known = self.mean.map(|mean| mean + (self.spread * 4).max(LEAST_SLACK));
        known.unwrap_or(FIRST_TIME)
    }
}

impl Kept {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns whether there is room for another packet.
    pub(super) const fn has_room(&self) -> bool {
        let most = limits::DATAGRAM_STREAM_BYTES + limits::STREAM_PACKET_BYTES;
        self.bytes + most <= limits::STREAM_KEPT_BYTES
    }

    /// Returns whether the mirror has everything.
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the data packets that were sent again so far.
    pub(super) const fn again(&self) -> u64 {
        self.again
    }

    /// Returns the mean round trip, as far as it is known.
    pub(super) const fn trip(&self) -> Option<Duration> {
        self.trip.mean
    }

    /// Records the next datagram, which carries no data packet.
    pub(super) fn handle_other(&mut self, now: Duration) {
        self.sent.push_back(Sent { at: now, sequence: None });
    }

    /// Records the next datagram, which carries a data packet that was sent before.
    pub(super) fn handle_again(&mut self, now: Duration, sequence: u64) {
        let number = self.next_number();
        let at = sequence.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(packet) = at.and_then(|at| self.packets.get_mut(at)) {
            packet.number = number;
        }
        self.sent.push_back(Sent { at: now, sequence: Some(sequence) });
    }

    /// Records the next datagram, which carries a new data packet.
    pub(super) fn handle_data(&mut self, now: Duration, packet: DataPacket) {
        if self.packets.is_empty() {
            self.first = packet.sequence;
            self.since = now;
            self.tries = 0;
        }
        let number = self.next_number();
        let DataPacket { sequence, offset, bytes } = packet;
        self.bytes += bytes.len() + limits::STREAM_PACKET_BYTES;
        self.packets.push_back(KeptPacket { offset, bytes, number, tries: 0 });
        self.sent.push_back(Sent { at: now, sequence: Some(sequence) });
    }

    /// Returns a data packet that is to be sent again with the next number, which is recorded with
    /// that. `grace` says that the code may rebuild what is lost.
    pub(super) fn poll(&mut self, now: Duration, grace: bool) -> Option<DataPacket> {
        let sequence =
            self.lost_one(now, grace).or_else(|| self.late_one(now)).or_else(|| self.stuck(now))?;
        let number = self.next_number();
        let packet = self.packets.get_mut(usize::try_from(sequence - self.first).ok()?)?;
        packet.number = number;
        packet.tries = packet.tries.saturating_add(1);
        self.again += 1;
        if sequence == self.first {
            self.since = now;
        }
        self.sent.push_back(Sent { at: now, sequence: Some(sequence) });
        Some(DataPacket { sequence, offset: packet.offset, bytes: packet.bytes.clone() })
    }

    /// Returns when [`Kept::poll`] may have a packet if no report comes before that.
    pub(super) fn poll_timeout(&self, grace: bool) -> Option<Duration> {
        let lost = self.lost.front().map(|(at, _)| *at + self.grace(grace));
        let late = self.sent.front().filter(|_| !self.packets.is_empty());
        let late = late.map(|sent| sent.at + self.time_of(sent.sequence));
        let stuck = (!self.packets.is_empty()).then(|| self.since + self.time(self.tries));
        [lost, late, stuck].into_iter().flatten().min()
    }

    /// Takes a report that the link has taken.
    pub(super) fn handle_report(&mut self, now: Duration, report: &LinkReport) {
        if let Some(sent) = self.of(report.highest) {
            let held = Duration::from_micros(report.held.into());
            if let Some(trip) = now.saturating_sub(sent.at).checked_sub(held) {
                self.trip.add(trip);
            }
        }
        self.settle(now, report);
        let next = self.first + self.packets.len() as u64;
        while self.first < report.complete.min(next) {
            let Some(packet) = self.packets.pop_front() else { break };
            self.bytes -= packet.bytes.len() + limits::STREAM_PACKET_BYTES;
            self.first += 1;
            self.since = now;
            self.tries = 0;
        }
    }

    /// Notes what has become of the numbers below the report's `settled`.
    fn settle(&mut self, now: Duration, report: &LinkReport) {
        let runs = &report.runs;
        // Of older ones the report does not tell which are lost.
        let is_whole = runs.len() < limits::REPORT_RUNS;
        let known = runs.first().filter(|_| !is_whole).map_or(0, |run| run.first);
        let end = report.settled.min(self.next_number());
        let mut runs = runs.iter().peekable();
        while self.first_number < end {
            let number = self.first_number;
            let Some(sent) = self.sent.pop_front() else { break };
            self.first_number += 1;
            while runs.next_if(|run| run.first + u64::from(run.length) <= number).is_some() {}
            let is_lost = number < known || runs.peek().is_some_and(|run| run.first <= number);
            let Some(sequence) = sent.sequence.filter(|_| is_lost) else { continue };
            if self.carries(number, sequence) {
                self.lost.push_back((now, sequence));
            }
        }
        self.settled = self.settled.max(end);
    }

    /// Returns a packet that was lost, and for which the code had its time.
    fn lost_one(&mut self, now: Duration, grace: bool) -> Option<u64> {
        let grace = self.grace(grace);
        while let Some((at, sequence)) = self.lost.front().copied() {
            if at + grace > now {
                return None;
            }
            self.lost.pop_front();
            // It may have been rebuilt, or sent again for another reason.
            let packet = sequence.checked_sub(self.first);
            let packet = packet.and_then(|at| self.packets.get(usize::try_from(at).ok()?));
            if packet.is_some_and(|packet| packet.number < self.settled) {
                return Some(sequence);
            }
        }
        None
    }

    /// Returns a packet of which no report says anything after its time.
    fn late_one(&mut self, now: Duration) -> Option<u64> {
        while !self.packets.is_empty()
            && let Some(sent) = self.sent.front().copied()
            && sent.at + self.time_of(sent.sequence) <= now
        {
            let number = self.first_number;
            self.sent.pop_front();
            self.first_number += 1;
            let Some(sequence) = sent.sequence else { continue };
            if self.carries(number, sequence) {
                return Some(sequence);
            }
        }
        None
    }

    /// Returns the first packet, if it stays the first one for too long.
    fn stuck(&mut self, now: Duration) -> Option<u64> {
        if self.packets.is_empty() || self.since + self.time(self.tries) > now {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        Some(self.first)
    }

    /// Returns whether a packet is missing and was sent last under this number.
    fn carries(&self, number: u64, sequence: u64) -> bool {
        let at = sequence.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let packet = at.and_then(|at| self.packets.get(at));
        packet.is_some_and(|packet| packet.number == number)
    }

    fn of(&self, number: u64) -> Option<Sent> {
        let at = number.checked_sub(self.first_number)?;
        self.sent.get(usize::try_from(at).ok()?).copied()
    }

    fn next_number(&self) -> u64 {
        self.first_number + self.sent.len() as u64
    }

    /// Returns the time that the code has to rebuild a packet after its loss was heard of.
    fn grace(&self, has_code: bool) -> Duration {
        if has_code { self.trip.mean.unwrap_or_default() } else { Duration::ZERO }
    }

    fn time_of(&self, sequence: Option<u64>) -> Duration {
        let at = sequence.and_then(|sequence| sequence.checked_sub(self.first));
        let packet = at.and_then(|at| self.packets.get(usize::try_from(at).ok()?));
        self.time(packet.map_or(0, |packet| packet.tries))
    }

    /// Returns the time after which a packet is sent again that was sent again so often.
    fn time(&self, tries: u32) -> Duration {
        let once = self.trip.time() + self.trip.mean.unwrap_or_default();
        once.saturating_mul(1 << tries.min(8)).min(MOST_TIME.max(once))
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::datagram::LostRun;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn packet(sequence: u64) -> DataPacket {
        DataPacket { sequence, offset: sequence * 10, bytes: vec![sequence as u8; 10] }
    }

    fn report(highest: u64, settled: u64, complete: u64, runs: &[(u64, u32)]) -> LinkReport {
        let run = |(first, length): &(u64, u32)| LostRun { first: *first, length: *length };
        let runs: Vec<_> = runs.iter().map(run).collect();
        let lost = runs.iter().map(|run| u64::from(run.length)).sum();
        LinkReport { highest, arrived: 0, held: 0, bytes: 0, settled, lost, complete, runs }
    }

    /// Returns packets that were sent at 0 ms, of which a report came after 20 ms.
    fn sent(packets: u64) -> Kept {
        let mut kept = Kept::new();
        (0..packets).for_each(|sequence| kept.handle_data(ms(0), packet(sequence)));
        kept.handle_report(ms(20), &report(0, 0, 0, &[]));
        kept
    }

    #[test]
    fn what_is_lost_is_sent_again_after_a_round_trip() {
        let mut kept = sent(100);
        kept.handle_report(ms(21), &report(99, 68, 3, &[(3, 2), (10, 1)]));
        assert_eq!(kept.poll(ms(22), true), None, "the code may rebuild it");
        let at = kept.poll_timeout(true).unwrap();
        assert!((ms(40)..ms(43)).contains(&at), "{at:?}");
        // Rebuilt: 3 and 4.
        kept.handle_report(ms(30), &report(99, 68, 10, &[(3, 2), (10, 1)]));
        let at = kept.poll_timeout(true).unwrap();
        assert!((ms(40)..ms(50)).contains(&at), "{at:?}");
        assert_eq!(kept.poll(at, true), Some(packet(10)));
        assert_eq!(kept.poll(at, true), None, "once");
        // That one is lost, too.
        kept.handle_report(ms(70), &report(140, 101, 10, &[(3, 2), (10, 1), (100, 1)]));
        assert_eq!(kept.poll(ms(100), true), Some(packet(10)));
        assert_eq!(kept.again(), 2);
        kept.handle_report(ms(120), &report(140, 101, 100, &[]));
        assert!(kept.is_empty());
        assert_eq!(kept.poll(ms(9999), true), None);
        assert_eq!(kept.poll_timeout(true), None);
    }

    #[test]
    fn without_a_code_it_is_sent_again_at_once() {
        let mut kept = sent(100);
        kept.handle_report(ms(21), &report(99, 68, 3, &[(3, 2)]));
        assert_eq!(kept.poll(ms(21), false), Some(packet(3)));
        assert_eq!(kept.poll(ms(21), false), Some(packet(4)));
        assert_eq!(kept.poll(ms(21), false), None);
    }

    #[test]
    fn the_last_packets_are_sent_again_after_their_time() {
        let mut kept = sent(4);
        let at = kept.poll_timeout(true).unwrap();
        assert!((ms(40)..ms(200)).contains(&at), "{at:?}");
        let again: Vec<_> = std::iter::from_fn(|| kept.poll(at, true)).collect();
        assert_eq!(again, [0, 1, 2, 3].map(packet));
        let next = kept.poll_timeout(true).unwrap();
        assert!(next >= at + at, "after twice the time: {at:?} {next:?}");
        let mut kept = Kept::new();
        kept.handle_data(ms(0), packet(0));
        assert_eq!(kept.poll_timeout(true), Some(FIRST_TIME), "no round trip is known");
    }

    /// Reports tell only of the newest runs, and may be lost themselves.
    #[test]
    fn what_no_report_tells_is_taken_for_lost() {
        let runs: Vec<_> = (0..32).map(|run| (100 + run * 4, 1)).collect();
        let mut kept = sent(400);
        kept.handle_report(ms(21), &report(399, 368, 0, &runs));
        let again = std::iter::from_fn(|| kept.poll(ms(45), true)).take(500).count();
        assert_eq!(again, 100 + 32);
    }

    /// Whatever the reports say, the stream goes on.
    #[test]
    fn the_first_one_is_sent_again_though_it_was_not_lost() {
        let mut kept = sent(100);
        kept.handle_report(ms(21), &report(99, 100, 0, &[]));
        let mut at = ms(21);
        let mut again = 0;
        // Some timers only drop what is known otherwise.
        for _ in 0..100 {
            at = kept.poll_timeout(true).unwrap();
            let packets = std::iter::from_fn(|| kept.poll(at, true));
            again += packets.inspect(|polled| assert_eq!(polled, &packet(0))).count();
        }
        assert!(again as u128 > at.as_millis() / 1100, "{again} in {at:?}: each second at least");
        assert!(at > ms(10_000), "and not much more often: {at:?}");
    }

    #[test]
    fn its_memory_is_bounded() {
        let mut kept = Kept::new();
        let mut sequence = 0;
        while kept.has_room() {
            let bytes = vec![0; limits::DATAGRAM_STREAM_BYTES];
            kept.handle_data(ms(0), DataPacket { sequence, offset: 0, bytes });
            sequence += 1;
        }
        assert!(kept.bytes <= limits::STREAM_KEPT_BYTES);
        kept.handle_report(ms(1), &report(0, 1, 1, &[]));
        assert!(kept.has_room());
        // A mirror cannot have more than was sent.
        kept.handle_report(ms(2), &report(u64::MAX >> 1, u64::MAX >> 1, u64::MAX >> 1, &[]));
        assert!(kept.is_empty() && kept.bytes == 0);
    }
}
