//! Tests of deliveries, with a source in memory.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use pelago_proto::deliver::{DeliverError, Order};
use pelago_wire::blocks::{Extents, HaveMap};
use pelago_wire::limits::{BLOCK_BYTES, DELIVERY_FILE_CLIENTS, EXTENT_BYTES};
use pelago_wire::{Caching, Code, Error};
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::source::{Coming, ExtentSource};
use super::{Client, Delivery, Piece};
use crate::pinned::ReadError;

const MIB: u64 = EXTENT_BYTES as u64;

/// A file in memory.
#[derive(Default)]
struct Memory {
    /// The offset of an extent that cannot be read, and the error.
    fails: Mutex<Option<(u64, ReadError)>>,
    /// The part of the file that is in the page cache.
    cached: Mutex<Range<u64>>,
    /// The number of reads that left their bytes in the page cache.
    kept: AtomicU64,
    /// The offsets of the extents that were read.
    reads: Mutex<Vec<u64>>,
}

impl ExtentSource for Memory {
    fn read(&self, part: Range<u64>, caching: Caching) -> Coming<'_, Vec<Bytes>> {
        Box::pin(async move {
            yield_now().await;
            self.reads.lock().push(part.start);
            self.kept.fetch_add(u64::from(caching == Caching::Keep), Ordering::Relaxed);
            match *self.fails.lock() {
                Some((offset, error)) if offset == part.start => Err(error),
                _ => Ok(blocks(part)),
            }
        })
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        buffer.fill(byte_at(offset));
        self.is_cached(offset..offset + buffer.len() as u64)
    }

    fn is_cached(&self, part: Range<u64>) -> bool {
        self.cached.lock().contains(&part.start) && self.cached.lock().contains(&(part.end - 1))
    }

    fn is_changed(&self) -> bool {
        false
    }
}

/// Returns the bytes of a part of the file, as blocks: each is full of its number.
fn blocks(part: Range<u64>) -> Vec<Bytes> {
    let starts = part.clone().step_by(BLOCK_BYTES);
    let len = |at: u64| BLOCK_BYTES.min((part.end - at) as usize);
    starts.map(|at| Bytes::from(vec![byte_at(at); len(at)])).collect()
}

fn byte_at(offset: u64) -> u8 {
    (offset / BLOCK_BYTES as u64 % 251) as u8
}

/// The pieces that a client has received.
#[derive(Debug, Default, PartialEq, Eq)]
struct Got {
    offsets: BTreeSet<u64>,
    bytes: usize,
    hashes: BTreeSet<u64>,
    unreadable: Vec<u64>,
    end: &'static str,
}

/// Takes the pieces of a client until its end, and lets other clients go on after each piece.
async fn take_all(mut client: Client) -> Got {
    let mut got = Got::default();
    loop {
        match poll_fn(|context| client.poll_next(context)).await {
            Piece::Block { offset, bytes, ended } => {
                assert!(bytes.iter().all(|byte| *byte == byte_at(offset)));
                assert!(got.offsets.insert(offset), "{offset} twice");
                got.bytes += bytes.len();
                if let Some(ended) = ended {
                    assert!(got.hashes.insert(ended.number), "{} twice", ended.number);
                }
            }
            Piece::Unreadable { extent, .. } => got.unreadable.push(extent),
            Piece::Changed => return Got { end: "changed", ..got },
            Piece::Failed(_) => return Got { end: "failed", ..got },
            Piece::Finished => return Got { end: "finished", ..got },
        }
        yield_now().await;
    }
}

/// Lets clients of a file of eight extents and a few bytes take all, with memory for two.
fn deliver(memory: &Arc<Memory>, clients: &[(Order, Option<HaveMap>)]) -> Vec<Got> {
    let runtime = Builder::new_current_thread().build().unwrap();
    let delivery = Delivery::new(2 * MIB, runtime.handle().clone());
    let file = Extents::of(8 * MIB + 5).unwrap();
    let got = runtime.block_on(async {
        let join = |(order, have): &(Order, Option<HaveMap>)| {
            let source = Arc::clone(memory);
            let client = Client::join_source(&delivery, "a", source, file, *order, have.as_ref());
            tokio::spawn(take_all(client.unwrap()))
        };
        let tasks: Vec<_> = clients.iter().map(join).collect();
        let mut got = Vec::new();
        for task in tasks {
            got.push(task.await.unwrap());
        }
        got
    });
    let traffic = delivery.traffic();
    assert_eq!((traffic.clients, traffic.files, traffic.extents_in_memory), (0, 0, 0));
    got
}

#[test]
fn all_who_come_together_get_what_was_read_once() {
    let memory = Arc::new(Memory::default());
    let all = deliver(&memory, &vec![(Order::Any, None); 20]);
    for got in all {
        assert_eq!((got.bytes as u64, got.end), (8 * MIB + 5, "finished"));
        assert_eq!(got.hashes, (0..9).collect());
    }
    assert!(memory.reads.lock().len() <= 12, "{:?}", memory.reads.lock());
}

