//! Plans of queries: the parts of a query that the index of names can answer.

use std::cmp::Ordering;
use std::ops::Bound;

use pelago_find::{Comparison, Day, Expr, FileOwner, Glob, Term as Question, When};
use pelago_wire::Time;
use tantivy::query::{BooleanQuery, Query, RangeQuery, TermQuery};
use tantivy::schema::IndexRecordOption;
use tantivy::{Searcher, Term};

use super::fields::Fields;
use super::trigrams::trigrams;

/// Trigrams of one pattern that are looked up, the rarest ones: more of them cost more than they
/// exclude.
const PATTERN_TRIGRAMS: usize = 8;
const DAY_SECONDS: i128 = 86_400;
const SECOND_NANOS: i128 = 1_000_000_000;

/// The documents that can match.
pub(super) enum Plan {
    /// Any may.
    Any,
    /// None can.
    Nothing,
    /// Those that a query of the engine finds.
    Found(Found),
}

/// A query of the engine.
pub(super) struct Found {
    pub(super) query: Box<dyn Query>,
    /// It finds no more documents than this.
    pub(super) at_most: u64,
}

/// The planner of queries over one commit of the index.
pub(super) struct Planner<'a> {
    pub(super) fields: Fields,
    pub(super) searcher: &'a Searcher,
    pub(super) now: Time,
    /// The users of the query by name.
    pub(super) uid_of: &'a dyn Fn(&str) -> Option<u32>,
}

impl Planner<'_> {
    /// Plans an expression, or what it excludes.
    pub(super) fn plan(&self, expr: &Expr, is_negated: bool) -> tantivy::Result<Plan> {
        match expr {
            Expr::And(parts) if !is_negated => self.all(parts, false),
            Expr::Or(parts) if is_negated => self.all(parts, true),
            Expr::And(parts) | Expr::Or(parts) => self.some(parts, is_negated),
            Expr::Not(part) => self.plan(part, !is_negated),
            Expr::Term(term) => self.term(term, is_negated),
        }
    }

    /// Plans parts that must all match: those that narrow do so together.
    fn all(&self, parts: &[Expr], is_negated: bool) -> tantivy::Result<Plan> {
        let mut found = Vec::new();
        for part in parts {
            match self.plan(part, is_negated)? {
                Plan::Any => {}
                Plan::Nothing => return Ok(Plan::Nothing),
                Plan::Found(part) => found.push(part),
            }
        }
        let at_most = found.iter().map(|part| part.at_most).min();
        Ok(joined(found, Plan::Any, at_most, BooleanQuery::intersection))
    }

    /// Plans parts of which one must match: they narrow only if each does.
    fn some(&self, parts: &[Expr], is_negated: bool) -> tantivy::Result<Plan> {
        let mut found = Vec::new();
        for part in parts {
            match self.plan(part, is_negated)? {
                Plan::Any => return Ok(Plan::Any),
                Plan::Nothing => {}
                Plan::Found(part) => found.push(part),
            }
        }
        let add = |sum: u64, part: &Found| sum.saturating_add(part.at_most);
        let at_most = found.iter().fold(0, add);
        Ok(joined(found, Plan::Nothing, Some(at_most), BooleanQuery::union))
    }

    fn term(&self, term: &Question, is_negated: bool) -> tantivy::Result<Plan> {
        let by = |comparison: Comparison| {
            if is_negated { opposite(comparison) } else { Some(comparison) }
        };
        match term {
            Question::Size { comparison, bytes } => {
                Ok(by(*comparison).map_or(Plan::Any, |comparison| self.size(comparison, *bytes)))
            }
            Question::Mtime { comparison, when } => {
                Ok(by(*comparison).map_or(Plan::Any, |comparison| self.mtime(comparison, *when)))
            }
            // What such a term excludes is rare, and what it leaves is nearly all.
            _ if is_negated => Ok(Plan::Any),
            Question::Name(name) => self.name(name.as_bytes()),
            Question::NameLike(glob) => self.name_like(glob),
            Question::Kind(kind) => {
                self.value(Term::from_field_u64(self.fields.kind, kind.number().into()))
            }
            Question::Owner(owner) => {
                let uid = match owner {
                    FileOwner::Uid(uid) => Some(*uid),
                    FileOwner::Name(name) => (self.uid_of)(name),
                };
                let value = |uid: u32| Term::from_field_u64(self.fields.uid, uid.into());
                uid.map_or(Ok(Plan::Nothing), |uid| self.value(value(uid)))
            }
            Question::Tag { .. } | Question::HasTag(_) | Question::Text(_) => Ok(Plan::Any),
        }
    }

    /// Plans a whole name.
    fn name(&self, name: &[u8]) -> tantivy::Result<Plan> {
        self.value(Term::from_field_bytes(self.fields.name, name))
    }

    /// Plans a pattern by the trigrams of what it says literally.
    fn name_like(&self, glob: &Glob) -> tantivy::Result<Plan> {
        let literals = glob.literals();
        let all = || literals.iter().flat_map(|run| trigrams(&run.bytes, run.is_begin, run.is_end));
        if let [run] = &literals[..]
            && run.is_begin
            && run.is_end
        {
            return self.name(&run.bytes);
        }
        let mut rarest = Vec::new();
        for trigram in all() {
            let term = Term::from_field_u64(self.fields.trigram, trigram);
            rarest.push((self.searcher.doc_freq(&term)?, trigram));
        }
        rarest.sort_unstable();
        rarest.dedup();
        let Some((at_most, _)) = rarest.first().copied() else { return Ok(Plan::Any) };
        if at_most == 0 {
            return Ok(Plan::Nothing);
        }
        let query = |(_, trigram): &(u64, u64)| {
            query_of(Term::from_field_u64(self.fields.trigram, *trigram))
        };
        let queries: Vec<_> = rarest.iter().take(PATTERN_TRIGRAMS).map(query).collect();
        Ok(Plan::Found(Found { query: Box::new(BooleanQuery::intersection(queries)), at_most }))
    }

    /// Plans a value of an indexed field.
    fn value(&self, term: Term) -> tantivy::Result<Plan> {
        Ok(match self.searcher.doc_freq(&term)? {
            0 => Plan::Nothing,
            at_most => Plan::Found(Found { query: query_of(term), at_most }),
        })
    }

    fn size(&self, comparison: Comparison, bytes: u64) -> Plan {
        let bytes = i128::from(bytes);
        let (from, to) = range(comparison, bytes, bytes);
        let term = |bytes: u64| Term::from_field_u64(self.fields.size, bytes);
        self.range(from, to, 0, u64::MAX, term)
    }

    /// Plans an age or a day by whole seconds: days exactly, and ages to the second.
    fn mtime(&self, comparison: Comparison, when: When) -> Plan {
        let (from, to) = match when {
            When::Ago(age) => {
                let seconds = i128::from(self.now.seconds) - i128::from(age);
                let second =
                    (seconds * SECOND_NANOS + i128::from(self.now.nanos)).div_euclid(SECOND_NANOS);
                // A part of the second itself may be on either side. A greater age is earlier.
                let later = match comparison {
                    Comparison::Less | Comparison::LessOrEqual => Comparison::GreaterOrEqual,
                    Comparison::Equal => Comparison::Equal,
                    Comparison::GreaterOrEqual | Comparison::Greater => Comparison::LessOrEqual,
                };
                range(later, second, second)
            }
            When::Day(day) => {
                let start = i128::from(Day::start(day).seconds);
                range(comparison, start, start + DAY_SECONDS - 1)
            }
        };
        let term = |seconds: i64| Term::from_field_i64(self.fields.seconds, seconds);
        self.range(from, to, i64::MIN, i64::MAX, term)
    }

    /// Plans a range of a column, both ends in it, whose values have a smallest and a largest.
    fn range<T: Copy + Into<i128> + TryFrom<i128>>(
        &self,
        from: i128,
        to: i128,
        least: T,
        most: T,
        term: impl Fn(T) -> Term,
    ) -> Plan {
        let from = from.max(least.into());
        let to = to.min(most.into());
        if from > to {
            return Plan::Nothing;
        }
        let is_all = from == least.into() && to == most.into();
        let (Ok(from), Ok(to)) = (T::try_from(from), T::try_from(to)) else { return Plan::Any };
        if is_all {
            return Plan::Any;
        }
        let query = RangeQuery::new(Bound::Included(term(from)), Bound::Included(term(to)));
        Plan::Found(Found { query: Box::new(query), at_most: self.searcher.num_docs() })
    }
}

