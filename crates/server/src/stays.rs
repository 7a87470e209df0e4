//! Bytes that stay here although the home of their file is another site: what is known of them.
//!
//! A new or emptied file of another site that is written here has its bytes in a node of this site,
//! which has no name. Each such *stay* has a row. While no program writes it, its home knows its
//! size; what has changed since is told when a program closes or syncs the file, when the lease on
//! it is recalled, and after a crash.

mod gate;
mod making;
mod recalled;
mod remote_open;
mod telling;

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_meta::shard::Shard;
use pelago_store::clock;
use pelago_store::rows::{StayRow, StayState};
use pelago_wire::{Code, Error, Handle, InodeId, OpenFlags, Then, Time};

pub(crate) use self::recalled::RecalledStays;

/// Called with the result of telling the home of a file.
pub(crate) type OnTold = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Tells the home of the file of a node what has changed, and calls the callback.
type Tell = Box<dyn Fn(InodeId, OnTold) + Send + Sync>;

/// An open of a file of another site by a program of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteOpen {
    pub(crate) file: Handle,
    pub(crate) flags: OpenFlags,
    /// It is of the own mount.
    pub(crate) is_own_mount: bool,
    /// The `mtime` of the file, if it was empty when it was opened, nothing was written through
    /// this open since, and what is written may stay here.
    pub(crate) empty_since: Option<Time>,
    /// Bytes are lost that may have been written through this open, and it has not said so yet.
    pub(crate) has_lost: bool,
}

impl RemoteOpen {
    /// Returns whether what is written through the open may stay here, if the file is empty.
    fn may_stay(&self) -> bool {
        self.is_own_mount && self.flags.write && !self.flags.sync
    }
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
    /// It has begun. This row is to be written first.
    Begun(Option<StayRow>),
    /// It is to wait.
    Closed,
    /// The bytes are not here any more.
    Gone,
}

/// The way of a change of the bytes of a file that has no node here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstChange {
    /// A node is to be made for it.
    Makes(RemoteOpen),
    /// It waits until the node of this file is made.
    Waits(InodeId),
    /// The node was made meanwhile.
    Stays,
    /// It is carried out at the home of the file.
    GoesHome,
}

/// What the home of a file is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) node: InodeId,
    pub(crate) row: StayRow,
    /// The setuid and setgid bits of the file are to be cleared.
    pub(crate) kills_privileges: bool,
    /// Bytes that were sent to the home before may still arrive there.
    pub(crate) may_arrive: bool,
}

/// The bytes of all files of other sites that stay here.
pub(crate) struct Stays {
    shard: Arc<Shard>,
    /// A leaf lock.
    state: Mutex<State>,
    /// Held while the row of a node is written, so that the last state is written last. Taken
    /// before `state`.
    rows: Mutex<()>,
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
    /// Files for which a node is being made, and what waits for it.
    making: HashMap<InodeId, Vec<Then>>,
    /// Number of changes of bytes so far that went to the home of a file.
    went_home: u64,
}

