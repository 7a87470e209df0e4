//! Pages of hits, and of tags.
//!
//! A page is found in a snapshot of the rows, on the thread of its caller: no operation waits for
//! it. Every file is compared with the query by its row. It is a hit only if the asker may read it,
//! and may list and search all directories down to it; that is decided before any file is counted,
//! and before the page is cut. A guest is shown only what it is granted, besides. A page fails if a
//! row or a text cannot be read; a damaged row is left out.

use pelago_find::{Expr, Query, Term};
use pelago_meta::process::Process;
use pelago_meta::shard::Shard;
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_wire::{
    Asker, Code, Context, Error, FileKind, Handle, InodeId, Search, SearchAt, SearchPage,
    SearchPlace, TagPage, Tags,
};

use self::evaluation::Evaluation;
use self::guest::GuestInTree;
pub use self::guest::GuestView;
use self::nodes::{ByInode, Reached};
use self::page::Page;
use self::ranked::{ByRank, words_of};
use self::reading::Reading;
use self::source::{Filled, Question, Source};
use self::tags::TagSearch;
use self::tags_below::TagWalk;
use self::viewer::Viewer;
use self::walk::ByPath;
use crate::search_index::SearchIndex;

mod candidate;
mod candidates;
mod evaluation;
mod guest;
mod indexed;
mod nodes;
mod page;
mod places;
mod plan;
mod ranked;
mod reading;
mod source;
mod tags;
mod tags_below;
mod users;
mod viewer;
mod walk;

/// The number of attempts of a guest's search in which a directory moves before the first file.
const ATTEMPTS: u32 = 4;

/// The parts of a volume that a search reads.
#[derive(Clone, Copy)]
pub struct Searched<'a> {
    /// Names and attributes.
    pub shard: &'a Shard,
    /// Bytes of large files.
    pub content: &'a ContentStore,
    /// The search index.
    pub index: &'a SearchIndex,
}

impl Searched<'_> {
    /// Returns the next page of an answer.
    ///
    /// # Errors `Invalid` for a query that cannot be parsed, and for a place in the answer of
    /// another query; `Stale`, `NotDirectory` and `AccessDenied` for the directory; `Busy` if the
    /// previous page was in the order of an index that is gone; and any error of the table or of a
    /// disk.
    pub fn page(
        &self,
        context: &Context,
        dir: Handle,
        search: &Search,
    ) -> Result<SearchPage, Error> {
        self.page_of(context, dir, search, None)
    }

    /// Returns the next page of the answer to a guest, which acts as the asker of the search.
    ///
    /// # Errors
    /// As [`Searched::page`]; `Invalid` also for a place that is not in the order of the walk;
    /// `NotSupported` for a query that names owners, of which a guest sees none.
    pub fn page_for_guest(
        &self,
        context: &Context,
        dir: Handle,
        search: &Search,
        guest: &GuestView<'_>,
    ) -> Result<SearchPage, Error> {
        self.page_of(context, dir, search, Some(guest))
    }

    fn page_of(
        &self,
        context: &Context,
        dir: Handle,
        search: &Search,
        guest: Option<&GuestView<'_>>,
    ) -> Result<SearchPage, Error> {
        let query = Query::parse(&search.query).map_err(|_| Code::Invalid)?;
        let Some(guest) = guest else {
            return self.page_once(context, dir, search, &query, None);
        };
        if names_owner(query.expr()) {
            return Err(Code::NotSupported.into());
        }
        while_moving(|is_last| {
            guest.call(is_last, || {
                let guest = GuestInTree::before_tree(guest, self.shard, is_last);
                (guest, self.page_once(context, dir, search, &query, Some(guest)))
            })
        })
    }

    fn page_once(
        &self,
        context: &Context,
        dir: Handle,
        search: &Search,
        query: &Query,
        guest: Option<GuestInTree<'_>>,
    ) -> Result<SearchPage, Error> {
        // Read before the snapshot is taken, which so has all changes up to this time.
        let as_of = clock::now();
        let tree = self.shard.tree()?;
        let now = search.after.as_ref().map_or(as_of, |place| place.now);
        let process = process(context, &search.asker);
        let evaluation = Evaluation::new(Reading::new(*self, &tree), process, guest, query, now);
        enter(&evaluation.viewer, dir)?;
        let question =
            Question { searched: *self, evaluation: &evaluation, query, dir: dir.ino, now };
        let at = search.after.as_ref().map(|place| &place.at);
        let mut page = Page::new(search.hits);
        let Filled { next, behind_since } = question.fill(at, &mut page)?;
        let as_of = behind_since.map_or(as_of, |since| since.min(as_of));
        let after = next.map(|at| SearchPlace { now, at });
        let (hits, examined) = page.into_hits();
        Ok(SearchPage { hits, as_of, after, examined })
    }
}

/// Returns the keys of tags, or the values of one key, of the files below a directory.
///
/// # Errors
/// `Busy` until each tag has its row, `Invalid` for a key that no tag can have; `Stale`,
/// `NotDirectory` and `AccessDenied` for the directory; and any error of the table.
pub fn tags(shard: &Shard, context: &Context, dir: Handle, tags: &Tags) -> Result<TagPage, Error> {
    if !shard.tags_are_complete() {
        return Err(Code::Busy.into());
    }
    // Before the snapshot, so that it has all changes up to then.
    let as_of = clock::now();
    let tree = shard.tree()?;
    let viewer = Viewer::new(&tree, process(context, &tags.asker), None);
    enter(&viewer, dir)?;
    let (parts, more) = TagSearch::below(&viewer, dir.ino).find(tags)?;
    Ok(TagPage { parts, as_of, more })
}

