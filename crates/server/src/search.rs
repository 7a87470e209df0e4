//! Answers to queries: `pelago find`.
//!
//! A page of an answer is found in a snapshot of the rows, on a thread of the pool: no operation
//! waits for it. Every file is compared with the query by its row, and is shown only if the asker
//! may read it and may list and search all directories down to it; that is decided before anything
//! is counted or cut.

use pelago_find::Query;
use pelago_meta::process::Process;
use pelago_meta::shard::Shard;
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_wire::{
    Asker, Code, Context, Error, FileKind, Handle, InodeId, Search, SearchAt, SearchPage,
    SearchPlace, TagPage, Tags, Time,
};

use self::candidates::Candidates;
use self::evaluation::Evaluation;
use self::indexed::Indexed;
use self::nodes::Nodes;
use self::page::Page;
use self::plan::Planner;
use self::ranked::Ranked;
use self::reading::Reading;
use self::tags::TagSearch;
use self::viewer::Viewer;
use self::walk::Walk;
use crate::search_index::SearchIndex;

pub(crate) use self::reading::undamaged;
pub(crate) use self::text::first_bytes;

mod candidate;
mod candidates;
mod evaluation;
mod indexed;
mod nodes;
mod page;
mod places;
mod plan;
mod ranked;
mod reading;
mod tags;
mod text;
mod users;
mod viewer;
mod walk;

/// What is searched.
#[derive(Clone, Copy)]
pub(crate) struct Searched<'a> {
    /// Names and attributes.
    pub(crate) shard: &'a Shard,
    /// Bytes of large files.
    pub(crate) content: &'a ContentStore,
    /// The search index.
    pub(crate) index: &'a SearchIndex,
}

/// A page under way.
struct Filling<'a> {
    searched: Searched<'a>,
    evaluation: &'a Evaluation<'a>,
    query: &'a Query,
    /// The directory that is searched.
    dir: InodeId,
    /// Every change up to then is in the page.
    as_of: Time,
}

/// Where a page goes on, and of what: an order is chosen by the first page.
type Next = Result<Option<SearchAt>, Error>;

impl Searched<'_> {
    /// Returns the next page of an answer.
    ///
    /// # Errors
    /// `Invalid` for a query that cannot be parsed, and for a place in another query's answer;
    /// `Stale`, `NotDirectory` and `AccessDenied` for the directory; `Busy` if the index in whose
    /// order the page before was found is gone; and if the table or a disk fails.
    pub(crate) fn page(
        &self,
        context: &Context,
        dir: Handle,
        search: &Search,
    ) -> Result<SearchPage, Error> {
        let query = Query::parse(&search.query).map_err(|_| Code::Invalid)?;
        // Before the snapshot, so that it has all changes up to then.
        let as_of = clock::now();
        let tree = self.shard.tree()?;
        let now = search.after.as_ref().map_or(as_of, |place| place.now);
        let process = process(context, &search.asker);
        let evaluation = Evaluation::new(Reading::new(*self, &tree), process, (&query, now));
        enter(&evaluation.viewer, dir)?;
        let mut page = Page::new(search.hits);
        let mut filling = Filling {
            searched: *self,
            evaluation: &evaluation,
            query: &query,
            dir: dir.ino,
            as_of,
        };
        let at = filling.fill(search.after.as_ref().map(|place| &place.at), now, &mut page)?;
        let as_of = filling.as_of;
        let after = at.map(|at| SearchPlace { now, at });
        let (hits, examined) = page.into_hits();
        Ok(SearchPage { hits, as_of, after, examined })
    }
}

/// Returns keys of tags, or values of one key, that files in a directory and below it have.
///
/// # Errors
/// `Busy` until each tag has its row, `Invalid` for a key that no tag can have; `Stale`,
/// `NotDirectory` and `AccessDenied` for the directory; and if the table fails.
pub(crate) fn tags(
    shard: &Shard,
    context: &Context,
    dir: Handle,
    tags: &Tags,
) -> Result<TagPage, Error> {
    if !shard.tags_are_complete() {
        return Err(Code::Busy.into());
    }
    // Before the snapshot, so that it has all changes up to then.
    let as_of = clock::now();
    let tree = shard.tree()?;
    let viewer = Viewer::new(&tree, process(context, &tags.asker));
    enter(&viewer, dir)?;
    let (parts, more) = TagSearch::below(&viewer, dir.ino).find(tags)?;
    Ok(TagPage { parts, as_of, more })
}

/// Returns the process that asks.
fn process<'a>(context: &Context, asker: &'a Asker) -> Process<'a> {
    let Context { uid, gid, .. } = *context;
    Process { uid, gid, groups: &asker.groups, reads_all: asker.reads_all }
}

/// Checks that a process may ask about a directory.
fn enter(viewer: &Viewer<'_>, dir: Handle) -> Result<(), Error> {
    let rnode = viewer.tree.node(dir)?.ok_or(Code::Stale)?.rnode;
    if rnode.kind != FileKind::Directory {
        return Err(Code::NotDirectory.into());
    }
    if viewer.may_enter(&rnode)? { Ok(()) } else { Err(Code::AccessDenied.into()) }
}

