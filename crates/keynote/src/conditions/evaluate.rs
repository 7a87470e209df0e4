//! The evaluation of conditions for an action.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::number::Number;
use super::{Arithmetic, Clause, Pattern, Program, Relation, StringExpr, Test, Then, pattern};
use crate::action::Action;
use crate::reads::Reads;
use crate::values::Values;

/// The limit for the steps of one evaluation: an expression is one step.
const STEPS: u32 = 16_384;
/// The steps of compiling a regular expression that is no literal.
const COMPILE_STEPS: u32 = 1_024;
/// The bytes of a string that are searched in one step.
const BYTES_A_STEP: usize = 64;
/// The limit for a computed string in bytes.
const STRING_BYTES: usize = 64 << 10;
/// The number of groups of a regular expression that can be read: `_1` to `_31`.
const GROUPS: usize = 32;

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
pub(crate) struct Constants(pub(crate) Vec<(String, Vec<u8>)>);

impl Constants {
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_slice())
    }
}

/// The groups of the last match of a clause: the text of each group, from the first on.
type Groups = Vec<Vec<u8>>;

/// An evaluation of the conditions of one assertion.
pub(crate) struct Evaluation<'a> {
    pub(crate) action: &'a dyn Action,
    pub(crate) constants: &'a Constants,
    pub(crate) values: &'a Values,
    /// The value of `_ACTION_AUTHORIZERS`.
    pub(crate) authorizers: &'a str,
    /// The attributes that were read.
    pub(crate) reads: &'a mut Reads,
    pub(crate) state: State,
}

/// The state of an evaluation.
#[derive(Default)]
pub(crate) struct State {
    steps: u32,
    groups: Option<Groups>,
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
            let groups = self.state.groups.clone();
            let passes = match self.test(test) {
                Err(RuntimeError::Steps) => return Err(RuntimeError::Steps),
                Err(RuntimeError::Number | RuntimeError::Pattern | RuntimeError::Length) => false,
                Ok(passes) => passes,
            };
            if passes {
                highest = highest.max(self.consequence(then)?);
            }
            self.state.groups = groups;
        }
        Ok(highest)
    }

    fn consequence(&mut self, then: &'a Then) -> Result<usize, RuntimeError> {
        match then {
            Then::MaxTrust => Ok(self.values.max()),
            Then::Program(program) => self.program(program),
            Then::Value(value) => match self.string(value) {
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
        if self.state.steps > STEPS { Err(RuntimeError::Steps) } else { Ok(()) }
    }

    /// Counts the steps of a search in a string.
    fn search_steps(&mut self, text: &[u8]) -> Result<(), RuntimeError> {
        self.take_steps(u32::try_from(text.len() / BYTES_A_STEP).unwrap_or(u32::MAX))
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
        self.search_steps(&left)?;
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
        self.state.groups = None;
        let dynamic;
        let regex = match (pattern.compiled(), pattern.text()) {
            (Some(regex), _) => regex,
            (None, StringExpr::Literal(_)) => return Err(RuntimeError::Pattern),
            (None, computed) => {
                self.take_steps(COMPILE_STEPS)?;
                let computed = self.string(computed)?;
                dynamic = pattern::compile(&computed).ok_or(RuntimeError::Pattern)?;
                &dynamic
            }
        };
        self.search_steps(&text)?;
        // Without a group there is nothing to remember but that there is none.
        if regex.captures_len() == 1 {
            let is_match = regex.is_match(&text);
            self.state.groups = is_match.then(Groups::new);
            return Ok(is_match);
        }
        let Some(captures) = regex.captures(&text) else { return Ok(false) };
        let groups = captures.iter().skip(1).take(GROUPS - 1);
        let groups = groups.map(|group| group.map_or(&[] as &[u8], |group| group.as_bytes()));
        self.state.groups = Some(groups.map(<[u8]>::to_vec).collect());
        Ok(true)
    }

    fn string(&mut self, text: &'a StringExpr) -> Result<Cow<'a, [u8]>, RuntimeError> {
        self.take_steps(1)?;
        match text {
            StringExpr::Literal(text) => Ok(Cow::Borrowed(text)),
            StringExpr::Attribute(name) => Ok(self.attribute(name)),
            StringExpr::Dereferenced(name) => {
                let name = self.string(name)?;
                let name = str::from_utf8(&name).unwrap_or_default();
                Ok(Cow::Owned(self.attribute(name).into_owned()))
            }
            StringExpr::Joined(parts) => {
                let mut joined = Vec::new();
                for part in parts {
                    let part = self.string(part)?;
                    if joined.len() + part.len() > STRING_BYTES {
                        return Err(RuntimeError::Length);
                    }
                    self.search_steps(&part)?;
                    joined.extend_from_slice(&part);
                }
                Ok(Cow::Owned(joined))
            }
        }
    }

    /// Returns the value of an attribute; an empty string if there is none.
    fn attribute<'n>(&mut self, name: &'n str) -> Cow<'n, [u8]>
    where
        'a: 'n,
    {
        if let Some(constant) = self.constants.get(name) {
            return Cow::Borrowed(constant);
        }
        if name.starts_with('_') {
            return self.reserved(name).map_or(Cow::Borrowed(&[]), Cow::Owned);
        }
        self.reads.add(name);
        self.action.attribute(name).unwrap_or_default()
    }

    /// Returns an attribute of the language itself.
    fn reserved(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "_MIN_TRUST" => Some(self.values.name(Values::MIN).as_bytes().to_vec()),
            "_MAX_TRUST" => Some(self.values.name(self.values.max()).as_bytes().to_vec()),
            "_VALUES" => Some(self.values.to_text().into_bytes()),
            "_ACTION_AUTHORIZERS" => Some(self.authorizers.as_bytes().to_vec()),
            "_0" => {
                let groups = self.state.groups.as_ref()?;
                Some(groups.len().to_string().into_bytes())
            }
            name => {
                let digits = name.strip_prefix('_').filter(|digits| !digits.starts_with('0'))?;
                let number: usize = digits.parse().ok()?;
                self.state.groups.as_ref()?.get(number.checked_sub(1)?).cloned()
            }
        }
    }

    fn number<N: Number>(&mut self, number: &'a Arithmetic<N>) -> Result<N, RuntimeError> {
        self.take_steps(1)?;
        match number {
            Arithmetic::Literal(number) => Ok(*number),
            Arithmetic::Of(text) => {
                let text = self.string(text)?;
                self.search_steps(&text)?;
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
