//! The options of a volume with a mirror.

use std::time::Duration;

use clap::ValueEnum;
use pelago_net::mirror::RepairMode;
use pelago_server::WhenCut;

use super::serving::parse_seconds;

/// The options about the line to a mirror, and about one that is behind or cut off.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct LevelArgs {
    /// Hold changes back while the mirror is further behind than this
    /// [default: 2 if the volume's level is remote, else no limit]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    lag: Option<u64>,
    /// Reaction of fsync of level network or remote to a mirror that is cut off: to go on once the
    /// change is safe here, or to wait
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = CutArg::GoOn)]
    when_cut: CutArg,
    /// Send to the mirror in UDP datagrams, with repair packets as the line needs them (auto), with
    /// all that there are (full) or without (off) [default: over TLS]
    #[arg(long, value_enum, value_name = "HOW")]
    #[arg(hide_possible_values = true)]
    repair: Option<RepairArg>,
}

/// The repair packets of datagrams to a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RepairArg {
    /// As many as the loss seen and the waiters need
    Auto,
    /// All of each block
    Full,
    /// None
    Off,
}

/// The reaction of a sync of level *network* or *remote* to a mirror that is cut off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum CutArg {
    /// It is answered when the change is safe at the server
    #[default]
    GoOn,
    /// It waits until the mirror is back
    Wait,
}

impl LevelArgs {
    /// Returns the limit of what the mirror may lack; `None` leaves it to the volume's level.
    pub(super) fn lag(self) -> Option<Duration> {
        self.lag.map(Duration::from_secs)
    }

    /// Returns the repair packets of datagrams to the mirror; `None` if it gets none.
    pub(super) fn repair(self) -> Option<RepairMode> {
        self.repair.map(|repair| match repair {
            RepairArg::Auto => RepairMode::Auto,
            RepairArg::Full => RepairMode::Full,
            RepairArg::Off => RepairMode::Off,
        })
    }

    /// Returns the reaction to a mirror that is cut off.
    pub(super) const fn when_cut(self) -> WhenCut {
        match self.when_cut {
            CutArg::GoOn => WhenCut::GoOn,
            CutArg::Wait => WhenCut::Wait,
        }
    }
}