impl Filling<'_> {
    /// Fills the page from a place on. What an index cannot answer, the rows do: it is asked before
    /// the page gets anything.
    fn fill(&mut self, at: Option<&SearchAt>, now: Time, page: &mut Page) -> Next {
        let index = self.searched.index;
        let was_usable = index.is_usable();
        match self.fill_once(at, now, page) {
            Err(_) if at.is_none() && was_usable && !index.is_usable() => {
                self.fill_once(at, now, page)
            }
            filled => filled,
        }
    }

    fn fill_once(&mut self, at: Option<&SearchAt>, now: Time, page: &mut Page) -> Next {
        match at {
            None => {
                let words = ranked::words_of(self.query.expr());
                if let Some(next) = self.by_rank(&words, 0, page)? {
                    return Ok(next);
                }
                match self.by_nodes((InodeId::from_raw(0), 0), now, page)? {
                    Some(next) => Ok(next),
                    None => self.by_walk(None, page),
                }
            }
            Some(SearchAt::Path(path)) => self.by_walk(Some(path), page),
            Some(SearchAt::Node { ino, names }) => {
                let next = self.by_nodes((*ino, *names), now, page)?;
                next.ok_or_else(|| Code::Busy.into())
            }
            Some(SearchAt::Rank(behind)) => {
                let words = ranked::words_of(self.query.expr());
                if words.is_empty() {
                    return Err(Code::Invalid.into());
                }
                let next = self.by_rank(&words, *behind, page)?;
                next.ok_or_else(|| Code::Busy.into())
            }
        }
    }

    fn by_walk(&self, behind: Option<&[u8]>, page: &mut Page) -> Next {
        let walk = Walk::begin(self.evaluation, self.dir, behind)?;
        Ok(walk.go_on(self.evaluation, page)?.map(SearchAt::Path))
    }

    /// Fills the page in the order of the inode numbers; `None` if no plan spares the walk.
    fn by_nodes(
        &mut self,
        from: (InodeId, u32),
        now: Time,
        page: &mut Page,
    ) -> Result<Option<Option<SearchAt>>, Error> {
        let Searched { shard, index, .. } = self.searched;
        let tree = self.evaluation.reading.tree;
        let is_begun = from.0 > InodeId::from_raw(0);
        let planner = Planner::new(&self.evaluation.reading, now, is_begun);
        let Some(plan) = planner.plan(self.query.expr())? else { return Ok(None) };
        let uses_names = plan.uses_names();
        let mut candidates = plan.candidates(tree, from.0)?;
        let (later, over);
        let mut evaluation = self.evaluation;
        if let Some(indexed) = planner.into_indexed().filter(|_| uses_names) {
            if !index.is_open(&indexed.halves, false) {
                return Ok(None);
            }
            self.is_as_old_as(&indexed);
            let unknown = Candidates::sorted(indexed.unknown.into_values().collect(), from.0);
            candidates = Candidates::merged(tree, vec![candidates, unknown])?;
            // A row may have moved before the index was asked, and after the tree was taken.
            later = shard.tree()?;
            over = self.evaluation.over(&later);
            evaluation = &over;
        }
        let mut nodes = Nodes::below(evaluation, self.dir);
        let reached = nodes.go_on(&mut candidates, from, page)?;
        for handle in nodes.into_missing() {
            shard.feed(handle);
        }
        Ok(Some(reached.map(|(ino, names)| SearchAt::Node { ino, names })))
    }

    /// Fills the page in the order of the ranks; `None` if no index knows all texts.
    fn by_rank(
        &mut self,
        words: &[String],
        behind: u32,
        page: &mut Page,
    ) -> Result<Option<Option<SearchAt>>, Error> {
        let Searched { shard, index, .. } = self.searched;
        let halves = if words.is_empty() { None } else { index.texts() };
        let Some(halves) = halves else { return Ok(None) };
        // In the order in which files go from one to the next, then the index, and last the rows.
        let mut indexed = Indexed::gather(self.searched, halves)?;
        let is_all = index.waiting_texts().copy_to(&mut indexed.unknown);
        let found = indexed.halves.texts.search(words, ranked::FOUND_FILES);
        let found = found.map_err(|error| index.failed(&error))?;
        if !is_all || found.len() == ranked::FOUND_FILES || !index.is_open(&indexed.halves, true) {
            return Ok(None);
        }
        self.is_as_old_as(&indexed);
        let tree = shard.tree()?;
        let evaluation = self.evaluation.over(&tree);
        let mut ranked = Ranked::below(&evaluation, self.dir, words);
        ranked.collect(found, &indexed.unknown)?;
        Ok(Some(ranked.fill(behind, page)?.map(SearchAt::Rank)))
    }

    /// Says that the answer is as old as the index, if that is too far behind.
    fn is_as_old_as(&mut self, indexed: &Indexed) {
        self.as_of = indexed.behind_since.map_or(self.as_of, |since| since.min(self.as_of));
    }
}
