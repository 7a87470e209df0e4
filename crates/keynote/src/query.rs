//! Queries: the compliance value of an action, by policies and credentials (RFC 2704, 5).
//!
//! A principal's value is the highest of its assertions' values; an assertion's value is the lower
//! one of its conditions' value and its licensees' value; those who request the action have the
//! highest value. The answer is the value of `POLICY`. Values only rise while they are computed, so
//! an order of assertions, or a circle of them, changes nothing: a circle alone supports nothing.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::action::Action;
use crate::assertion::{Assertion, Authorizer};
use crate::conditions::{Evaluation, State};
use crate::principal::{Identifier, Principal};
use crate::reads::Reads;
use crate::values::Values;

/// A question: may these principals carry out this action?
pub struct ComplianceQuery<'a> {
    /// The attributes of the action.
    pub action: &'a dyn Action,
    /// The principals that request it.
    pub requesters: &'a [Principal],
    /// The values that an answer can have.
    pub values: &'a Values,
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compliance {
    /// The index of the compliance value.
    pub value: usize,
    /// The attributes that decide.
    pub reads: Reads,
    /// The places of the assertions whose conditions were evaluated and have another value than
    /// the lowest.
    pub supported_by: Vec<usize>,
}

impl ComplianceQuery<'_> {
    /// Returns the answer by these assertions. The caller has verified the signatures: an assertion
    /// by `"POLICY"` is believed as it is.
    #[must_use]
    pub fn ask<'a>(&self, assertions: impl IntoIterator<Item = &'a Assertion>) -> Compliance {
        self.ask_within(&Cell::new(u32::MAX), assertions)
    }

    /// As [`ComplianceQuery::ask`], with as many steps as are left in `budget`, which it lowers. A
    /// step is an expression, or some bytes of a search. Without steps conditions are not met.
    #[must_use]
    pub fn ask_within<'a>(
        &self,
        budget: &Cell<u32>,
        assertions: impl IntoIterator<Item = &'a Assertion>,
    ) -> Compliance {
        let assertions: Vec<&Assertion> = assertions.into_iter().collect();
        let mut answer =
            Compliance { value: Values::MIN, reads: Reads::default(), supported_by: vec![] };
        let mut graph = Graph { query: self, of_keys: BTreeMap::new(), of_policy: Values::MIN };
        let mut conditions: Vec<Option<usize>> = vec![None; assertions.len()];
        // Each round but the last raises a value.
        loop {
            let mut has_risen = false;
            for (at, assertion) in assertions.iter().enumerate() {
                let licensed = assertion.licensees().value(&|identifier| graph.value(identifier));
                let known = graph.value_of(assertion.authorizer());
                if licensed <= known {
                    continue;
                }
                // The conditions are evaluated only if they could decide something.
                let of_conditions = conditions
                    .get(at)
                    .copied()
                    .flatten()
                    .unwrap_or_else(|| self.conditions(assertion, budget, &mut answer.reads));
                if let Some(evaluated) = conditions.get_mut(at) {
                    *evaluated = Some(of_conditions);
                }
                let value = licensed.min(of_conditions);
                if value > known {
                    graph.raise(assertion.authorizer(), value);
                    has_risen = true;
                }
            }
            if !has_risen {
                break;
            }
        }
        answer.value = graph.of_policy;
        let evaluated = conditions.iter().enumerate();
        answer.supported_by = evaluated
            .filter(|(_, value)| value.is_some_and(|value| value > Values::MIN))
            .map(|(at, _)| at)
            .collect();
        answer
    }

    fn conditions(&self, assertion: &Assertion, budget: &Cell<u32>, reads: &mut Reads) -> usize {
        let authorizers = || {
            let names: Vec<String> = self.requesters.iter().map(Principal::to_string).collect();
            names.join(",")
        };
        let Some(conditions) = assertion.conditions() else { return self.values.max() };
        let mut evaluation = Evaluation {
            action: self.action,
            constants: assertion.constants(),
            values: self.values,
            authorizers: &authorizers,
            reads,
            budget,
            state: State::default(),
        };
        evaluation.run(&conditions.program)
    }
}

/// The values of the principals that are known so far.
struct Graph<'a> {
    query: &'a ComplianceQuery<'a>,
    of_keys: BTreeMap<Identifier, usize>,
    of_policy: usize,
}

impl Graph<'_> {
    fn value(&self, identifier: &Identifier) -> usize {
        match identifier {
            Identifier::Key(key) if self.query.requesters.contains(key) => self.query.values.max(),
            other => self.of_keys.get(other).copied().unwrap_or(Values::MIN),
        }
    }

    fn value_of(&self, authorizer: &Authorizer) -> usize {
        match authorizer {
            Authorizer::Policy => self.of_policy,
            Authorizer::Key(key) => self.value(&Identifier::Key(*key)),
            Authorizer::Opaque(name) => self.value(&Identifier::Opaque(name.clone())),
        }
    }

    fn raise(&mut self, authorizer: &Authorizer, value: usize) {
        match authorizer {
            Authorizer::Policy => self.of_policy = value,
            Authorizer::Key(key) => {
                self.of_keys.insert(Identifier::Key(*key), value);
            }
            Authorizer::Opaque(name) => {
                self.of_keys.insert(Identifier::Opaque(name.clone()), value);
            }
        }
    }
}
