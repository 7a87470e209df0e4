//! Sets of rights, also the empty one.

use pelago_keynote::Right;

/// A set of rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RightSet(u8);

impl RightSet {
    /// All rights.
    pub(crate) const ALL: Self = Self::of(&Right::ALL);

    /// Returns the set of these rights.
    pub(crate) const fn of(mut rights: &[Right]) -> Self {
        let mut set = Self(0);
        while let [right, rest @ ..] = rights {
            set.set(*right, true);
            rights = rest;
        }
        set
    }

    /// Returns whether the set has a right.
    pub(crate) const fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }

    /// Adds a right, or removes it.
    pub(crate) const fn set(&mut self, right: Right, has: bool) {
        let bit = 1 << right as u8;
        self.0 = if has { self.0 | bit } else { self.0 & !bit };
    }

    /// Returns whether the set has no right.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the set has a right of another one.
    pub(crate) const fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns whether the set has all rights of another one.
    pub(crate) const fn has_all(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the rights of both sets.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
