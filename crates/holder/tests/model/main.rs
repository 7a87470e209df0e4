//! Two holders over one server, in random orders of messages. A holder's own answer is the one that
//! the server would give at that moment. No client reads bytes or a size from before a write that
//! was answered to any client.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_holder::Holder;
use pelago_wire::{
    Attr, Bulk, Code, Context, Cookie, Done, Error, Handle, InodeId, Name, OpenFlags, OpenId,
    RenameFlags, Reply, Request, Service, SetAttr, Touched, WriteFlags,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use history::History;
use world::{DIR, PARTS, Server, Value, ino, name};

mod history;
mod world;

/// Files and names.
const FILES: u64 = 3;
const NAMES: u64 = 5;

#[derive(Debug, Clone)]
enum Act {
    /// A program of a client asks.
    Ask { client: usize, asks: Asks },
    /// The server takes the `which`th request of a client.
    Take { client: usize, which: usize },
    /// It carries out the `which`th change that need not wait.
    CarryOut { which: usize },
    /// The `which`th answer arrives.
    Deliver { client: usize, which: usize },
    /// The next recall arrives.
    Recall { client: usize },
    /// The next answer to a recall arrives.
    Recalled { client: usize },
    /// All leases of a client end.
    Expire { client: usize },
    /// A client sends its dirty bytes.
    SendDirty { client: usize },
    /// The server carries out the `which`th write.
    Write { which: usize },
}

#[derive(Debug, Clone)]
enum Asks {
    Lookup(u64),
    GetAttr(u64),
    GetDirAttr,
    SetAttr(u64),
    Link(u64, u64),
    Unlink(u64),
    Rename(u64, u64),
    List(bool),
    Open(u64),
    Release,
    OpenToWrite(u64),
    /// The `which`th open writes or reads a part of its file, or is flushed.
    Write(usize, u64),
    Read(usize, u64),
    /// It reads the part after the last one that was read so.
    ReadOn(usize),
    Flush(usize),
}

fn asks() -> impl Strategy<Value = Asks> {
    let file = 0..FILES;
    let one = 0..NAMES;
    let other = 0..NAMES;
    let which = 0..8usize;
    let part = 0..PARTS;
    let at = (which.clone(), part);
    prop_oneof![
        4 => one.clone().prop_map(Asks::Lookup),
        3 => file.clone().prop_map(Asks::GetAttr),
        2 => Just(Asks::GetDirAttr),
        2 => file.clone().prop_map(Asks::SetAttr),
        2 => (file.clone(), one.clone()).prop_map(|(file, name)| Asks::Link(file, name)),
        1 => one.clone().prop_map(Asks::Unlink),
        1 => (one, other).prop_map(|(one, other)| Asks::Rename(one, other)),
        5 => any::<bool>().prop_map(Asks::List),
        2 => file.clone().prop_map(Asks::Open),
        2 => Just(Asks::Release),
        3 => file.prop_map(Asks::OpenToWrite),
        5 => at.clone().prop_map(|(which, part)| Asks::Write(which, part)),
        4 => at.prop_map(|(which, part)| Asks::Read(which, part)),
        1 => which.prop_map(Asks::Flush),
    ]
}

/// Requests of programs that read one file from its beginning to its end, and write it rarely.
fn asks_of_readers() -> impl Strategy<Value = Asks> {
    let at = (0..2usize, 0..PARTS);
    prop_oneof![
        2 => Just(Asks::OpenToWrite(0)),
        30 => (0..2usize).prop_map(Asks::ReadOn),
        4 => at.prop_map(|(which, part)| Asks::Write(which, part)),
        1 => Just(Asks::Release),
        1 => Just(Asks::SetAttr(0)),
    ]
}

/// Requests of programs that write and read one file.
fn asks_of_one_file() -> impl Strategy<Value = Asks> {
    let at = || (0..2usize, 0..PARTS);
    prop_oneof![
        2 => Just(Asks::Lookup(0)),
        1 => Just(Asks::GetAttr(0)),
        1 => Just(Asks::List(false)),
        1 => Just(Asks::Rename(0, 1)),
        1 => Just(Asks::Release),
        4 => Just(Asks::OpenToWrite(0)),
        10 => at().prop_map(|(which, part)| Asks::Write(which, part)),
        8 => at().prop_map(|(which, part)| Asks::Read(which, part)),
        1 => (0..2usize).prop_map(Asks::Flush),
    ]
}

fn act(asks: impl Strategy<Value = Asks> + 'static) -> impl Strategy<Value = Act> {
    let client = 0..2usize;
    let which = 0..8usize;
    let both = (client.clone(), which.clone());
    prop_oneof![
        12 => (client.clone(), asks).prop_map(|(client, asks)| Act::Ask { client, asks }),
        10 => both.clone().prop_map(|(client, which)| Act::Take { client, which }),
        6 => which.prop_map(|which| Act::CarryOut { which }),
        10 => both.prop_map(|(client, which)| Act::Deliver { client, which }),
        6 => client.clone().prop_map(|client| Act::Recall { client }),
        6 => client.clone().prop_map(|client| Act::Recalled { client }),
        1 => client.clone().prop_map(|client| Act::Expire { client }),
        3 => client.prop_map(|client| Act::SendDirty { client }),
        8 => (0..8usize).prop_map(|which| Act::Write { which }),
    ]
}

/// Returns the `which`th open.
fn pick(opens: &Mutex<BTreeMap<OpenId, InodeId>>, which: usize) -> Option<OpenId> {
    let opens = opens.lock();
    let at = which.checked_rem(opens.len())?;
    opens.keys().nth(at).copied()
}

struct Client {
    holder: Arc<Holder>,
    /// The files that its programs have open, since no lease was lost.
    opens: Arc<Mutex<HashMap<OpenId, InodeId>>>,
    /// The opens that write.
    writers: Arc<Mutex<BTreeMap<OpenId, InodeId>>>,
    /// The opens of reads and writes that are not answered: no program closes a file meanwhile.
    busy: Arc<Mutex<Vec<OpenId>>>,
    /// The part that is read next.
    next_part: u64,
}

struct World {
    server: Server,
    clients: [Client; 2],
    last_open: u64,
    last_mode: u16,
    /// Answers that a holder gave by itself: names, absent names, attributes, listings, opens,
    /// writes, reads.
    local: [u32; 7],
    history: Arc<Mutex<History>>,
    /// Files that lost their last name while a client had them open without a message.
    reported: u32,
}

impl World {
    fn new() -> Self {
        let server = Server::new(FILES);
        let client = |number: usize| Client {
            holder: Holder::new(Arc::clone(&server.lines[number]) as Arc<_>),
            opens: Arc::default(),
            writers: Arc::default(),
            busy: Arc::default(),
            next_part: 0,
        };
        let clients = [client(0), client(1)];
        clients.iter().for_each(|client| client.holder.keep_writes());
        let local = Default::default();
        let history = Arc::default();
        Self { server, clients, last_open: 0, last_mode: 0, local, history, reported: 0 }
    }

    fn act(&mut self, act: &Act) {
        self.take(act);
        let mut history = self.history.lock();
        history.step += 1;
        for (client, ino, value) in self.server.refused.drain(..) {
            history.refuse(client, ino, value, &self.server.arrived);
        }
    }

    fn take(&mut self, act: &Act) {
        match *act {
            Act::Ask { client, ref asks } => self.ask(client, asks),
            Act::Take { client, which } => self.server.take(client, which),
            Act::CarryOut { which } => {
                if self.server.carry_out(which) {
                    self.check_opens();
                }
            }
            Act::Deliver { client, which } => self.server.lines[client].deliver(which),
            Act::Recall { client } => self.server.lines[client].recall(),
            Act::Recalled { client } => self.server.recalled(client),
            Act::Expire { client } => {
                // Opens that were not reported may be lost with the leases.
                self.clients[client].opens.lock().clear();
                self.history.lock().doubt(client, &self.server.arrived);
                self.server.expire(client);
            }
            Act::SendDirty { client } => self.clients[client].holder.send_dirty(Duration::MAX),
            Act::Write { which } => self.server.write(which),
        }
    }

    fn request(&mut self, client: usize, asks: &Asks) -> Option<Request> {
        let node = |number| Handle::own(ino(number));
        Some(match *asks {
            Asks::Lookup(number) => Request::Lookup { dir: DIR, name: name(number) },
            Asks::GetAttr(number) => Request::GetAttr { node: node(number) },
            Asks::GetDirAttr => Request::GetAttr { node: DIR },
            Asks::SetAttr(number) => {
                self.last_mode = (self.last_mode + 1) % 0o1000;
                let set = SetAttr { mode: Some(self.last_mode), ..SetAttr::default() };
                Request::SetAttr { node: node(number), open: None, set }
            }
            Asks::Link(file, to) => Request::Link { node: node(file), dir: DIR, name: name(to) },
            Asks::Unlink(number) => Request::Unlink { dir: DIR, name: name(number) },
            Asks::Rename(from, to) if from != to => Request::Rename {
                from_dir: DIR,
                from: name(from),
                to_dir: DIR,
                to: name(to),
                flags: RenameFlags::Replace,
            },
            Asks::Rename(..) => return None,
            Asks::List(is_short) => Request::List {
                dir: DIR,
                after: Cookie::AFTER_DOT_DOT,
                behind: None,
                entries: if is_short { 2 } else { 100 },
                attributes: true,
            },
            Asks::Open(number) => {
                self.last_open += 1;
                let flags = OpenFlags { read: true, ..OpenFlags::default() };
                Request::Open { node: node(number), flags, open: OpenId(self.last_open) }
            }
            Asks::OpenToWrite(number) => {
                self.last_open += 1;
                let flags = OpenFlags::READ_WRITE;
                Request::Open { node: node(number), flags, open: OpenId(self.last_open) }
            }
            Asks::Write(which, part) => {
                let open = pick(&self.clients[client].writers, which)?;
                Request::Write { open, offset: 8 * part, flags: WriteFlags::NONE }
            }
            Asks::Read(which, part) => {
                let open = pick(&self.clients[client].writers, which)?;
                Request::Read { open, offset: 8 * part, size: 8 }
            }
            Asks::ReadOn(which) => {
                let open = pick(&self.clients[client].writers, which)?;
                let part = self.clients[client].next_part;
                self.clients[client].next_part = (part + 1) % PARTS;
                Request::Read { open, offset: 8 * part, size: 8 }
            }
            Asks::Flush(which) => {
                let open = pick(&self.clients[client].writers, which)?;
                Request::Flush { open, owner: None }
            }
            Asks::Release => {
                let mut writers = self.clients[client].writers.lock();
                if let Some((open, _)) = writers.first_key_value() {
                    let open = *open;
                    if self.clients[client].busy.lock().contains(&open) {
                        return None;
                    }
                    writers.remove(&open);
                    return Some(Request::Release { open });
                }
                let mut opens = self.clients[client].opens.lock();
                let open = *opens.keys().min()?;
                opens.remove(&open);
                Request::Release { open }
            }
        })
    }

    fn ask(&mut self, client: usize, asks: &Asks) {
        let Some(request) = self.request(client, asks) else { return };
        let opened = match request {
            Request::Open { open, node, flags } => {
                let Client { opens, writers, .. } = &self.clients[client];
                Some((open, node.ino, flags.write, Arc::clone(opens), Arc::clone(writers)))
            }
            _ => None,
        };
        let wanted = match request {
            Request::List { entries, .. } => entries as usize,
            _ => 0,
        };
        let busy = match request {
            Request::Write { open, .. } | Request::Read { open, .. } => Some(open),
            _ => None,
        };
        let all_busy = Arc::clone(&self.clients[client].busy);
        all_busy.lock().extend(busy);
        let history = Arc::clone(&self.history);
        let ino_of = |open| self.clients[client].writers.lock()[&open];
        let begun = history.lock().step;
        let (bulk, bytes) = match request {
            Request::Write { open, offset, .. } => {
                let value = history.lock().begin(client, ino_of(open), offset / 8);
                (value.to_le_bytes().to_vec(), Some((ino_of(open), offset / 8, value)))
            }
            Request::Read { open, offset, .. } => (Vec::new(), Some((ino_of(open), offset / 8, 0))),
            _ => (Vec::new(), None),
        };
        let mut later = || -> Done {
            let history = Arc::clone(&history);
            let opened = opened.clone();
            let all_busy = Arc::clone(&all_busy);
            Box::new(move |mut result| {
                let mut all = all_busy.lock();
                if let Some(at) = busy.and_then(|open| all.iter().position(|it| *it == open)) {
                    all.swap_remove(at);
                }
                drop(all);
                let mut history = history.lock();
                match (&result, bytes) {
                    (Ok(Reply::Written { .. }), Some((_, _, value))) => history.end(value),
                    (Ok(Reply::Data(data)), Some((ino, part, _))) => {
                        let value = Value::from_le_bytes(data.as_bytes().try_into().unwrap());
                        history.check_read(ino, part, value, begun);
                    }
                    (Ok(Reply::Listed { entries, .. }), _) => {
                        assert!(entries.len() <= wanted, "{wanted}: {entries:?}");
                    }
                    _ => {}
                }
                for attr in result.iter_mut().flat_map(Reply::attrs_mut) {
                    history.check_size(attr, begun);
                }
                if let (Some((open, ino, writes, opens, writers)), Ok(_)) = (opened, result) {
                    match writes {
                        true => writers.lock().insert(open, ino),
                        false => opens.lock().insert(open, ino),
                    };
                }
            })
        };
        let holder = &self.clients[client].holder;
        let context = Context::direct(0, 0);
        let answer = holder.ask(&context, request.clone(), Bulk::Owned(bulk), &mut later);
        if let Some(answer) = answer {
            self.check(client, &request, &answer);
            later()(answer);
        }
    }

    /// Asserts that a holder's own answer is the one of the server. If a change of the same client
    /// was carried out and its answer is under way, both states are right.
    fn check(&mut self, client: usize, request: &Request, answer: &Result<Reply, Error>) {
        let unseen = self.server.lines[client].unseen();
        let is_unseen = |touched: &Touched| unseen.contains(touched);
        let is_name_unseen =
            |name: &Name| is_unseen(&Touched::Name { dir: DIR.ino, name: name.clone() });
        let nodes = &self.server.nodes;
        let holds = |attr: &Attr| nodes[&attr.ino] == *attr || is_unseen(&Touched::Node(attr.ino));
        let led_to = |wanted: &Name| {
            self.server.names.values().find(|(name, _)| name == wanted).map(|(_, ino)| *ino)
        };
        match (request, answer) {
            (Request::Lookup { name, .. }, _) if is_name_unseen(name) => {}
            (Request::Lookup { name, .. }, Ok(Reply::Entry(entry))) => {
                assert_eq!(led_to(name), Some(entry.handle.ino), "{name:?} leads elsewhere");
                assert!(holds(&entry.attr), "old attributes with a name: {entry:?}");
                self.local[0] += 1;
            }
            (Request::Lookup { name, .. }, Err(error)) => {
                assert_eq!((error.code, led_to(name)), (Code::NotFound, None), "{name:?} exists");
                self.local[1] += 1;
            }
            (Request::GetAttr { .. }, Ok(Reply::Attr(attr))) => {
                assert!(holds(attr), "old attributes: {attr:?}, {:?}", nodes[&attr.ino]);
                self.local[2] += 1;
            }
            (Request::List { .. }, _) if !unseen.is_empty() => {}
            (Request::List { after, entries: most, .. }, Ok(Reply::Listed { entries, end })) => {
                let (all, _) = self.server.list(*after, usize::MAX);
                assert!(all.starts_with(entries), "{entries:?}, {all:?}");
                assert!(!end || entries.len() == all.len(), "{entries:?}, {all:?}");
                assert!(entries.len() <= *most as usize);
                self.local[3] += 1;
            }
            (Request::Open { .. }, Ok(Reply::Opened { attr, .. })) => {
                assert!(holds(attr) && attr.links > 0, "{attr:?}");
                self.local[4] += 1;
            }
            (Request::Write { .. }, Ok(Reply::Written { .. })) => self.local[5] += 1,
            // The history checks the bytes.
            (Request::Read { .. }, Ok(Reply::Data(_))) => self.local[6] += 1,
            (Request::Release { .. } | Request::Open { .. }, _) => {}
            other => panic!("a holder does not answer this by itself: {other:?}"),
        }
    }

    /// Asserts that the server knows every open of a file that has just lost its last name.
    fn check_opens(&mut self) {
        for client in &self.clients {
            for (open, ino) in client.opens.lock().iter() {
                if self.server.removed.contains(ino) {
                    assert!(
                        self.server.opens.contains_key(open),
                        "{open:?} of {ino:?} is not known"
                    );
                    self.reported += 1;
                }
            }
        }
        self.server.removed.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_holder_answers_what_the_server_would(acts in vec(act(asks()), 1..250)) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
    }

    #[test]
    fn no_client_reads_what_was_before_a_write(acts in vec(act(asks_of_one_file()), 1..300)) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
    }

    #[test]
    fn no_client_has_read_ahead_what_was_before_a_write(
        acts in vec(act(asks_of_readers()), 1..300),
    ) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
    }
}

