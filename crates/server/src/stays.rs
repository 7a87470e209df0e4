//! Bytes that stay here although the home of their file is another site: what is known of them.
//!
//! A new or emptied file of another site that is written here has its bytes in a node of this site,
//! which has no name. Each such *stay* has a row. While no program writes it, its home knows its
//! size; what has changed since is told when a program closes or syncs the file, when the lease on
//! it is recalled, and after a crash.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_meta::shard::Shard;
use pelago_store::rows::{StayRow, StayState};
use pelago_wire::{
    Attr, Error, Handle, InodeId, LocalCache, OpenFlags, SessionId, Then, Time, Touched,
};

/// Called with the result of telling the home of a file.
pub(crate) type OnTold = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Tells the home of a file what has changed, and calls the callback.
type Tell = Box<dyn Fn(InodeId, OnTold) + Send + Sync>;

/// An open of a file of another site by a program of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteOpen {
    pub(crate) file: Handle,
    pub(crate) flags: OpenFlags,
    /// The `mtime` of the file, if it was empty when it was opened, nothing was written through
    /// this open since, and what is written may stay here.
    pub(crate) empty_since: Option<Time>,
}

/// The bytes of files of other sites that are on this disk and nowhere else, for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StayStatus {
    /// Number of files.
    pub files: usize,
    /// Those whose homes do not know all that was written.
    pub untold: usize,
    /// Number of versions that are of no file any more, because the file has got other bytes.
    pub kept: usize,
}

/// Bytes that were written here and are of no file any more: the file has got other bytes after
/// this site had lost its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVersion {
    /// The node of this site that has them. It has no name.
    pub node: InodeId,
    /// The file, with a place that its row had.
    pub file: Handle,
    /// The number of the site that is its home.
    pub site: u16,
    /// The name of that site.
    pub site_name: String,
    /// When they were last written.
    pub mtime: Time,
    /// Their number.
    pub bytes: u64,
}

/// Whether a change of the bytes of a stay may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It has begun.
    Begun,
    /// It is to wait.
    Closed,
    /// The bytes are not here any more.
    Gone,
}

/// What the home of a file is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) node: InodeId,
    pub(crate) row: StayRow,
}

/// The bytes of all files of other sites that stay here.
pub(crate) struct Stays {
    shard: Arc<Shard>,
    /// A leaf lock.
    state: Mutex<State>,
    /// Number of stays and of opens of other sites' files: without any, nothing is looked up.
    count: AtomicUsize,
    tell: OnceLock<Tell>,
    is_watched: AtomicBool,
}

#[derive(Default)]
struct State {
    by_node: HashMap<InodeId, Stay>,
    /// The node that has the bytes of a file, unless these are kept or given.
    by_file: HashMap<InodeId, InodeId>,
    /// Opens of files of other sites.
    opens: HashMap<OpenKey, RemoteOpen>,
}

struct Stay {
    row: StayRow,
    /// The home does not know all that was written.
    is_dirty: bool,
    /// The home is being told.
    is_telling: bool,
    /// Called once the home knows what was written before they came.
    waiting: Vec<OnTold>,
    /// Opens here that may write.
    writers: usize,
    /// Changes of the bytes under way.
    changing: usize,
    /// While this is here no change begins; it is called once none is under way.
    closing: Option<Then>,
    is_closed: bool,
    /// Changes that wait until the gate opens.
    parked: Vec<Then>,
}

impl Stay {
    fn new(row: StayRow, is_dirty: bool) -> Self {
        Self {
            row,
            is_dirty,
            is_telling: false,
            waiting: Vec::new(),
            writers: 0,
            changing: 0,
            closing: None,
            is_closed: false,
            parked: Vec::new(),
        }
    }

    /// Returns whether the bytes of the file are written and read here.
    fn is_used(&self) -> bool {
        match self.row.state {
            StayState::New | StayState::Changing | StayState::Told => true,
            StayState::Given | StayState::Kept => false,
        }
    }
}

