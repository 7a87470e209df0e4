//! Catches panics of the engine: a panic becomes an error and does not end the process.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// The name of the engine's own threads. The engine stops by itself if one of them panics.
const ENGINE_THREAD: &str = "fjall:worker";

thread_local! {
    static IN_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a panic of this thread is caught, because it runs code of the engine. A panic
/// hook that ends the process asks this first (`docs/decisions/0006-panics.md`).
///
/// The call during which the engine panicked returns an error, and the table stops.
#[must_use]
pub fn panics_are_caught() -> bool {
    IN_ENGINE.get() || thread::current().name() == Some(ENGINE_THREAD)
}

/// Runs `call`, which runs code of the engine only.
///
/// # Errors
/// The message of the panic, if it panicked.
pub(super) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let before = IN_ENGINE.replace(true);
    let done = catch_unwind(AssertUnwindSafe(call));
    IN_ENGINE.set(before);
    done.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{FjallTable, Options};
    use super::*;
    use crate::table::{Batch, Error, Table, TableRead};

    #[test]
    fn a_panic_of_the_engine_is_an_error() {
        assert!(!panics_are_caught());
        assert_eq!(catch_panic(panics_are_caught), Ok(true));
        let within = || catch_panic(|| -> u32 { panic!("row {}", 7) });
        assert_eq!(within(), Err("row 7".to_owned()));
        assert!(!panics_are_caught());
        let outer = catch_panic(|| (within(), panics_are_caught()));
        assert_eq!(outer, Ok((Err("row 7".to_owned()), true)));
        let engine = thread::Builder::new().name(ENGINE_THREAD.to_owned());
        assert!(engine.spawn(panics_are_caught).unwrap().join().unwrap());
    }

    #[test]
    fn a_panic_of_the_engine_stops_the_table_until_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let table = FjallTable::open(folder.path(), Options::default()).unwrap();
        let mut batch = Batch::new();
        batch.put(b"row".to_vec(), b"kept".to_vec());
        table.write(&batch).unwrap();
        let panicked = table.inner.call_engine(|_| -> Result<(), Error> { panic!("a bug") });
        assert!(matches!(panicked, Err(Error::Stopped)));
        assert!(matches!(table.get(b"row"), Err(Error::Stopped)));
        assert!(matches!(table.write(&batch), Err(Error::Stopped)));
        assert!(matches!(table.persist(), Err(Error::Stopped)));
        table.reopen().unwrap();
        assert_eq!(table.get(b"row").unwrap(), Some(b"kept".to_vec()));
        table.write(&batch).unwrap();
    }
}