/// The random programs meet each case.
#[test]
fn the_model_meets_every_kind_of_answer() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut local = [0; 7];
    let mut reported = 0;
    for _ in 0..400 {
        let acts = vec(act(asks()), 250).new_tree(&mut runner).unwrap().current();
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        local.iter_mut().zip(world.local).for_each(|(all, one)| *all += one);
        reported += world.reported;
    }
    println!("answered by holders: {local:?}; opens of removed files: {reported}");
    assert!(local[..6].iter().all(|count| *count > 50) && reported > 10, "{local:?}, {reported}");
}

#[test]
fn the_model_of_one_file_meets_reads_behind_writes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = [0; 4];
    for _ in 0..400 {
        let acts = vec(act(asks_of_one_file()), 300).new_tree(&mut runner).unwrap().current();
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        let History { reads, sizes, refused, .. } = *world.history.lock();
        let all = [world.local[5], reads, sizes, refused];
        seen.iter_mut().zip(all).for_each(|(all, one)| *all += one);
    }
    println!("writes kept back, reads and sizes after a write, refused writes: {seen:?}");
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

/// Reads are answered from what was read ahead, also after writes of the program itself.
#[test]
fn the_model_of_readers_meets_bytes_that_were_read_ahead() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = [0; 3];
    for _ in 0..400 {
        let acts = vec(act(asks_of_readers()), 300).new_tree(&mut runner).unwrap().current();
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        let all = [world.local[5], world.local[6], world.history.lock().reads];
        seen.iter_mut().zip(all).for_each(|(all, one)| *all += one);
    }
    println!("writes kept back, reads ahead, reads after a write: {seen:?}");
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