impl Stays {
    /// Returns the stays of these rows. Those that may have changed since their home was told are
    /// dirty.
    pub(crate) fn new(shard: Arc<Shard>, rows: Vec<(InodeId, StayRow)>) -> Self {
        let mut state = State::default();
        for (node, row) in rows {
            let is_other_size =
                || shard.attr(Handle::own(node)).is_ok_and(|attr| attr.size != row.told_size);
            let is_dirty = match row.state {
                StayState::New | StayState::Changing => true,
                StayState::Told => is_other_size(),
                StayState::Given | StayState::Kept => false,
            };
            let stay = Stay::new(row, is_dirty);
            if stay.is_used() {
                state.by_file.insert(row.file.ino, node);
            }
            state.by_node.insert(node, stay);
        }
        let count = AtomicUsize::new(state.by_node.len());
        Self {
            shard,
            state: Mutex::new(state),
            count,
            tell: OnceLock::new(),
            is_watched: AtomicBool::new(false),
        }
    }

    /// Sets the function that tells the home of a file; a second call does nothing.
    pub(crate) fn set_tell(&self, tell: Tell) {
        let _is_first = self.tell.set(tell);
    }

    /// Records that a thread looks after the stays. Returns whether it is the first.
    pub(crate) fn begin_watching(&self) -> bool {
        !self.is_watched.swap(true, Ordering::AcqRel)
    }

