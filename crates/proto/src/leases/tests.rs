use std::collections::BTreeMap;
use std::time::Duration;

use pelago_wire::{InodeId, SessionId, limits};
use proptest::prelude::*;

use super::*;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const FILE: Leased = Leased::Node(InodeId::from_raw(7));
const NAMES: Leased = Leased::Names(InodeId::from_raw(7));

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A change is carried out once every other session that may have kept the old state has dropped
/// it. Until it has ended nothing is granted.
#[test]
fn a_change_waits_for_every_lease_on_what_it_touches() {
    let mut grantor = Grantor::default();
    let one = grantor.grant(ONE, FILE).unwrap();
    let two = grantor.grant(TWO, FILE).unwrap();
    grantor.grant(TWO, NAMES).unwrap();
    let announced = grantor.announce(SessionId::DIRECT, &[FILE]);
    let recall = |session, number| Recall { session, on: FILE, number };
    assert_eq!(announced.recalls, [recall(ONE, one), recall(TWO, two)]);
    assert!(announced.waits && grantor.is_overdue(ONE));
    assert_eq!(grantor.grant(ONE, FILE), None);
    assert!(grantor.released(ONE, FILE, one).is_empty() && !grantor.is_overdue(ONE));
    assert_eq!(grantor.released(TWO, FILE, two), [announced.change]);
    assert_eq!(grantor.grant(ONE, FILE), None, "it is carried out now");
    grantor.end(announced.change);
    assert!(grantor.grant(ONE, FILE).is_some());
    assert_eq!(grantor.leases(), 2);
}

/// Two changes of one file: one recall, and both wait for its release.
#[test]
fn a_lease_is_recalled_once() {
    let mut grantor = Grantor::default();
    let number = grantor.grant(ONE, FILE).unwrap();
    let first = grantor.announce(TWO, &[FILE]);
    let second = grantor.announce(SessionId::DIRECT, &[FILE, NAMES]);
    assert!(first.recalls.len() == 1 && second.recalls.is_empty() && second.waits);
    assert_eq!(grantor.released(ONE, FILE, number), [first.change, second.change]);
    grantor.end(first.change);
    assert_eq!(grantor.grant(ONE, FILE), None, "the second goes on");
    grantor.end(second.change);
    assert!(grantor.grant(ONE, FILE).is_some());
}

#[test]
fn a_session_whose_time_is_over_delays_nothing() {
    let mut grantor = Grantor::default();
    grantor.grant(ONE, FILE).unwrap();
    grantor.grant(ONE, NAMES).unwrap();
    let announced = grantor.announce(TWO, &[FILE, NAMES]);
    assert_eq!(grantor.expire(ONE), [announced.change]);
    assert_eq!(grantor.leases(), 0);
    grantor.end(announced.change);
    assert!(grantor.knows_nothing());
}

/// A release of a lease that the client wanted no longer crosses the next grant on the same file.
#[test]
fn a_release_does_not_end_a_later_grant() {
    let mut grantor = Grantor::default();
    let old = grantor.grant(ONE, FILE).unwrap();
    let new = grantor.grant(ONE, FILE).unwrap();
    assert!(grantor.released(ONE, FILE, old).is_empty());
    let announced = grantor.announce(TWO, &[FILE]);
    assert_eq!(announced.recalls, [Recall { session: ONE, on: FILE, number: new }]);
    assert!(grantor.released(ONE, FILE, old).is_empty());
    assert_eq!(grantor.released(ONE, FILE, new), [announced.change]);
}

#[test]
fn the_author_of_a_change_waits_for_no_lease_of_its_own() {
    let mut grantor = Grantor::default();
    let number = grantor.grant(ONE, FILE).unwrap();
    let announced = grantor.announce(ONE, &[FILE]);
    assert!(!announced.waits && announced.recalls.is_empty());
    assert_eq!((announced.ended, grantor.leases()), (number, 0));
}

#[test]
fn a_session_has_a_bounded_number_of_leases() {
    let mut grantor = Grantor::default();
    let node = |number| Leased::Node(InodeId::from_raw(number));
    let most = limits::SESSION_LEASES as u64;
    assert!((0..most).all(|number| grantor.grant(ONE, node(number)).is_some()));
    assert_eq!(grantor.grant(ONE, node(most)), None);
    assert!(grantor.grant(ONE, node(0)).is_some(), "it has that one");
    assert!(grantor.grant(TWO, node(most)).is_some());
}

