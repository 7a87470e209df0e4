//! Both ends on a path: what a driver does, without sockets.

use super::*;
use crate::link::tests::path::Path;
use crate::link::{Arrivals, LinkSender, Room};

const STEP: Duration = Duration::from_micros(50);

/// Bytes up to an offset that somebody waits for, from a time on.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    offset: u64,
    since: Duration,
}

struct World {
    now: Duration,
    sender: LinkSender,
    encoder: Encoder,
    arrivals: Arrivals,
    decoder: Decoder,
    stream: StreamBuffer,
    there: Path<(u64, DatagramBody)>,
    back: Path<pelago_wire::datagram::LinkReport>,
    /// The end of what is to be sent.
    end: u64,
    /// Those whose bytes were not all pushed.
    asking: Vec<Waiter>,
    /// Those that the encoder knows.
    waiting: Vec<Waiter>,
    /// How long each waited until its bytes were covered.
    covered: Vec<Duration>,
    /// How long each waited until its bytes were there.
    there_after: Vec<Duration>,
    watched: Vec<Waiter>,
    /// Repair that was sent: time and bytes.
    repair: Vec<(Duration, usize)>,
    /// The connection brings what has been missing for a tenth of a second, before this offset.
    asked: Option<(Duration, u64)>,
}

impl World {
    fn new(megabits: f64, delay: Duration, loss: f64, seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            sender: LinkSender::new(),
            encoder: Encoder::new(RepairMode::Auto),
            arrivals: Arrivals::new(),
            decoder: Decoder::new(),
            stream: StreamBuffer::new(),
            there: Path::new(megabits, delay, loss, seed),
            back: Path::new(1000.0, delay, loss, seed + 1),
            end: 0,
            asking: Vec::new(),
            waiting: Vec::new(),
            covered: Vec::new(),
            there_after: Vec::new(),
            watched: Vec::new(),
            repair: Vec::new(),
            asked: None,
        }
    }

    /// Adds bytes that somebody waits for.
    fn ask(&mut self, bytes: u64) {
        self.end = self.end.max(self.encoder.offset()) + bytes;
        let waiter = Waiter { offset: self.end, since: self.now };
        self.asking.push(waiter);
        self.watched.push(waiter);
    }

    fn send(&mut self) {
        let now = self.now;
        self.sender.handle_timeout(now);
        self.encoder.handle_timeout(now);
        while self.sender.poll_send(now) == Room::Now {
            let Some(body) = self.next_body() else { break };
            let bytes = body.sealed_bytes();
            if !matches!(body, DatagramBody::Data(_)) {
                self.repair.push((now, bytes));
            }
            let has_more = self.end > self.encoder.offset();
            let number = self.sender.handle_sent(now, bytes, has_more);
            self.there.send(now, bytes, (number, body));
            let covered = self.encoder.covered();
            let is_covered = |waiter: &mut Waiter| waiter.offset <= covered;
            let over = self.waiting.extract_if(.., is_covered);
            self.covered.extend(over.map(|waiter| now - waiter.since));
        }
    }

    fn next_body(&mut self) -> Option<DatagramBody> {
        if let Some(repair) = self.encoder.poll_repair(self.now) {
            return Some(repair);
        }
        let offset = self.encoder.offset();
        let until = self.asking.first().map_or(self.end, |waiter| waiter.offset);
        let length = (until - offset).min(limits::DATAGRAM_STREAM_BYTES as u64);
        let bytes: Vec<u8> = (offset..offset + length).map(byte).collect();
        let has_more = offset + length < self.end;
        let packet = self.encoder.push(self.now, &bytes, has_more)?;
        if offset + length == until && !self.asking.is_empty() {
            self.waiting.push(self.asking.remove(0));
            self.encoder.wait(self.now);
        }
        Some(DatagramBody::Data(packet))
    }

    fn receive(&mut self) {
        let now = self.now;
        while let Some((number, body)) = self.there.poll(now) {
            if !self.arrivals.handle(now, number, body.sealed_bytes()) {
                continue;
            }
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
        self.fill_old();
        self.decoder.handle_filled(self.stream.next());
        let mut at = self.stream.next();
        let mut read = Vec::new();
        while let Some(bytes) = self.stream.poll_bytes() {
            read.extend(bytes);
        }
        at -= read.len() as u64;
        assert!((at..).zip(read).all(|(at, read)| byte(at) == read));
        let next = self.stream.next();
        let over = self.watched.extract_if(.., |waiter| waiter.offset <= next);
        self.there_after.extend(over.map(|waiter| now - waiter.since));
        if let Some(report) = self.arrivals.poll_report(now, self.decoder.complete()) {
            self.back.send(now, 100, report);
        }
        while let Some(report) = self.back.poll(now) {
            if self.sender.handle_report(now, &report) {
                self.encoder.handle_complete(report.complete);
                self.encoder.handle_quality(now, self.sender.quality());
            }
        }
    }

    /// Runs for a time, with a message of so many bytes each `every`.
    fn run(&mut self, time: Duration, every: Duration, bytes: u64) {
        let end = self.now + time;
        let mut next = self.now;
        while self.now < end {
            if next <= self.now && bytes > 0 {
                self.ask(bytes);
                next += every;
            }
            self.receive();
            self.send();
            self.now += STEP;
        }
    }

    /// Brings what is missing, as the connection does.
    fn fill(&mut self) {
        self.burn();
        self.bring(self.encoder.offset());
        self.decoder.handle_filled(self.stream.next());
        self.burn();
    }

    /// Brings what has been missing for a tenth of a second, in each of them.
    fn fill_old(&mut self) {
        let Some((at, before)) = self.asked.filter(|(at, _)| self.now - *at >= ms(100)) else {
            return;
        };
        self.bring(before);
        self.asked = Some((at + ms(100), self.encoder.offset()));
    }

    /// Brings the stream up to an offset. What has come of it is dropped.
    fn bring(&mut self, before: u64) {
        let next = self.stream.next();
        self.stream.insert(next, &(next..before).map(byte).collect::<Vec<u8>>());
    }

    /// Ends the primary: what is under way arrives, and nothing follows.
    fn burn(&mut self) {
        for _ in 0..20_000 {
            self.receive();
            self.now += STEP;
        }
    }
}

