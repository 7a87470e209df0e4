//! The state of a delivery, which its lock protects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use pelago_proto::deliver::{
    Block, BlockSet, ClientId, Deliver, DeliverError, ExtentRead, Next, Options, Order, VersionId,
};
use pelago_wire::Error;
use pelago_wire::blocks::Extents;
use pelago_wire::limits::EXTENT_BYTES;

use super::extent::Extent;
use super::source::ExtentSource;
use crate::pinned::ReadError;

/// The state machine that schedules reads, and the bytes of the extents that it counts.
pub(super) struct State {
    pub(super) machine: Deliver,
    versions: BTreeMap<VersionId, Version>,
    /// The version of each entity tag to which a client can be added.
    by_tag: BTreeMap<String, VersionId>,
    clients: BTreeMap<ClientId, ClientState>,
    extents: BTreeMap<(VersionId, u32), Arc<Extent>>,
    /// Blocks that a client may have at a time before its socket has taken them.
    lent: usize,
    /// The last id of a version or client.
    ids: u64,
}

/// A version that is delivered.
struct Version {
    tag: String,
    file: Extents,
    source: Arc<dyn ExtentSource>,
    clients: usize,
    /// The clients among them that take blocks in any order, and want the hashes of extents.
    any_order: usize,
    end: Option<End>,
}

/// The reason why a version is delivered no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Changed,
    Failed(Error),
}

/// A client's waker, and the unreadable extents that it must be informed of.
struct ClientState {
    version: VersionId,
    is_any_order: bool,
    waker: Option<Waker>,
    unreadable: VecDeque<(u32, Error)>,
}

/// A client that was added.
pub(super) struct Joined {
    pub(super) id: ClientId,
    pub(super) source: Arc<dyn ExtentSource>,
}

/// The reply to a client that takes its next block.
pub(super) enum Given {
    /// A block. `ended` is its extent, if this was the client's last block of that extent and
    /// the client takes blocks in any order.
    Block {
        block: Block,
        bytes: Bytes,
        ended: Option<Arc<Extent>>,
    },
    Unreadable {
        extent: u32,
        error: Error,
    },
    Ended(End),
    Finished,
    /// Nothing is ready yet.
    Waits,
}

/// A read that begins, with its source and the extent that is evicted for it.
pub(super) struct Begun {
    pub(super) read: ExtentRead,
    pub(super) source: Arc<dyn ExtentSource>,
    pub(super) tag: String,
    pub(super) file: Extents,
    /// Some clients take blocks in any order, and want the hash.
    pub(super) has_any_order: bool,
    /// Some clients take the file in order.
    pub(super) has_in_order: bool,
    pub(super) evicted: Option<Arc<Extent>>,
}

impl State {
    pub(super) fn new(options: Options) -> Self {
        Self {
            machine: Deliver::new(options),
            versions: BTreeMap::new(),
            by_tag: BTreeMap::new(),
            clients: BTreeMap::new(),
            extents: BTreeMap::new(),
            lent: options.lent,
            ids: 0,
        }
    }

    /// Adds a client of the version with this tag. Its first client opens the version.
    pub(super) fn join(
        &mut self,
        tag: &str,
        file: Extents,
        source: &mut Option<Arc<dyn ExtentSource>>,
        order: Order,
        have: Option<&BlockSet>,
    ) -> Result<Joined, DeliverError> {
        let version = match self.by_tag.get(tag) {
            Some(version) => *version,
            None => self.open(tag, file, source.take().ok_or(DeliverError::NoFile)?)?,
        };
        let id = ClientId(self.new_id());
        if let Err(error) = self.machine.join(version, id, order, have) {
            self.close_if_unused(version);
            return Err(error);
        }
        let is_any_order = order == Order::Any;
        let found = self.versions.get_mut(&version).ok_or(DeliverError::NoFile)?;
        found.clients += 1;
        found.any_order += usize::from(is_any_order);
        let source = Arc::clone(&found.source);
        let client =
            ClientState { version, is_any_order, waker: None, unreadable: VecDeque::new() };
        self.clients.insert(id, client);
        Ok(Joined { id, source })
    }

    /// Removes a client, and its version if it was the last client of that.
    pub(super) fn leave(&mut self, id: ClientId) {
        self.machine.leave(id);
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(version) = self.versions.get_mut(&client.version) {
            version.clients -= 1;
            version.any_order -= usize::from(client.is_any_order);
        }
        self.close_if_unused(client.version);
    }

    /// Gives a client its next block. If none is in memory, `waker` is woken once one is.
    pub(super) fn give(&mut self, id: ClientId, waker: &Waker, now: Duration) -> Given {
        let Some(client) = self.clients.get_mut(&id) else { return Given::Finished };
        let version = client.version;
        let is_any_order = client.is_any_order;
        if let Some(end) = self.versions.get(&version).and_then(|it| it.end) {
            return Given::Ended(end);
        }
        if let Some((extent, error)) = client.unreadable.pop_front() {
            return Given::Unreadable { extent, error };
        }
        match self.machine.next_block(id, now) {
            Next::Block(block) => self.block(id, block, is_any_order),
            Next::Finished => Given::Finished,
            Next::Wait | Next::Full => {
                client.waker = Some(waker.clone());
                Given::Waits
            }
        }
    }

