//! The size of the regular expressions of conditions, which decides how much memory they take.

use super::{Conditions, Consequence, Pattern, Program, Test};

/// The positions that each regular expression counts as, at least: it takes memory of its own.
const LEAST: usize = 256;

impl Conditions {
    /// Returns the size of the regular expressions in positions. One takes some hundred bytes.
    #[must_use]
    pub fn pattern_size(&self) -> usize {
        of_program(&self.program)
    }
}

fn of_program(program: &Program) -> usize {
    let sizes = program.clauses.iter().map(|clause| {
        let nested = match &clause.then {
            Consequence::MaxTrust | Consequence::Value(_) => 0,
            Consequence::Program(nested) => of_program(nested),
        };
        of_test(&clause.test) + nested
    });
    sizes.sum()
}

fn of_test(test: &Test) -> usize {
    match test {
        Test::All(tests) | Test::Any(tests) => tests.iter().map(of_test).sum(),
        Test::Not(negated) => of_test(negated),
        Test::Matches(_, pattern) => of_pattern(pattern),
        Test::Constant(_) | Test::Strings(..) | Test::Integers(..) | Test::Floats(..) => 0,
    }
}

/// A text that is no regular expression, or is computed, keeps no memory.
fn of_pattern(pattern: &Pattern) -> usize {
    match pattern.positions() {
        0 => 0,
        positions => positions.max(LEAST),
    }
}
