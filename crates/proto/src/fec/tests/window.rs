//! A window that each loss halves, as that of TCP, with repair and without: the code alone makes
//! the difference, whatever keeps the rate. ([`LinkSender`](crate::link::LinkSender) has no such
//! window.)

use std::collections::VecDeque;

use super::*;
use crate::link::Arrivals;
use crate::link::tests::path::Path;

const STEP: Duration = Duration::from_micros(100);
/// Datagrams after a data packet before which its block is closed, and its repair packets and sums
/// are sent.
const HIDDEN_WITHIN: u64 = 200;

/// A data packet that is not known to have come.
struct Sent {
    sequence: u64,
    /// It is lost if it has not come when datagrams up to this number have.
    settles: u64,
    /// The end of its bytes in the stream.
    end: u64,
}

/// A sender with as much to send as its window takes, and its receiver.
struct Windowed {
    now: Duration,
    encoder: Encoder,
    decoder: Decoder,
    stream: StreamBuffer,
    arrivals: Arrivals,
    there: Path<(u64, DatagramBody)>,
    back: Path<pelago_wire::datagram::LinkReport>,
    /// Datagrams that may be under way.
    window: f64,
    has_lost: bool,
    next: u64,
    highest: u64,
    /// Losses before this number have halved the window already.
    recovers: u64,
    hides_within: u64,
    sent: VecDeque<Sent>,
}

impl Windowed {
    /// Returns both ends of a line of 100 Mbit/s and 50 ms each way.
    fn new(mode: RepairMode, loss: f64, seed: u64) -> Self {
        let mut encoder = Encoder::new(mode);
        encoder.handle_quality(ms(0), quality(loss));
        Self {
            now: Duration::ZERO,
            encoder,
            decoder: Decoder::new(),
            stream: StreamBuffer::new(),
            arrivals: Arrivals::new(),
            there: Path::new(100.0, ms(50), loss, seed),
            back: Path::new(1000.0, ms(50), 0.0, seed + 1),
            window: 10.0,
            has_lost: false,
            next: 0,
            highest: 0,
            recovers: 0,
            hides_within: if mode == RepairMode::Off { 0 } else { HIDDEN_WITHIN },
            sent: VecDeque::new(),
        }
    }

    /// Runs for a time. Returns the megabits of the stream that came in each second.
    fn run(&mut self, time: Duration) -> f64 {
        let end = self.now + time;
        let before = self.stream.next();
        while self.now < end {
            self.receive();
            self.send();
            self.now += STEP;
        }
        (self.stream.next() - before) as f64 * 8e-6 / time.as_secs_f64()
    }

    fn send(&mut self) {
        while ((self.next - self.highest) as f64) < self.window {
            let body = self.encoder.poll_repair(self.now).unwrap_or_else(|| {
                let bytes = vec![1; limits::DATAGRAM_STREAM_BYTES];
                DatagramBody::Data(self.encoder.push(self.now, &bytes, true).unwrap())
            });
            self.next += 1;
            if let DatagramBody::Data(packet) = &body {
                let settles = self.next + self.hides_within;
                let end = self.encoder.offset();
                self.sent.push_back(Sent { sequence: packet.sequence, settles, end });
            }
            self.there.send(self.now, body.sealed_bytes(), (self.next, body));
        }
    }

    fn receive(&mut self) {
        while let Some((number, body)) = self.there.poll(self.now) {
            self.arrivals.handle(self.now, number, body.sealed_bytes());
            match body {
                DatagramBody::Data(packet) => self.decoder.handle_data(packet),
                DatagramBody::Repair(packet) => self.decoder.handle_repair(packet),
                DatagramBody::Layer(packet) => self.decoder.handle_layer(packet),
                DatagramBody::Report(_) => {}
            }
            rebuild(&mut self.decoder);
            while let Some(packet) = self.decoder.poll_packet() {
                self.stream.insert(packet.offset, &packet.bytes);
            }
        }
        while self.stream.poll_bytes().is_some() {}
        self.decoder.handle_filled(self.stream.next());
        if let Some(report) = self.arrivals.poll_report(self.now, self.decoder.complete()) {
            self.back.send(self.now, 100, report);
        }
        while let Some(report) = self.back.poll(self.now) {
            self.handle_report(&report);
        }
    }

    fn handle_report(&mut self, report: &pelago_wire::datagram::LinkReport) {
        let more = report.highest.saturating_sub(self.highest) as f64;
        self.highest = self.highest.max(report.highest);
        self.window += if self.has_lost { more / self.window } else { more };
        self.encoder.handle_complete(report.complete);
        while let Some(oldest) = self.sent.front() {
            if oldest.sequence >= report.complete && oldest.settles >= report.settled {
                return;
            }
            if oldest.sequence >= report.complete {
                self.bring(oldest.end);
                self.halve(report.settled);
            }
            self.sent.pop_front();
        }
    }

    /// Halves the window, once for the losses of a round trip.
    fn halve(&mut self, settled: u64) {
        if settled > self.recovers {
            self.recovers = self.next;
            self.window = (self.window / 2.0).max(2.0);
            self.has_lost = true;
        }
    }

    /// Brings the bytes of a lost packet, as the connection does.
    fn bring(&mut self, end: u64) {
        let next = self.stream.next();
        if next < end {
            self.stream.insert(next, &vec![1; (end - next) as usize]);
        }
    }
}

/// SMFS's own comparison (FAST 2009, section 5): the same transport, with and without the code.
/// A loss that repair has hidden halves no window, so it fills the line.
#[test]
fn repair_gives_a_window_that_losses_halve_ten_times_as_much() {
    for loss in [0.001, 0.01] {
        let [with, without] = [RepairMode::Full, RepairMode::Off].map(|mode| {
            let mut bulk = Windowed::new(mode, loss, 11);
            bulk.run(ms(50_000));
            bulk.run(ms(40_000))
        });
        assert!(with >= 10.0 * without, "{loss}: {with} and {without} Mbit/s");
        // Sixteen packets of eighty are repair, and heads take a twentieth.
        assert!(with >= 0.9 * 100.0 * 64.0 / 80.0 * 0.95, "{loss}: {with} Mbit/s");
    }
}
