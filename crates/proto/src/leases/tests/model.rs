//! The server, its own mount and two clients, with messages that overtake each other as far as the
//! wire permits: no client ever has anything else than the server.

use pelago_wire::LeaseMoment;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::*;

/// The things: two nodes, and two names of one directory.
const THINGS: usize = 4;
const CLIENTS: [SessionId; 2] = [ONE, TWO];

fn touched(thing: usize) -> Touched {
    match thing {
        0 | 1 => Touched::Node(InodeId::from_raw(7 + thing as u64)),
        2 => named("a"),
        _ => named("b"),
    }
}

fn leased(thing: usize) -> Leased {
    Leased::of(&touched(thing)).unwrap()
}

#[derive(Debug, Clone)]
enum Act {
    /// A client asks for a thing that it does not have.
    Ask { client: usize, thing: usize },
    /// The server reads for the `which`th question.
    Read { which: usize },
    /// The server answers the `which`th question that it has read for.
    Grant { which: usize },
    /// The answer to the `which`th question arrives.
    Answer { which: usize },
    /// A client changes a thing; 2 is the server's own mount.
    Change { author: usize, thing: usize },
    /// The server announces the `which`th change.
    Announce { which: usize },
    /// The server carries out the `which`th change, if it need not wait.
    CarryOut { which: usize },
    /// Its author gets the answer.
    End { which: usize },
    /// The next recall of a client arrives.
    Recall { client: usize },
    /// A client answers its oldest recall.
    Release { client: usize },
    /// The time of a client is over.
    Expire { client: usize },
    /// The grantor takes leases away if there is no room for more of a client.
    MakeRoom { client: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let client = 0..2usize;
    let thing = 0..THINGS;
    let which = 0..8usize;
    prop_oneof![
        5 => (client.clone(), thing.clone()).prop_map(|(client, thing)| Act::Ask { client, thing }),
        5 => which.clone().prop_map(|which| Act::Read { which }),
        5 => which.clone().prop_map(|which| Act::Grant { which }),
        5 => which.clone().prop_map(|which| Act::Answer { which }),
        3 => (0..3usize, thing).prop_map(|(author, thing)| Act::Change { author, thing }),
        4 => which.clone().prop_map(|which| Act::Announce { which }),
        4 => which.clone().prop_map(|which| Act::CarryOut { which }),
        4 => which.prop_map(|which| Act::End { which }),
        5 => client.clone().prop_map(|client| Act::Recall { client }),
        5 => client.clone().prop_map(|client| Act::Release { client }),
        1 => client.clone().prop_map(|client| Act::Expire { client }),
        2 => client.prop_map(|client| Act::MakeRoom { client }),
    ]
}

/// A question, and how far it is.
#[derive(Debug)]
struct Question {
    client: usize,
    thing: usize,
    /// The client's count of what ended its right to keep the answer.
    sample: u64,
    read: Option<(LeaseMoment, u64)>,
    granted: Option<bool>,
}

#[derive(Debug)]
struct Changing {
    author: usize,
    thing: usize,
    change: Option<ChangeId>,
    waits: bool,
    is_done: bool,
}

#[derive(Debug, Default)]
struct Client {
    /// The cached state of each thing.
    kept: [Option<u64>; THINGS],
    /// The number of own changes of each thing that are under way.
    own: [u32; THINGS],
    /// Counts recalls and its own changes by thing.
    ended: [u64; THINGS],
    on_the_way: Vec<(u64, Vec<Touched>)>,
    unanswered: Vec<u64>,
}

struct World {
    grantor: Grantor,
    values: [u64; THINGS],
    clients: [Client; 2],
    questions: Vec<Question>,
    changes: Vec<Changing>,
    /// Answers that were kept, and recalls that ended a lease.
    kept: u32,
    recalls: u32,
    /// Recalls that made room.
    taken: usize,
}

impl World {
    /// Few leases make the grantor take some away.
    fn new(leases: usize) -> Self {
        Self {
            grantor: Grantor::new(leases),
            values: [0; THINGS],
            clients: Default::default(),
            questions: Vec::new(),
            changes: Vec::new(),
            kept: 0,
            recalls: 0,
            taken: 0,
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Ask { client, thing } => self.ask(client, thing),
            Act::Read { which } => {
                let now = self.grantor.now();
                let unread = self.questions.iter_mut().filter(|it| it.read.is_none());
                if let Some(question) = pick(unread, which) {
                    question.read = Some((now, self.values[question.thing]));
                }
            }
            Act::Grant { which } => {
                let is_due = |it: &&mut Question| it.read.is_some() && it.granted.is_none();
                if let Some(question) = pick(self.questions.iter_mut().filter(is_due), which) {
                    let session = CLIENTS[question.client];
                    let on = leased(question.thing);
                    let (since, _) = question.read.unwrap();
                    question.granted = Some(self.grantor.grant(session, on, since));
                }
            }
            Act::MakeRoom { client } => {
                let recalls = self.grantor.make_room(CLIENTS[client]);
                self.taken += recalls.len();
                self.send(recalls);
            }
            Act::Answer { which } => self.answer(which),
            Act::Change { author, thing } => self.change(author, thing),
            Act::Announce { which } => self.announce(which),
            Act::CarryOut { which } => {
                let is_due = |it: &&mut Changing| it.change.is_some() && !it.waits && !it.is_done;
                if let Some(changing) = pick(self.changes.iter_mut().filter(is_due), which) {
                    changing.is_done = true;
                    self.values[changing.thing] += 1;
                }
            }
            Act::End { which } => self.end(which),
            Act::Recall { client } => self.recall(client),
            Act::Release { client } => {
                if !self.clients[client].unanswered.is_empty() {
                    let number = self.clients[client].unanswered.remove(0);
                    let ready = self.grantor.recalled(CLIENTS[client], number);
                    self.go_on(&ready);
                }
            }
            Act::Expire { client } => {
                // The client's clock says so first.
                let Client { kept, ended, on_the_way, unanswered, .. } = &mut self.clients[client];
                *kept = Default::default();
                ended.iter_mut().for_each(|count| *count += 1);
                on_the_way.clear();
                unanswered.clear();
                let ready = self.grantor.expire(CLIENTS[client]);
                self.go_on(&ready);
            }
        }
    }