/// The recall overtakes the answer with the grant.
#[test]
fn a_grant_that_was_recalled_before_it_arrived_is_of_no_use() {
    let mut holder = Holder::default();
    holder.renew(at(10));
    assert!(!holder.ended(FILE, GrantNumber(3), 8));
    assert!(!holder.granted(FILE, GrantNumber(3)));
    assert!(holder.granted(FILE, GrantNumber(4)));
    assert_eq!(holder.remaining(FILE, at(4)), Some(at(6)));
    assert!(!holder.granted(FILE, GrantNumber(4)), "an answer is kept once");
    assert!(!holder.granted(FILE, GrantNumber(2)), "an older answer");
    holder.answered_up_to(8);
    assert!(holder.ended(FILE, GrantNumber(4), 9));
    assert_eq!(holder.remaining(FILE, at(4)), None);
}

/// An older answer comes while a change of the client is under way: the server may have carried
/// that out, and sends this client no recall when others change the file after it.
#[test]
fn nothing_is_kept_of_what_the_client_itself_is_changing() {
    let mut holder = Holder::default();
    assert!(holder.granted(FILE, GrantNumber(1)));
    assert!(holder.change_begins(FILE));
    assert!(!holder.change_begins(FILE));
    assert!(!holder.granted(FILE, GrantNumber(2)));
    holder.change_ends(FILE, GrantNumber(2), 5);
    assert!(!holder.granted(FILE, GrantNumber(3)), "the other one is not answered");
    holder.change_ends(FILE, GrantNumber(4), 6);
    assert!(!holder.granted(FILE, GrantNumber(4)) && holder.granted(FILE, GrantNumber(5)));
}

#[test]
fn a_lease_lasts_no_longer_than_the_time_of_its_session() {
    let mut holder = Holder::default();
    assert!(holder.granted(FILE, GrantNumber(1)));
    assert_eq!(holder.remaining(FILE, at(0)), None, "no answer has said how long");
    holder.renew(at(10));
    holder.renew(at(9));
    assert_eq!(holder.remaining(FILE, at(9)), Some(at(1)));
    assert_eq!(holder.remaining(FILE, at(10)), None);
    assert_eq!(holder.lose_all(), [FILE]);
    holder.renew(at(30));
    assert_eq!(holder.remaining(FILE, at(20)), None);
}

/// What the two ends and the messages between them do, in any order that the wire permits: answers
/// overtake each other, and recalls; recalls and releases keep their order.
#[derive(Debug, Clone)]
enum Act {
    /// The server answers with the value and a grant.
    Ask { session: usize, file: u64 },
    /// An answer under way arrives; which one, of those of the session.
    Arrive { session: usize, which: usize },
    /// A recall arrives, and is answered.
    Recalled { session: usize },
    /// A session announces a change, which is carried out once it waits for nothing.
    Change { author: usize, file: u64 },
    /// The time of a session ends, at both ends. Its client begins another one.
    Expire { session: usize },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (session, file) = (0..CLIENTS, 0..2_u64);
    let act = prop_oneof![
        4 => (session.clone(), file.clone()).prop_map(|(session, file)| Act::Ask { session, file }),
        4 => (session.clone(), 0..4_usize)
            .prop_map(|(session, which)| Act::Arrive { session, which }),
        3 => session.clone().prop_map(|session| Act::Recalled { session }),
        3 => (session.clone(), file).prop_map(|(author, file)| Act::Change { author, file }),
        1 => session.prop_map(|session| Act::Expire { session }),
    ];
    proptest::collection::vec(act, 1..80)
}

/// An answer under way: the file, its value, and the grant if there is one, or the end of earlier
/// ones if it answers a change.
struct Answer {
    request: u64,
    on: Leased,
    value: u64,
    granted: Option<GrantNumber>,
    ended: Option<GrantNumber>,
}

/// One client: what it keeps, and what is on its way to it.
struct Client {
    id: SessionId,
    holder: Holder,
    kept: BTreeMap<Leased, u64>,
    answers: Vec<Answer>,
    recalls: Vec<Recall>,
    sent: u64,
}

