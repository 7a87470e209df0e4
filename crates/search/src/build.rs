//! The worker that builds the search index, and keeps it up with what changes.
//!
//! First all rows are read, or after a restart those that are newer than the index; then, each
//! second, the files that the shard has recorded since. A commit has only what is safe, and says up
//! to which batch it has everything. So after any crash the rows newer than that batch are all that
//! is to be read. Texts come after the names, and wait for nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_index::{Document, Error as IndexError, Names, Texts};
use pelago_meta::durability::Durability;
use pelago_meta::row_cache::Node;
use pelago_meta::shard::Shard;
use pelago_meta::tree::{ReadFile, Tree};
use pelago_store::clock;
use pelago_store::content::ContentStore;
use pelago_store::folder::FolderError;
use pelago_wire::{Code, Error, FileKind, InodeId};

use self::reading::{Moment, Part, Reading, newest, read};
use crate::search_index::{FOLDER, Halves, SearchIndex};
use crate::text::first_bytes;
use crate::undamaged::undamaged;

mod origin;
mod reading;

/// How long the index is behind at most, if there is time.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often a commit looks whether what it has is safe.
const SAFE_INTERVAL: Duration = Duration::from_millis(5);

/// One piece of work that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// Files that the index was given.
    pub files: u64,
    /// The next call of [`BuildIndex::work`].
    pub again: Again,
}

/// The time of the next piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Soon: there is more work.
    Soon,
    /// After this time.
    After(Duration),
    /// Once a search needs the index.
    OnNotify,
}

/// The worker that builds the index.
pub struct BuildIndex {
    index: Arc<SearchIndex>,
    shard: Arc<Shard>,
    content: Arc<ContentStore>,
    durability: Arc<Durability>,
    step: Step,
    /// When rows were read last, since [`SearchIndex::set_reading`] said so.
    has_read: Option<Instant>,
    /// [`Durability::invalidations`] when the index was opened.
    invalidations: u64,
    /// The index was closed because of an error, which the log has.
    has_failed: bool,
}

/// What is done next.
enum Step {
    /// The index is opened, once it is wanted.
    Open,
    /// Rows are read.
    Read(Arc<Halves>, Reading),
    /// The index follows the changes.
    Follow(Arc<Halves>),
}

/// Why a piece of work failed.
enum Failure {
    /// The index.
    Index(IndexError),
    /// A search could not read the index.
    Unreadable,
    /// The rows, or a text.
    Rows(Error),
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        Self::Index(error.into())
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Rows(error)
    }
}

impl BuildIndex {
    /// Returns the worker.
    #[must_use]
    pub fn new(
        index: Arc<SearchIndex>,
        shard: Arc<Shard>,
        content: Arc<ContentStore>,
        durability: Arc<Durability>,
    ) -> Self {
        let step = Step::Open;
        let invalidations = durability.invalidations();
        Self {
            index,
            shard,
            content,
            durability,
            step,
            has_read: None,
            invalidations,
            has_failed: false,
        }
    }

    /// Does one piece of work.
    ///
    /// # Errors
    /// What prevented it. The next call tries it again.
    pub fn work(&mut self) -> Result<Built, Error> {
        let done = self.work_on().map_err(|failure| match failure {
            Failure::Index(error) => self.close(&error),
            Failure::Unreadable => {
                let folder = self.index.wanted_place().map(|it| it.folder.path().join(FOLDER));
                let what = "a search could not read it".to_owned();
                self.close(&IndexError::Damaged { folder: folder.unwrap_or_default(), what })
            }
            Failure::Rows(error) => {
                // What was not committed is given again.
                self.index.set_open(None, false, false);
                self.step = Step::Open;
                error
            }
        });
        self.tell_whether_it_reads();
        done
    }

