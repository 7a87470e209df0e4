//! A round: its line, its moments and its end, which follow from its seed.

use std::fmt;
use std::time::Duration;

use pelago_random::Random;

/// The level of each writer's folder.
pub(super) const LEVELS: [&str; 4] = ["remote", "remote", "local", "async"];
/// The levels whose syncs survive each of these disasters.
pub(super) const SURVIVING: &[&str] = &["remote"];

/// Shares of lost packets, of a million, and how many packets a loss takes in a row.
const LOSSES: [&str; 6] =
    ["loss=0", "loss=1000", "loss=5000", "loss=10000", "loss=5000 burst=4", "loss=5000 gilbert=6"];
/// The rate of the line, in bytes a second.
const RATE: &str = "rate=12500000";

/// How the line is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineCut {
    /// What is under way arrives.
    Closed,
    /// What is under way is lost.
    Severed,
    /// It is cut after the primary was killed: its system sends what it still has.
    After,
}

/// A round.
#[derive(Debug, Clone)]
pub(super) struct Round {
    pub(super) seed: u64,
    loss: &'static str,
    /// The time of a packet on its way, one way.
    delay: Duration,
    /// True if the groups travel in datagrams with repair packets.
    pub(super) has_repair: bool,
    /// True if syncs wait for a mirror that is cut off.
    pub(super) waits: bool,
    pub(super) line_cut: LineCut,
    /// The time from the first answers to the cut.
    pub(super) work: Duration,
    /// The time from the cut to the end of the primary, in which programs go on.
    pub(super) alone: Duration,
}

impl Round {
    /// Returns the round of a seed. Any twelve in a row have each loss with repair and without.
    pub(super) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut up_to = |most: u64| Duration::from_millis(random.below(most));
        let delay = Duration::from_millis(1) + up_to(30);
        let work = Duration::from_millis(300) + up_to(1_200);
        let alone = up_to(300);
        let line_cut = match random.below(3) {
            0 => LineCut::Closed,
            1 => LineCut::Severed,
            _ => LineCut::After,
        };
        let waits = random.chance(50);
        let is_long = random.chance(10);
        Self {
            seed,
            loss: LOSSES[(seed % 6) as usize],
            delay,
            has_repair: seed / 6 % 2 == 1,
            waits,
            line_cut,
            work,
            // Longer than the three seconds after which a mirror counts as cut off.
            alone: if waits && is_long { Duration::from_secs(4) } else { alone },
        }
    }

    /// Returns the properties of its line.
    pub(super) fn line(&self) -> Vec<String> {
        let delay = format!("delay={}", self.delay.as_micros());
        [self.loss, RATE, &delay].join(" ").split(' ').map(str::to_owned).collect()
    }

    /// Returns the options of its primary.
    pub(super) fn options(&self) -> String {
        let repair = if self.has_repair { " --repair auto" } else { "" };
        format!("{repair} --when-cut {}", if self.waits { "wait" } else { "go-on" })
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, loss, delay, has_repair, waits, line_cut, work, alone } = self;
        write!(f, "seed {seed} ({loss}, {} ms", delay.as_millis())?;
        write!(
            f,
            "{}{}",
            if *has_repair { ", repair" } else { "" },
            if *waits { ", waits" } else { "" }
        )?;
        write!(f, ", {line_cut:?} at {} ms, alone {} ms)", work.as_millis(), alone.as_millis())
    }
}