    /// Records that the socket of a client has taken the first of its lent blocks.
    pub(super) fn sent(&mut self, id: ClientId, now: Duration) {
        self.machine.sent(id, now);
        self.wake(id);
    }

    /// Begins the reads that are wanted now.
    pub(super) fn begin_reads(&mut self, now: Duration) -> Vec<Begun> {
        let mut all = Vec::new();
        while let Some(read) = self.machine.next_read(now) {
            let evicted = read.evicted.and_then(|evicted| self.extents.remove(&evicted));
            let version = self.versions.get(&read.file).expect("a file that is read is open");
            all.push(Begun {
                read,
                source: Arc::clone(&version.source),
                tag: version.tag.clone(),
                file: version.file,
                has_any_order: version.any_order > 0,
                has_in_order: version.any_order < version.clients,
                evicted,
            });
        }
        all
    }

    /// Returns the next block of a client if the client takes the file in order and the block is
    /// not in memory; it may be in the page cache. If buffers are scarce, a client that still sends
    /// a block waits, so that each client has at most one block that it shares with no other.
    pub(super) fn absent(
        &mut self,
        id: ClientId,
        is_scarce: bool,
        waker: &Waker,
    ) -> Poll<Option<Block>> {
        let block = self.machine.next_absent(id);
        let blocks = self.machine.lent(id);
        let Some(client) = self.clients.get_mut(&id) else { return Poll::Ready(None) };
        let version = self.versions.get(&client.version);
        if !client.unreadable.is_empty() || version.is_none_or(|version| version.end.is_some()) {
            return Poll::Ready(None);
        }
        let most = if is_scarce { 1 } else { self.lent };
        if block.is_some() && blocks >= most {
            client.waker = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(block)
    }

    /// Ends a read that was not done, because its clients take the extent from the page cache.
    pub(super) fn skip_read(&mut self, read: &ExtentRead) {
        self.machine.read_skipped(read.file, read.extent);
        self.wake_all();
    }

    /// Ends a read, with the extent or the error.
    pub(super) fn end_read(
        &mut self,
        read: &ExtentRead,
        result: Result<Arc<Extent>, ReadError>,
        now: Duration,
    ) {
        let ExtentRead { file, extent, .. } = *read;
        match result {
            Ok(bytes) => {
                if self.versions.get(&file).is_some_and(|version| version.end.is_none()) {
                    self.extents.insert((file, extent), bytes);
                }
                self.machine.read_done(file, extent, now);
            }
            Err(ReadError::Unreadable(error)) => {
                for id in self.machine.read_failed(file, extent) {
                    if let Some(client) = self.clients.get_mut(&id) {
                        client.unreadable.push_back((extent, error));
                    }
                    self.wake(id);
                }
            }
            Err(ReadError::Changed) => self.end_version(read, End::Changed),
            Err(ReadError::Failed(error)) => self.end_version(read, End::Failed(error)),
        }
        self.wake_all();
    }

    /// Returns how many extents are in memory.
    pub(super) fn resident(&self) -> usize {
        self.extents.len()
    }

    fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn open(
        &mut self,
        tag: &str,
        file: Extents,
        source: Arc<dyn ExtentSource>,
    ) -> Result<VersionId, DeliverError> {
        let id = VersionId(self.new_id());
        self.machine.open_file(id, file.size())?;
        self.by_tag.insert(tag.to_owned(), id);
        let version =
            Version { tag: tag.to_owned(), file, source, clients: 0, any_order: 0, end: None };
        self.versions.insert(id, version);
        Ok(id)
    }

    fn block(&mut self, id: ClientId, block: Block, is_any_order: bool) -> Given {
        let extent = self.extents.get(&(block.file, block.extent));
        let extent = extent.expect("an extent of which a block is given is in memory");
        let offset = (block.offset % EXTENT_BYTES as u64) as usize;
        let bytes = extent.part(offset, block.len as usize);
        let bytes = bytes.expect("an extent that was read has all its blocks");
        let is_last = is_any_order && !self.machine.lacks_part(id, block.extent);
        Given::Block { block, bytes, ended: is_last.then(|| Arc::clone(extent)) }
    }

    /// Ends a version: no client gets a byte of it any more.
    fn end_version(&mut self, read: &ExtentRead, end: End) {
        self.machine.read_failed(read.file, read.extent);
        self.close(read.file);
        if let Some(version) = self.versions.get_mut(&read.file) {
            version.end = Some(end);
        }
        let clients = self.clients.values_mut().filter(|client| client.version == read.file);
        clients.filter_map(|client| client.waker.take()).for_each(Waker::wake);
    }

    fn close_if_unused(&mut self, id: VersionId) {
        if self.versions.get(&id).is_some_and(|version| version.clients == 0) {
            self.close(id);
            self.versions.remove(&id);
        }
    }

    /// Removes the extents of a version from memory. No client can be added to it any more.
    fn close(&mut self, id: VersionId) {
        self.machine.close_file(id);
        self.extents.retain(|(version, _), _| *version != id);
        self.by_tag.retain(|_, version| *version != id);
    }

    /// Wakes the clients that the state machine lets go on.
    fn wake_all(&mut self) {
        while let Some(id) = self.machine.poll_woken() {
            self.wake(id);
        }
    }

    fn wake(&mut self, id: ClientId) {
        if let Some(waker) = self.clients.get_mut(&id).and_then(|client| client.waker.take()) {
            waker.wake();
        }
    }
}
