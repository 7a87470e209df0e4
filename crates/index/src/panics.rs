//! Panics of the engine: each is caught, becomes an error, and does not end the process.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Prefixes of the names of those threads of the engine whose panics it catches itself. A panic of
/// its thread `segment_updater` ends the process in any case.
const ENGINE_THREADS: [&str; 2] = ["thrd-tantivy-index", "merge_thread_"];

thread_local! {
    static IN_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a panic of this thread is caught, because it runs code of the engine. A panic
/// hook that ends the process asks this first (`docs/decisions/0006-panics.md`).
#[must_use]
pub fn panics_are_caught() -> bool {
    let is_engine = |name: &str| ENGINE_THREADS.iter().any(|head| name.starts_with(head));
    IN_ENGINE.get() || thread::current().name().is_some_and(is_engine)
}

/// Runs `call`, which runs code of the engine, and of ours only what changes nothing.
///
/// # Errors
/// The message of the panic, if it panicked.
pub(crate) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
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
    use super::*;

    #[test]
    fn a_panic_of_the_engine_is_an_error() {
        assert!(!panics_are_caught());
        assert_eq!(catch_panic(panics_are_caught), Ok(true));
        let within = || catch_panic(|| -> u32 { panic!("document {}", 7) });
        assert_eq!(within(), Err("document 7".to_owned()));
        assert!(!panics_are_caught());
        for (name, is_caught) in [("thrd-tantivy-index0", true), ("segment_updater", false)] {
            let thread = thread::Builder::new().name(name.to_owned());
            assert_eq!(thread.spawn(panics_are_caught).unwrap().join().unwrap(), is_caught);
        }
    }
}
