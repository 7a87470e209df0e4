//! The evaluation of conditions for an action.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::matched::{Expression, Matched};
use super::number::Number;
use super::pattern::Compiled;
use super::{
    Arithmetic, Clause, Consequence, Pattern, Program, Relation, StringExpr, Test, pattern,
};
use crate::action::Action;
use crate::reads::Reads;
use crate::values::Values;

/// The limit for the steps of one evaluation: an expression is one step.
const STEPS: u32 = 16_384;
/// The steps of compiling a regular expression that is no literal, without its positions.
const COMPILE_STEPS: u32 = 256;
/// The steps of compiling a position of it.
const POSITION_STEPS: u32 = 6;
/// The limit for a computed string in bytes.
const STRING_BYTES: usize = 64 << 10;

/// The error of an expression that has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuntimeError {
    /// A number is out of range, or a division by zero.
    Number,
    /// A string is no regular expression.
    Pattern,
    /// A string is longer than [`STRING_BYTES`].
    Length,
    /// The evaluation takes more than [`STEPS`]. The whole program has the lowest value.
    Steps,
}

/// The constants of an assertion, by their names (RFC 2704, 4.6.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Constants(pub(crate) BTreeMap<String, Vec<u8>>);

impl Constants {
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

/// An evaluation of the conditions of one assertion.
pub(crate) struct Evaluation<'a> {
    pub(crate) action: &'a dyn Action,
    pub(crate) constants: &'a Constants,
    pub(crate) values: &'a Values,
    /// The value of `_ACTION_AUTHORIZERS`.
    pub(crate) authorizers: &'a dyn Fn() -> String,
    /// The attributes that were read.
    pub(crate) reads: &'a mut Reads,
    /// The steps that all evaluations of a caller may take together, as far as they are left.
    pub(crate) budget: &'a Cell<u32>,
    pub(crate) state: State<'a>,
}

/// The state of an evaluation.
#[derive(Default)]
pub(crate) struct State<'a> {
    steps: u32,
    matched: Matched<'a>,
}

impl<'a> Evaluation<'a> {
    /// Returns the value of a program; the lowest one if its evaluation takes too many steps.
    pub(crate) fn run(&mut self, program: &'a Program) -> usize {
        self.program(program).unwrap_or(Values::MIN)
    }

    /// # Errors
    /// [`RuntimeError::Steps`].
    fn program(&mut self, program: &'a Program) -> Result<usize, RuntimeError> {
        let mut highest = Values::MIN;
        for Clause { test, then } in &program.clauses {
            if highest == self.values.max() {
                break;
            }
            // What a clause has matched ends with it.
            let matched = self.state.matched.clone();
            let passes = match self.test(test) {
                Err(RuntimeError::Steps) => return Err(RuntimeError::Steps),
                Err(RuntimeError::Number | RuntimeError::Pattern | RuntimeError::Length) => false,
                Ok(passes) => passes,
            };
            if passes {
                highest = highest.max(self.consequence(then)?);
            }
            self.state.matched = matched;
        }
        Ok(highest)
    }

    fn consequence(&mut self, then: &'a Consequence) -> Result<usize, RuntimeError> {
        match then {
            Consequence::MaxTrust => Ok(self.values.max()),
            Consequence::Program(program) => self.program(program),
            Consequence::Value(value) => match self.string(value) {
                Ok(value) => Ok(self.values.find(&value)),
                Err(RuntimeError::Steps) => Err(RuntimeError::Steps),
                Err(RuntimeError::Number | RuntimeError::Pattern | RuntimeError::Length) => {
                    Ok(Values::MIN)
                }
            },
        }
    }

    fn take_steps(&mut self, count: u32) -> Result<(), RuntimeError> {
        self.state.steps = self.state.steps.saturating_add(count);
        let left = self.budget.get().checked_sub(count);
        self.budget.set(left.unwrap_or_default());
        if self.state.steps > STEPS || left.is_none() { Err(RuntimeError::Steps) } else { Ok(()) }
    }

    /// Counts the steps of reading or copying a string.
    fn read_steps(&mut self, text: &[u8]) -> Result<(), RuntimeError> {
        self.take_steps(u32::try_from(text.len() / pattern::BYTES_A_STEP).unwrap_or(u32::MAX))
    }

