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
    Code, Context, Error, FileKind, Handle, InodeId, Search, SearchAt, SearchPage, SearchPlace,
};

use self::evaluation::Evaluation;
use self::nodes::Nodes;
use self::page::Page;
use self::plan::Plan;
use self::reading::Reading;
use self::walk::Walk;

mod candidate;
mod candidates;
mod evaluation;
mod nodes;
mod page;
mod places;
mod plan;
mod reading;
mod users;
mod walk;

/// What is searched.
#[derive(Clone, Copy)]
pub(crate) struct Searched<'a> {
    /// Names and attributes.
    pub(crate) shard: &'a Shard,
    /// Bytes of large files.
    pub(crate) content: &'a ContentStore,
}

impl Searched<'_> {
    /// Returns the next page of an answer.
    ///
    /// # Errors
    /// `Invalid` for a query that cannot be parsed, or a place that is none; `Stale`,
    /// `NotDirectory` and `AccessDenied` for the directory; and if the table or a disk fails.
    pub(crate) fn page(
        &self,
        context: &Context,
        dir: Handle,
        search: &Search,
    ) -> Result<SearchPage, Error> {
        let query = Query::parse(&search.query).map_err(|_| Code::Invalid)?;
        let tree = self.shard.tree()?;
        let as_of = clock::now();
        let now = search.after.as_ref().map_or(as_of, |place| place.now);
        let (groups, reads_all) = (search.asker.groups.as_slice(), search.asker.reads_all);
        let process = Process { uid: context.uid, gid: context.gid, groups, reads_all };
        let evaluation = Evaluation::new(Reading::new(*self, &tree), process, (&query, now));
        let rnode = tree.node(dir)?.ok_or(Code::Stale)?.rnode;
        if rnode.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        if !evaluation.may_enter(&rnode)? {
            return Err(Code::AccessDenied.into());
        }
        let mut page = Page::new(search.hits);
        let at = search.after.as_ref().map(|place| &place.at);
        let after = self.fill(&evaluation, &query, (dir.ino, at), &mut page)?;
        let after = after.map(|at| SearchPlace { now, at });
        let (hits, examined) = page.into_hits();
        Ok(SearchPage { hits, as_of, after, examined })
    }

    /// Fills a page from a place on, in the order that the first page has chosen. Returns the place
    /// where the next one begins.
    fn fill(
        &self,
        evaluation: &Evaluation<'_>,
        query: &Query,
        (dir, at): (InodeId, Option<&SearchAt>),
        page: &mut Page,
    ) -> Result<Option<SearchAt>, Error> {
        let tree = evaluation.reading.tree;
        let plan = match at {
            Some(SearchAt::Path(_)) => None,
            _ if !self.shard.tags_are_complete() => None,
            _ => Plan::of(query.expr(), tree)?,
        };
        match (plan, at) {
            (Some(plan), None | Some(SearchAt::Node { .. })) => {
                let from = match at {
                    Some(SearchAt::Node { ino, names }) => (*ino, *names),
                    _ => (InodeId::from_raw(0), 0),
                };
                let mut candidates = plan.candidates(tree, from.0)?;
                let reached = Nodes::below(evaluation, dir).go_on(&mut candidates, from, page)?;
                Ok(reached.map(|(ino, names)| SearchAt::Node { ino, names }))
            }
            (None, None | Some(SearchAt::Path(_))) => {
                let behind = match at {
                    Some(SearchAt::Path(path)) => Some(path.as_slice()),
                    _ => None,
                };
                let reached = Walk::begin(evaluation, dir, behind)?.go_on(evaluation, page)?;
                Ok(reached.map(SearchAt::Path))
            }
            _ => Err(Code::Invalid.into()),
        }
    }
}
