//! Which files need be compared with a query.

use pelago_find::{Expr, Term};
use pelago_index::{Candidates as Found, Error as IndexError, Names};
use pelago_meta::tree::Tree;
use pelago_wire::{Code, Error, InodeId, Time};

use super::candidates::Candidates;
use super::users::Users;

/// Rows of a tag that are counted to compare it with another one.
const ROWS_COUNTED: usize = 4096;
/// Files with any value of a tag that are sorted by their inode numbers in memory.
const FILES_SORTED: usize = 1 << 20;
/// The part of all names that an index is asked for at most. To compare more of them is faster in
/// the order of the walk, which begins at once.
const LEAST_PART: u64 = 8;

/// What a plan is made from.
pub(super) struct Planner<'a> {
    pub(super) tree: &'a Tree,
    /// Whether each tag has its row.
    pub(super) has_tags: bool,
    /// The index of names, if it is complete.
    pub(super) names: Option<&'a Names>,
    pub(super) users: &'a Users,
    /// Whether a page before was found by a plan.
    pub(super) is_begun: bool,
    /// The time from which ages are counted.
    pub(super) now: Time,
}

/// Which files need be compared with a query.
#[derive(Debug)]
pub(super) enum Plan<'a> {
    /// Those with a tag.
    Tag {
        /// Its key.
        key: &'a str,
        /// Its value; any if there is none.
        value: Option<&'a [u8]>,
        /// How many there are, up to [`ROWS_COUNTED`] of a value.
        count: u64,
    },
    /// Those that the index of names finds for a part of the query.
    Names {
        /// The part.
        expr: &'a Expr,
        /// How many there are at most.
        count: u64,
    },
    /// Those of any of these.
    Union(Vec<Self>),
}

impl Planner<'_> {
    /// Returns the plan for a query; `None` if all files must be compared with it.
    ///
    /// # Errors
    /// If a row or the index cannot be read.
    pub(super) fn plan<'e>(&self, expr: &'e Expr) -> Result<Option<Plan<'e>>, Error> {
        let by_parts = match expr {
            Expr::And(parts) => {
                let mut best: Option<Plan<'e>> = None;
                for part in parts {
                    let Some(plan) = self.plan(part)? else { continue };
                    if best.as_ref().is_none_or(|best| plan.count() < best.count()) {
                        best = Some(plan);
                    }
                }
                best
            }
            Expr::Or(parts) => {
                let plans = parts.iter().map(|part| self.plan(part));
                let plans: Option<Vec<_>> = plans.collect::<Result<_, _>>()?;
                return Ok(plans.map(Plan::Union));
            }
            Expr::Term(Term::Tag { key, value }) => return self.tag(key.as_str(), Some(value)),
            Expr::Term(Term::HasTag(key)) => return self.tag(key.as_str(), None),
            Expr::Term(_) | Expr::Not(_) => None,
        };
        let by_names = self.by_names(expr)?;
        Ok(match (by_parts, by_names) {
            (Some(parts), Some(names)) if names.count() >= parts.count() => Some(parts),
            (parts, names) => names.or(parts),
        })
    }

    fn tag<'e>(&self, key: &'e str, value: Option<&'e [u8]>) -> Result<Option<Plan<'e>>, Error> {
        if !self.has_tags {
            return Ok(None);
        }
        let count = match value {
            Some(value) => self.tree.tagged((key, value), FIRST, ROWS_COUNTED)?.len(),
            None => self.tree.tagged_any(key, FILES_SORTED + 1)?.len(),
        };
        let plan = Plan::Tag { key, value, count: count as u64 };
        Ok(Some(plan).filter(|_| count <= FILES_SORTED))
    }

    fn by_names<'e>(&self, expr: &'e Expr) -> Result<Option<Plan<'e>>, Error> {
        let Some(names) = self.names else { return Ok(None) };
        let uid_of = |name: &str| self.users.uid_of(name);
        let count = names.count(expr, self.now, &uid_of).map_err(|error| failed(&error))?;
        let all = names.total().map_err(|error| failed(&error))?;
        // An answer that was begun in this order goes on in it, although it has grown.
        let most = if self.is_begun { all / 2 } else { all / LEAST_PART };
        let is_part = |count| count <= most || count <= ROWS_COUNTED as u64;
        if is_part(count) && count < all {
            return Ok(Some(Plan::Names { expr, count }));
        }
        if !has_range(expr) {
            return Ok(None);
        }
        // How many are in a range the index knows only once it has found them.
        let found = names.candidates(expr, self.now, &uid_of).map_err(|error| failed(&error))?;
        let Found::These(files) = found else { return Ok(None) };
        let count = files.len() as u64;
        Ok(is_part(count).then_some(Plan::Names { expr, count }))
    }

    /// Returns the files of a plan from an inode number on; `None` if the index has changed since
    /// the plan was made, so that all files must be compared.
    ///
    /// # Errors
    /// If a row or the index cannot be read.
    pub(super) fn candidates<'e>(
        &self,
        plan: &Plan<'e>,
        from: InodeId,
    ) -> Result<Option<Candidates<'e>>, Error> {
        Ok(Some(match plan {
            Plan::Tag { key, value: Some(value), .. } => Candidates::tagged(key, value, from),
            Plan::Tag { key, value: None, .. } => {
                Candidates::sorted(self.tree.tagged_any(key, FILES_SORTED)?, from)
            }
            Plan::Names { expr, .. } => {
                let names = self.names.ok_or(Code::Bug)?;
                let uid_of = |name: &str| self.users.uid_of(name);
                let found = names.candidates(expr, self.now, &uid_of);
                match found.map_err(|error| failed(&error))? {
                    Found::These(files) => Candidates::sorted(files, from),
                    Found::Any => return Ok(None),
                }
            }
            Plan::Union(plans) => {
                let parts = plans.iter().map(|plan| self.candidates(plan, from));
                let parts = parts.collect::<Result<Option<_>, _>>()?;
                let Some(parts) = parts else { return Ok(None) };
                Candidates::merged(self.tree, parts)?
            }
        }))
    }
}

impl Plan<'_> {
    /// Returns whether the index of names has a part in it, which may be behind.
    pub(super) fn uses_names(&self) -> bool {
        match self {
            Self::Tag { .. } => false,
            Self::Names { .. } => true,
            Self::Union(plans) => plans.iter().any(Self::uses_names),
        }
    }

    /// Returns whether it has so few files that no other plan is worth a thought.
    pub(super) fn is_short(&self) -> bool {
        self.count() < ROWS_COUNTED as u64
    }

    fn count(&self) -> u64 {
        match self {
            Self::Tag { count, .. } | Self::Names { count, .. } => *count,
            Self::Union(plans) => plans.iter().map(Self::count).sum(),
        }
    }
}

/// Returns whether a query asks for sizes or times, with other terms or without.
fn has_range(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().any(has_range),
        Expr::Term(Term::Size { .. } | Term::Mtime { .. }) => true,
        Expr::Or(_) | Expr::Not(_) | Expr::Term(_) => false,
    }
}

/// The least inode number.
const FIRST: InodeId = InodeId::from_raw(0);

/// Returns the code for a search that could not ask the index.
pub(super) fn failed(error: &IndexError) -> Error {
    tracing::warn!(%error, "the search index failed");
    Code::Io.into()
}