    fn work_on(&mut self) -> Result<Built, Failure> {
        if !matches!(self.step, Step::Open) && self.index.take_failed() {
            return Err(Failure::Unreadable);
        }
        match std::mem::replace(&mut self.step, Step::Open) {
            Step::Open => self.open(),
            Step::Read(halves, reading) => self.read(halves, reading),
            Step::Follow(halves) => {
                let files = self.follow_names(&halves)?;
                let texts = self.follow_texts(&halves)?;
                let again = match self.index.waiting_texts().is_empty() {
                    true => Again::After(INTERVAL),
                    false => Again::Soon,
                };
                self.step = self.next_step(halves);
                Ok(Built { files: files + texts, again })
            }
        }
    }

    /// Opens the index once it is wanted.
    fn open(&mut self) -> Result<Built, Failure> {
        let Some(place) = self.index.wanted_place() else {
            return Ok(Built { files: 0, again: Again::OnNotify });
        };
        lower_priority();
        // What failed was another one.
        self.index.take_failed();
        // It has words of texts that others may not read.
        let folder = place.folder.create_folder(FOLDER)?;
        let halves =
            Arc::new(Halves { names: Names::open(&folder)?, texts: Texts::open(&folder)? });
        self.check_origin(place, &folder, &halves)?;
        self.invalidations = self.durability.invalidations();
        let begun = Moment { as_of: clock::now(), stamp: self.shard.begin_feed() };
        let after = newest(halves.names.covered());
        tracing::info!(from = ?after, "the search index reads the names of the volume");
        let reading = Reading::begin(Part::Names, after, begun);
        self.index.set_open(Some(Arc::clone(&halves)), false, false);
        self.step = Step::Read(halves, reading);
        Ok(Built { files: 0, again: Again::Soon })
    }

    /// Reads some rows.
    fn read(&mut self, halves: Arc<Halves>, mut reading: Reading) -> Result<Built, Failure> {
        let began = Instant::now();
        if reading.part == Part::Texts && reading.followed.elapsed() >= INTERVAL {
            self.follow_names(&halves)?;
            reading.followed = Instant::now();
        }
        let tree = self.shard.tree()?;
        let mut files = 0;
        loop {
            let from = reading.from.as_deref();
            let (mut changed, next) =
                tree.changed_files(reading.after, from, self.index.steps().rows_at_once)?;
            // The rows of small texts are in this order.
            changed.sort_by_key(ReadFile::ino);
            changed.dedup_by_key(|file| file.ino());
            for file in changed {
                let ino = file.ino();
                let node = read(&tree, file)?;
                let is_new = match reading.part {
                    Part::Names => {
                        self.put_names(&halves, &tree, ino, node.as_ref())?;
                        true
                    }
                    Part::Texts => self.put_text(&halves, &tree, ino, node)?,
                };
                files += 1;
                reading.uncommitted += usize::from(is_new);
            }
            let Some(next) = next else { break };
            reading.from = Some(next);
            if reading.uncommitted >= self.index.steps().commit_files {
                let covered = reading.covered_so_far(&halves);
                self.commit(&halves, reading.part, covered)?;
                reading.uncommitted = 0;
            }
            if began.elapsed() >= self.index.steps().piece {
                self.step = Step::Read(halves, reading);
                return Ok(Built { files, again: Again::Soon });
            }
        }
        self.has_read(halves, &reading)?;
        Ok(Built { files, again: Again::Soon })
    }

    /// Commits what was read of all rows, and goes on.
    fn has_read(&mut self, halves: Arc<Halves>, reading: &Reading) -> Result<(), Failure> {
        self.commit(&halves, reading.part, reading.begun.covered())?;
        match reading.part {
            Part::Names => {
                self.index.set_open(Some(Arc::clone(&halves)), true, false);
                self.follow_names(&halves)?;
                let after = newest(halves.texts.covered());
                let reading = Reading::begin(Part::Texts, after, reading.begun);
                self.step = Step::Read(halves, reading);
            }
            Part::Texts => {
                self.index.set_open(Some(Arc::clone(&halves)), true, true);
                self.has_failed = false;
                tracing::info!("the search index is complete");
                self.step = Step::Follow(halves);
            }
        }
        Ok(())
    }