    /// Returns whether there is nothing here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn count(&self, state: &State) {
        self.count.store(state.by_node.len() + state.opens.len(), Ordering::Release);
    }

    /// Returns what there is, for `status`.
    pub(crate) fn status(&self) -> StayStatus {
        let state = self.state.lock();
        let count =
            |is_it: fn(&Stay) -> bool| state.by_node.values().filter(|it| is_it(it)).count();
        StayStatus {
            files: state.by_file.len(),
            untold: count(|stay| stay.is_dirty || stay.is_telling),
            kept: count(|stay| stay.row.state == StayState::Kept),
        }
    }

    /// Returns the file whose bytes this node has or had.
    pub(crate) fn file_of(&self, node: InodeId) -> Option<InodeId> {
        if self.is_empty() {
            return None;
        }
        self.state.lock().by_node.get(&node).map(|stay| stay.row.file.ino)
    }

    /// Returns the node that has the bytes of a file.
    pub(crate) fn node_of(&self, file: InodeId) -> Option<InodeId> {
        if self.is_empty() {
            return None;
        }
        self.state.lock().by_file.get(&file).copied()
    }

    /// Returns whether bytes of a file are here, or a program has it open.
    pub(crate) fn concerns(&self, file: InodeId) -> bool {
        if self.is_empty() {
            return false;
        }
        let state = self.state.lock();
        state.by_file.contains_key(&file) || state.opens.values().any(|open| open.file.ino == file)
    }

    /// Returns whether the bytes of a file are read and written in this node.
    pub(crate) fn is_used(&self, node: InodeId) -> bool {
        self.state.lock().by_node.get(&node).is_some_and(Stay::is_used)
    }

    /// Returns the row of a node.
    pub(crate) fn row(&self, node: InodeId) -> Option<StayRow> {
        self.state.lock().by_node.get(&node).map(|stay| stay.row)
    }

    /// Records an open of a file. Returns the node that has its bytes, if that is here.
    pub(crate) fn add_open(&self, open: OpenKey, remote: RemoteOpen) -> Option<InodeId> {
        let mut state = self.state.lock();
        state.opens.insert(open, remote);
        self.count(&state);
        state.by_file.get(&remote.file.ino).copied()
    }

    /// Returns whether an open is of a file of another site.
    pub(crate) fn has_open(&self, open: OpenKey) -> bool {
        !self.is_empty() && self.state.lock().opens.contains_key(&open)
    }

    /// Forgets an open that ends.
    pub(crate) fn remove_open(&self, open: OpenKey) {
        let mut state = self.state.lock();
        state.opens.remove(&open);
        self.count(&state);
    }

    /// Forgets the opens of a session that ends. What was written through them is told later.
    pub(crate) fn end_session(&self, session: SessionId) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let State { by_node, by_file, opens } = &mut *state;
        opens.retain(|open, remote| {
            if open.session != session {
                return true;
            }
            let node = by_file.get(&remote.file.ino).filter(|_| remote.flags.write);
            if let Some(stay) = node.and_then(|node| by_node.get_mut(node)) {
                stay.writers = stay.writers.saturating_sub(1);
                stay.is_dirty = true;
            }
            false
        });
        self.count(&state);
    }

    /// Returns the open of an empty file through which nothing was written, if bytes that are
    /// written through it may stay here.
    pub(crate) fn empty_open(&self, open: OpenKey) -> Option<RemoteOpen> {
        let state = self.state.lock();
        state.opens.get(&open).copied().filter(|open| open.empty_since.is_some())
    }

    /// Records that something is written to a file of an open at its home.
    pub(crate) fn note_written_there(&self, open: OpenKey) {
        let mut state = self.state.lock();
        let Some(file) = state.opens.get(&open).map(|open| open.file.ino) else { return };
        for open in state.opens.values_mut().filter(|open| open.file.ino == file) {
            open.empty_since = None;
        }
    }

    /// Records the `mtime` of a file that a program here has set, and that may be empty.
    pub(crate) fn note_set(&self, attr: &Attr) {
        let mut state = self.state.lock();
        for open in state.opens.values_mut().filter(|open| open.file.ino == attr.ino) {
            open.empty_since = open.empty_since.map(|_| attr.mtime);
        }
        let node = state.by_file.get(&attr.ino).copied();
        let stay = node.and_then(|node| state.by_node.get_mut(&node));
        if let Some(stay) = stay.filter(|stay| stay.row.state == StayState::New) {
            stay.row.since = attr.mtime;
        }
    }

    /// Adds a node that gets the bytes of a file. Returns the opens of the file, which use it from
    /// now on.
    pub(crate) fn add(&self, node: InodeId, row: StayRow) -> Vec<(OpenKey, OpenFlags)> {
        let mut state = self.state.lock();
        let mut opens = Vec::new();
        for (key, open) in &mut state.opens {
            if open.file.ino == row.file.ino {
                open.empty_since = None;
                opens.push((*key, open.flags));
            }
        }
        let writers = opens.iter().filter(|(_, flags)| flags.write).count();
        state.by_file.insert(row.file.ino, node);
        state.by_node.insert(node, Stay { writers, ..Stay::new(row, true) });
        self.count(&state);
        opens
    }

    /// Adds an open that may write. Returns the row to be written before it does, if it differs.
    pub(crate) fn add_writer(&self, node: InodeId) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        stay.writers += 1;
        (stay.row.state == StayState::Told).then(|| {
            stay.row.state = StayState::Changing;
            stay.row
        })
    }

    /// Removes an open that may write. Returns the row to be written, if the home knows all.
    pub(crate) fn remove_writer(&self, node: InodeId) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        stay.writers = stay.writers.saturating_sub(1);
        Self::settle(stay)
    }

    /// Returns the row to be written if the home knows all, and nothing is written.
    fn settle(stay: &mut Stay) -> Option<StayRow> {
        let is_changing = matches!(stay.row.state, StayState::New | StayState::Changing);
        if stay.writers > 0 || stay.is_dirty || stay.is_telling || !is_changing {
            return None;
        }
        stay.row.state = StayState::Told;
        Some(stay.row)
    }

    /// Begins a change of the bytes in a node.
    pub(crate) fn begin_change(&self, node: InodeId) -> Gate {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return Gate::Gone };
        if stay.is_closed {
            return Gate::Closed;
        }
        if !stay.is_used() {
            return Gate::Gone;
        }
        stay.changing += 1;
        stay.is_dirty = true;
        Gate::Begun
    }

    /// Has `then` called once the gate of a node opens: at once if it is open.
    pub(crate) fn when_open(&self, node: InodeId, then: Then) {
        let mut state = self.state.lock();
        match state.by_node.get_mut(&node) {
            Some(stay) if stay.is_closed => stay.parked.push(then),
            Some(_) | None => {
                drop(state);
                then();
            }
        }
    }

    /// Ends a change that was begun.
    pub(crate) fn end_change(&self, node: InodeId) {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return };
        stay.changing -= 1;
        let quiet = if stay.changing == 0 { stay.closing.take() } else { None };
        drop(state);
        if let Some(quiet) = quiet {
            quiet();
        }
    }

    /// Lets no more change of the bytes begin, and calls `quiet` once none is under way. Returns
    /// whether the gate was open.
    pub(crate) fn close_gate(&self, node: InodeId, quiet: Then) -> bool {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node).filter(|stay| !stay.is_closed) else {
            return false;
        };
        stay.is_closed = true;
        if stay.changing > 0 {
            stay.closing = Some(quiet);
            return true;
        }
        drop(state);
        quiet();
        true
    }

    /// Lets changes begin again.
    pub(crate) fn open_gate(&self, node: InodeId) {
        let parked = match self.state.lock().by_node.get_mut(&node) {
            Some(stay) => {
                stay.is_closed = false;
                mem::take(&mut stay.parked)
            }
            None => return,
        };
        parked.into_iter().for_each(|then| then());
    }

    /// Records that the bytes in a node are written no more, because their home takes them or has
    /// emptied the file. Returns the row to be written.
    pub(crate) fn give(&self, node: InodeId) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        if stay.row.state == StayState::Kept {
            return None;
        }
        stay.row.state = StayState::Given;
        stay.is_dirty = false;
        let row = stay.row;
        Self::leave_file(&mut state, node, row.file.ino);
        Some(row)
    }

    fn leave_file(state: &mut State, node: InodeId, file: InodeId) {
        if state.by_file.get(&file) == Some(&node) {
            state.by_file.remove(&file);
        }
    }

    /// Records that the file has other bytes than those in this node. Returns the row to be
    /// written.
    pub(crate) fn keep(&self, node: InodeId) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        stay.row.state = StayState::Kept;
        stay.is_dirty = false;
        let row = stay.row;
        Self::leave_file(&mut state, node, row.file.ino);
        Some(row)
    }

    /// Returns the nodes that have versions which others have passed over, each with its file: of
    /// this file, or of all.
    pub(crate) fn kept(&self, file: Option<InodeId>) -> Vec<(InodeId, Handle)> {
        let state = self.state.lock();
        let kept = state.by_node.iter().filter(|(_, stay)| {
            stay.row.state == StayState::Kept && file.is_none_or(|file| stay.row.file.ino == file)
        });
        kept.map(|(node, stay)| (*node, stay.row.file)).collect()
    }

    /// Forgets a node that is being removed. Changes that have waited go on.
    pub(crate) fn remove(&self, node: InodeId) {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.remove(&node) else { return };
        Self::leave_file(&mut state, node, stay.row.file.ino);
        self.count(&state);
        drop(state);
        stay.parked.into_iter().for_each(|then| then());
    }

    /// Begins to tell the home of a file what has changed, and has `then` called once it knows.
    /// Returns what is to be told, if it is not being told already; and `then` if there is nothing
    /// to tell.
    pub(crate) fn begin_telling(
        &self,
        file: InodeId,
        then: OnTold,
    ) -> (Option<News>, Option<OnTold>) {
        let mut state = self.state.lock();
        let Some(node) = state.by_file.get(&file).copied() else { return (None, Some(then)) };
        let Some(stay) = state.by_node.get_mut(&node) else { return (None, Some(then)) };
        if !stay.is_dirty && !stay.is_telling {
            return (None, Some(then));
        }
        stay.waiting.push(then);
        if stay.is_telling {
            return (None, None);
        }
        (Some(Self::next_news(node, stay)), None)
    }

    fn next_news(node: InodeId, stay: &mut Stay) -> News {
        stay.is_telling = true;
        // What is written from now on is told the next time.
        stay.is_dirty = false;
        News { node, row: stay.row }
    }

    /// Takes the callbacks that wait for what is about to be told.
    pub(crate) fn take_waiting(&self, node: InodeId) -> Vec<OnTold> {
        let mut state = self.state.lock();
        state.by_node.get_mut(&node).map(|stay| mem::take(&mut stay.waiting)).unwrap_or_default()
    }

    /// Records that the home was told, with this size, or was not. Returns the row to be written,
    /// and what is to be told next.
    pub(crate) fn end_telling(
        &self,
        node: InodeId,
        told: Option<u64>,
    ) -> (Option<StayRow>, Option<News>) {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return (None, None) };
        stay.is_telling = false;
        match told {
            Some(size) => {
                stay.row.told_size = size;
                if stay.row.state == StayState::New {
                    stay.row.state = StayState::Changing;
                }
            }
            None => stay.is_dirty |= stay.is_used(),
        }
        let next = !stay.waiting.is_empty() && stay.is_used();
        let next = next.then(|| Self::next_news(node, stay));
        (Self::settle(stay), next)
    }

    /// Records that the home of a file is to be told again.
    pub(crate) fn tell_again(&self, node: InodeId) {
        if let Some(stay) = self.state.lock().by_node.get_mut(&node) {
            stay.is_dirty |= stay.is_used();
        }
    }

    /// Returns the files whose homes do not know all, although no program writes them any more.
    pub(crate) fn untold(&self) -> Vec<InodeId> {
        let state = self.state.lock();
        let is_it =
            |stay: &&Stay| stay.is_dirty && !stay.is_telling && stay.writers == 0 && stay.is_used();
        state.by_node.values().filter(is_it).map(|stay| stay.row.file.ino).collect()
    }

    /// Returns the nodes whose homes may have forgotten them: nothing is written there.
    pub(crate) fn quiet(&self) -> Vec<News> {
        let state = self.state.lock();
        let quiet = state.by_node.iter().filter(|(_, stay)| {
            let is_known = matches!(stay.row.state, StayState::Told | StayState::Given);
            is_known && !stay.is_dirty && !stay.is_telling && stay.writers == 0
        });
        quiet.map(|(node, stay)| News { node: *node, row: stay.row }).collect()
    }

    /// Shows in attributes what was written here and is not told yet.
    pub(crate) fn show(&self, attr: &mut Attr) {
        if self.is_empty() {
            return;
        }
        let state = self.state.lock();
        let Some(node) = state.by_file.get(&attr.ino).copied() else { return };
        let is_newer =
            state.by_node.get(&node).is_some_and(|stay| stay.is_dirty || stay.is_telling);
        drop(state);
        if !is_newer {
            return;
        }
        if let Ok(here) = self.shard.attr(Handle::own(node)) {
            attr.size = here.size;
            attr.blocks = here.blocks;
            attr.mtime = attr.mtime.max(here.mtime);
            attr.ctime = attr.ctime.max(here.ctime);
        }
    }

    /// Tells the homes of all files what has changed, and calls `then`.
    pub(crate) fn tell_everything(self: &Arc<Self>, then: Then) {
        let state = self.state.lock();
        let dirty = state.by_node.values().filter(|stay| stay.is_dirty && stay.is_used());
        let files = dirty.map(|stay| stay.row.file.ino).collect();
        drop(state);
        self.tell_all(files, then);
    }

    /// Tells the homes of these files what has changed, one after the other, and calls `then`.
    fn tell_all(self: &Arc<Self>, mut files: Vec<InodeId>, then: Then) {
        let Some(file) = files.pop() else { return then() };
        let Some(tell) = self.tell.get() else { return then() };
        let this = Arc::clone(self);
        // What could not be told is told later, or is refused.
        tell(file, Box::new(move |_told| this.tell_all(files, then)));
    }
}

/// The part of the stays that is told of recalls, as the cache of a kernel is.
pub(crate) struct RecalledStays(pub(crate) Arc<Stays>);

impl LocalCache for RecalledStays {
    fn set_shared(&self, _shared: bool) {}

    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        if self.0.is_empty() {
            return then();
        }
        let nodes = changes.iter().filter_map(|touched| match touched {
            Touched::Node(ino) => Some(*ino),
            Touched::Name { .. } | Touched::Bytes(_) => None,
        });
        let files = nodes.filter(|ino| self.0.node_of(*ino).is_some()).collect();
        self.0.tell_all(files, then);
    }

    fn end(&self, _changes: &[Touched]) {}

    fn bytes_changed(&self, _ino: InodeId) {}

    fn drop_all(&self, _nodes: &[InodeId]) {}

    fn when_dropped(&self, _changes: &[Touched], then: Then) {
        then();
    }
}

#[cfg(test)]
mod tests;
