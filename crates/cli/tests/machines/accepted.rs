//! Three mounts of one tree: they agree at once, and the mounts of the two clients survive the
//! server.

use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

use crate::harness::program::{run, until};
use crate::harness::programs::{Program, locker};
use crate::harness::volume::detach_all;
use crate::machines::hands::Hands;
use crate::machines::lab::kill;
use crate::machines::world::{World, far, far_pid, far_status};

/// `EAGAIN`.
const TAKEN: &str = "no, 11";

/// Calls `work` with each program as the one that changes, and the others.
fn each_side(hands: &mut [Hands; 3], work: impl Fn(usize, &mut Hands, &mut [&mut Hands; 2])) {
    for turn in 0..3 {
        hands.rotate_left(turn);
        let [side, one, other] = &mut *hands;
        work(turn, side, &mut [one, other]);
        hands.rotate_right(turn);
    }
}

/// Creates, writes, renames and removals by one program are seen by the others at once.
fn names_and_bytes(turn: usize, side: &mut Hands, others: &mut [&mut Hands; 2]) {
    let dir = format!("dir{turn}");
    let file = format!("dir{turn}/file");
    side.does(&format!("mkdir {dir}"));
    side.does(&format!("make {file}"));
    for other in &mut *others {
        assert_eq!(other.does(&format!("list {dir}")), "file");
    }
    for (round, text) in ["first", "second, longer", "short"].into_iter().enumerate() {
        side.does(&format!("put-at {file} {} {text}", round * 100));
        for other in &mut *others {
            let size = round * 100 + text.len();
            assert_eq!(other.does(&format!("size {file}")), size.to_string());
            assert!(other.does(&format!("get {file}")).ends_with(text));
        }
    }
    side.does(&format!("rename {file} {dir}/renamed"));
    for other in &mut *others {
        other.fails(&format!("size {file}"), Errno::NOENT);
        assert_eq!(other.does(&format!("list {dir}")), "renamed");
        assert_eq!(other.does(&format!("size {dir}/renamed")), "205");
    }
    side.does(&format!("remove {dir}/renamed"));
    side.does(&format!("close {file}"));
    for other in &mut *others {
        assert_eq!(other.does(&format!("list {dir}")), "");
    }
    side.does(&format!("rmdir {dir}"));
    for other in &mut *others {
        other.fails(&format!("size {dir}"), Errno::NOENT);
    }
}

/// Repeated looks of a client at the same names need no request to the server, also after a change
/// by another client.
fn warm(world: &World, hands: &mut [Hands; 3]) {
    const LOOKS: u64 = 20;
    let [near, clients @ ..] = hands;
    near.does("mkdir warm");
    near.does("make warm/file");
    near.does("put-at warm/file 0 first");
    near.does("close warm/file");
    for text in ["first", "again"] {
        for (hand, machine) in clients.iter_mut().zip(&world.clients) {
            let mut look = || {
                assert_eq!(hand.does("list warm"), "file");
                assert_eq!(hand.does("size warm/file"), "5");
                assert_eq!(hand.does("get warm/file"), text);
            };
            let asked = || far_status(machine)["requests"].as_u64().unwrap();
            // The first reads set the time of access.
            (0..2).for_each(|_| look());
            // On a loaded machine what holds for a moment may have expired: some attempts.
            let attempts = (0..10).map(|_| {
                let before = asked();
                (0..LOOKS).for_each(|_| look());
                asked() - before
            });
            assert_eq!(attempts.min(), Some(0), "requests for what is kept");
        }
        near.does("make warm/file-2");
        near.does("put-at warm/file-2 0 again");
        near.does("close warm/file-2");
        near.does("rename warm/file-2 warm/file");
    }
}

