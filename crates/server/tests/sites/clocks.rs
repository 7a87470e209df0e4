//! The clocks of other sites' servers, and the versions of their programs.

use std::time::{Duration, Instant};

use pelago_wire::{Handle, Request, SessionId};

use super::world::{Offices, ask, client, lookup};
use crate::harness::rig::DEADLINE;

#[test]
fn a_site_tells_its_clock() {
    let offices = Offices::new();
    offices.berlin.ask_clocks(DEADLINE);
    assert_eq!(offices.berlin.sites()[0].clock, None, "nothing was asked there yet");
    assert!(lookup(&offices.berlin, Handle::ROOT, "none").is_err());
    let requests = offices.berlin.sites()[0].requests;
    offices.berlin.ask_clocks(DEADLINE);
    let site = offices.berlin.sites().remove(0);
    let clock = site.clock.unwrap();
    // Both are of one process.
    assert!(clock.ahead_ms.abs() < 1000, "{clock:?}");
    assert_eq!(clock.program, env!("CARGO_PKG_VERSION"));
    assert_eq!(site.requests, requests, "it was asked for no program");
    for session in [SessionId::DIRECT, client(&offices.first)] {
        assert!(ask(&offices.first, session, Request::Clock).is_err());
    }
}

#[test]
fn no_clock_is_waited_for_without_an_end() {
    let offices = Offices::new();
    assert!(lookup(&offices.berlin, Handle::ROOT, "none").is_err());
    offices.berlin.ask_clocks(DEADLINE);
    let known = offices.berlin.sites()[0].clock.clone();
    offices.cut(true);
    let began = Instant::now();
    offices.berlin.ask_clocks(Duration::from_millis(100));
    assert!(began.elapsed() < DEADLINE);
    assert_eq!(offices.berlin.sites()[0].clock, known, "it is what was told last");
}
