//! Blocks that are taken over from copies of another version of their file: only what has changed
//! is fetched.
//!
//! A copy is taken over if it has the hash that the server tells under the same lease under which
//! the block would be fetched. Whatever the copy was of, these are the bytes.

use std::ops::Range;
use std::sync::Arc;

use pelago_wire::{Code, Context, Error, Reply, Request, RequestId, limits};

use crate::fetched::{Fetch, Landing};
use crate::hashes::{Asking, Hash, HashPath, Window};
use crate::holder::Holder;
use crate::state::{FetchableRead, NeededBlock};

/// A block of which there was a copy.
struct CopiedBlock {
    number: u64,
    bytes: Vec<u8>,
}

impl Holder {
    /// Has blocks fetched, or lands them if there are copies of them.
    pub(crate) fn take_blocks(self: &Arc<Self>, needed: Vec<NeededBlock>) {
        // Those that are not here are sent first: they take longer.
        let copied: Vec<_> = needed.into_iter().filter_map(|it| self.copy_or_fetch(it)).collect();
        for CopiedBlock { number, bytes } in copied {
            self.land(number, Landing::Copied(bytes), None);
        }
    }

    /// Returns a block that is here, as a copy of this version or of another one. Any other one is
    /// requested, or waits for its hash.
    fn copy_or_fetch(self: &Arc<Self>, needed: NeededBlock) -> Option<CopiedBlock> {
        let number = needed.fetch.number;
        if let Some(bytes) = self.copy_of(&needed.fetch) {
            return Some(CopiedBlock { number, bytes });
        }
        match self.hash_path(needed) {
            HashPath::Here(needed, hash) => {
                self.ask_ahead(&needed);
                match self.take_over(&needed, &hash) {
                    Some(bytes) => return Some(CopiedBlock { number, bytes }),
                    None => self.fetch(&needed),
                }
            }
            HashPath::Unknown(needed) => self.fetch(&needed),
            HashPath::Waits(_) => {}
        }
        None
    }

    /// Returns the way of a block, after the request was sent that it waits for.
    fn hash_path(self: &Arc<Self>, needed: NeededBlock) -> HashPath<NeededBlock> {
        let block = needed.fetch.block();
        let window = Window::of(needed.fetch.lease, block);
        // Without a copy of this block its hash says nothing.
        let is_older = self.older(&needed.fetch, block..block + 1).is_some();
        let older = self.older(&needed.fetch, window.blocks()).filter(|_| is_older);
        let Some(older) = older else { return HashPath::Unknown(needed) };
        let read = needed.read;
        let path = self.state.lock().hashes.path(window, block, older, needed);
        match path {
            HashPath::Waits(Some(asking)) => {
                self.ask_hashes(&read, asking);
                HashPath::Waits(None)
            }
            path => path,
        }
    }

    /// Returns the blocks within these, from the first to the last, of which there are copies of
    /// another version of the file; `None` for a file that is fetched as a whole.
    fn older(&self, fetch: &Fetch, blocks: Range<u64>) -> Option<Range<u64>> {
        let version = fetch.version.filter(|it| it.size >= limits::HASHED_FILE_BYTES)?;
        self.copies.get()?.older(&version, blocks)
    }

    /// Asks for the hashes of the next window, if the reader will soon be there.
    fn ask_ahead(self: &Arc<Self>, needed: &NeededBlock) {
        let NeededBlock { read, fetch } = needed;
        let window = Window::of(fetch.lease, fetch.block());
        let next = window.next();
        if window.is_near_end(fetch.block())
            && let Some(older) = self.older(fetch, next.blocks())
        {
            let asking = self.state.lock().hashes.ahead(next, older);
            asking.into_iter().for_each(|asking| self.ask_hashes(read, asking));
        }
    }

    /// Asks the server for hashes, through the open of this read.
    fn ask_hashes(self: &Arc<Self>, read: &FetchableRead, asking: Asking) {
        let Range { start, end } = asking.blocks;
        let offset = start * limits::FETCH_BLOCK_BYTES as u64;
        let blocks = u32::try_from(end - start).unwrap_or(u32::MAX);
        let request = Request::Hashes { open: read.range.open, offset, blocks };
        // No program waits for this request itself, so none cancels it.
        let context = Context { request: RequestId(0), ..read.context };
        let holder = Arc::clone(self);
        let landed = move |result: Result<Reply, Error>| holder.land_hashes(asking, result);
        self.send_with(&context, request, Box::new(landed));
    }

    /// Handles the reply with hashes: what has waited for them is taken over, or fetched.
    fn land_hashes(self: &Arc<Self>, asking: Asking, result: Result<Reply, Error>) {
        let mut state = self.state.lock();
        let mut late = None;
        let waiting = match result {
            Ok(Reply::Hashes(hashes)) => state.hashes.answered(asking, Some(hashes)),
            // A home that is slow to hash may be quick enough to send.
            Err(error) if error.code == Code::HostDown => {
                late = Some(error);
                state.hashes.failed(asking.window)
            }
            // It is no worse than without a copy.
            Ok(_) | Err(_) => state.hashes.answered(asking, None),
        };
        let mut needed = Vec::new();
        let mut failed = Vec::new();
        for it in waiting {
            let is_leased = state.fetched.is_leased(it.read.range.ino, it.fetch.lease);
            match is_leased && late.is_none() {
                true => needed.push(it),
                false => failed.push(it),
            }
        }
        drop(state);
        self.take_blocks(needed);
        for it in failed {
            self.land(it.fetch.number, Landing::Failed, late);
        }
    }

    /// Returns the copy of a block that has this hash, and keeps it as one of this version.
    fn take_over(&self, needed: &NeededBlock, hash: &Hash) -> Option<Vec<u8>> {
        let NeededBlock { read, fetch } = needed;
        let copies = self.copies.get()?;
        let version = fetch.version?;
        let bytes = copies.older_block(&version, fetch.block(), fetch.bytes, hash)?;
        let lease = self.block_lease(read.range.ino, fetch.lease);
        copies.keep(&version, fetch.block(), &bytes, lease);
        Some(bytes)
    }
}