/// Returns the byte of the stream at an offset.
fn byte(offset: u64) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16) as u8
}

fn share(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

/// Somebody waits each millisecond while bulk fills the link: blocks of one to ten packets would
/// need more repair than there may be, so they close later (execution 26).
#[test]
fn waiters_of_each_millisecond_do_not_fill_the_link_with_repair() {
    for (megabits, loss) in [(100.0, 0.01), (20.0, 0.01), (20.0, 0.001)] {
        let mut world = World::new(megabits, ms(25), loss, 1);
        world.asked = Some((ms(0), 0));
        // More than the link takes: its share of a millisecond, twice.
        let bytes = (megabits * 250.0) as u64;
        let link = world.there.rate;
        let packets = (link / 1000.0 / limits::DATAGRAM_BYTES as f64).ceil() as usize;
        if loss > 0.005 {
            let naive = least_repair(packets, loss) as f64;
            assert!(naive / (naive + packets as f64) > 1.0 / 3.0, "without the rule");
        }
        world.run(ms(4000), ms(1), bytes);
        let starts = (1000..3000).step_by(50).map(ms);
        for from in starts {
            let within = |(at, _): &&(Duration, usize)| (from..from + ms(1000)).contains(at);
            let sum: usize = world.repair.iter().filter(within).map(|(_, bytes)| bytes).sum();
            assert!(sum as f64 <= link / 3.0 * 1.02, "{megabits} Mbit/s: {sum} from {from:?}");
        }
        assert!(world.covered.len() > 500, "waiters go on: {}", world.covered.len());
        // As many as come in a tenth of a second, of which the link takes half.
        assert!(world.waiting.len() < 50, "none waits long: {}", world.waiting.len());
    }
}

/// Messages of 4 kB that somebody waits for, 4.8 Mbit/s of them: nearly all are there 5 ms after
/// the path's own time, though one packet of a hundred is lost and nobody asks for it again.
#[test]
fn messages_come_in_time_and_none_is_missing() {
    for loss in [0.0, 0.001, 0.005, 0.01] {
        let mut world = World::new(20.0, ms(50), loss, 3);
        // The link is known after a second.
        world.run(ms(1000), Duration::from_micros(6667), 4000);
        world.fill();
        world.there_after.clear();
        world.covered.clear();
        world.run(ms(10_000), Duration::from_micros(6667), 4000);
        world.run(ms(300), ms(1), 0);
        assert_eq!(world.stream.next(), world.end, "{loss}: {:?}", world.decoder.counts());
        let late = share(&mut world.there_after, 99);
        // Four packets and up to six of repair take 4.8 ms on the link itself.
        assert!(late <= ms(50 + 5 + 5), "{loss}: {late:?}");
        let covered = share(&mut world.covered, 99);
        assert!(covered <= ms(12), "{loss}: {covered:?}");
    }
}

/// Bulk, then a waiter, then fire: whatever was covered is at the mirror.
#[test]
fn what_is_covered_survives_the_primary() {
    let mut covered_bytes = 0;
    for seed in 0..24 {
        let (loss, burst) = [(0.001, 1), (0.005, 1), (0.01, 1), (0.001, 4)][seed as usize % 4];
        let mut world = World::new(50.0, ms(25), loss, 100 * seed);
        world.there.burst = burst;
        // The link is known first, by more than its queue takes.
        world.end = 3 << 20;
        world.run(ms(900), ms(1), 0);
        world.fill();
        world.end += 1 << 20;
        world.run(ms(60 + seed), ms(1), 0);
        world.ask(4000);
        while !(world.waiting.is_empty() && world.asking.is_empty()) {
            world.run(STEP, ms(1), 0);
        }
        let covered = world.encoder.covered();
        covered_bytes += covered - world.stream.next();
        world.burn();
        assert!(world.stream.next() >= covered, "{seed}: {:?}", world.decoder.counts());
    }
    assert!(covered_bytes > 1 << 20, "most of it was under way: {covered_bytes}");
}

/// Repair, losses and all: bulk takes what the link has.
#[test]
fn bulk_fills_the_link() {
    for loss in [0.001, 0.01] {
        let mut world = World::new(50.0, ms(25), loss, 5);
        world.asked = Some((ms(0), 0));
        world.end = 1 << 40;
        world.run(ms(2000), ms(1), 0);
        let before = world.encoder.offset();
        world.run(ms(3000), ms(1), 0);
        let goodput = (world.encoder.offset() - before) as f64 / 3.0;
        // One repair packet of a block and one sum for each 64 packets, and the heads.
        let most = world.there.rate * 64.0 / 66.0 * 1152.0 / 1200.0;
        assert!(goodput >= 0.93 * most, "{loss}: {} of {}", goodput, most);
    }
}