/// How many clients there are.
const CLIENTS: usize = 3;

impl Client {
    fn new(id: u64) -> Self {
        let (holder, kept, answers, recalls) = Default::default();
        Self { id: SessionId(id), holder, kept, answers, recalls, sent: 0 }
    }

    fn arrive(&mut self, answer: &Answer) {
        if let Some(ended) = answer.ended
            && self.holder.change_ends(answer.on, ended, self.sent)
        {
            self.kept.remove(&answer.on);
        }
        if let Some(number) = answer.granted
            && self.holder.granted(answer.on, number)
        {
            self.kept.insert(answer.on, answer.value);
        }
        let oldest = self.answers.iter().map(|answer| answer.request).min();
        self.holder.answered_up_to(oldest.map_or(self.sent, |oldest| oldest - 1));
    }
}

struct World {
    grantor: Grantor,
    clients: [Client; CLIENTS],
    values: BTreeMap<Leased, u64>,
    /// Changes that wait, with the session of their author.
    waiting: Vec<(ChangeId, (usize, SessionId), Leased, GrantNumber)>,
}

impl World {
    fn new() -> Self {
        let clients = std::array::from_fn(|number| Client::new(number as u64 + 1));
        let (grantor, values) = Default::default();
        Self { grantor, clients, values, waiting: Vec::new() }
    }

    fn act(&mut self, act: &Act) {
        let ids = self.clients.each_ref().map(|client| client.id);
        let id = |session: usize| ids[session];
        let node = |file| Leased::Node(InodeId::from_raw(file + 5));
        match *act {
            Act::Ask { session, file } => {
                let on = node(file);
                let granted = self.grantor.grant(id(session), on);
                let value = self.values.get(&on).copied().unwrap_or(0);
                let client = &mut self.clients[session];
                client.sent += 1;
                let request = client.sent;
                client.answers.push(Answer { request, on, value, granted, ended: None });
            }
            Act::Arrive { session, which } => {
                let client = &mut self.clients[session];
                if which < client.answers.len() {
                    let answer = client.answers.remove(which);
                    client.arrive(&answer);
                }
            }
            Act::Recalled { session } => {
                let client = &mut self.clients[session];
                if client.recalls.is_empty() {
                    return;
                }
                let Recall { on, number, .. } = client.recalls.remove(0);
                let sent = client.sent;
                if client.holder.ended(on, number, sent) {
                    client.kept.remove(&on);
                }
                let ready = self.grantor.released(id(session), on, number);
                self.carry_out(&ready);
            }
            Act::Change { author, file } => {
                let on = node(file);
                let announced = self.grantor.announce(id(author), &[on]);
                for recall in announced.recalls {
                    let to = ids.iter().position(|id| *id == recall.session).unwrap();
                    self.clients[to].recalls.push(recall);
                }
                self.clients[author].sent += 1;
                self.clients[author].holder.change_begins(on);
                self.clients[author].kept.remove(&on);
                self.waiting.push((announced.change, (author, id(author)), on, announced.ended));
                if !announced.waits {
                    self.carry_out(&[announced.change]);
                }
            }
            Act::Expire { session } => {
                let ready = self.grantor.expire(id(session));
                self.clients[session] = Client::new(id(session).0 + CLIENTS as u64);
                self.carry_out(&ready);
            }
        }
    }

    fn carry_out(&mut self, ready: &[ChangeId]) {
        for change in ready {
            let at = self.waiting.iter().position(|(id, ..)| id == change).unwrap();
            let (_, (author, session), on, ended) = self.waiting.remove(at);
            let value = self.values.entry(on).or_default();
            *value += 1;
            self.grantor.end(*change);
            let client = &mut self.clients[author];
            if client.id == session {
                let (request, value, granted) = (client.sent, *value, None);
                client.answers.push(Answer { request, on, value, granted, ended: Some(ended) });
            }
        }
    }
}

proptest! {
    /// No client uses a value after a later one was written and answered.
    #[test]
    fn what_is_kept_is_what_is_there(acts in acts()) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
            for client in &world.clients {
                for (on, kept) in &client.kept {
                    prop_assert_eq!(kept, world.values.get(on).unwrap_or(&0));
                }
            }
        }
    }
}
