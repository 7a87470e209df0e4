//! Impatient takers that take the shard from one another.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use pelago_store::folder::Folder;
use pelago_store::owner::{Candidate, Claim, Look, OwnedTable, Taken};
use pelago_store::table::fjall::FjallTable;
use pelago_store::table::{Table as _, TableRead as _};

use crate::server::{Server, count, make, options, put, record};

/// Takers at one time.
const TAKERS: u64 = 4;
/// Attempts of each of them.
const ATTEMPTS: u32 = 15;
/// Looks of one attempt.
const LOOKS: u32 = 100;
/// Rows in the table.
const ROWS: u64 = 300;

/// Looks until the owner has not moved for a time that is far too short.
fn wait(server: &Server, store: &Folder, number: u64, patience: Duration) -> Option<Claim> {
    let candidate = Candidate::new(store, server.beat.process(), record(number));
    let mut candidate = candidate.with_patience(patience);
    (0..LOOKS).find_map(|_| match candidate.look() {
        Ok(Look::Free(claim)) => Some(claim),
        // A listing may show a name that is moving twice, or not at all.
        Ok(Look::Owned(_)) | Err(_) => {
            // The candidate looks at names, of which nothing tells that they have moved.
            thread::sleep(Duration::from_millis(1));
            None
        }
    })
}

/// Becomes the owner, if no other taker is faster. Returns the rows of the table.
fn serve(taken: &Taken) -> Result<u64, Box<dyn Error>> {
    let engine = Arc::new(FjallTable::open_in(taken.folder(), options())?);
    let table = OwnedTable::new(engine, taken.baton());
    table.persist()?;
    taken.mark_ready()?;
    taken.remove_older()?;
    let mut rows = 0;
    table.scan(b"n", b"o", &mut |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// The faster one removes what the others make, and what they copy: that is no damage.
#[test]
fn takers_that_overtake_one_another_take_all_or_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let volume = make(temp.path());
    let owned = Server::new(volume.folder(), 1).own();
    (1..=ROWS).for_each(|number| put(&owned.table, number).unwrap());
    owned.table.persist().unwrap();
    owned.release();
    let [owns, loses] = [(); 2].map(|()| AtomicU32::new(0));
    let attempt = |number: u64, patience: Duration| {
        let server = Server::new(volume.folder(), number);
        let Some(claim) = wait(&server, volume.folder(), number, patience) else { return };
        // Any error would be one of the store, which has none.
        let taken = claim.take().unwrap();
        let rows = taken.and_then(|taken| serve(&taken).ok());
        assert!(rows.is_none_or(|rows| rows == ROWS), "{rows:?}");
        let counter = if rows.is_some() { &owns } else { &loses };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for number in 2..2 + TAKERS {
            let run = move || {
                for round in 0..ATTEMPTS {
                    // From one that is never in time to one that mostly is.
                    attempt(u64::from(round) * TAKERS + number, Duration::from_millis(4) * round);
                }
            };
            let taker = thread::Builder::new().name("taker".to_owned());
            taker.spawn_scoped(scope, run).unwrap();
        }
    });
    println!("{owns:?} have served, {loses:?} were overtaken");
    assert!(loses.into_inner() > 0, "no taker was overtaken: the test tests nothing");
    assert_eq!(count(&Server::new(volume.folder(), 100).own().table), ROWS);
}