    fn ask(&mut self, client: usize, thing: usize) {
        let Client { kept, ended, .. } = &self.clients[client];
        if kept[thing].is_none() {
            let sample = ended[thing];
            let read = None;
            let granted = None;
            self.questions.push(Question { client, thing, sample, read, granted });
        }
    }

    fn answer(&mut self, which: usize) {
        let is_due = |(_, it): &(usize, &Question)| it.granted.is_some();
        let found = pick(self.questions.iter().enumerate().filter(is_due), which);
        let Some((at, _)) = found else { return };
        let Question { client, thing, sample, read, granted } = self.questions.swap_remove(at);
        let Client { kept, own, ended, .. } = &mut self.clients[client];
        if granted == Some(true) && sample == ended[thing] && own[thing] == 0 {
            kept[thing] = read.map(|(_, value)| value);
            self.kept += 1;
        }
    }

    fn change(&mut self, author: usize, thing: usize) {
        if let Some(Client { kept, own, .. }) = self.clients.get_mut(author) {
            kept[thing] = None;
            own[thing] += 1;
        }
        self.changes.push(Changing { author, thing, change: None, waits: true, is_done: false });
    }

    fn announce(&mut self, which: usize) {
        let unannounced = self.changes.iter_mut().filter(|it| it.change.is_none());
        let Some(changing) = pick(unannounced, which) else { return };
        let author = CLIENTS.get(changing.author).copied().unwrap_or(SessionId::DIRECT);
        let announced = self.grantor.announce(author, &[touched(changing.thing)]);
        changing.change = Some(announced.change);
        changing.waits = announced.waits;
        self.send(announced.recalls);
    }

    fn send(&mut self, recalls: Vec<Recall>) {
        for recall in recalls {
            let client = CLIENTS.iter().position(|it| *it == recall.session).unwrap();
            self.clients[client].on_the_way.push((recall.number, things(&recall).to_vec()));
        }
    }

    fn end(&mut self, which: usize) {
        let found = pick(self.changes.iter().enumerate().filter(|(_, it)| it.is_done), which);
        let Some((at, _)) = found else { return };
        let Changing { author, thing, change, .. } = self.changes.swap_remove(at);
        self.grantor.end(change.unwrap());
        if let Some(Client { own, ended, .. }) = self.clients.get_mut(author) {
            own[thing] -= 1;
            ended[thing] += 1;
        }
    }

    fn recall(&mut self, client: usize) {
        let Client { kept, ended, on_the_way, unanswered, .. } = &mut self.clients[client];
        if on_the_way.is_empty() {
            return;
        }
        let (number, recalled) = on_the_way.remove(0);
        for thing in (0..THINGS).filter(|thing| recalled.contains(&touched(*thing))) {
            kept[thing] = None;
            ended[thing] += 1;
            self.recalls += 1;
        }
        unanswered.push(number);
    }

    fn go_on(&mut self, ready: &[ChangeId]) {
        let is_ready = |it: &&mut Changing| it.change.is_some_and(|id| ready.contains(&id));
        self.changes.iter_mut().filter(is_ready).for_each(|it| it.waits = false);
    }

    fn check(&self) {
        for client in &self.clients {
            for (thing, kept) in client.kept.iter().enumerate() {
                assert!(kept.is_none_or(|kept| kept == self.values[thing]), "{thing}: {client:?}");
            }
        }
    }
}

/// Returns one of several things.
fn pick<T>(all: impl Iterator<Item = T>, which: usize) -> Option<T> {
    let mut all: Vec<T> = all.collect();
    if all.is_empty() { None } else { Some(all.swap_remove(which % all.len())) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_client_has_anything_else_than_the_server(
        leases in 1..6_usize,
        acts in vec(act(), 1..120),
    ) {
        let mut world = World::new(leases);
        for act in &acts {
            world.act(act);
            world.check();
        }
    }
}

/// The model meets what it is about.
#[test]
fn the_model_keeps_and_recalls() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kept = 0;
    let mut recalls = 0;
    let mut taken = 0;
    for _ in 0..100 {
        let acts = vec(act(), 120).new_tree(&mut runner).unwrap().current();
        let mut world = World::new(2);
        acts.iter().for_each(|act| world.act(act));
        kept += world.kept;
        recalls += world.recalls;
        taken += world.taken;
    }
    assert!(kept > 100 && recalls > 50, "{kept} answers were kept, {recalls} recalled");
    assert!(taken > 20, "{taken} leases were taken away to make room");
}
