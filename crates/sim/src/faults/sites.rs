//! The faults of a run with several sites, and their choice.

use std::time::Duration;

use super::Palette;
use crate::cables::Ways;
use crate::programs::{SITES, random_below};
use crate::turns;

/// Something that goes wrong in a run with several sites. A cable is one of a client, or one of a
/// server to the server of another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteFault {
    /// A connection ends; bytes on their way are lost.
    Cut(usize),
    /// A cable carries nothing for a while, in both ways or in one.
    Stop(usize, Ways, Duration),
    /// Nothing goes between two sites for a while.
    Part([usize; 2], Duration),
    /// Nothing goes between a site and all others for a while.
    Isolate(usize, Duration),
    /// A client does not run for a while.
    PauseClient(usize, Duration),
    /// The server of a site does not run for a while.
    PauseServer(usize, Duration),
    /// A thread of a client does not get its turn.
    SlowClient(usize, Duration),
    /// A thread of a server waits for a disk.
    SlowServer(usize, Duration),
    /// The server of a site is killed and starts again.
    KillServer(usize),
    /// The power fails at a site, and comes back.
    PowerLoss(usize),
    /// A client is killed.
    KillClient(usize),
    /// A site tells others another address: they make new connections to it.
    NewAddress(usize),
    /// The first site hears nothing from the second one, which hears it for so long. Then its
    /// leases end, and before its session does, the server of the second one is killed.
    KillHomeOfLost([usize; 2], Duration),
}

/// The names of all kinds in a report.
pub(crate) const SITE_KINDS: [&str; 13] = [
    "site cut",
    "site stopped cable",
    "sites parted",
    "site isolated",
    "site paused client",
    "site paused server",
    "site slow client",
    "site slow server",
    "site killed server",
    "site power loss",
    "site killed client",
    "site killed home of a lost site",
    "site new address",
];

/// The numbers of clients and of all cables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Laid {
    pub(crate) clients: usize,
    pub(crate) cables: usize,
}

impl SiteFault {
    pub(crate) const fn kind(self) -> &'static str {
        SITE_KINDS[match self {
            Self::Cut(_) => 0,
            Self::Stop(..) => 1,
            Self::Part(..) => 2,
            Self::Isolate(..) => 3,
            Self::PauseClient(..) => 4,
            Self::PauseServer(..) => 5,
            Self::SlowClient(..) => 6,
            Self::SlowServer(..) => 7,
            Self::KillServer(_) => 8,
            Self::PowerLoss(_) => 9,
            Self::KillClient(_) => 10,
            Self::KillHomeOfLost(..) => 11,
            Self::NewAddress(_) => 12,
        }]
    }

    /// Returns whether programs may get errors by the fault.
    pub(crate) fn may_fail(self, term: Duration) -> bool {
        match self {
            Self::Cut(_) => false,
            Self::Stop(_, _, time)
            | Self::Part(_, time)
            | Self::Isolate(_, time)
            | Self::PauseClient(_, time)
            | Self::PauseServer(_, time)
            | Self::SlowClient(_, time)
            | Self::SlowServer(_, time) => time > term / 8,
            Self::KillServer(_)
            | Self::PowerLoss(_)
            | Self::KillClient(_)
            | Self::NewAddress(_)
            | Self::KillHomeOfLost(..) => true,
        }
    }

    /// Returns the next fault.
    pub(crate) fn next(palette: Palette, laid: Laid) -> Option<Self> {
        if palette == Palette::Nothing {
            return None;
        }
        let client = random_below(laid.clients);
        let cable = random_below(laid.cables);
        let site = random_below(SITES);
        let other = (site + 1 + random_below(SITES - 1)) % SITES;
        let short = || match turns::random(3) {
            // Longer than a recall may take.
            0 => Duration::from_millis(1 + turns::random(14_000)),
            _ => Duration::from_millis(1 + turns::random(400)),
        };
        let long = || match turns::random(3) {
            // Longer than a term.
            0 => Duration::from_millis(8_000 + turns::random(10_000)),
            _ => Duration::from_millis(1 + turns::random(4_000)),
        };
        Some(match (turns::random(17), palette) {
            (0..=2, _) => Self::Cut(cable),
            (3..=5, _) => {
                let ways = [Ways::Both, Ways::FromClient, Ways::ToClient];
                Self::Stop(cable, ways[random_below(3)], long())
            }
            (6, _) => Self::Part([site, other], long()),
            (7, _) => Self::Isolate(site, long()),
            (8, _) => Self::PauseServer(site, long()),
            (9, _) => Self::SlowServer(site, short()),
            (10, _) => Self::PauseClient(client, long()),
            (11, _) => Self::SlowClient(client, short()),
            (16, _) => Self::NewAddress(site),
            (12, Palette::Server | Palette::Power) => {
                let heard = Duration::from_millis(300 + turns::random(1_500));
                Self::KillHomeOfLost([site, other], heard)
            }
            (_, Palette::Server) => Self::KillServer(site),
            (_, Palette::Power) => Self::PowerLoss(site),
            (12 | 13, Palette::Client) => Self::KillClient(client),
            _ => Self::SlowServer(site, short()),
        })
    }
}
