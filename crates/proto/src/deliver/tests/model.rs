//! Clients that come, go and stall, and a disk that fails, in virtual time: a client that stays
//! gets every byte once, in time, and the machine keeps its limits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::deliver::*;

const BLOCK: u32 = 16;
const FILES: usize = 2;
const READ: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
enum Act {
    /// A client begins, with a part of the file; it takes so many blocks in a second.
    Join {
        file: usize,
        order: Option<(u64, u64)>,
        have: BTreeSet<u32>,
        rate: u32,
    },
    Leave {
        which: usize,
    },
    /// A client takes nothing from now on; with `for_ever` not even in the end.
    Stall {
        which: usize,
        for_ever: bool,
    },
    Recover {
        which: usize,
    },
    /// The next read fails.
    Fail,
    /// The driver has so many extents elsewhere from now on, or not any more.
    Elsewhere {
        file: usize,
        extents: (u32, u32),
        is_there: bool,
    },
    Close {
        file: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let order = prop_oneof![
        2 => Just(None),
        1 => (0..6000_u64, 0..6000_u64).prop_map(|(a, b)| Some((a.min(b), a.max(b)))),
    ];
    let have =
        prop_oneof![Just(BTreeSet::new()), proptest::collection::btree_set(0..400_u32, 0..300),];
    let which = 0..16_usize;
    prop_oneof![
        8 => (0..FILES, order, have, 1..2000_u32)
            .prop_map(|(file, order, have, rate)| Act::Join { file, order, have, rate }),
        1 => which.clone().prop_map(|which| Act::Leave { which }),
        2 => (which.clone(), any::<bool>())
            .prop_map(|(which, for_ever)| Act::Stall { which, for_ever }),
        1 => which.prop_map(|which| Act::Recover { which }),
        1 => Just(Act::Fail),
        3 => (0..FILES, (0..400_u32, 0..400_u32), any::<bool>())
            .prop_map(|(file, extents, is_there)| Act::Elsewhere { file, extents, is_there }),
        1 => (0..FILES * 8).prop_map(|file| Act::Close { file }),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let circus = (1..64_u64, 1..3_u32, 0..=4_u32).prop_map(|(region, leap, threshold)| {
        Policy::Circus(Circus {
            region_bytes: region * u64::from(BLOCK),
            leapfront: f64::from(leap) / 2.0,
            threshold: f64::from(threshold) / 4.0,
        })
    });
    let policy = prop_oneof![Just(Policy::Sequential), circus, Just(Policy::Relevance)];
    (policy, 0..=6_u32, 2..6_usize, 1..3_usize, 1..4_usize, 1..8_u32).prop_map(
        |(policy, power, extents, reads, lent, queue)| Options {
            policy,
            block_bytes: BLOCK,
            extent_bytes: BLOCK << power,
            extents,
            reads: reads.min(extents - 1),
            lent,
            queue,
        },
    )
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Act(usize),
    Sent(ClientId),
    Read(VersionId, u32),
    Skip(VersionId, u32),
}

#[derive(Debug)]
struct Client {
    file: VersionId,
    order: Option<(u64, u64)>,
    rate: u32,
    /// The number of times that each byte came which it did not have.
    bytes: Vec<u8>,
    lent: VecDeque<Block>,
    is_sending: bool,
    stalled: Option<bool>,
    is_finished: bool,
}

struct World {
    deliver: Deliver,
    options: Options,
    lengths: [u64; FILES],
    clients: BTreeMap<ClientId, Client>,
    last_client: u64,
    closed: BTreeSet<VersionId>,
    /// The extents whose bytes the driver has.
    memory: BTreeSet<(VersionId, u32)>,
    /// Those that it has elsewhere.
    elsewhere: BTreeSet<(VersionId, u32)>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    counter: u64,
    now: Duration,
    disk_free: Duration,
    fails: u32,
    reads: u32,
    named: usize,
    finished: usize,
    absent: u32,
    skipped: u32,
}

impl World {
    fn new(options: Options, lengths: [u64; FILES]) -> Self {
        let mut deliver = Deliver::new(options);
        for (file, length) in (0..).zip(lengths) {
            deliver.open_file(VersionId(file), length).unwrap();
        }
        Self {
            deliver,
            options,
            lengths,
            clients: BTreeMap::new(),
            last_client: 0,
            closed: BTreeSet::new(),
            memory: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            events: BinaryHeap::new(),
            counter: 0,
            now: Duration::ZERO,
            disk_free: Duration::ZERO,
            fails: 0,
            reads: 0,
            named: 0,
            finished: 0,
            absent: 0,
            skipped: 0,
        }
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.counter += 1;
        self.events.push(Reverse((at, self.counter, event)));
    }

    fn run(&mut self, acts: &[(u64, Act)]) {
        let mut at = Duration::ZERO;
        for (number, (pause, _)) in acts.iter().enumerate() {
            at += Duration::from_millis(*pause);
            self.schedule(at, Event::Act(number));
        }
        self.drain(acts);
        let stalled = self.clients.iter().filter(|(_, it)| it.stalled == Some(false));
        let stalled: Vec<ClientId> = stalled.map(|(id, _)| *id).collect();
        let began = self.now;
        stalled.into_iter().for_each(|id| self.recover(id));
        self.settle();
        self.drain(acts);
        self.check_ends(began);
    }

    fn drain(&mut self, acts: &[(u64, Act)]) {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.now = now;
            match event {
                Event::Act(number) => self.act(&acts[number].1),
                Event::Sent(id) => self.sent(id),
                Event::Read(file, extent) => self.read_ends(file, extent),
                Event::Skip(file, extent) => {
                    self.skipped += 1;
                    self.deliver.read_skipped(file, extent);
                }
            }
            self.settle();
            self.check();
            assert!(self.counter < 200_000, "this does not end");
        }
    }

    fn act(&mut self, act: &Act) {
        let pick = |which: &usize| self.clients.keys().nth(*which).copied();
        match act {
            Act::Join { file, order, have, rate } => self.join(*file, *order, have, *rate),
            Act::Leave { which } => {
                if let Some(id) = pick(which) {
                    self.leave(id);
                }
            }
            Act::Stall { which, for_ever } => {
                if let Some(client) = pick(which).and_then(|id| self.clients.get_mut(&id)) {
                    client.stalled = Some(*for_ever);
                }
            }
            Act::Recover { which } => {
                if let Some(id) = pick(which) {
                    self.recover(id);
                }
            }
            Act::Fail => self.fails += 1,
            Act::Elsewhere { file, extents: (first, count), is_there } => {
                for extent in *first..first + count {
                    let extent = (VersionId(*file as u64), extent);
                    match is_there {
                        true => self.elsewhere.insert(extent),
                        false => self.elsewhere.remove(&extent),
                    };
                }
            }
            Act::Close { file } => {
                let file = VersionId(*file as u64);
                self.deliver.close_file(file);
                self.closed.insert(file);
                self.memory.retain(|(other, _)| *other != file);
                self.clients.retain(|_, client| client.file != file);
            }
        }
    }

    fn join(&mut self, file: usize, order: Option<(u64, u64)>, have: &BTreeSet<u32>, rate: u32) {
        let id = VersionId(file as u64);
        let length = self.lengths[file];
        if self.closed.contains(&id) {
            return;
        }
        self.last_client += 1;
        let client = ClientId(self.last_client);
        let blocks = u32::try_from(length.div_ceil(u64::from(BLOCK))).unwrap();
        let have = have.iter().copied().filter(|block| *block < blocks);
        let mut given = BlockSet::empty(blocks);
        have.for_each(|block| given.insert(block));
        let have = given;
        let order = order.map(|(from, to)| (from.min(length), to.min(length)));
        let kind = match order {
            Some((from, to)) => Order::Ascending { from, to },
            None => Order::Any,
        };
        self.deliver.join(id, client, kind, Some(&have)).unwrap();
        let mut bytes = vec![0; length as usize];
        for block in have.runs().flat_map(|run| run.first..run.first + run.count) {
            let from = block * BLOCK;
            let to = (block * BLOCK + BLOCK).min(length as u32);
            bytes[from as usize..to as usize].fill(1);
        }
        if let Some((from, to)) = order {
            bytes[..from as usize].fill(1);
            bytes[to as usize..].fill(1);
        }
        let lent = VecDeque::new();
        let stalled = None;
        let is_sending = false;
        let is_finished = false;
        let made = Client { file: id, order, rate, bytes, lent, is_sending, stalled, is_finished };
        self.clients.insert(client, made);
        self.take(client);
    }

    fn leave(&mut self, id: ClientId) {
        self.deliver.leave(id);
        self.clients.remove(&id);
    }

    fn recover(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.stalled = None;
            self.send(id);
            self.take(id);
        }
    }

