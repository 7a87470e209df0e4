//! The options about the levels of a volume with a mirror.

use std::time::Duration;

use clap::ValueEnum;
use pelago_server::WhenCut;

use super::serving::parse_seconds;

/// The options about a mirror that is behind or cut off.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct LevelArgs {
    /// Hold changes back while the mirror is further behind than this
    /// [default: 2 if the volume's level is remote, else no limit]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    lag: Option<u64>,
    /// What fsync of level remote does while the mirror is cut off: go on once it is safe here, or
    /// wait
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = CutArg::GoOn)]
    when_cut: CutArg,
}

/// The reaction of a sync of level *remote* to a mirror that is cut off.
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

    /// Returns the reaction to a mirror that is cut off.
    pub(super) const fn when_cut(self) -> WhenCut {
        match self.when_cut {
            CutArg::GoOn => WhenCut::GoOn,
            CutArg::Wait => WhenCut::Wait,
        }
    }
}
