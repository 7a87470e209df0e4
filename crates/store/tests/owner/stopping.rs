//! The end of a server whose store refuses to rename the baton.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::owner::{Baton, OwnerError};
use pelago_store::volume::Volume;
use tempfile::TempDir;

use crate::server::{DEADLINE, Server, make, turn};

/// A time in which a call does not end by itself.
const A_WHILE: Duration = Duration::from_millis(300);

/// A store whose baton cannot be renamed: folders have the names that it would get.
struct Refusing {
    /// Removed at the end.
    _temp: TempDir,
    volume: Volume,
    baton: Arc<Baton>,
    blocks: [PathBuf; 2],
}

impl Refusing {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let volume = make(temp.path());
        let baton = Server::new(volume.folder(), 1).take().baton();
        let next = turn(temp.path()) + 1;
        let blocks = [baton.process().to_string(), "0".repeat(16)].map(|process| {
            let name = format!("{:08x}.{process}.{next:016x}", baton.epoch());
            temp.path().join("shard/0").join(name)
        });
        blocks.iter().for_each(|block| fs::create_dir(block).unwrap());
        Self { _temp: temp, volume, baton, blocks }
    }

    /// Lets the store do renames again.
    fn relent(&self) {
        self.blocks.iter().for_each(|block| fs::remove_dir(block).unwrap());
    }

    /// Runs `call` on another thread, and `during` while that waits; returns what the call returns,
    /// and the time from before `during` until then.
    fn waiting(
        &self,
        call: fn(&Baton) -> Result<(), OwnerError>,
        during: impl FnOnce(),
    ) -> (Result<(), OwnerError>, Duration) {
        thread::scope(|scope| {
            let waiting = thread::Builder::new().name("waits".to_owned());
            let waiting = waiting.spawn_scoped(scope, || call(&self.baton)).unwrap();
            thread::sleep(A_WHILE); // It would have ended by now if it did not wait.
            assert!(!waiting.is_finished(), "the store refuses, and nothing stops the call");
            let began = Instant::now();
            during();
            (waiting.join().unwrap(), began.elapsed())
        })
    }
}

#[test]
fn calls_that_wait_give_up_when_the_time_is_over_and_later_ones_at_once() {
    for call in [Baton::advance, Baton::release] {
        let store = Refusing::new();
        let patience = Duration::from_millis(700);
        let (done, took) = store.waiting(call, || store.baton.stop_within(patience));
        assert!(matches!(done, Err(OwnerError::Stopped)), "{done:?}");
        assert!(took >= patience, "it gave up early, after {took:?}");
        assert!(took < DEADLINE, "{took:?}");
        // Without a stop it would never return.
        assert!(matches!(call(&store.baton), Err(OwnerError::Stopped)));
        assert!(!store.baton.is_fenced(), "it may still be ours");
    }
}

#[test]
fn a_stop_ends_a_call_that_had_more_patience_and_gives_none_back() {
    let store = Refusing::new();
    store.baton.stop_within(Duration::MAX);
    store.baton.stop_within(DEADLINE * 10);
    let (done, took) = store.waiting(Baton::advance, || store.baton.stop());
    assert!(matches!(done, Err(OwnerError::Stopped)), "{done:?}");
    assert!(took < DEADLINE, "{took:?}");
    store.baton.stop_within(DEADLINE * 10);
    let began = Instant::now();
    assert!(matches!(store.baton.advance(), Err(OwnerError::Stopped)));
    assert!(began.elapsed() < DEADLINE, "the earliest time counts");
}

#[test]
fn a_store_that_comes_back_within_the_patience_ends_the_wait() {
    let store = Refusing::new();
    store.baton.stop_within(DEADLINE);
    let (done, _) = store.waiting(Baton::advance, || store.relent());
    done.unwrap();
    // A baton that is stopped is renamed as ever, if the store does it at once.
    store.baton.stop();
    store.baton.advance().unwrap();
    store.baton.release().unwrap();
    Server::new(store.volume.folder(), 2).take();
}