    /// Returns what follows a round of changes: all rows are read again if there were too many.
    fn next_step(&self, halves: Arc<Halves>) -> Step {
        if !self.index.waiting_texts().has_more {
            return Step::Follow(halves);
        }
        let begun = Moment { as_of: clock::now(), stamp: self.shard.take_fed().stamp };
        let after = newest(halves.texts.covered());
        self.index.set_open(Some(Arc::clone(&halves)), true, false);
        *self.index.waiting_texts() = Default::default();
        Step::Read(halves, Reading::begin(Part::Texts, after, begun))
    }

    /// Gives the index of names what has changed since its last commit. Returns the number of
    /// files.
    fn follow_names(&self, halves: &Halves) -> Result<u64, Failure> {
        let as_of = clock::now();
        let fed = self.shard.take_fed();
        if fed.files.is_empty() && !fed.has_more {
            return Ok(0);
        }
        let tree = self.shard.tree()?;
        let mut files = fed.files.len() as u64;
        for file in &fed.files {
            self.follow(halves, &tree, file.ino, undamaged(tree.node(*file))?)?;
        }
        if fed.has_more {
            files += self.read_again(halves, &tree)?;
        }
        self.commit(halves, Part::Names, Moment { stamp: fed.stamp, as_of }.covered())?;
        self.shard.committed_fed();
        Ok(files)
    }

    /// Reads all rows that are newer than the index of names. Returns the number of files.
    fn read_again(&self, halves: &Halves, tree: &Tree) -> Result<u64, Failure> {
        let after = newest(halves.names.covered());
        let mut from = None;
        let mut count = 0;
        loop {
            let (files, next) =
                tree.changed_files(after, from.as_deref(), self.index.steps().rows_at_once)?;
            count += files.len() as u64;
            for file in files {
                self.follow(halves, tree, file.ino(), read(tree, file)?)?;
            }
            match next {
                Some(next) => from = Some(next),
                None => return Ok(count),
            }
        }
    }

    /// Replaces what the index has of a file that has changed.
    fn follow(
        &self,
        halves: &Halves,
        tree: &Tree,
        ino: InodeId,
        node: Option<Node>,
    ) -> Result<(), Failure> {
        let has_name = self.put_names(halves, tree, ino, node.as_ref())?;
        match node.filter(|_| has_name) {
            Some(node) if node.rnode.kind == FileKind::Regular => {
                if halves.texts.version(ino)? != Some(node.rnode.version) {
                    self.index.waiting_texts().add(node.handle());
                }
            }
            Some(_) => {}
            None => halves.texts.remove(ino)?,
        }
        Ok(())
    }

    /// Replaces what the index of names has of a file, which is gone if there is no node. Returns
    /// whether it has a name.
    fn put_names(
        &self,
        halves: &Halves,
        tree: &Tree,
        ino: InodeId,
        node: Option<&Node>,
    ) -> Result<bool, Failure> {
        let documents = match node {
            Some(node) => self.documents(tree, node)?,
            None => Vec::new(),
        };
        halves.names.replace(ino, &documents)?;
        Ok(!documents.is_empty())
    }

