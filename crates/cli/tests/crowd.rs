//! Many clients that download one file at the same time from a server with little memory.
//!
//! One thread reads for all clients, a little for each in turn. So they are equally fast, or one is
//! a given factor slower than another, without a clock.

use std::fs;

use pelago_random::bytes_of;

use crate::harness::program::until;
use client::{Client, End, Kind};
use served::Served;

mod client;
mod served;

const MIB: usize = 1 << 20;
const FILE: usize = 32 * MIB;

/// Returns the kind of a client: blocks and ranges in turn.
const fn both(number: usize) -> Kind {
    if number.is_multiple_of(2) { Kind::Blocks } else { Kind::Plain }
}

/// Reads for all clients in turn until each has as many bytes or has ended.
fn read_until(clients: &mut [Client], bytes: usize, expected: &[u8]) {
    let mut turn = 0;
    until("all have so many bytes", || {
        // Many turns for each look at the clock.
        for _ in 0..100 {
            turn += 1;
            for client in clients.iter_mut().filter(|client| turn % client.each == 0) {
                if client.received() < bytes {
                    client.read(expected);
                }
            }
        }
        clients.iter().all(|client| client.end().is_some() || client.received() >= bytes)
    });
}

fn read_all(clients: &mut [Client], expected: &[u8]) {
    read_until(clients, usize::MAX, expected);
}

/// The server has memory for a quarter of the file.
#[test]
fn a_crowd_that_arrives_together_reads_the_file_about_once() {
    let Some(served) = Served::new() else { return };
    let bytes = bytes_of(1, FILE);
    served.put("file", &bytes);
    let mut clients: Vec<_> = (0..50).map(|_| served.client("file", Kind::Blocks)).collect();
    read_all(&mut clients, &bytes);
    assert!(clients.iter().all(|client| client.end() == Some(End::Whole)));
    let traffic = served.traffic();
    let passes = traffic.passes(FILE);
    println!("50 clients in any order, equally fast: {passes:.2} passes");
    assert!((1.0..=1.5).contains(&passes), "{passes} passes");
    assert!(traffic.extents_in_memory <= 8, "{traffic:?}");
    until("all clients left", || served.traffic().clients == 0);
    assert_eq!(served.traffic().extents_in_memory, 0);
    served.volume.finish();
}

#[test]
fn clients_of_both_kinds_and_three_rates_get_the_same_bytes() {
    let Some(served) = Served::new() else { return };
    let bytes = bytes_of(2, FILE);
    served.put("file", &bytes);
    let mut clients: Vec<_> = (0..50)
        .map(|number| {
            let mut client = served.client("file", both(number));
            client.each = [1, 2, 5][number % 3];
            client
        })
        .collect();
    read_all(&mut clients, &bytes);
    assert!(clients.iter().all(|client| client.end() == Some(End::Whole)));
    let traffic = served.traffic();
    let passes = traffic.passes(FILE);
    println!("25 clients in any order and 25 in order, three rates: {passes:.2} passes");
    // Each for itself would be 50.
    assert!((1.0..50.0).contains(&passes), "{passes} passes");
    served.volume.finish();
}

#[test]
fn clients_that_stall_or_vanish_do_not_stop_the_others() {
    let Some(served) = Served::new() else { return };
    let bytes = bytes_of(3, FILE);
    served.put("file", &bytes);
    let mut clients: Vec<_> = (0..30).map(|number| served.client("file", both(number))).collect();
    read_until(&mut clients, 2 * MIB, &bytes);
    // Their sockets are full, and they take nothing more.
    let stalled = clients.split_off(20);
    // These end as those of a process that is killed.
    drop(clients.split_off(10));
    read_all(&mut clients, &bytes);
    assert!(clients.iter().all(|client| client.end() == Some(End::Whole)));
    until("those that vanished have left", || served.traffic().clients <= 10);
    assert!(served.traffic().extents_in_memory <= 8);
    // A newcomer gets the file while they stall, and they go on if they like.
    let mut late = vec![served.client("file", Kind::Blocks)];
    read_all(&mut late, &bytes);
    assert_eq!(late[0].end(), Some(End::Whole));
    let mut stalled = stalled;
    read_all(&mut stalled, &bytes);
    assert!(stalled.iter().all(|client| client.end() == Some(End::Whole)));
    served.volume.finish();
}

/// Memory and sockets hold far less than the file, so no client has all of it when it is emptied
/// and written anew. All clients get the old version, which stays until the last of them has it.
#[test]
fn a_file_that_is_rewritten_under_a_crowd_is_never_mixed() {
    let Some(served) = Served::new() else { return };
    let bytes = bytes_of(4, FILE);
    served.put("file", &bytes);
    let mut clients: Vec<_> = (0..50).map(|number| served.client("file", both(number))).collect();
    read_until(&mut clients, MIB, &bytes);
    let other = bytes_of(5, FILE);
    fs::write(served.volume.files().join("file"), &other).unwrap();
    // Each byte that comes is compared with the old ones.
    read_all(&mut clients, &bytes);
    assert!(clients.iter().all(|client| client.end() == Some(End::Whole)));
    served.volume.wait_until_closed();
    let mut late: Vec<_> = (0..4).map(|number| served.client("file", both(number))).collect();
    read_all(&mut late, &other);
    assert!(late.iter().all(|client| client.end() == Some(End::Whole)));
    served.volume.finish();
}