    fn take(&mut self, id: ClientId) {
        loop {
            let Some(client) = self.clients.get_mut(&id) else { return };
            if client.is_finished {
                return;
            }
            let absent = self.deliver.next_absent(id).filter(|block| {
                assert!(!self.deliver.cache.is_resident(block.file, block.extent));
                self.elsewhere.contains(&(block.file, block.extent))
            });
            if let Some(block) = absent
                && self.deliver.lent(id) < self.options.lent
            {
                self.absent += 1;
                self.deliver.take_absent(id, &block, self.now);
                self.given(id, block);
                continue;
            }
            match self.deliver.next_block(id, self.now) {
                Next::Block(block) => {
                    assert!(self.memory.contains(&(block.file, block.extent)), "{block:?}");
                    self.given(id, block);
                }
                Next::Wait => return,
                Next::Full => {
                    assert_eq!(client.lent.len(), self.options.lent);
                    return;
                }
                Next::Finished => {
                    client.is_finished = true;
                    return self.leave_if_done(id);
                }
            }
        }
    }

    fn given(&mut self, id: ClientId, block: Block) {
        let client = self.clients.get_mut(&id).unwrap();
        assert_eq!(block.file, client.file);
        assert_eq!(u64::from(block.extent), block.offset / u64::from(self.options.extent_bytes));
        let range = block.offset as usize..block.offset as usize + block.len as usize;
        if let Some((from, _)) = client.order {
            let before = &client.bytes[from as usize..range.start];
            assert!(before.iter().all(|count| *count == 1), "out of order");
        }
        client.bytes[range].iter_mut().for_each(|count| *count += 1);
        client.lent.push_back(block);
        assert!(client.lent.len() <= self.options.lent);
        self.send(id);
    }