fn query_of(term: Term) -> Box<dyn Query> {
    Box::new(TermQuery::new(term, IndexRecordOption::Basic))
}

/// Returns the only query, or all of them joined; what `none` says if there is none.
fn joined(
    mut found: Vec<Found>,
    none: Plan,
    at_most: Option<u64>,
    join: fn(Vec<Box<dyn Query>>) -> BooleanQuery,
) -> Plan {
    if found.len() == 1
        && let Some(only) = found.pop()
    {
        return Plan::Found(only);
    }
    let Some(at_most) = at_most.filter(|_| !found.is_empty()) else { return none };
    let query = Box::new(join(found.into_iter().map(|part| part.query).collect()));
    Plan::Found(Found { query, at_most })
}

/// Returns the values, from the first to the last one, that compare so with a value which reaches
/// from `first` to `last`.
const fn range(comparison: Comparison, first: i128, last: i128) -> (i128, i128) {
    match comparison {
        Comparison::Less => (i128::MIN, first - 1),
        Comparison::LessOrEqual => (i128::MIN, last),
        Comparison::Equal => (first, last),
        Comparison::GreaterOrEqual => (first, i128::MAX),
        Comparison::Greater => (last + 1, i128::MAX),
    }
}

/// Returns the comparison that holds where another one does not, if it is one.
fn opposite(comparison: Comparison) -> Option<Comparison> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    let all = [Less, LessOrEqual, GreaterOrEqual, Greater];
    let orders = [Ordering::Less, Ordering::Equal, Ordering::Greater];
    let is_opposite = |other: &Comparison| {
        orders.iter().all(|order| comparison.holds(*order) != other.holds(*order))
    };
    (comparison != Equal).then(|| all.into_iter().find(is_opposite)).flatten()
}
