//! The phases of a sender: how fast it sends, compared with the best rate that was delivered.

/// Round trips between two probes.
const CRUISE: u32 = 6;
/// The drain after the startup, which leaves a queue of up to a round trip and a half.
const DRAIN_STARTUP: Phase = Phase::Drain { pace: 50, left: 3 };
/// The drain after a probe, which leaves a queue of a fifth of a round trip. It takes two: what the
/// first one has done is seen after it. What is left of the queue then, the cruise empties: a drain
/// that empties it all leaves the link idle at its end.
const DRAIN_PROBE: Phase = Phase::Drain { pace: 92, left: 1 };
/// The window while the link is shared, in parts of a hundred. A stream of TCP that fills a queue
/// of a whole round trip doubles the trip of each datagram: with 1.25 times a round trip under way
/// the rate falls to 0.6, and again in the next round trips, until little is left. With twice as
/// much a window that each loss halves gets a tenth to a third in simulations. Cubic, which grows
/// faster, left the datagrams 0.07 of a link at 1.25, 0.18 at 1.63, 0.26 at 1.8, and 0.54 at 2.
const SHARING: u64 = 190;
/// Round trips in which the rate does not grow by a quarter, after which the link is known.
const FLAT: u32 = 3;

/// A phase; each lasts at least a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The rate doubles in each round trip, until it does not grow any more.
    Startup {
        /// The best rate that has grown.
        full: u64,
        /// Round trips since.
        flat: u32,
    },
    /// The queue empties, unless others fill it.
    Drain {
        /// The rate, in parts of a hundred.
        pace: u64,
        /// Round trips in which it may.
        left: u32,
    },
    /// The rate holds.
    Cruise {
        /// Round trips until a probe.
        left: u32,
    },
    /// A quarter more is sent.
    Probe,
    /// What the probe has done is seen.
    Watch {
        /// The best rate before it.
        before: u64,
    },
}

/// What a round trip has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// The best delivery rate, in bytes per second.
    pub(super) best: u64,
    /// It was limited by the link all the time.
    pub(super) has_backlog: bool,
    /// It took longer than one without a queue.
    pub(super) has_queue: bool,
    /// More was lost than the link loses without a queue.
    pub(super) has_overflowed: bool,
}

impl Phase {
    /// The first phase.
    pub(super) const START: Self = Self::Startup { full: 0, flat: 0 };

    /// Returns the phase after a round trip.
    pub(super) const fn after(self, round: Round) -> Self {
        match self {
            Self::Startup { .. } if round.has_overflowed => DRAIN_STARTUP,
            Self::Startup { .. } if !round.has_backlog => self,
            Self::Startup { full, .. } if round.best >= full.saturating_add(full / 4) => {
                Self::Startup { full: round.best, flat: 0 }
            }
            Self::Startup { flat, .. } if flat + 1 >= FLAT => DRAIN_STARTUP,
            Self::Startup { full, flat } => Self::Startup { full, flat: flat + 1 },
            Self::Drain { pace, left } if left > 0 && round.has_queue => {
                Self::Drain { pace, left: left - 1 }
            }
            Self::Drain { .. } => Self::Cruise { left: CRUISE },
            // Less is sent first, and the room that this leaves is found soon.
            Self::Cruise { .. } | Self::Probe | Self::Watch { .. } if round.has_overflowed => {
                Self::Cruise { left: CRUISE / 2 }
            }
            Self::Cruise { left: 0 } if round.has_backlog => Self::Probe,
            Self::Cruise { left } => Self::Cruise { left: left.saturating_sub(1) },
            Self::Probe => Self::Watch { before: round.best },
            Self::Watch { .. } if round.has_queue => DRAIN_PROBE,
            Self::Watch { before } if round.best > before + before / 8 => Self::Probe,
            Self::Watch { .. } => Self::Cruise { left: CRUISE },
        }
    }

    /// Returns whether the link was never full: what it takes is not known.
    pub(super) const fn is_startup(self) -> bool {
        matches!(self, Self::Startup { .. })
    }

    /// Returns the rate at which is sent, in parts of a hundred of the best one.
    pub(super) const fn pace(self) -> u64 {
        match self {
            Self::Startup { .. } => 200,
            Self::Drain { pace, .. } => pace,
            Self::Cruise { .. } | Self::Watch { .. } => 99,
            Self::Probe => 125,
        }
    }

    /// Returns whether losses may be those of a queue that is too short to be seen, because more is
    /// sent than the link is known to take, or was in the round trip before.
    pub(super) const fn may_overflow(self) -> bool {
        match self {
            Self::Startup { .. } | Self::Probe | Self::Watch { .. } => true,
            Self::Drain { .. } | Self::Cruise { .. } => false,
        }
    }

    /// Returns the window, in parts of a hundred of what the best rate delivers in a round trip.
    ///
    /// The pace is what keeps the queue short; the window is for a queue that others fill.
    pub(super) const fn window(self) -> u64 {
        match self {
            Self::Startup { .. } => 250,
            Self::Drain { .. } | Self::Cruise { .. } | Self::Probe | Self::Watch { .. } => SHARING,
        }
    }
}