    fn test(&mut self, test: &'a Test) -> Result<bool, RuntimeError> {
        self.take_steps(1)?;
        match test {
            Test::Constant(value) => Ok(*value),
            Test::Not(test) => Ok(!self.test(test)?),
            Test::All(tests) => {
                for test in tests {
                    if !self.test(test)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Test::Any(tests) => {
                for test in tests {
                    if self.test(test)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Test::Strings(left, relation, right) => self.compare(left, *relation, right),
            Test::Integers(left, relation, right) => {
                let ordering = self.number(left)?.cmp(&self.number(right)?);
                Ok(relation.holds(ordering))
            }
            Test::Floats(left, relation, right) => {
                let ordering = self.number(left)?.partial_cmp(&self.number(right)?);
                ordering.map(|ordering| relation.holds(ordering)).ok_or(RuntimeError::Number)
            }
            Test::Matches(text, pattern) => self.matches(text, pattern),
        }
    }

    /// Compares two strings. The comparison of a clock says how long its result holds.
    fn compare(
        &mut self,
        left: &'a StringExpr,
        relation: Relation,
        right: &'a StringExpr,
    ) -> Result<bool, RuntimeError> {
        if let Some((name, now)) = self.clock(left) {
            let limit = self.string(right)?;
            let ordering = now.as_ref().cmp(limit.as_ref());
            self.reads.add_clock(name, end_of(ordering, relation, &limit));
            return Ok(relation.holds(ordering));
        }
        if let Some((name, now)) = self.clock(right) {
            let limit = self.string(left)?;
            let ordering = limit.as_ref().cmp(now.as_ref());
            self.reads.add_clock(name, end_of(ordering.reverse(), relation.reversed(), &limit));
            return Ok(relation.holds(ordering));
        }
        let left = self.string(left)?;
        let right = self.string(right)?;
        Ok(relation.holds(left.as_ref().cmp(right.as_ref())))
    }

    /// Returns name and value if an expression is an attribute of the action that is a clock.
    fn clock(&self, text: &'a StringExpr) -> Option<(&'a str, Cow<'a, [u8]>)> {
        match text {
            StringExpr::Attribute(name)
                if self.action.is_clock(name)
                    && !name.starts_with('_')
                    && self.constants.get(name).is_none() =>
            {
                Some((name, self.action.attribute(name).unwrap_or_default()))
            }
            StringExpr::Attribute(_)
            | StringExpr::Literal(_)
            | StringExpr::Dereferenced(_)
            | StringExpr::Joined(_) => None,
        }
    }

    fn matches(
        &mut self,
        text: &'a StringExpr,
        pattern: &'a Pattern,
    ) -> Result<bool, RuntimeError> {
        let text = self.string(text)?;
        let expression = match (pattern.compiled(), pattern.text()) {
            (Some(literal), _) => Expression::Literal(literal),
            (None, StringExpr::Literal(_)) => return Err(RuntimeError::Pattern),
            (None, computed) => Expression::Computed(self.compile(computed)?),
        };
        self.take_steps(expression.compiled().steps(&text))?;
        let is_match = expression.compiled().is_match(&text);
        self.state.matched =
            if is_match { Matched::new(expression, text) } else { Matched::Nothing };
        Ok(is_match)
    }

    /// Compiles a regular expression that is no literal.
    fn compile(&mut self, pattern: &'a StringExpr) -> Result<Compiled, RuntimeError> {
        self.take_steps(COMPILE_STEPS)?;
        let pattern = self.string(pattern)?;
        let positions = pattern::positions(&pattern).ok_or(RuntimeError::Pattern)?;
        let positions = u32::try_from(positions).unwrap_or(u32::MAX);
        self.take_steps(positions.saturating_mul(POSITION_STEPS))?;
        pattern::compile(&pattern).ok_or(RuntimeError::Pattern)
    }

    fn string(&mut self, text: &'a StringExpr) -> Result<Cow<'a, [u8]>, RuntimeError> {
        self.take_steps(1)?;
        let text = match text {
            StringExpr::Literal(text) => Cow::Borrowed(text.as_slice()),
            StringExpr::Attribute(name) => self.attribute(name)?,
            StringExpr::Dereferenced(name) => {
                let name = self.string(name)?;
                let name = str::from_utf8(&name).unwrap_or_default();
                Cow::Owned(self.attribute(name)?.into_owned())
            }
            StringExpr::Joined(parts) => {
                let mut joined = Vec::new();
                for part in parts {
                    let part = self.string(part)?;
                    if joined.len() + part.len() > STRING_BYTES {
                        return Err(RuntimeError::Length);
                    }
                    joined.extend_from_slice(&part);
                }
                Cow::Owned(joined)
            }
        };
        self.read_steps(&text)?;
        Ok(text)
    }

    /// Returns the value of an attribute; an empty string if there is none.
    fn attribute<'n>(&mut self, name: &'n str) -> Result<Cow<'n, [u8]>, RuntimeError>
    where
        'a: 'n,
    {
        if let Some(constant) = self.constants.get(name) {
            return Ok(Cow::Borrowed(constant));
        }
        if name.starts_with('_') {
            return self.reserved(name);
        }
        self.reads.add(name);
        Ok(self.action.attribute(name).unwrap_or_default())
    }

    /// Returns an attribute of the language itself; an empty string if there is none.
    fn reserved(&mut self, name: &str) -> Result<Cow<'a, [u8]>, RuntimeError> {
        let text = match name {
            "_MIN_TRUST" => Cow::Borrowed(self.values.name(Values::MIN).as_bytes()),
            "_MAX_TRUST" => Cow::Borrowed(self.values.name(self.values.max()).as_bytes()),
            "_VALUES" => Cow::Owned(self.values.to_text().into_bytes()),
            "_ACTION_AUTHORIZERS" => Cow::Owned((self.authorizers)().into_bytes()),
            "_0" => {
                let count = self.state.matched.count();
                Cow::Owned(count.map(|count| count.to_string()).unwrap_or_default().into_bytes())
            }
            name => Cow::Owned(self.group(name)?.unwrap_or_default()),
        };
        Ok(text)
    }

    /// Returns the group that has this name; `None` if there is none.
    fn group(&mut self, name: &str) -> Result<Option<Vec<u8>>, RuntimeError> {
        let digits = name.strip_prefix('_').filter(|digits| !digits.starts_with('0'));
        let number = digits.and_then(|digits| digits.parse().ok());
        let matched = self.state.matched.clone();
        let (Some(number), Some(groups)) = (number, matched.groups()) else { return Ok(None) };
        self.take_steps(groups.steps())?;
        Ok(groups.text(number).map(<[u8]>::to_vec))
    }

    fn number<N: Number>(&mut self, number: &'a Arithmetic<N>) -> Result<N, RuntimeError> {
        self.take_steps(1)?;
        match number {
            Arithmetic::Literal(number) => Ok(*number),
            Arithmetic::Of(text) => {
                let text = self.string(text)?;
                N::read(&text).ok_or(RuntimeError::Number)
            }
            Arithmetic::Negated(of) => self.number(of)?.negated().ok_or(RuntimeError::Number),
            Arithmetic::Chain(first, rest) => {
                let mut number = self.number(first)?;
                for (operator, operand) in rest {
                    let combined = number.combined(*operator, self.number(operand)?);
                    number = combined.ok_or(RuntimeError::Number)?;
                }
                Ok(number)
            }
        }
    }
}

impl StringExpr {
    /// Returns the value of an expression of literals and constants; `None` if it has another
    /// attribute.
    pub(crate) fn constant(&self, constants: &Constants) -> Option<Vec<u8>> {
        match self {
            Self::Literal(text) => Some(text.clone()),
            Self::Attribute(name) => constants.get(name).map(<[u8]>::to_vec),
            Self::Dereferenced(name) => {
                let name = String::from_utf8(name.constant(constants)?).ok()?;
                constants.get(&name).map(<[u8]>::to_vec)
            }
            Self::Joined(parts) => {
                let parts: Option<Vec<_>> =
                    parts.iter().map(|part| part.constant(constants)).collect();
                parts.map(|parts| parts.concat()).filter(|text| text.len() <= STRING_BYTES)
            }
        }
    }
}

impl Relation {
    /// Returns the relation of the right side to the left side.
    const fn reversed(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::Unequal => Self::Unequal,
            Self::AtMost => Self::AtLeast,
            Self::AtLeast => Self::AtMost,
            Self::Less => Self::Greater,
            Self::Greater => Self::Less,
        }
    }
}

/// Returns the first value of a clock, which only grows, at which a comparison with `limit` has
/// another result than now; `None` if it keeps its result.
fn end_of(now: Ordering, relation: Relation, limit: &[u8]) -> Option<Vec<u8>> {
    let at_limit = || Some(limit.to_vec());
    // The next longer string is the first one above the limit.
    let above_limit = || Some([limit, &[0]].concat());
    match (now, relation) {
        (Ordering::Greater, _) => None,
        (Ordering::Less, Relation::Less | Relation::AtLeast) => at_limit(),
        (Ordering::Less, Relation::Equal | Relation::Unequal) => at_limit(),
        (Ordering::Less, Relation::AtMost | Relation::Greater) => above_limit(),
        (Ordering::Equal, Relation::Less | Relation::AtLeast) => None,
        (Ordering::Equal, _) => above_limit(),
    }
}