    fn documents(&self, tree: &Tree, node: &Node) -> Result<Vec<Document>, Failure> {
        // What memory knows of open files is not to be in an index: a crash would take it back.
        let mut attr = node.rnode.attr();
        if attr.kind == FileKind::Directory {
            attr = match self.shard.attr(node.handle()) {
                Ok(now) => now,
                Err(error) if matches!(error.code, Code::Stale | Code::Corrupt) => attr,
                Err(error) => return Err(error.into()),
            };
        }
        let mut documents = Vec::new();
        tree.names(node, |_, name| {
            documents.push(Document {
                handle: node.handle(),
                name: name.to_vec(),
                kind: attr.kind,
                size: attr.size,
                mtime: attr.mtime,
                uid: attr.uid,
            });
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(documents)
    }

    /// Gives the index of texts some that wait. Returns their number.
    fn follow_texts(&self, halves: &Halves) -> Result<u64, Failure> {
        let files = self.index.waiting_texts().some(self.index.steps().texts_at_once);
        if files.is_empty() {
            return Ok(0);
        }
        let tree = self.shard.tree()?;
        for file in &files {
            self.put_text(halves, &tree, file.ino, undamaged(tree.node(*file))?)?;
        }
        let is_all = files.len() < self.index.steps().texts_at_once;
        // The index of names has no change that neither has this one nor waits for it.
        let covered = if is_all { halves.names.covered() } else { halves.texts.covered() };
        if let Some(covered) = covered {
            self.commit(halves, Part::Texts, covered)?;
        }
        self.index.waiting_texts().remove(&files);
        Ok(files.len() as u64)
    }

    /// Replaces the text of a file, unless the index has it; removes that of one that is gone.
    /// Returns whether it added a document.
    fn put_text(
        &self,
        halves: &Halves,
        tree: &Tree,
        ino: InodeId,
        node: Option<Node>,
    ) -> Result<bool, Failure> {
        let Some(node) = node else {
            halves.texts.remove(ino)?;
            return Ok(false);
        };
        let rnode = &node.rnode;
        if rnode.kind != FileKind::Regular || halves.texts.version(ino)? == Some(rnode.version) {
            return Ok(false);
        }
        let bytes = match undamaged(first_bytes(tree, &self.content, rnode)) {
            // The log names the file, which is not to end the index of all others.
            Err(error) if error.code == Code::Io => return Ok(false),
            bytes => bytes?.unwrap_or_default(),
        };
        let text = pelago_find::text(&bytes).unwrap_or_default();
        // To read such a file once more costs as much as to find that its version is known.
        let is_worth_it = !text.is_empty() || rnode.flags.has_content;
        match is_worth_it {
            true => halves.texts.replace(node.handle(), rnode.version, text)?,
            false => halves.texts.remove(ino)?,
        }
        Ok(is_worth_it)
    }

    /// Waits until all that was read is safe: after a loss of power the index must not know more
    /// than the rows. It polls, since a wait at [`Durability::when_safe`] has the group commit come
    /// before its time, at the cost of those who write.
    fn wait_until_safe(&self) -> Result<(), Failure> {
        let batch = self.durability.done();
        let began = Instant::now();
        while self.durability.safe() < batch {
            if began.elapsed() > self.index.steps().safe_timeout {
                return Err(Error::from(Code::Busy).into());
            }
            std::thread::sleep(SAFE_INTERVAL);
        }
        // Otherwise what was read may be lost: all begins at the last commit.
        match self.durability.invalidations() == self.invalidations {
            true => Ok(()),
            false => Err(Error::from(Code::Busy).into()),
        }
    }

    /// Says so if the index begins to read all rows, or has for some time not: its last threads
    /// free their memory after that.
    fn tell_whether_it_reads(&mut self) {
        let before = self.has_read;
        if let Step::Read(..) = self.step {
            self.has_read = Some(Instant::now());
        } else if before.is_some_and(|last| last.elapsed() >= INTERVAL) {
            self.has_read = None;
        }
        if self.has_read.is_some() != before.is_some() {
            self.index.set_reading(self.has_read.is_some());
        }
    }

    /// Closes the index after an error. It is opened again later; a damaged one is removed first.
    fn close(&mut self, error: &IndexError) -> Error {
        self.index.set_open(None, false, false);
        *self.index.waiting_texts() = Default::default();
        self.shard.end_feed();
        self.step = Step::Open;
        if error.is_of_files() {
            tracing::warn!(%error, "the search index is built again");
            let place = self.index.wanted_place();
            let removed = place.map_or(Ok(()), |place| place.folder.remove_tree(FOLDER));
            if let Err(error) = removed {
                tracing::warn!(%error, "cannot remove the search index");
            }
        } else if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!(%error, "the search index has stopped; searches look at all rows");
        }
        if error.is_full() { Code::NoSpace.into() } else { Code::Io.into() }
    }
}

/// Gives this thread the least priority: what it does has no deadline.
fn lower_priority() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), LEAST_PRIORITY) {
        tracing::debug!(%error, "cannot lower the priority of the search index");
    }
}

const LEAST_PRIORITY: i32 = 19;
