//! Which files need be compared with a query.

use pelago_find::{Expr, Term};
use pelago_meta::tree::Tree;
use pelago_wire::{Error, InodeId};

use super::candidates::Candidates;

/// Rows of a tag that are counted to compare it with another one.
const ROWS_COUNTED: usize = 4096;
/// Files with any value of a tag that are sorted by their inode numbers in memory.
const FILES_SORTED: usize = 1 << 20;

/// Which files need be compared with a query.
#[derive(Debug)]
pub(super) enum Plan<'a> {
    /// Those with a tag.
    Tag {
        /// Its key.
        key: &'a str,
        /// Its value; any if there is none.
        value: Option<&'a [u8]>,
        /// How many there are, up to [`ROWS_COUNTED`].
        count: usize,
    },
    /// Those of any of these.
    Union(Vec<Self>),
}

impl<'a> Plan<'a> {
    /// Returns the plan for a query; `None` if all files must be compared with it.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn of(expr: &'a Expr, tree: &Tree) -> Result<Option<Self>, Error> {
        match expr {
            Expr::And(parts) => {
                let mut best: Option<Self> = None;
                for part in parts {
                    let Some(plan) = Self::of(part, tree)? else { continue };
                    if best.as_ref().is_none_or(|best| plan.count() < best.count()) {
                        best = Some(plan);
                    }
                }
                Ok(best)
            }
            Expr::Or(parts) => {
                let plans = parts.iter().map(|part| Self::of(part, tree));
                let plans: Option<Vec<Self>> = plans.collect::<Result<_, _>>()?;
                Ok(plans.map(Self::Union))
            }
            Expr::Term(Term::Tag { key, value }) => {
                let (key, value) = (key.as_str(), &**value);
                let count = tree.tagged((key, value), FIRST, ROWS_COUNTED)?.len();
                Ok(Some(Self::Tag { key, value: Some(value), count }))
            }
            Expr::Term(Term::HasTag(key)) => {
                let key = key.as_str();
                let count = tree.tagged_any(key, FILES_SORTED + 1)?.len();
                let plan = Self::Tag { key, value: None, count };
                Ok(Some(plan).filter(|_| count <= FILES_SORTED))
            }
            Expr::Term(_) | Expr::Not(_) => Ok(None),
        }
    }

    /// Returns the files from an inode number on.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn candidates(&self, tree: &Tree, from: InodeId) -> Result<Candidates<'a>, Error> {
        Ok(match self {
            Self::Tag { key, value: Some(value), .. } => Candidates::tagged(key, value, from),
            Self::Tag { key, value: None, .. } => {
                Candidates::sorted(tree.tagged_any(key, FILES_SORTED)?, from)
            }
            Self::Union(plans) => {
                let parts = plans.iter().map(|plan| plan.candidates(tree, from));
                Candidates::merged(tree, parts.collect::<Result<_, _>>()?)?
            }
        })
    }

    fn count(&self) -> usize {
        match self {
            Self::Tag { count, .. } => *count,
            Self::Union(plans) => plans.iter().map(Self::count).sum(),
        }
    }
}

/// The least inode number.
const FIRST: InodeId = InodeId::from_raw(0);
