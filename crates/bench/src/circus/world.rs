//! Clients, a disk and a clock that jumps: the machine of deliveries in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use pelago_proto::deliver::{ClientId, Deliver, ExtentRead, Next, Options, Order, VersionId};

/// The scenario of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Settings of the machine.
    pub options: Options,
    /// Bytes that the disk reads in a second.
    pub disk_rate: f64,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// The downloads.
    pub downloads: Vec<Download>,
    /// The time at which the simulation is cut off; without it, it ends with the last download.
    pub ends: Option<Duration>,
    /// The time from which [`CrowdResult::steady`] counts.
    pub steady_from: Duration,
}

/// A download of a whole file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Download {
    /// The number of the file.
    pub file: u32,
    /// The time at which the client begins.
    pub arrives: Duration,
    /// Bytes in a second that its link takes.
    pub rate: f64,
    /// True if the client takes the blocks in order.
    pub is_ordered: bool,
    /// The time until which another client takes its place whenever one ends.
    pub repeats_until: Duration,
}

/// The result of a [`Scenario`].
#[derive(Debug, Clone, PartialEq)]
pub struct CrowdResult {
    /// Bytes that were read from the disk.
    pub read_bytes: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes that the fastest client present would have taken, summed over the files.
    pub pass_bytes: f64,
    /// Bytes read and sent since [`Scenario::steady_from`].
    pub steady: Steady,
    /// The time of each download over its time alone, in the order of their ends.
    pub slowdowns: Vec<f64>,
    /// The time at which the last download ended.
    pub ended: Duration,
}

/// The figures of the time after the arrivals of the first clients.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Steady {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// Runs a scenario to its end.
#[must_use]
pub fn simulate(scenario: &Scenario) -> CrowdResult {
    let mut world = World::new(scenario);
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        if scenario.ends.is_some_and(|ends| ends < now) {
            break;
        }
        world.now = now;
        world.handle(event);
        world.settle();
    }
    world.end()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A download begins.
    Arrive(usize),
    /// The link of a client has taken a block.
    Sent(ClientId),
    /// The disk has read an extent.
    Read(VersionId, u32),
}

/// A client: a download while it runs.
#[derive(Debug)]
struct Client {
    download: usize,
    arrived: Duration,
    /// Bytes of the blocks that it has taken and that are not sent.
    lent: VecDeque<u32>,
    is_finished: bool,
}

/// The bytes that the fastest client present of a file would take.
#[derive(Debug, Default)]
struct Pass {
    /// The number of clients present of each rate, by its bits: positive numbers are in order.
    rates: BTreeMap<u64, u32>,
    since: Duration,
    bytes: f64,
}

