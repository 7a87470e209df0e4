//! A round: its line, its moments and its end, which follow from its seed.

use std::fmt;
use std::time::Duration;

use pelago_random::Random;

/// The level of each writer's folder, if there is no relay.
const LEVELS: [&str; 4] = ["remote", "remote", "local", "async"];
/// The same if there is one.
const LEVELS_WITH_RELAY: [&str; 4] = ["remote", "network", "network", "async"];

/// Shares of lost packets, of a million, and how many packets a loss takes in a row.
const LOSSES: [&str; 6] =
    ["loss=0", "loss=1000", "loss=5000", "loss=10000", "loss=5000 burst=4", "loss=5000 gilbert=6"];
/// The rates of the line, in bytes a second. The writers fill the first one, so that each sync
/// waits for all that was written before it, and not the second one.
const RATES: [&str; 2] = ["rate=12500000", "rate=125000000"];

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

/// The part of a relay at the edge of the primary's site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relay {
    /// There is none.
    None,
    /// It is killed with the primary.
    Lost,
    /// It goes on alone, once the line is whole again.
    Left,
}

/// A round.
#[derive(Debug, Clone)]
pub(super) struct Round {
    pub(super) seed: u64,
    loss: &'static str,
    rate: &'static str,
    /// The time of a packet on its way, one way.
    delay: Duration,
    /// True if the groups travel in datagrams with repair packets.
    pub(super) has_repair: bool,
    /// True if syncs wait for a mirror that is cut off.
    pub(super) waits: bool,
    pub(super) line_cut: LineCut,
    pub(super) relay: Relay,
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
        let relay = match random.below(4) {
            0 | 1 => Relay::None,
            2 => Relay::Lost,
            _ => Relay::Left,
        };
        let rate = RATES[usize::from(random.chance(50))];
        // A relay counts as cut off with its mirror, so that *network* would mean *local*.
        let is_long = is_long && relay == Relay::None;
        Self {
            seed,
            loss: LOSSES[(seed % 6) as usize],
            rate,
            delay,
            has_repair: seed / 6 % 2 == 1,
            waits,
            // A relay gives its answers when packets are sent, so none may be sent to a line that
            // was cut already.
            line_cut: if relay == Relay::Lost { LineCut::After } else { line_cut },
            relay,
            work,
            // Longer than the three seconds after which a mirror counts as cut off.
            alone: if waits && is_long { Duration::from_secs(4) } else { alone },
        }
    }

    /// Returns the properties of its line.
    pub(super) fn line(&self) -> Vec<String> {
        let delay = format!("delay={}", self.delay.as_micros());
        [self.loss, self.rate, &delay].join(" ").split(' ').map(str::to_owned).collect()
    }

    /// Returns the level of each writer's folder.
    pub(super) fn levels(&self) -> &'static [&'static str; 4] {
        if self.relay == Relay::None { &LEVELS } else { &LEVELS_WITH_RELAY }
    }

    /// Returns the levels whose syncs survive.
    pub(super) fn surviving(&self) -> &'static [&'static str] {
        if self.relay == Relay::None { &["remote"] } else { &["remote", "network"] }
    }

    /// Returns the options of its primary.
    pub(super) fn options(&self) -> String {
        let repair = if self.has_repair { " --repair auto" } else { "" };
        format!("{repair} --when-cut {}", if self.waits { "wait" } else { "go-on" })
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, loss, rate, delay, has_repair, waits, line_cut, relay, work, alone } =
            self;
        write!(f, "seed {seed} ({loss} {rate}, {} ms", delay.as_millis())?;
        write!(
            f,
            "{}{}",
            if *has_repair { ", repair" } else { "" },
            if *waits { ", waits" } else { "" }
        )?;
        if *relay != Relay::None {
            write!(f, ", relay {relay:?}")?;
        }
        write!(f, ", {line_cut:?} at {} ms, alone {} ms)", work.as_millis(), alone.as_millis())
    }
}
