//! Inodes that are open, and what open files know better than their rows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_store::table::Batch;
use pelago_wire::{Attr, Code, Error, Generation, Handle, InodeId, Time};

use super::Shard;
use super::commit::put_node;
use crate::row_cache::Node;
use pelago_wire::id_map::IdMap;

/// Seconds after which a read counts again.
pub const READ_AGAIN: i64 = 24 * 60 * 60;
/// Times of reads that wait for the next group commit, at the most.
const READS: usize = 4096;
/// Of those, so many are written in one batch, while others wait for the shard.
const READS_AT_ONCE: usize = 32;

/// The inodes that are open. They come under a shard's lock and go without it: who finds under that
/// lock that an inode is not held can rely on it until the lock's end. A leaf.
#[derive(Debug, Default)]
pub(super) struct OpenInodes {
    all: Mutex<All>,
    /// How many have an [`AttrSource`].
    outsides: AtomicUsize,
}

#[derive(Debug, Default)]
struct All {
    held: IdMap<InodeId, Held>,
    /// When files were read last whose readers have left, where their rows do not say so yet. They
    /// go under a shard's lock.
    reads: IdMap<InodeId, (Handle, Time)>,
}

#[derive(Debug, Default)]
struct Held {
    /// How often.
    opens: u32,
    /// It has no name yet, or lost its last, or is about to.
    unnamed: bool,
    /// What is not committed yet.
    live: Option<Live>,
    /// When it was read last, where its row does not say so yet.
    atime: Option<Time>,
    /// Who sees what is done to it without a request.
    outside: Option<Arc<dyn AttrSource>>,
}

/// Who sees what is done to the bytes of a held inode where no request tells of it.
pub trait AttrSource: fmt::Debug + Send + Sync {
    /// Looks at the bytes again. May wait for the medium: never called under a lock of the shard.
    fn refresh(&self);

    /// The attributes as they were at the last look, where these are those that are known without
    /// it. A time of the last read that it changes is what the row is told next. Waits for nothing.
    fn merge(&self, attr: Attr) -> Attr;
}

impl OpenInodes {
    /// One more holds it.
    pub(super) fn hold(&self, ino: InodeId, unnamed: bool) {
        let mut all = self.all.lock();
        let held = all.held.entry(ino).or_default();
        held.opens += 1;
        held.unnamed |= unnamed;
    }

    /// Whether it is held.
    pub(super) fn has(&self, ino: InodeId) -> bool {
        self.all.lock().held.contains_key(&ino)
    }

    /// Its last name goes. Answers whether it is held; whoever lets go of it last is then told.
    pub(super) fn loses_its_names(&self, ino: InodeId) -> bool {
        let mut all = self.all.lock();
        let Some(held) = all.held.get_mut(&ino) else { return false };
        held.unnamed = true;
        true
    }

    /// It has got its first name.
    pub(super) fn has_a_name(&self, ino: InodeId) {
        self.change(ino, |held| held.unnamed = false);
    }

    /// When it was read last, where its row does not say so yet.
    pub(super) fn read_at(&self, ino: InodeId) -> Option<Time> {
        self.all.lock().read_at(ino)
    }

    /// The row says when it was read last, or somebody has set that.
    pub(super) fn read_is_known(&self, ino: InodeId) {
        self.committed(ino, false);
    }

    /// The row says when it was read last, and (`live`) its size and times.
    pub(super) fn committed(&self, ino: InodeId, live: bool) {
        let mut all = self.all.lock();
        all.reads.remove(&ino);
        if let Some(held) = all.held.get_mut(&ino) {
            held.atime = None;
            held.live = held.live.filter(|_| !live);
        }
    }

    /// Who has read it leaves: the time of that waits for [`Shard::commit_reads`]. Answers `false`
    /// where too many do already.
    fn keep_read(&self, handle: Handle) -> bool {
        let mut all = self.all.lock();
        let All { held, reads } = &mut *all;
        let Some(held) = held.get_mut(&handle.ino) else { return true };
        if reads.len() >= READS {
            return held.atime.is_none();
        }
        if let Some(atime) = held.atime.take() {
            reads.insert(handle.ino, (handle, atime));
        }
        true
    }

