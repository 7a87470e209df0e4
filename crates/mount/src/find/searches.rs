//! Searches for the folders of queries. One search fetches all pages of an answer, and serves all
//! requests of the same user that come while it runs and for a second afterwards.

use std::fmt;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_client::{Files, errno};
use pelago_fuse::Errno;
use pelago_wire::{Error, Handle, InodeId, Search, SearchPage, SearchPlace, limits};

use super::asker::Rights;
use super::links::{Found, Links};
use super::nodes::Folder;

/// Time for which an answer is held for the next requests of a program.
const KEPT: Duration = Duration::from_secs(1);

/// The answers of folders, and the searches that are under way.
#[derive(Default)]
pub(super) struct Searches {
    table: Mutex<Table>,
    /// Orders the links of each folder.
    pub(super) hasher: RandomState,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    last: u64,
}

struct Entry {
    number: u64,
    folder: InodeId,
    rights: Rights,
    stage: Stage,
}

enum Stage {
    UnderWay(Vec<Waiter>),
    Done { links: Arc<Links>, since: Instant },
}

/// A request that waits for the answer.
struct Waiter {
    /// Number of the request, by which it is interrupted.
    unique: u64,
    then: Then,
}

type Then = Box<dyn FnOnce(Result<Arc<Links>, Errno>) + Send>;

/// A search that is under way.
struct Run {
    searches: Arc<Searches>,
    files: Files,
    number: u64,
    rights: Rights,
    dir: InodeId,
    query: Arc<[u8]>,
    found: Found,
}

/// The state in which a request finds its answer.
enum Met {
    /// The answer is here.
    Links(Arc<Links>, Then),
    /// Too many searches are under way.
    Full(Then),
    /// The request waits, and must begin the search of this number.
    Begin(u64),
    /// The request waits for a search that is under way.
    Waits,
}

impl Searches {
    /// Calls `then` with the links of a folder that a user with these rights may see; `unique` is
    /// the number of the request that waits for them. The error is `EAGAIN` if too many searches
    /// are under way, `EINTR` if the request is interrupted.
    pub(super) fn ask(
        self: &Arc<Self>,
        files: &Files,
        number: InodeId,
        folder: &Folder,
        rights: Rights,
        unique: u64,
        then: impl FnOnce(Result<Arc<Links>, Errno>) + Send + 'static,
    ) {
        let waiter = Waiter { unique, then: Box::new(then) };
        let met = self.table.lock().meet(number, &rights, waiter, Instant::now());
        match met {
            Met::Links(links, then) => then(Ok(links)),
            Met::Full(then) => then(Err(Errno::AGAIN)),
            Met::Waits => {}
            Met::Begin(number) => {
                let run = Run {
                    searches: Arc::clone(self),
                    files: files.clone(),
                    number,
                    rights,
                    dir: folder.dir,
                    query: Arc::clone(&folder.query),
                    found: Found::new(folder.depth),
                };
                run.go_on(None);
            }
        }
    }

    /// Ends the wait of a request. Returns whether it waited.
    pub(super) fn interrupt(&self, unique: u64) -> bool {
        let waiter = self.table.lock().take_waiter(unique);
        waiter.is_some_and(|waiter| {
            (waiter.then)(Err(Errno::INTR));
            true
        })
    }

    /// Drops the answers that are too old.
    pub(super) fn expire(&self) {
        self.table.lock().expire(Instant::now());
    }

    /// Ends a search that no request waits for any more. Returns whether it has ended.
    fn give_up(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let before = table.entries.len();
        table.entries.retain(|entry| {
            let waits = |stage: &Stage| !matches!(stage, Stage::UnderWay(all) if all.is_empty());
            entry.number != number || waits(&entry.stage)
        });
        table.entries.len() < before
    }

    fn end(&self, number: u64, result: Result<Arc<Links>, Errno>) {
        let waiters = self.table.lock().end(number, result.as_ref().ok(), Instant::now());
        waiters.into_iter().for_each(|waiter| (waiter.then)(result.clone()));
    }
}

impl fmt::Debug for Searches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Searches({})", self.table.lock().entries.len())
    }
}

