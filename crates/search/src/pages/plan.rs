//! Plans: the files that need be compared with a query.

use std::cell::OnceCell;

use pelago_find::{Expr, Term};
use pelago_index::Candidates as Found;
use pelago_meta::tree::Tree;
use pelago_wire::{Error, Handle, InodeId, Time};

use super::candidates::Candidates;
use super::indexed::Indexed;
use super::reading::Reading;

/// Most rows of a tag that are counted to compare its plan with another. A tag with fewer rows
/// needs no better plan.
const ROWS_COUNTED: usize = 4096;
/// Most files with any value of a tag that are sorted by their inode numbers in memory.
const FILES_SORTED: usize = 1 << 20;
/// The index is asked for at most this part of all names. To compare more of them is faster in the
/// order of the walk, which begins at once.
const LEAST_PART: u64 = 8;

/// The facts that a plan is made from.
pub(super) struct Planner<'a> {
    reading: &'a Reading<'a>,
    /// True if each tag has its row.
    has_tags: bool,
    /// True if the previous page was found by a plan.
    is_begun: bool,
    /// The time from which ages are counted.
    now: Time,
    /// The index, once a part of the query needed it; `None` inside if it is not complete.
    indexed: OnceCell<Option<Indexed>>,
}

/// A plan: the files that must be compared with a query.
#[derive(Debug)]
pub(super) enum Plan<'a> {
    /// The files with a tag.
    Tag {
        /// The key of the tag.
        key: &'a str,
        /// The value of the tag; `None` for any value.
        value: Option<&'a [u8]>,
        /// The number of these files, up to [`ROWS_COUNTED`] with a value.
        count: usize,
    },
    /// Files that the index of names has found.
    Names(Vec<Handle>),
    /// The files of all these plans.
    Union(Vec<Self>),
}

impl<'a> Planner<'a> {
    /// Returns a planner that has not read the index yet.
    pub(super) fn new(reading: &'a Reading<'a>, now: Time, is_begun: bool) -> Self {
        let has_tags = reading.searched.shard.tags_are_complete();
        Self { reading, has_tags, is_begun, now, indexed: OnceCell::new() }
    }

    /// Returns the plan for a query; `None` if all files must be compared with it.
    ///
    /// # Errors
    /// If a row or the index cannot be read.
    pub(super) fn plan<'e>(&self, expr: &'e Expr) -> Result<Option<Plan<'e>>, Error> {
        match expr {
            Expr::Term(Term::Tag { key, value }) => self.tag(key.as_str(), Some(value)),
            Expr::Term(Term::HasTag(key)) => self.tag(key.as_str(), None),
            Expr::Or(parts) if has_tag(expr) => {
                let plans = parts.iter().map(|part| self.plan(part));
                let plans: Option<Vec<_>> = plans.collect::<Result<_, _>>()?;
                Ok(plans.map(Plan::Union))
            }
            Expr::And(parts) => {
                let plans = parts.iter().filter(|part| has_tag(part)).map(|part| self.plan(part));
                let plans: Vec<_> = plans.collect::<Result<_, _>>()?;
                let by_tags = plans.into_iter().flatten().min_by_key(Plan::count);
                if by_tags.as_ref().is_some_and(|plan| plan.count() < ROWS_COUNTED) {
                    return Ok(by_tags);
                }
                let by_names = self.names(expr)?;
                Ok(by_names.into_iter().chain(by_tags).min_by_key(Plan::count))
            }
            Expr::Or(_) | Expr::Not(_) | Expr::Term(_) => self.names(expr),
        }
    }

    /// Returns the index that the plan was made from, if it was.
    pub(super) fn into_indexed(self) -> Option<Indexed> {
        self.indexed.into_inner().flatten()
    }

    fn tree(&self) -> &'a Tree {
        self.reading.tree
    }

    fn tag<'e>(&self, key: &'e str, value: Option<&'e [u8]>) -> Result<Option<Plan<'e>>, Error> {
        if !self.has_tags {
            return Ok(None);
        }
        let count = match value {
            Some(value) => self.tree().tagged(key, value, FIRST, ROWS_COUNTED)?.len(),
            None => self.tree().tagged_any(key, FILES_SORTED + 1)?.len(),
        };
        Ok(Some(Plan::Tag { key, value, count }).filter(|_| count <= FILES_SORTED))
    }

    fn names<'e>(&self, expr: &Expr) -> Result<Option<Plan<'e>>, Error> {
        let Some(Indexed { halves, .. }) = self.indexed()? else { return Ok(None) };
        let uid_of = |name: &str| self.reading.users.uid_of(name);
        let names = &halves.names;
        let index = self.reading.searched.index;
        let all = names.total().map_err(|error| index.failed(&error))?;
        // An answer that was begun in this order continues in it, although more files match now.
        let most = if self.is_begun { all / 2 } else { all / LEAST_PART };
        let most = most.max(ROWS_COUNTED as u64);
        let count = names.count(expr, self.now, &uid_of).map_err(|error| index.failed(&error))?;
        // The index can count the files of a range only after it has found them.
        if count > most && !has_range(expr) {
            return Ok(None);
        }
        let found =
            names.candidates(expr, self.now, &uid_of).map_err(|error| index.failed(&error))?;
        Ok(match found {
            Found::These(files) if files.len() as u64 <= most => Some(Plan::Names(files)),
            Found::These(_) | Found::Any => None,
        })
    }

    fn indexed(&self) -> Result<Option<&Indexed>, Error> {
        if self.indexed.get().is_none() {
            let searched = self.reading.searched;
            let halves = searched.index.names();
            let indexed = halves.map(|halves| Indexed::gather(searched, halves)).transpose()?;
            return Ok(self.indexed.get_or_init(|| indexed).as_ref());
        }
        Ok(self.indexed.get().and_then(Option::as_ref))
    }
}

impl<'a> Plan<'a> {
    /// Returns the files of the plan, from an inode number on.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(super) fn candidates(self, tree: &Tree, from: InodeId) -> Result<Candidates<'a>, Error> {
        match self {
            Self::Tag { key, value: Some(value), .. } => Ok(Candidates::tagged(key, value, from)),
            Self::Tag { key, value: None, .. } => {
                Ok(Candidates::sorted(tree.tagged_any(key, FILES_SORTED)?, from))
            }
            Self::Names(files) => Ok(Candidates::sorted(files, from)),
            Self::Union(plans) => {
                let parts = plans.into_iter().map(|plan| plan.candidates(tree, from));
                Candidates::merged(tree, parts.collect::<Result<_, _>>()?)
            }
        }
    }

    /// Returns whether files come from the index of names, which may be behind.
    pub(super) fn uses_names(&self) -> bool {
        match self {
            Self::Tag { .. } => false,
            Self::Names(_) => true,
            Self::Union(plans) => plans.iter().any(Self::uses_names),
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Tag { count, .. } => *count,
            Self::Names(files) => files.len(),
            Self::Union(plans) => plans.iter().map(Self::count).sum(),
        }
    }
}

/// Returns whether rows of tags may narrow a query.
fn has_tag(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().any(has_tag),
        Expr::Term(Term::Tag { .. } | Term::HasTag(_)) => true,
        Expr::Not(_) | Expr::Term(_) => false,
    }
}

/// Returns whether all files of a query are in a range of sizes or times.
fn has_range(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().any(has_range),
        Expr::Term(Term::Size { .. } | Term::Mtime { .. }) => true,
        Expr::Or(_) | Expr::Not(_) | Expr::Term(_) => false,
    }
}

/// The least inode number.
const FIRST: InodeId = InodeId::from_raw(0);