    /// Some of the files whose readers have left.
    fn some_reads(&self) -> Vec<Handle> {
        let all = self.all.lock();
        all.reads.values().take(READS_AT_ONCE).map(|(handle, _)| *handle).collect()
    }

    /// The attributes of its row as they are now.
    pub(super) fn merge(&self, ino: InodeId, attr: Attr) -> Attr {
        let mut all = self.all.lock();
        let attr = Attr { atime: all.read_at(ino).unwrap_or(attr.atime), ..attr };
        let Some(held) = all.held.get_mut(&ino) else { return attr };
        let attr = held.live.map_or(attr, |live| live.merge(attr));
        let Some(outside) = &held.outside else { return attr };
        let seen = outside.merge(attr);
        if seen.atime != attr.atime {
            held.atime = Some(seen.atime);
        }
        seen
    }

    /// Looks at the bytes of an inode again, if they change without a request. Answers whether they
    /// may. May wait for the medium.
    pub(super) fn refresh(&self, ino: InodeId) -> bool {
        if self.outsides.load(Ordering::Acquire) == 0 {
            return false;
        }
        let outside = self.all.lock().held.get(&ino).and_then(|held| held.outside.clone());
        outside.inspect(|outside| outside.refresh()).is_some()
    }

    /// This one is asked from now on.
    fn set_outside(&self, ino: InodeId, outside: Option<Arc<dyn AttrSource>>) {
        let mut all = self.all.lock();
        let Some(held) = all.held.get_mut(&ino) else { return };
        self.outsides.fetch_add(usize::from(outside.is_some()), Ordering::AcqRel);
        let before = std::mem::replace(&mut held.outside, outside);
        self.outsides.fetch_sub(usize::from(before.is_some()), Ordering::AcqRel);
    }

    /// One less holds it. Answers whether nobody does and it has lost its names.
    fn let_go(&self, ino: InodeId) -> bool {
        let mut all = self.all.lock();
        let Some(held) = all.held.get_mut(&ino) else { return false };
        held.opens -= 1;
        if held.opens > 0 {
            return false;
        }
        let Some(held) = all.held.remove(&ino) else { return false };
        self.outsides.fetch_sub(usize::from(held.outside.is_some()), Ordering::AcqRel);
        held.unnamed
    }

    fn change(&self, ino: InodeId, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.all.lock().held.get_mut(&ino) {
            change(held);
        }
    }
}

impl All {
    /// A reader that is there has read later than one that has left.
    fn read_at(&self, ino: InodeId) -> Option<Time> {
        let held = self.held.get(&ino).and_then(|held| held.atime);
        held.or_else(|| self.reads.get(&ino).map(|(_, atime)| *atime))
    }
}

/// Size and times of an open file that its row does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes on the medium.
    pub blocks: u64,
    /// Last change of the bytes.
    pub mtime: Time,
    /// Last change of the bytes or of the times; the row's may be later.
    pub ctime: Time,
}

impl Live {
    /// The attributes as they are now.
    #[must_use]
    pub fn merge(&self, attr: Attr) -> Attr {
        Attr {
            size: self.size,
            blocks: self.blocks,
            mtime: self.mtime,
            ctime: self.ctime.max(attr.ctime),
            ..attr
        }
    }
}