    fn send(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.stalled.is_none() && !client.is_sending && !client.lent.is_empty() {
            client.is_sending = true;
            let time = Duration::from_secs_f64(1.0 / f64::from(client.rate));
            self.schedule(self.now + time, Event::Sent(id));
        }
    }

    fn sent(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.is_sending = false;
        client.lent.pop_front();
        self.deliver.sent(id, self.now);
        self.send(id);
        if self.clients.get(&id).is_some_and(|client| client.stalled.is_none()) {
            self.take(id);
        }
        self.leave_if_done(id);
    }

    fn leave_if_done(&mut self, id: ClientId) {
        let is_done = |client: &Client| client.is_finished && client.lent.is_empty();
        if self.clients.get(&id).is_some_and(is_done) {
            let client = &self.clients[&id];
            assert!(client.bytes.iter().all(|count| *count == 1), "{id:?}: {client:?}");
            self.finished += 1;
            self.leave(id);
        }
    }

    fn read_ends(&mut self, file: VersionId, extent: u32) {
        let is_open = !self.closed.contains(&file);
        if self.fails == 0 {
            if is_open {
                self.memory.insert((file, extent));
            }
            return self.deliver.read_done(file, extent, self.now);
        }
        self.fails -= 1;
        for id in self.deliver.read_failed(file, extent) {
            self.named += 1;
            let client = self.clients.get_mut(&id).unwrap();
            if client.order.is_some() {
                self.leave(id);
                continue;
            }
            // It does without: as if it had the rest of the extent.
            let size = self.options.extent_bytes as usize;
            let from = extent as usize * size;
            let to = (from + size).min(client.bytes.len());
            client.bytes[from..to].fill(1);
        }
    }