/// All three append to one file, in turns.
fn appends(hands: &mut [Hands; 3]) {
    let mut expected = String::new();
    for hand in &mut *hands {
        hand.does("log diary");
    }
    for round in 0..5 {
        for at in 0..3 {
            hands[at].does(&format!("add diary {round} of {at}"));
            expected.push_str(&format!("{round} of {at}|"));
            for hand in &mut *hands {
                assert_eq!(hand.does("get diary"), expected);
            }
        }
    }
    for hand in &mut *hands {
        hand.does("close diary");
    }
}

/// A lock of one excludes the others, and who waits for it gets it.
fn locks(roots: &[&Path]) {
    let mut all: Vec<Program> = roots.iter().map(|root| locker(&root.join("diary"))).collect();
    for holder in 0..all.len() {
        assert_eq!(all[holder].ask("try fcntl write 0 10"), "yes");
        let waiter = (holder + 1) % all.len();
        let third = (holder + 2) % all.len();
        assert_eq!(all[third].ask("try fcntl read 9 1"), TAKEN);
        assert_eq!(all[third].ask("try fcntl write 10 1"), "yes");
        all[waiter].tell_to_wait("wait fcntl write 0 10");
        assert_eq!(all[holder].ask("try fcntl drop 0 0"), "yes");
        assert_eq!(all[waiter].hear(), "yes");
        for program in &mut all {
            assert_eq!(program.ask("try fcntl drop 0 0"), "yes");
        }
    }
}

/// The server is killed while programs work: what they have open goes on, one file without a name
/// too, locks are held and waited for, and those that wait get their answers.
fn restarts(world: &World, [near, one, other]: &mut [Hands; 3]) {
    one.does("make kept");
    one.does("put-at kept 0 before");
    one.does("make gone");
    one.does("put-at gone 0 before");
    other.does("remove gone");
    other.does("open diary");
    let [mut holder, mut waiter] =
        world.clients.each_ref().map(|client| locker(&far(client).join("diary")));
    assert_eq!(holder.ask("try fcntl write 0 10"), "yes");
    waiter.tell_to_wait("wait fcntl write 0 10");
    let mut workers = world.clients.each_ref().map(|client| Hands::on(&far(client)));
    for (at, worker) in workers.iter_mut().enumerate() {
        worker.work(&format!("work{at}"));
    }
    for round in 0..2 {
        until("the programs work", || {
            (0..2).all(|at| near.does(&format!("size work{at}/log")) != "0")
        });
        kill(world.server_pid());
        // Waits until the server is back.
        one.tell(&format!("put-at kept 6 , after {round}"));
        world.up();
        one.heard("a write beside the end of the server");
        *near = Hands::on(&world.server_files());
        assert_eq!(near.does("get kept"), format!("before, after {round}"));
        one.does(&format!("put-at gone {} x", 6 + round));
        assert_eq!(one.does("get-at gone 0 100"), format!("before{}", "x".repeat(round + 1)));
        assert_eq!(one.does("links gone"), "0");
        assert!(other.does("get-at diary 0 100").starts_with("0 of 0"));
        let mut rival = locker(&world.server_files().join("diary"));
        assert_eq!(rival.ask("try fcntl read 0 1"), TAKEN, "the lock is held over the kill");
    }
    assert_eq!(holder.ask("try fcntl drop 0 0"), "yes");
    assert_eq!(waiter.hear(), "yes");
    drop((holder, waiter));
    for (at, worker) in workers.iter_mut().enumerate() {
        let (rounds, failed) = worker.rest();
        println!("client {at} worked {rounds} rounds");
        assert_eq!(failed, [], "an error");
        check_work(near, &format!("work{at}"), rounds, &[]);
        check_work(worker, &format!("work{at}"), rounds, &[]);
    }
}

