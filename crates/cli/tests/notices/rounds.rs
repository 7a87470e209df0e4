//! One kill: the process, the signal, and the conditions that must hold afterwards.

use std::fmt;

use pelago_random::Random;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::program::until;
use crate::harness::volume::has_threads;
use crate::notices::processes::{exists, stop_at_a_notice};
use crate::notices::work::Program;
use crate::notices::world::{Served, World};

/// Stops of a process until it is found at a notice.
const TRIES: u32 = 50;

/// The process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The server, or the process of the far mount. Nothing is done until it has ended.
    Process(Side),
    /// The same and its guard at once. The same command is next.
    Both(Side),
    /// The process, while its guard is stopped until the next one serves.
    LateGuard(Side),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Far,
}

impl Victim {
    pub(crate) const ALL: [Self; 6] = [
        Self::Process(Side::Server),
        Self::Both(Side::Far),
        Self::LateGuard(Side::Server),
        Self::Process(Side::Far),
        Self::Both(Side::Server),
        Self::LateGuard(Side::Far),
    ];

    const fn side(self) -> Side {
        match self {
            Self::Process(side) | Self::Both(side) | Self::LateGuard(side) => side,
        }
    }
}

/// One kill.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) number: u64,
    pub(crate) victim: Victim,
    pub(crate) signal: Signal,
}

/// Kills by the moment at which they came.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// A thread waited for a program that waited for the killed process.
    pub(crate) at_a_notice: u64,
    pub(crate) elsewhere: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_a_notice, elsewhere } = self;
        write!(f, "{at_a_notice} kills at a notice, {elsewhere} at another moment")
    }
}

impl Round {
    pub(crate) fn run(&self, world: &mut World, random: &mut Random, seen: &mut Seen) {
        world.ask();
        let killed = match self.victim.side() {
            Side::Server => world.server.clone(),
            Side::Far => world.far.clone(),
        };
        let guard = killed.guard.expect("the mount has a guard");
        let mut inside = world.programs(&killed, self.number);
        let other = if killed.pid == world.server.pid { &world.far } else { &world.server };
        let mut outside = world.programs(other, self.number);
        inside.iter_mut().chain(&mut outside).for_each(Program::wait_until_it_works);
        self.kill(&killed, guard, random, seen);
        if matches!(self.victim, Victim::Process(_)) {
            until("the killed process has ended", || !has_threads(killed.pid));
            inside.iter_mut().for_each(Program::wait_for_end);
            until("its guard has ended", || !has_threads(guard));
        }
        match self.victim.side() {
            Side::Server => world.up(),
            Side::Far => world.mount(),
        }
        if let Victim::LateGuard(_) = self.victim {
            kill_process(guard, Signal::CONT).unwrap();
        }
        until("the killed process has ended", || !has_threads(killed.pid));
        until("its guard has ended", || !has_threads(guard));
        inside.iter_mut().chain(&mut outside).for_each(Program::kill);
        world.assert_serves(self.number);
        world.ask();
        assert!(world.has_no_guard().is_none(), "{:?}", world.has_no_guard());
    }

    /// Kills, at a notice if one comes.
    fn kill(&self, killed: &Served, guard: Pid, random: &mut Random, seen: &mut Seen) {
        let is_at_a_notice = stop_at_a_notice(killed.pid, TRIES, random);
        let moment = if is_at_a_notice { "at a notice" } else { "at another moment" };
        println!("{self:?} {moment}");
        if is_at_a_notice {
            seen.at_a_notice += 1;
        } else {
            seen.elsewhere += 1;
        }
        match self.victim {
            Victim::Process(_) => {}
            Victim::Both(_) => kill_process(guard, self.signal).unwrap(),
            Victim::LateGuard(_) => kill_process(guard, Signal::STOP).unwrap(),
        }
        assert!(exists(killed.pid));
        kill_process(killed.pid, self.signal).unwrap();
        // A stopped process hears of any other signal than SIGKILL when it goes on.
        kill_process(killed.pid, Signal::CONT).unwrap();
    }
}
