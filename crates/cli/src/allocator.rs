//! What the allocator keeps of the memory that is free.

use pelago_server::MEMORY_BYTES;
use tikv_jemalloc_ctl::{Access as _, AsName as _};

/// How long a small process keeps free pages, in milliseconds. jemalloc's own 10 s spare a busy
/// process system calls; here they kept more than all caches together.
const SMALL_DECAY_MS: isize = 100;

/// Gives free memory back soon if the process shall have less than the default. An allocator
/// that refuses costs memory and nothing else.
pub(crate) fn fit(memory_bytes: u64) {
    if memory_bytes < MEMORY_BYTES
        && let Err(error) = give_back_after(SMALL_DECAY_MS)
    {
        tracing::warn!(%error, "the allocator keeps free memory for seconds");
    }
}

fn give_back_after(millis: isize) -> Result<(), tikv_jemalloc_ctl::Error> {
    b"arenas.dirty_decay_ms\0".name().write(millis)?;
    let arenas: u32 = b"arenas.narenas\0".name().read()?;
    for arena in 0..arenas {
        let decay = format!("arena.{arena}.dirty_decay_ms\0");
        // One that no thread uses yet does not exist; it begins with the value above.
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
        assert!(before > SMALL_DECAY_MS);
        fit(MEMORY_BYTES - 1);
        assert_eq!(decay(), SMALL_DECAY_MS);
    }
}