/// Asserts that each round of a work is there once, but perhaps those that failed.
pub(crate) fn check_work(reader: &mut Hands, dir: &str, rounds: usize, failed: &[usize]) {
    let log = reader.does(&format!("get {dir}/log"));
    let logged: Vec<usize> = log.split_terminator('|').map(|line| line.parse().unwrap()).collect();
    let listed = reader.does(&format!("list {dir}"));
    let listed: Vec<&str> = listed.split(' ').collect();
    assert!(logged.is_sorted_by(|one, next| one < next), "a line is there twice: {logged:?}");
    for round in (0..rounds).filter(|round| !failed.contains(round)) {
        assert!(logged.contains(&round), "the line of round {round} is lost");
        let done = listed.contains(&format!("done{round}").as_str());
        assert_eq!(done, round % 3 != 0, "round {round}");
        assert!(!listed.contains(&format!("new{round}").as_str()), "round {round}");
    }
    for round in (0..rounds).filter(|round| round % 3 != 0 && !failed.contains(round)).take(40) {
        let expected = format!("{round} ").repeat(1 + round * 37 % 4000);
        assert!(reader.does(&format!("get {dir}/done{round}")) == expected, "bytes of {round}");
    }
}

/// A killed client: what it had ends with its term, and all others go on meanwhile.
fn a_client_dies(world: &World, near: &mut Hands, other: &mut Hands) {
    let [dying, living] = &world.clients;
    let mut held = locker(&far(dying).join("diary"));
    assert_eq!(held.ask("try fcntl write 0 10"), "yes");
    let mut waiter = locker(&far(living).join("diary"));
    assert_eq!(waiter.ask("try fcntl write 0 10"), TAKEN);
    other.work("beside");
    kill(far_pid(dying));
    waiter.tell("wait fcntl write 0 10");
    assert_eq!(world.sessions(), 2, "its term is not over");
    until("the session of the dead has ended", || world.sessions() == 1);
    assert_eq!(waiter.hear(), "yes");
    until("what the dead had open is closed", || {
        // The lock's file, the log of the worker and what it writes are open.
        world.status()["open_files"].as_u64().unwrap() <= 4
    });
    let (rounds, failed) = other.rest();
    assert_eq!(failed, [], "an error");
    check_work(near, "beside", rounds, &[]);
}

/// Machines have been up for different times, and a server that starts anew may have been up for
/// less than before: sessions compare no clocks.
#[test]
fn clocks_that_differ_end_no_session() {
    let by = |seconds| format!("unshare --time --fork --boottime {seconds} --monotonic {seconds} ");
    if run(Command::new("sh").args(["-c", &format!("{} true", by(5))])).code != Some(0) {
        return println!("skipped: not here: no time namespaces");
    }
    let Some(world) = World::with(&by(5_000_000), &by(100_000_000)) else { return };
    let mut hands = world.hands();
    each_side(&mut hands, names_and_bytes);
    let before = world.status()["sessions"].clone();
    let [_, one, other] = &mut hands;
    one.does("make kept");
    other.does("open kept");
    kill(world.server_pid());
    world.up();
    one.does("put-at kept 0 before");
    assert_eq!(other.does("get-at kept 0 6"), "before");
    for (session, before) in
        world.status()["sessions"].as_array().unwrap().iter().zip(before.as_array().unwrap())
    {
        assert_eq!(session["id"], before["id"]);
    }
    drop(hands);
    world.finish();
}

#[test]
fn a_stranger_mounts_from_two_machines_and_the_server_and_a_client_are_killed() {
    let Some(world) = World::new() else { return };
    let mut hands = world.hands();
    each_side(&mut hands, names_and_bytes);
    warm(&world, &mut hands);
    appends(&mut hands);
    let [one, other] = &world.clients;
    locks(&[&world.server_files(), &far(one), &far(other)]);
    restarts(&world, &mut hands);
    each_side(&mut hands, names_and_bytes);
    let [mut near, mut dead, mut other] = hands;
    a_client_dies(&world, &mut near, &mut other);
    dead.fails("size kept", Errno::NOTCONN);
    drop((dead, near, other));
    detach_all(&far(&world.clients[0]));
    world.finish();
}
