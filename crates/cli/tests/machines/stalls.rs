//! Machines and cables that stop for shorter and for longer than a term, while programs work. These
//! tests wait for terms of 10 seconds, because only time distinguishes a stall from an end.

use rustix::process::{Signal, kill_process};

use crate::harness::program::until;
use crate::harness::programs::{Program, locker};
use crate::machines::accepted::check_work;
use crate::machines::hands::Hands;
use crate::machines::world::{World, far, far_pid, far_status};

/// `EAGAIN`.
const TAKEN: &str = "no, 11";

/// Programs of both clients that work beside a stall.
struct Beside {
    workers: [Hands; 2],
}

impl Beside {
    fn begin(world: &World, near: &mut Hands) -> Self {
        let mut workers = world.clients.each_ref().map(|client| Hands::on(&far(client)));
        for (at, worker) in workers.iter_mut().enumerate() {
            worker.work(&format!("work{at}"));
        }
        let beside = Self { workers };
        beside.go_on(near);
        beside
    }

    /// Waits until both programs have done more.
    fn go_on(&self, near: &mut Hands) {
        for at in 0..self.workers.len() {
            let size = format!("size work{at}/log");
            let before = near.does(&size);
            until("the programs work", || near.does(&size) != before);
        }
    }

    /// Ends the work, checks it, and returns how many rounds of each client failed.
    fn end(mut self, near: &mut Hands) -> [usize; 2] {
        let mut counts = [0; 2];
        for (at, worker) in self.workers.iter_mut().enumerate() {
            let (rounds, failed) = worker.rest();
            println!("client {at} worked {rounds} rounds, failed {failed:?}");
            let numbers: Vec<usize> = failed.iter().map(|(round, _)| *round).collect();
            check_work(near, &format!("work{at}"), rounds, &numbers);
            check_work(worker, &format!("work{at}"), rounds, &numbers);
            counts[at] = failed.len();
        }
        counts
    }
}

fn session_ids(world: &World) -> Vec<String> {
    let status = world.status();
    let sessions = status["sessions"].as_array().unwrap();
    sessions.iter().map(|session| session["id"].to_string()).collect()
}

/// Makes a file, and locks it at one client.
fn lock(world: &World, near: &mut Hands) -> Program {
    near.does("make locked");
    let mut holder = locker(&far(&world.clients[0]).join("locked"));
    assert_eq!(holder.ask("try fcntl write 0 10"), "yes");
    holder
}

/// Returns a program that may lock that file at the other client.
fn rival(world: &World) -> Program {
    locker(&far(&world.clients[1]).join("locked"))
}

/// A server that did not run for a term could not hear its clients: they have their sessions, their
/// files and their locks as before.
#[test]
fn a_server_that_was_stopped_for_a_term_ends_no_session() {
    let Some(world) = World::new() else { return };
    let [mut near, mut one, other] = world.hands();
    one.does("make file");
    one.does("put-at file 0 before");
    one.does("remove file");
    let holder = lock(&world, &mut near);
    let beside = Beside::begin(&world, &mut near);
    let before = session_ids(&world);
    let server = world.server_pid();
    for _ in 0..2 {
        kill_process(server, Signal::STOP).unwrap();
        until("the clients have given the server up", || {
            world.clients.iter().all(|client| far_status(client)["connected"] == false)
        });
        kill_process(server, Signal::CONT).unwrap();
        beside.go_on(&mut near);
    }
    assert_eq!(session_ids(&world), before);
    assert_eq!(one.does("get-at file 0 10"), "before", "a file without a name");
    assert_eq!(rival(&world).ask("try fcntl write 0 10"), TAKEN);
    assert_eq!(beside.end(&mut near), [0, 0]);
    drop((holder, near, one, other));
    world.finish();
}

/// A client that is stopped for longer than a term has no session when it goes on: what was under
/// way fails once with an error, and its programs go on in a new session.
#[test]
fn a_client_that_was_stopped_for_a_term_goes_on() {
    let Some(world) = World::new() else { return };
    let [mut near, mut one, other] = world.hands();
    one.does("make file");
    one.does("put-at file 0 before");
    let beside = Beside::begin(&world, &mut near);
    let stopped = far_pid(&world.clients[0]);
    kill_process(stopped, Signal::STOP).unwrap();
    until("its session is over", || world.sessions() == 1);
    kill_process(stopped, Signal::CONT).unwrap();
    beside.go_on(&mut near);
    one.does("put-at file 6 , after");
    assert_eq!(near.does("get file"), "before, after");
    let [failed, others] = beside.end(&mut near);
    assert!(failed <= 1 && others == 0, "{failed} and {others} rounds failed");
    drop((near, one, other));
    world.finish();
}

#[test]
fn a_cable_that_is_cut_for_less_than_a_term_costs_nothing_but_time() {
    let Some(world) = World::new() else { return };
    let [mut near, one, other] = world.hands();
    let holder = lock(&world, &mut near);
    let beside = Beside::begin(&world, &mut near);
    let before = session_ids(&world);
    for millis in [500, 5000] {
        world.lab.network.cut(&world.clients[0]);
        until("the server is silent", || {
            far_status(&world.clients[0])["silent_ms"].as_u64().unwrap() > millis
        });
        world.lab.network.join(&world.clients[0]);
        beside.go_on(&mut near);
    }
    assert_eq!(session_ids(&world), before);
    assert_eq!(rival(&world).ask("try fcntl write 0 10"), TAKEN);
    assert_eq!(beside.end(&mut near), [0, 0]);
    drop((holder, near, one, other));
    world.finish();
}

/// The server gives up a client behind a cut cable; the other client and the server's own mount go
/// on meanwhile. Afterwards what the client has open by a name is opened again.
#[test]
fn a_cable_that_is_cut_for_longer_than_a_term_costs_what_was_under_way() {
    let Some(world) = World::new() else { return };
    let [mut near, mut one, mut other] = world.hands();
    one.does("make file");
    one.does("put-at file 0 before");
    let holder = lock(&world, &mut near);
    let beside = Beside::begin(&world, &mut near);
    world.lab.network.cut(&world.clients[0]);
    let mut rival = rival(&world);
    assert_eq!(rival.ask("wait fcntl write 0 10"), "yes", "the lock ends with the session");
    until("the session is over", || world.sessions() == 1);
    other.does("make meanwhile");
    near.does("rename meanwhile later");
    world.lab.network.join(&world.clients[0]);
    beside.go_on(&mut near);
    one.does("put-at file 6 , after");
    assert_eq!(near.does("get file"), "before, after");
    assert_eq!(one.does("size later"), "0");
    let [failed, others] = beside.end(&mut near);
    assert!(failed <= 1 && others == 0, "{failed} and {others} rounds failed");
    drop((holder, rival, near, one, other));
    world.finish();
}
