//! The comparison operators of sizes and times.

use std::cmp::Ordering;

/// A comparison of a file's value with the value in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `=`
    Equal,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
}

impl Comparison {
    /// Returns whether the comparison holds for a file whose value has this order to the query's
    /// value.
    #[must_use]
    pub const fn holds(self, file: Ordering) -> bool {
        match self {
            Self::Less => file.is_lt(),
            Self::LessOrEqual => file.is_le(),
            Self::Equal => file.is_eq(),
            Self::GreaterOrEqual => file.is_ge(),
            Self::Greater => file.is_gt(),
        }
    }

    /// Returns the sign of the comparison in a query.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "=",
            Self::GreaterOrEqual => ">=",
            Self::Greater => ">",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sign_holds_for_its_orders() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        for (comparison, expected) in [
            (Less, [true, false, false]),
            (LessOrEqual, [true, true, false]),
            (Equal, [false, true, false]),
            (GreaterOrEqual, [false, true, true]),
            (Greater, [false, false, true]),
        ] {
            let orders = [Ordering::Less, Ordering::Equal, Ordering::Greater];
            assert_eq!(orders.map(|order| comparison.holds(order)), expected, "{comparison:?}");
        }
    }
}