/// A client has lost the lease on the bytes of a file, and its listing overtakes the refusal of
/// what it has kept back: the size is the one behind the write of the other client.
#[test]
fn a_listing_that_overtakes_a_refused_write_shows_what_another_client_has_written() {
    let mut world = World::new();
    let acts = [
        Act::Ask { client: 1, asks: Asks::OpenToWrite(0) },
        Act::Take { client: 1, which: 0 },
        Act::CarryOut { which: 0 },
        Act::Deliver { client: 1, which: 0 },
        Act::Ask { client: 1, asks: Asks::Write(0, 0) },
        Act::Ask { client: 0, asks: Asks::OpenToWrite(0) },
        Act::Take { client: 0, which: 0 },
        Act::Expire { client: 1 },
        Act::CarryOut { which: 0 },
        Act::Deliver { client: 0, which: 0 },
        Act::Ask { client: 0, asks: Asks::Write(0, 1) },
        Act::Take { client: 0, which: 0 },
        Act::Write { which: 0 },
        Act::Deliver { client: 0, which: 0 },
        // The server refuses what was kept back.
        Act::Take { client: 1, which: 0 },
        Act::Ask { client: 1, asks: Asks::List(false) },
        Act::Take { client: 1, which: 0 },
        // The listing arrives before that.
        Act::Deliver { client: 1, which: 1 },
        Act::Deliver { client: 1, which: 0 },
        Act::Take { client: 1, which: 0 },
        Act::Deliver { client: 1, which: 0 },
    ];
    acts.iter().for_each(|act| world.act(act));
    let history = world.history.lock();
    assert_eq!((history.refused, history.sizes), (1, 1), "refused writes, sizes behind a write");
}

/// As above, but the server has carried out the write, after it has read what the listing shows.
#[test]
fn a_listing_from_before_a_write_shows_it_after_the_leases_are_over() {
    let mut world = World::new();
    let acts = [
        Act::Ask { client: 1, asks: Asks::OpenToWrite(0) },
        Act::Take { client: 1, which: 0 },
        Act::CarryOut { which: 0 },
        Act::Deliver { client: 1, which: 0 },
        Act::Ask { client: 1, asks: Asks::Write(0, 0) },
        Act::Ask { client: 1, asks: Asks::List(false) },
        Act::Take { client: 1, which: 0 },
        Act::SendDirty { client: 1 },
        Act::Take { client: 1, which: 0 },
        Act::Write { which: 0 },
        Act::Expire { client: 1 },
        Act::Deliver { client: 1, which: 0 },
        Act::Deliver { client: 1, which: 0 },
        Act::Take { client: 1, which: 0 },
        Act::Deliver { client: 1, which: 0 },
    ];
    acts.iter().for_each(|act| world.act(act));
    let history = world.history.lock();
    assert_eq!((history.refused, history.sizes), (0, 1), "refused writes, sizes behind a write");
}