impl Shard {
    /// OpenInodes an inode that is being opened: while it is held its rows stay, whatever happens
    /// to its names. Answers the node as stored, and its attributes as they are now.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub fn hold(&self, handle: Handle) -> Result<(Node, Attr), Error> {
        self.holds.refresh(handle.ino);
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        let attr = self.attr_of(&state, &node.rnode)?;
        self.holds.hold(node.rnode.ino, node.rnode.links == 0);
        Ok((node, attr))
    }

    /// Whether the bytes of an inode are in a content file.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub fn has_content(&self, handle: Handle) -> Result<bool, Error> {
        let mut state = self.lock();
        if let Some(node) = state.rows.node(handle.ino) {
            return Ok(node.rnode.flags.has_content);
        }
        Ok(self.node(&mut state, handle)?.rnode.flags.has_content)
    }

    /// Lets go of a held inode. Answers whether it has neither name nor holder now, so that its
    /// orphan row can be worked off.
    pub fn let_go(&self, ino: InodeId) -> bool {
        let unnamed = self.holds.let_go(ino);
        if unnamed {
            // The operation that takes its last name may still be writing the orphan row.
            drop(self.lock());
        }
        unnamed
    }

    /// Returns whether an open file or an unfinished release refers to this inode.
    #[must_use]
    pub fn is_held(&self, ino: InodeId) -> bool {
        self.holds.has(ino)
    }

    /// An open file knows its size and times better than its row, or (`None`) no better any more.
    /// Without effect where it is not held.
    pub fn set_live(&self, ino: InodeId, live: Option<Live>) {
        self.holds.change(ino, |held| held.live = live);
    }

    /// From now on this one is asked what is done to a held file without a request; `None`: nothing
    /// is. Without effect where it is not held.
    pub fn set_outside(&self, ino: InodeId, outside: Option<Arc<dyn AttrSource>>) {
        self.holds.set_outside(ino, outside);
    }

    /// A held file is read. As with `relatime`, that counts only where nobody has read it since it
    /// changed, or for a day, unless it counts `always`. Shown at once, and in the row with its
    /// next commit or with [`Shard::keep_read`]. Answers whether it counts.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub fn read(&self, handle: Handle, now: Time, always: bool) -> Result<bool, Error> {
        self.holds.refresh(handle.ino);
        let mut state = self.lock();
        let node = self.node(&mut state, handle)?;
        let attr = self.attr_of(&state, &node.rnode)?;
        let counts = always || read_counts(&attr, now);
        if counts {
            self.holds.change(handle.ino, |held| held.atime = Some(now));
        }
        Ok(counts)
    }

    /// A reader of a held file leaves: when it was read is written with the next group commit where
    /// its row does not say so yet, or at once where too many wait for that.
    ///
    /// # Errors
    /// As [`Shard::commit_reads`].
    pub fn keep_read(&self, handle: Handle) -> Result<(), Error> {
        if self.holds.keep_read(handle) {
            return Ok(());
        }
        self.write_reads(&[handle])
    }

    /// Writes when files were read last whose readers have left. For other servers they are the
    /// same versions as before. What fails stays for the next time.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn commit_reads(&self) -> Result<(), Error> {
        // As many as there can be now: whoever waits for this group commit does not wait for those
        // who leave meanwhile.
        for _ in 0..READS.div_ceil(READS_AT_ONCE) {
            let some = self.holds.some_reads();
            if some.is_empty() {
                break;
            }
            self.write_reads(&some)?;
        }
        Ok(())
    }

    fn write_reads(&self, handles: &[Handle]) -> Result<(), Error> {
        let mut state = self.lock();
        let stamp = self.stamp(&state);
        let (mut batch, mut nodes) = (Batch::new(), Vec::with_capacity(handles.len()));
        for handle in handles {
            let Some(atime) = self.holds.read_at(handle.ino) else { continue };
            match self.node(&mut state, *handle) {
                Ok(mut node) if node.rnode.links > 0 || self.holds.has(handle.ino) => {
                    node.rnode.atime = atime;
                    put_node(&mut batch, &node, stamp);
                    nodes.push(node);
                }
                // Nobody would look at the row of a file that has neither name nor holder.
                Ok(_) => {}
                Err(error) if matches!(error.code, Code::Stale | Code::Corrupt) => {}
                Err(error) => return Err(error),
            }
        }
        self.write(&mut state, batch)?;
        nodes.into_iter().for_each(|node| state.rows.put_node(node));
        handles.iter().for_each(|handle| self.holds.read_is_known(handle.ino));
        Ok(())
    }

    /// The generation that the next content file of an inode gets.
    #[must_use]
    pub fn next_generation(last: Option<Generation>) -> Generation {
        last.map_or(Generation::FIRST, |last| Generation(last.0 + 1))
    }
}

/// Whether a read of a file with these attributes counts. Changes that are dated in the future do
/// not make every read count.
pub fn read_counts(attr: &Attr, now: Time) -> bool {
    let unseen = |change: Time| attr.atime <= change && change < now;
    unseen(attr.mtime) || unseen(attr.ctime) || now.seconds - attr.atime.seconds >= READ_AGAIN
}
