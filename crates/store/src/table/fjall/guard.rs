//! The boundary around the engine's code: a panic behind it is an answer, and ends no process.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// What the engine calls its own threads. One that panics stops the engine by itself.
const ENGINE_THREAD: &str = "fjall:worker";

thread_local! {
    static IN_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs code of the engine, whose panics are caught: the call that met
/// one answers an error, and the table is stopped. A panic hook that ends the process asks this
/// first (decision 6).
#[must_use]
pub fn catches_panics() -> bool {
    IN_ENGINE.get() || thread::current().name() == Some(ENGINE_THREAD)
}

/// Runs code of the engine and nothing else. An error is what its panic said.
pub(super) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let before = IN_ENGINE.replace(true);
    let done = catch_unwind(AssertUnwindSafe(call));
    IN_ENGINE.set(before);
    done.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{FjallTable, Options};
    use super::*;
    use crate::table::{Batch, Error, Table};

    #[test]
    fn a_panic_behind_the_boundary_is_an_answer() {
        assert!(!catches_panics());
        assert_eq!(guarded(catches_panics), Ok(true));
        let within = || guarded(|| -> u32 { panic!("row {}", 7) });
        assert_eq!(within(), Err("row 7".to_owned()));
        assert!(!catches_panics());
        let outer = guarded(|| (within(), catches_panics()));
        assert_eq!(outer, Ok((Err("row 7".to_owned()), true)));
        let engine = thread::Builder::new().name(ENGINE_THREAD.to_owned());
        assert!(engine.spawn(catches_panics).unwrap().join().unwrap());
    }

    #[test]
    fn a_panic_of_the_engine_stops_the_table_until_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let table = FjallTable::open(folder.path(), Options::default()).unwrap();
        let mut batch = Batch::new();
        batch.put(b"row".to_vec(), b"kept".to_vec());
        table.write(&batch).unwrap();
        let panicked = table.held.call(|_| -> Result<(), Error> { panic!("a bug") });
        assert!(matches!(panicked, Err(Error::Stopped)));
        assert!(matches!(table.get(b"row"), Err(Error::Stopped)));
        assert!(matches!(table.write(&batch), Err(Error::Stopped)));
        assert!(matches!(table.persist(), Err(Error::Stopped)));
        table.reopen().unwrap();
        assert_eq!(table.get(b"row").unwrap(), Some(b"kept".to_vec()));
        table.write(&batch).unwrap();
    }
}
