//! The faults of a run, and their choice.

use std::time::Duration;

use crate::cables::Ways;
use crate::turns;

pub(crate) mod sites;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection of a client ends; bytes on their way are lost.
    Cut(usize),
    /// The cable of a client carries nothing for a while, in both ways or in one.
    Stop(usize, Ways, Duration),
    /// A client does not run for a while.
    PauseClient(usize, Duration),
    /// The server does not run for a while.
    PauseServer(Duration),
    /// A thread of the server waits for a disk.
    SlowServer(Duration),
    /// A thread of a client does not get its turn.
    SlowClient(usize, Duration),
    /// The server is killed and starts again.
    KillServer,
    /// The power fails where the server is, and comes back.
    PowerLoss,
    /// A client is killed.
    KillClient(usize),
    /// A client hears nothing, and the server hears it for so long. Then its leases end by recalls
    /// of that time, and before its session does, the server is killed, and starts again.
    KillServerOfLost(usize, Duration),
}

/// The names of all kinds in a report.
pub(crate) const KINDS: [&str; 10] = [
    "cut",
    "stopped cable",
    "paused client",
    "paused server",
    "slow server",
    "slow client",
    "killed server",
    "power loss",
    "killed client",
    "killed server of a lost client",
];

/// The faults that may occur in one run. A run that kills clients kills no server: if both lost
/// what was not synced, a wrong loss would not be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    Nothing,
    /// Connections and time.
    Network,
    /// Also kills of the server.
    Server,
    /// Also power losses.
    Power,
    /// Connections, time, and kills of clients, not of the server.
    Client,
}

impl Fault {
    pub(crate) const fn kind(self) -> &'static str {
        KINDS[match self {
            Self::Cut(_) => 0,
            Self::Stop(..) => 1,
            Self::PauseClient(..) => 2,
            Self::PauseServer(_) => 3,
            Self::SlowServer(_) => 4,
            Self::SlowClient(..) => 5,
            Self::KillServer => 6,
            Self::PowerLoss => 7,
            Self::KillClient(_) => 8,
            Self::KillServerOfLost(..) => 9,
        }]
    }

    /// Returns the client that the fault separates from the others, with the bytes that it has not
    /// sent.
    pub(crate) const fn separates(self) -> Option<usize> {
        match self {
            Self::Stop(client, ..)
            | Self::PauseClient(client, _)
            | Self::KillServerOfLost(client, _) => Some(client),
            _ => None,
        }
    }

    /// Returns the same fault with this duration, if it ends by itself.
    pub(crate) const fn lasting(self, time: Duration) -> Self {
        match self {
            Self::Stop(client, ways, _) => Self::Stop(client, ways, time),
            Self::PauseClient(client, _) => Self::PauseClient(client, time),
            other => other,
        }
    }

    /// Returns whether a session may end by the fault, or a lease before the bytes under it are
    /// sent: then programs get errors.
    pub(crate) fn may_end_session(self, term: Duration) -> bool {
        match self {
            Self::Stop(_, _, time) | Self::PauseClient(_, time) | Self::PauseServer(time) => {
                time > term / 4
            }
            Self::SlowServer(time) | Self::SlowClient(_, time) => time > term / 4,
            Self::Cut(_) => false,
            Self::KillServer
            | Self::PowerLoss
            | Self::KillClient(_)
            | Self::KillServerOfLost(..) => true,
        }
    }
}

impl Palette {
    /// Returns the palette of a seed.
    pub(crate) fn choose() -> Self {
        match turns::random(10) {
            0 => Self::Nothing,
            1..=3 => Self::Network,
            4..=6 => Self::Server,
            7 | 8 => Self::Power,
            _ => Self::Client,
        }
    }

    /// Returns whether the server may lose changes that its own programs have not synced.
    pub(crate) const fn loses_server(self) -> bool {
        matches!(self, Self::Server | Self::Power)
    }

    /// Returns the next fault.
    pub(crate) fn next(self, clients: usize) -> Option<Fault> {
        if self == Self::Nothing {
            return None;
        }
        let client = usize::try_from(turns::random(clients as u64)).unwrap_or(0);
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
        Some(match (turns::random(12), self) {
            (0..=1, _) => Fault::Cut(client),
            (2..=3, _) => {
                let ways = [Ways::Both, Ways::FromClient, Ways::ToClient];
                let way = usize::try_from(turns::random(3)).unwrap_or(0);
                Fault::Stop(client, ways[way], long())
            }
            (4, _) => Fault::PauseClient(client, long()),
            (5, _) => Fault::PauseServer(long()),
            (6..=7, _) => Fault::SlowServer(short()),
            (8, Self::Power) => Fault::PowerLoss,
            (9..=10, Self::Server | Self::Power) => {
                Fault::KillServerOfLost(client, Duration::from_millis(300 + turns::random(1_500)))
            }
            (8, _) => Fault::SlowClient(client, short()),
            (_, Self::Server) => Fault::KillServer,
            (_, Self::Power) => Fault::PowerLoss,
            (11, Self::Client) => Fault::KillClient(client),
            _ => Fault::SlowServer(short()),
        })
    }
}