impl Table {
    fn meet(&mut self, folder: InodeId, rights: &Rights, waiter: Waiter, now: Instant) -> Met {
        self.expire(now);
        let same = |entry: &&mut Entry| entry.folder == folder && entry.rights == *rights;
        match self.entries.iter_mut().find(same).map(|entry| &mut entry.stage) {
            Some(Stage::Done { links, .. }) => return Met::Links(Arc::clone(links), waiter.then),
            Some(Stage::UnderWay(waiters)) => {
                waiters.push(waiter);
                return Met::Waits;
            }
            None => {}
        }
        let is_under_way = |entry: &&Entry| matches!(entry.stage, Stage::UnderWay(_));
        let under_way = self.entries.iter().filter(is_under_way);
        let of_user = under_way.filter(|entry| entry.rights.uid == rights.uid).count();
        if of_user >= limits::FIND_USER_FOLDERS || !self.make_room() {
            return Met::Full(waiter.then);
        }
        self.last += 1;
        let stage = Stage::UnderWay(vec![waiter]);
        self.entries.push(Entry { number: self.last, folder, rights: rights.clone(), stage });
        Met::Begin(self.last)
    }

    /// Drops the oldest answer if the table is full. Returns whether there is room.
    fn make_room(&mut self) -> bool {
        if self.entries.len() < limits::FIND_FOLDERS {
            return true;
        }
        let done = self.entries.iter().position(|entry| matches!(entry.stage, Stage::Done { .. }));
        done.map(|oldest| self.entries.remove(oldest)).is_some()
    }

    fn expire(&mut self, now: Instant) {
        self.entries.retain(|entry| match &entry.stage {
            Stage::Done { since, .. } => now.saturating_duration_since(*since) < KEPT,
            Stage::UnderWay(_) => true,
        });
    }

    /// Takes the waiters of a search that has ended, and holds its answer if it has one.
    fn end(&mut self, number: u64, links: Option<&Arc<Links>>, now: Instant) -> Vec<Waiter> {
        let Some(at) = self.entries.iter().position(|entry| entry.number == number) else {
            return Vec::new();
        };
        let mut entry = self.entries.remove(at);
        let Stage::UnderWay(waiters) = entry.stage else { return Vec::new() };
        if let Some(links) = links {
            entry.stage = Stage::Done { links: Arc::clone(links), since: now };
            // The newest answer is the last.
            self.entries.push(entry);
        }
        waiters
    }

    fn take_waiter(&mut self, unique: u64) -> Option<Waiter> {
        self.entries.iter_mut().find_map(|entry| match &mut entry.stage {
            Stage::UnderWay(waiters) => {
                let at = waiters.iter().position(|waiter| waiter.unique == unique)?;
                Some(waiters.swap_remove(at))
            }
            Stage::Done { .. } => None,
        })
    }
}

impl Run {
    /// Requests the page after a place, and all further pages. Pages that are ready at once are
    /// taken in a loop, so that many of them take no stack.
    fn go_on(mut self, mut after: Option<SearchPlace>) {
        loop {
            if self.searches.give_up(self.number) {
                return;
            }
            let search = Search {
                query: self.query.to_vec(),
                hits: limits::PAGE_HITS,
                after,
                asker: self.rights.asker.clone(),
            };
            let context = self.rights.context();
            let page = self.files.search(&context, Handle::own(self.dir), search);
            if !page.is_ready() {
                return page.then(move |page| {
                    if let Some((run, after)) = self.take(page) {
                        run.go_on(Some(after));
                    }
                });
            }
            match self.take(page.wait()) {
                Some((run, behind)) => (self, after) = (run, Some(behind)),
                None => return,
            }
        }
    }

    /// Takes a page. Returns the place where the next one begins, unless this was the last.
    fn take(mut self, page: Result<SearchPage, Error>) -> Option<(Self, SearchPlace)> {
        match page {
            Err(error) => self.searches.end(self.number, Err(errno::of(error.code))),
            Ok(SearchPage { hits, after, .. }) => match (self.found.add(hits), after) {
                (true, Some(after)) => return Some((self, after)),
                _ => {
                    let links = self.found.links(&self.searches.hasher);
                    self.searches.end(self.number, Ok(Arc::new(links)));
                }
            },
        }
        None
    }
}

#[cfg(test)]
mod tests;