    fn settle(&mut self) {
        loop {
            while let Some(id) = self.deliver.poll_woken() {
                self.take(id);
            }
            let Some(read) = self.deliver.next_read(self.now) else { break };
            self.reads += 1;
            if let Some(evicted) = read.evicted {
                assert!(self.memory.remove(&evicted), "{evicted:?} is not in memory");
            }
            assert!(!self.memory.contains(&(read.file, read.extent)));
            if !read.is_awaited && self.elsewhere.contains(&(read.file, read.extent)) {
                self.schedule(self.now + READ, Event::Skip(read.file, read.extent));
                continue;
            }
            self.disk_free = self.disk_free.max(self.now) + READ;
            self.schedule(self.disk_free, Event::Read(read.file, read.extent));
        }
        assert!(self.deliver.extents() <= self.options.extents);
    }

    /// Asserts that the counts of the machine are right.
    fn check(&self) {
        let Deliver { files, clients, .. } = &self.deliver;
        for file in files.values() {
            let geometry = &file.geometry;
            for extent in 0..geometry.extents() {
                let lacks = |id: &&ClientId| geometry.part(&clients[id].missing, extent) != 0;
                let score: u64 =
                    file.clients.iter().filter(lacks).map(|id| clients[id].weight).sum();
                assert_eq!(file.scores.of(extent), score, "extent {extent}");
            }
            for id in &file.clients {
                let missing = &clients[id].missing;
                let present = (0..geometry.extents()).filter(|it| file.present.contains(*it));
                let supply: u32 = present.map(|it| geometry.count(missing, it)).sum();
                assert_eq!(clients[id].supply, supply, "{id:?}");
            }
            for (at, id) in &file.readers {
                assert_eq!(clients[id].next_in_order(geometry), Some(*at), "{id:?}");
            }
            assert!(file.resident.values().all(|extent| file.present.contains(*extent)));
        }
    }

    /// Those that do not stall for ever have ended, in the time that their links and the disk take:
    /// each read serves at least one block.
    fn check_ends(&self, began: Duration) {
        let left: Vec<&Client> = self.clients.values().filter(|it| it.stalled.is_none()).collect();
        assert!(left.is_empty(), "{left:?}");
        let slowest = Duration::from_secs(400);
        let reads = READ * self.last_client as u32 * 400 * 2;
        assert!(self.now - began <= slowest + reads, "{:?} since {began:?}", self.now);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn who_stays_gets_every_byte_once(
        options in options(),
        lengths in [0..6000_u64, 0..6000_u64],
        acts in vec((0..400_u64, act()), 1..24),
    ) {
        World::new(options, lengths).run(&acts);
    }
}

/// The model meets what it is about.
#[test]
fn the_model_reads_fails_and_finishes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut reads = 0;
    let mut named = 0;
    let mut finished = 0;
    let mut absent = 0;
    let mut skipped = 0;
    for _ in 0..100 {
        let options = options().new_tree(&mut runner).unwrap().current();
        let acts = vec((0..100_u64, act()), 24).new_tree(&mut runner).unwrap().current();
        let mut world = World::new(options, [6000, 3000]);
        world.run(&acts);
        reads += world.reads;
        named += world.named;
        finished += world.finished;
        absent += world.absent;
        skipped += world.skipped;
    }
    assert!(reads > 4000 && named > 20 && finished > 300, "{reads} {named} {finished}");
    assert!(absent > 500 && skipped > 20, "{absent} {skipped}");
}

/// A client whose queue needs more memory than there is stalls: what was read for it is dropped for
/// the rest of its queue, and is not read again until it takes a block.
#[test]
fn a_queue_beyond_the_memory_is_not_read_for_ever() {
    let policy = Policy::Circus(Circus { region_bytes: 16, leapfront: 0.5, threshold: 0.0 });
    let block_bytes = BLOCK;
    let extent_bytes = BLOCK;
    let extents = 2;
    let reads = 1;
    let options = Options { policy, block_bytes, extent_bytes, extents, reads, lent: 1, queue: 4 };
    let join = || Act::Join { file: 1, order: None, have: BTreeSet::new(), rate: 1 };
    let acts = [join(), join(), Act::Stall { which: 0, for_ever: false }];
    World::new(options, [0, 289]).run(&acts.map(|act| (0, act)));
}