#[test]
fn a_range_and_what_a_client_lacks_are_all_it_gets() {
    let memory = Arc::new(Memory::default());
    let range = Order::Ascending { from: MIB - 10, to: 3 * MIB + 1 };
    // All of extent 0 and of those from 2 on; half of 1.
    let have = HaveMap::of((0..24).chain(32..129));
    let got = deliver(&memory, &[(range, None), (Order::Any, Some(have))]);
    assert_eq!((got[0].bytes as u64, got[0].end), (2 * MIB + 11, "finished"));
    assert_eq!((got[1].bytes as u64, got[1].end), (MIB / 2, "finished"));
    assert_eq!(got[1].hashes, BTreeSet::from([1]));
}

#[test]
fn an_extent_that_cannot_be_read_is_named_and_others_go_on() {
    let memory = Arc::new(Memory::default());
    let error = Error { code: Code::Io };
    *memory.fails.lock() = Some((3 * MIB, ReadError::Unreadable(error)));
    for got in deliver(&memory, &vec![(Order::Any, None); 5]) {
        assert_eq!((got.bytes as u64, got.end), (7 * MIB + 5, "finished"));
        assert_eq!(got.unreadable, [3]);
        assert!(!got.hashes.contains(&3));
    }
}

#[test]
fn a_version_that_ends_ends_for_all_its_clients() {
    for (error, end) in [
        (ReadError::Changed, "changed"),
        (ReadError::Failed(Error { code: Code::Unavailable }), "failed"),
    ] {
        let memory = Arc::new(Memory::default());
        *memory.fails.lock() = Some((8 * MIB, error));
        let range = Order::Ascending { from: 0, to: 8 * MIB + 5 };
        let clients = [(Order::Any, None), (Order::Any, None), (range, None)];
        for got in deliver(&memory, &clients) {
            assert_eq!(got.end, end);
        }
    }
}

#[test]
fn a_client_beyond_the_limit_is_refused_and_the_others_stay() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let delivery = Delivery::new(2 * MIB, runtime.handle().clone());
    let file = Extents::of(2 * MIB).unwrap();
    let join = || {
        let source = Arc::<Memory>::default();
        Client::join_source(&delivery, "a", source, file, Order::Any, None)
    };
    let mut clients: Vec<_> = (0..DELIVERY_FILE_CLIENTS).map(|_| join().unwrap()).collect();
    assert_eq!(join().err(), Some(DeliverError::TooManyClients));
    clients.pop();
    clients.push(join().unwrap());
    assert_eq!(delivery.traffic().clients, DELIVERY_FILE_CLIENTS as u64);
    drop(clients);
    assert_eq!(delivery.traffic().files, 0);
}

/// Bytes in the page cache are taken from there, without an extent in memory or a read. Bytes that
/// leave the page cache are read.
#[test]
fn clients_in_order_take_from_the_page_cache_what_is_there() {
    for (cached, reads) in [
        (0..8 * MIB + 5, vec![]),
        (0..3 * MIB + 70_000, vec![3, 4, 5, 6, 7, 8]),
        (4 * MIB..8 * MIB + 5, vec![0, 1, 2, 3]),
    ] {
        let memory = Arc::new(Memory::default());
        *memory.cached.lock() = cached;
        let all = Order::Ascending { from: 0, to: 8 * MIB + 5 };
        for got in deliver(&memory, &vec![(all, None); 3]) {
            assert_eq!((got.bytes as u64, got.end), (8 * MIB + 5, "finished"));
        }
        let seen: BTreeSet<u64> = memory.reads.lock().iter().map(|offset| offset / MIB).collect();
        assert_eq!(seen, reads.into_iter().collect());
        // Clients in order come one after another.
        assert_eq!(memory.kept.load(Ordering::Relaxed), memory.reads.lock().len() as u64);
    }
    let memory = Arc::new(Memory::default());
    deliver(&memory, &[(Order::Any, None)]);
    assert_eq!(memory.kept.load(Ordering::Relaxed), 0);
}

/// Clients in a file that is in the page cache keep what they were given. Once buffers are scarce
/// each gets one block more at most, and beyond their limit extents are read.
#[test]
fn clients_that_keep_their_blocks_use_up_the_buffers_and_get_extents() {
    let memory = Arc::new(Memory::default());
    *memory.cached.lock() = 0..8 * MIB;
    let runtime = Builder::new_current_thread().build().unwrap();
    // A quarter is for 8 buffers.
    let delivery = Delivery::new(2 * MIB, runtime.handle().clone());
    let file = Extents::of(8 * MIB).unwrap();
    let all = Order::Ascending { from: 0, to: 8 * MIB };
    let join = |_| {
        let source = Arc::clone(&memory);
        Client::join_source(&delivery, "a", source, file, all, None).unwrap()
    };
    let mut clients: Vec<Client> = (0..12).map(join).collect();
    let kept = runtime.block_on(async {
        let mut kept = Vec::new();
        for number in 0..12 {
            if number == 8 {
                // All buffers are in use, and each waits until its own is sent.
                let context = Context::from_waker(Waker::noop());
                assert!(clients[0].poll_next(&context).is_pending());
                assert!(memory.reads.lock().is_empty());
            }
            match poll_fn(|context| clients[number].poll_next(context)).await {
                Piece::Block { bytes, .. } => kept.push(bytes),
                _ => panic!("each gets its first block"),
            }
        }
        kept
    });
    assert_eq!(*memory.reads.lock(), [0]);
    drop(kept);
    runtime.block_on(async {
        for client in clients {
            assert_eq!(take_all(client).await.end, "finished");
        }
    });
}
