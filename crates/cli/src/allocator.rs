//! The time for which the allocator keeps free memory before it returns it to the system.

use pelago_server::MEMORY_BYTES;
use tikv_jemalloc_ctl::{Access as _, AsName as _};

/// The time for which a small process keeps free pages, and any process that builds a search index,
/// in milliseconds. jemalloc's default of 10 s saves system calls; here it kept more memory than
/// all caches together, and 30 MiB that an index had freed.
const SHORT_DECAY_MS: isize = 100;

/// Makes the allocator return free memory soon if the process is to have less than the default. If
/// the allocator refuses, that costs memory and nothing else.
pub(crate) fn fit(memory_bytes: u64) {
    if is_small(memory_bytes) {
        give_back_soon(true);
    }
}

/// Returns the function that a server of `memory_bytes` calls with `true` when its search index
/// begins to read all rows, and with `false` when it ends.
pub(crate) fn for_index(memory_bytes: u64) -> fn(bool) {
    if is_small(memory_bytes) { |_| {} } else { give_back_soon }
}

const fn is_small(memory_bytes: u64) -> bool {
    memory_bytes < MEMORY_BYTES
}

/// Makes the allocator return free memory soon, or after its default time.
fn give_back_soon(is_soon: bool) {
    let own = || b"opt.dirty_decay_ms\0".name().read();
    let millis = if is_soon { Ok(SHORT_DECAY_MS) } else { own() };
    if let Err(error) = millis.and_then(give_back_after) {
        tracing::warn!(%error, "the allocator keeps free memory for as long as before");
    }
}

fn give_back_after(millis: isize) -> Result<(), tikv_jemalloc_ctl::Error> {
    b"arenas.dirty_decay_ms\0".name().write(millis)?;
    let arenas: u32 = b"arenas.narenas\0".name().read()?;
    for arena in 0..arenas {
        let decay = format!("arena.{arena}.dirty_decay_ms\0");
        // An arena that no thread uses yet does not exist; it begins with the value above.
        let _exists = decay.as_bytes().name().write(millis);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decay() -> isize {
        b"arena.0.dirty_decay_ms\0".name().read().unwrap()
    }

    #[test]
    fn a_small_process_gives_memory_back_soon() {
        let before = decay();
        fit(MEMORY_BYTES);
        assert_eq!(decay(), before);
        assert!(before > SHORT_DECAY_MS);
        fit(MEMORY_BYTES - 1);
        assert_eq!(decay(), SHORT_DECAY_MS);
        for_index(MEMORY_BYTES - 1)(false);
        assert_eq!(decay(), SHORT_DECAY_MS);
        for_index(MEMORY_BYTES)(false);
        assert_eq!(decay(), before);
        for_index(MEMORY_BYTES)(true);
        assert_eq!(decay(), SHORT_DECAY_MS);
    }
}