/// Returns the keys of tags, or the values of one key, of the files below a directory, to a guest.
/// Of more than [`pelago_wire::limits::GUEST_TAG_NAMES`] names below the directory some are not
/// looked at, and there may be more; the same if directories move all the time, and not all below
/// it is granted.
///
/// # Errors
/// As [`tags`]; `Busy` only if directories move all the time.
pub fn tags_for_guest(
    shard: &Shard,
    context: &Context,
    dir: Handle,
    tags: &Tags,
    guest: &GuestView<'_>,
) -> Result<TagPage, Error> {
    while_moving(|is_last| {
        let process = process(context, &tags.asker);
        let (guest, entered) = guest.call(is_last, || {
            let guest = GuestInTree::before_tree(guest, shard, is_last);
            let enter = || {
                let as_of = clock::now();
                let tree = shard.tree()?;
                enter(&Viewer::new(&tree, process, Some(guest)), dir)?;
                Ok::<_, Error>((as_of, tree))
            };
            (guest, enter())
        });
        let find = || {
            let (as_of, tree) = entered?;
            let viewer = Viewer::new(&tree, process, Some(guest));
            let (parts, more) = TagWalk::below(&viewer, dir.ino).find(tags)?;
            Ok(TagPage { parts, as_of, more })
        };
        (guest, find())
    })
}

/// Repeats a guest's search, in a new tree each time, while it is `Busy` because a directory moves.
/// It is called with true for the last attempt.
fn while_moving<'a, T>(
    mut search: impl FnMut(bool) -> (GuestInTree<'a>, Result<T, Error>),
) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match search(false) {
            (guest, Err(error)) if error.code == Code::Busy && guest.has_moved() => {}
            (_, found) => return found,
        }
    }
    search(true).1
}

/// Returns whether a query names owners of files.
fn names_owner(expr: &Expr) -> bool {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().any(names_owner),
        Expr::Not(part) => names_owner(part),
        Expr::Term(term) => matches!(term, Term::Owner(_)),
    }
}

/// Returns the process that asks.
fn process<'a>(context: &Context, asker: &'a Asker) -> Process<'a> {
    let Context { uid, gid, .. } = *context;
    Process { uid, gid, groups: &asker.groups, reads_all: asker.reads_all }
}

/// Checks that a process may list and search the directory that it asks about; for a guest also at
/// the place that this has in the tree.
fn enter(viewer: &Viewer<'_>, dir: Handle) -> Result<(), Error> {
    let rnode = viewer.tree.node(dir)?.ok_or(Code::Stale)?.rnode;
    if rnode.kind != FileKind::Directory {
        return Err(Code::NotDirectory.into());
    }
    if !viewer.may_search(dir)? {
        return Err(Code::Stale.into());
    }
    if viewer.has_moved() {
        return Err(Code::Busy.into());
    }
    if viewer.may_enter(&rnode)? { Ok(()) } else { Err(Code::AccessDenied.into()) }
}

impl Question<'_> {
    /// Fills the page from a place on. If the index was closed while the first page of an answer
    /// was filled, the page is filled again from the rows. It begins anew: the failure may be that
    /// of a row, after some hits, while another search has found that the index cannot be read.
    fn fill(&self, at: Option<&SearchAt>, page: &mut Page) -> Result<Filled, Error> {
        let index = self.searched.index;
        let was_usable = index.is_usable();
        match self.fill_once(at, page) {
            Err(_) if at.is_none() && was_usable && !index.is_usable() => {
                page.restart();
                self.fill_once(at, page)
            }
            filled => filled,
        }
    }

    /// Fills the page from the first source that has an answer.
    fn fill_once(&self, at: Option<&SearchAt>, page: &mut Page) -> Result<Filled, Error> {
        let sources = match self.evaluation.viewer.is_guest() {
            true => sources_for_guest(at)?,
            false => sources(at, self.query)?,
        };
        for source in sources {
            if let Some(filled) = source.fill(self, page)? {
                return Ok(filled);
            }
        }
        // The previous page was in the order of an index that is gone.
        Err(Code::Busy.into())
    }
}

/// Returns the source of a guest's answer, which depends on nothing outside of the directory.
///
/// # Errors
/// `Invalid` if the place is in another order.
fn sources_for_guest(at: Option<&SearchAt>) -> Result<Vec<Box<dyn Source>>, Error> {
    match at {
        None => Ok(vec![Box::new(ByPath { behind: None })]),
        Some(SearchAt::Path(path)) => Ok(vec![Box::new(ByPath { behind: Some(path.clone()) })]),
        Some(SearchAt::Rank(_) | SearchAt::Node { .. }) => Err(Code::Invalid.into()),
    }
}

/// Returns the sources that may fill the next page, the best first. The first page chooses the
/// order of the whole answer.
///
/// # Errors
/// `Invalid` if the place is in an order that this query cannot have.
fn sources(at: Option<&SearchAt>, query: &Query) -> Result<Vec<Box<dyn Source>>, Error> {
    let words = || words_of(query.expr());
    Ok(match at {
        None => {
            let by_rank = ByRank { words: words(), behind: 0 };
            let by_inode = ByInode { from: Reached { ino: InodeId::from_raw(0), names: 0 } };
            vec![Box::new(by_rank), Box::new(by_inode), Box::new(ByPath { behind: None })]
        }
        Some(SearchAt::Rank(behind)) => {
            let by_rank = ByRank { words: words(), behind: *behind };
            if by_rank.words.is_empty() {
                return Err(Code::Invalid.into());
            }
            vec![Box::new(by_rank)]
        }
        Some(SearchAt::Node { ino, names }) => {
            vec![Box::new(ByInode { from: Reached { ino: *ino, names: *names } })]
        }
        Some(SearchAt::Path(path)) => vec![Box::new(ByPath { behind: Some(path.clone()) })],
    })
}