struct World<'a> {
    scenario: &'a Scenario,
    deliver: Deliver,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    event_count: u64,
    clients: BTreeMap<ClientId, Client>,
    next_client: u64,
    passes: Vec<Pass>,
    /// The time at which the disk has carried out all its reads.
    disk_free: Duration,
    result: CrowdResult,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let files = scenario.downloads.iter().map(|it| it.file + 1).max().unwrap_or(0);
        let mut deliver = Deliver::new(scenario.options);
        for file in 0..files {
            deliver
                .open_file(VersionId(file.into()), scenario.file_bytes)
                .expect("a scenario has few files of some GiB");
        }
        let result = CrowdResult {
            read_bytes: 0,
            sent_bytes: 0,
            pass_bytes: 0.0,
            steady: Steady::default(),
            slowdowns: Vec::new(),
            ended: Duration::ZERO,
        };
        let mut world = Self {
            scenario,
            deliver,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            event_count: 0,
            clients: BTreeMap::new(),
            next_client: 0,
            passes: (0..files).map(|_| Pass::default()).collect(),
            disk_free: Duration::ZERO,
            result,
        };
        for (at, download) in scenario.downloads.iter().enumerate() {
            world.schedule(download.arrives, Event::Arrive(at));
        }
        world
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse((at, self.event_count, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(download) => self.arrive(download),
            Event::Sent(id) => {
                self.deliver.sent(id, self.now);
                let Some(client) = self.clients.get_mut(&id) else { return };
                let sent = client.lent.pop_front().map_or(0, u64::from);
                self.result.sent_bytes += sent;
                if self.is_steady() {
                    self.result.steady.sent_bytes += sent;
                }
                self.send(id);
                self.take(id);
            }
            Event::Read(file, extent) => self.deliver.read_done(file, extent, self.now),
        }
    }

    /// Lets those go on that can, and the disk read.
    fn settle(&mut self) {
        loop {
            while let Some(id) = self.deliver.poll_woken() {
                self.take(id);
            }
            let Some(read) = self.deliver.next_read(self.now) else { break };
            self.read(read);
        }
    }

    fn arrive(&mut self, download: usize) {
        let Download { file, rate, is_ordered, .. } = self.scenario.downloads[download];
        let all = Order::Ascending { from: 0, to: self.scenario.file_bytes };
        let order = if is_ordered { all } else { Order::Any };
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.deliver
            .join(VersionId(file.into()), id, order, None)
            .expect("a scenario has fewer clients than the machine");
        let arrived = self.now;
        let lent = VecDeque::new();
        self.clients.insert(id, Client { download, arrived, lent, is_finished: false });
        self.passes[file as usize].join(rate, self.now);
        self.take(id);
    }

    fn take(&mut self, id: ClientId) {
        loop {
            let next = self.deliver.next_block(id, self.now);
            let Some(client) = self.clients.get_mut(&id) else { return };
            match next {
                Next::Block(block) => {
                    client.lent.push_back(block.len);
                    if client.lent.len() == 1 {
                        self.send(id);
                    }
                }
                Next::Wait | Next::Full => return,
                Next::Finished => {
                    client.is_finished = true;
                    if client.lent.is_empty() {
                        self.finish(id);
                    }
                    return;
                }
            }
        }
    }

    /// Begins to send the first block that a client has.
    fn send(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id) else { return };
        let Some(bytes) = client.lent.front() else { return };
        let rate = self.scenario.downloads[client.download].rate;
        let time = Duration::from_secs_f64(f64::from(*bytes) / rate);
        self.schedule(self.now + time, Event::Sent(id));
    }

    fn finish(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.deliver.leave(id);
        let Download { file, rate, repeats_until, .. } = self.scenario.downloads[client.download];
        let alone = self.scenario.file_bytes as f64 / rate.min(self.scenario.disk_rate);
        let time = (self.now - client.arrived).as_secs_f64();
        self.result.slowdowns.push(time / alone);
        self.passes[file as usize].leave(rate, self.now);
        if self.now < repeats_until {
            self.schedule(self.now, Event::Arrive(client.download));
        }
    }

    fn read(&mut self, read: ExtentRead) {
        let bytes = u64::from(read.len);
        self.result.read_bytes += bytes;
        if self.is_steady() {
            self.result.steady.read_bytes += bytes;
        }
        let time = Duration::from_secs_f64(bytes as f64 / self.scenario.disk_rate);
        self.disk_free = self.disk_free.max(self.now) + time;
        self.schedule(self.disk_free, Event::Read(read.file, read.extent));
    }

    fn is_steady(&self) -> bool {
        self.scenario.steady_from <= self.now
    }

    /// Ends, whether or not clients are left.
    fn end(mut self) -> CrowdResult {
        for pass in &mut self.passes {
            pass.go_on(self.now);
            self.result.pass_bytes += pass.bytes;
        }
        self.result.ended = self.now;
        self.result
    }
}

impl Pass {
    fn join(&mut self, rate: f64, now: Duration) {
        self.go_on(now);
        *self.rates.entry(rate.to_bits()).or_default() += 1;
    }

    fn leave(&mut self, rate: f64, now: Duration) {
        self.go_on(now);
        if let Some(count) = self.rates.get_mut(&rate.to_bits()) {
            *count -= 1;
            if *count == 0 {
                self.rates.remove(&rate.to_bits());
            }
        }
    }

    fn go_on(&mut self, now: Duration) {
        let fastest = self.rates.last_key_value().map_or(0.0, |(bits, _)| f64::from_bits(*bits));
        self.bytes += fastest * (now - self.since).as_secs_f64();
        self.since = now;
    }
}

impl CrowdResult {
    /// Returns the mean, the median and the greatest slowdown.
    #[must_use]
    pub fn slowdown(&self) -> (f64, f64, f64) {
        let mut all: Vec<f64> = self.slowdowns.clone();
        all.sort_by(f64::total_cmp);
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        let at = |index: usize| all.get(index).copied().unwrap_or(0.0);
        (mean, at(all.len() / 2), at(all.len().saturating_sub(1)))
    }
}