struct Stay {
    row: StayRow,
    /// The home does not know all that was written.
    is_dirty: bool,
    /// A user who may not keep the setuid and setgid bits has written, and the home does not know.
    kills_privileges: bool,
    /// The home may have been told, whether it has answered or not.
    was_told: bool,
    /// Bytes were sent to the home, which may not have arrived yet.
    may_arrive: bool,
    /// The home is being told.
    is_telling: bool,
    /// Called once the home knows what was written before they came.
    waiting: Vec<OnTold>,
    /// Called once the home has answered what it is being told, whatever it says.
    answered: Vec<Then>,
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
            // After a crash: who has written is not known.
            kills_privileges: is_dirty,
            was_told: true,
            may_arrive: false,
            is_telling: false,
            waiting: Vec::new(),
            answered: Vec::new(),
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
            StayState::New | StayState::Changing | StayState::Told | StayState::Sent => true,
            StayState::Given | StayState::Kept => false,
        }
    }

    /// Returns whether the home of the file may have to be told of these bytes.
    fn is_of_file(&self) -> bool {
        self.row.state != StayState::Kept
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
                StayState::New | StayState::Changing | StayState::Sent => true,
                StayState::Told | StayState::Given => is_other_size(),
                StayState::Kept => false,
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
            rows: Mutex::default(),
            count,
            tell: OnceLock::new(),
            is_watched: AtomicBool::new(false),
        }
    }

    /// Takes over the rows of a table that was opened again: changes of the last epoch may be lost.
    /// All homes are told again.
    pub(crate) fn begin_epoch(&self, rows: Vec<(InodeId, StayRow)>) {
        let mut state = self.state.lock();
        let lost = |node: &InodeId| !rows.iter().any(|(it, _)| it == node);
        let lost: Vec<InodeId> = state.by_node.keys().copied().filter(lost).collect();
        for (node, row) in rows {
            let stay = state.by_node.entry(node).or_insert_with(|| Stay::new(row, true));
            stay.row = row;
            stay.is_dirty = stay.is_of_file();
            let is_used = stay.is_used();
            if is_used {
                state.by_file.insert(row.file.ino, node);
            }
        }
        let waiting: Vec<OnTold> = lost.iter().flat_map(|node| lose(&mut state, *node)).collect();
        self.count(&state);
        drop(state);
        let removed: Vec<Then> = lost.into_iter().map(|node| self.take(node)).collect();
        removed.into_iter().for_each(|then| then());
        waiting.into_iter().for_each(|then| then(Err(Code::Io.into())));
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

    /// Returns the number of nodes that have bytes of files of other sites, or had them.
    pub(crate) fn nodes(&self) -> usize {
        self.state.lock().by_node.len()
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

    /// Writes the row of a node as it is now. Does nothing if there is no such node.
    ///
    /// # Errors
    /// Those of the table.
    pub(crate) fn write_row(&self, node: InodeId) -> Result<(), Error> {
        let _order = self.rows.lock();
        match self.row(node) {
            Some(row) => self.shard.put_stay(node, &row),
            None => Ok(()),
        }
    }

    /// Removes a node with its row. Returns whether the worker `orphans` has work now.
    ///
    /// # Errors
    /// `Stale` if there is none; those of the table.
    pub(crate) fn end(&self, node: InodeId) -> Result<bool, Error> {
        let order = self.rows.lock();
        let ended = self.shard.end_stay(node, clock::now());
        // If the table failed, the row is there at the next start, and the home is asked again.
        let removed = self.take(node);
        drop(order);
        removed();
        ended
    }

    /// Returns whether bytes of a file are here, or are about to be.
    fn has_place(&self, file: InodeId) -> bool {
        self.state.lock().has_place(file)
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

    /// Returns whether the home of the file of a node may not know all that was written.
    pub(crate) fn is_dirty(&self, node: InodeId) -> bool {
        let state = self.state.lock();
        state.by_node.get(&node).is_some_and(|stay| stay.is_dirty || stay.is_telling)
    }

    /// Returns the row of a node.
    pub(crate) fn row(&self, node: InodeId) -> Option<StayRow> {
        self.state.lock().by_node.get(&node).map(|stay| stay.row)
    }

    /// Adds a node that gets the bytes of a file. Returns the opens of the file, which use it from
    /// now on. The row is to be written again if its time is another one: the file was emptied
    /// once more while the node was made.
    pub(crate) fn add(&self, node: InodeId, mut row: StayRow) -> Vec<(OpenKey, OpenFlags)> {
        let mut state = self.state.lock();
        let mut opens = Vec::new();
        for (key, open) in &mut state.opens {
            if open.file.ino == row.file.ino {
                row.since = open.empty_since.take().unwrap_or(row.since);
                opens.push((*key, open.flags));
            }
        }
        let writers = opens.iter().filter(|(_, flags)| flags.write).count();
        state.by_file.insert(row.file.ino, node);
        let made = Stay::new(row, true);
        let stay = Stay { writers, kills_privileges: false, was_told: false, ..made };
        state.by_node.insert(node, stay);
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

    /// Records that the bytes in a node are written no more, because their home takes them or
    /// empties the file. What the home does not know is told still. Returns the row to be written.
    pub(crate) fn give(&self, node: InodeId) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        if stay.row.state == StayState::Kept {
            return None;
        }
        stay.row.state = StayState::Given;
        let row = stay.row;
        Self::leave_file(&mut state, node, row.file.ino);
        Some(row)
    }

    /// Records that all bytes in a node are being sent to their home, or are not any more. Returns
    /// the row to be written.
    pub(crate) fn set_sent(&self, node: InodeId, is_sent: bool) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        let [from, to] = match is_sent {
            true => [StayState::New, StayState::Sent],
            false => [StayState::Sent, StayState::New],
        };
        stay.may_arrive |= is_sent;
        (stay.row.state == from).then(|| {
            stay.row.state = to;
            stay.row
        })
    }

    fn leave_file(state: &mut State, node: InodeId, file: InodeId) {
        if state.by_file.get(&file) == Some(&node) {
            state.by_file.remove(&file);
        }
    }

    /// Records that the file has other bytes than those in this node. Each open that may have
    /// written them reports an error once. Returns the row of the node.
    pub(crate) fn keep(&self, node: InodeId) -> Option<StayRow> {
        let mut state = self.state.lock();
        let stay = state.by_node.get_mut(&node)?;
        stay.row.state = StayState::Kept;
        stay.is_dirty = false;
        let row = stay.row;
        state.note_loss(row.file.ino);
        Self::leave_file(&mut state, node, row.file.ino);
        Some(row)
    }

    /// Returns the nodes that have versions which others have passed over: of this file, or of
    /// all.
    pub(crate) fn kept(&self, file: Option<InodeId>) -> Vec<InodeId> {
        let state = self.state.lock();
        let kept = state.by_node.iter().filter(|(_, stay)| {
            stay.row.state == StayState::Kept && file.is_none_or(|file| stay.row.file.ino == file)
        });
        kept.map(|(node, _)| *node).collect()
    }

    /// Returns whether bytes were lost that were written through an open; only once.
    pub(crate) fn take_loss(&self, open: OpenKey) -> bool {
        let mut state = self.state.lock();
        state.opens.get_mut(&open).is_some_and(|open| mem::take(&mut open.has_lost))
    }

    /// Forgets a node that is being removed. Returns a function that has changes go on that have
    /// waited, and tells those who wait until the home knows that there is nothing to know.
    fn take(&self, node: InodeId) -> Then {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.remove(&node) else { return Box::new(|| {}) };
        Self::leave_file(&mut state, node, stay.row.file.ino);
        self.count(&state);
        Box::new(move || {
            stay.closing.into_iter().chain(stay.parked).for_each(|then| then());
            stay.waiting.into_iter().for_each(|then| then(Ok(())));
            stay.answered.into_iter().for_each(|then| then());
        })
    }
}

/// Records that the row of a node, and with it what was written there, is lost: each open that may
/// have written it reports an error once. Returns the callbacks that wait until its home knows.
fn lose(state: &mut State, node: InodeId) -> Vec<OnTold> {
    let Some(stay) = state.by_node.get_mut(&node) else { return Vec::new() };
    let waiting = mem::take(&mut stay.waiting);
    let file = stay.row.file.ino;
    state.note_loss(file);
    waiting
}

impl State {
    /// Records that something is written to a file at its home: its bytes do not stay here.
    fn note_written_there(&mut self, file: InodeId) {
        self.went_home += 1;
        for open in self.opens.values_mut().filter(|open| open.file.ino == file) {
            open.empty_since = None;
        }
    }

    /// Has each open that may have written into the bytes of a file report an error once.
    fn note_loss(&mut self, file: InodeId) {
        let writers = self.opens.values_mut().filter(|open| open.flags.write);
        writers.filter(|open| open.file.ino == file).for_each(|open| open.has_lost = true);
    }

    /// Returns whether bytes of a file are here, or are about to be.
    fn has_place(&self, file: InodeId) -> bool {
        self.by_file.contains_key(&file) || self.making.contains_key(&file)
    }
}

#[cfg(test)]
mod tests;
