//! Fills a directory with many names, for later measurements.

use std::path::Path;
use std::time::Instant;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::BenchError;

/// The result of filling a directory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FillReport {
    /// Files that were created.
    pub count: u64,
    /// Files per second.
    pub rate: f64,
}

/// Creates `count` empty files `f00000000`, `f00000001` and so on in `dir`, which has none of them.
/// ([`crate::direct()`] does the same without a mount.)
///
/// # Errors
/// [`BenchError::Step`] with the first call that fails.
pub fn fill(dir: &Path, count: u64) -> Result<FillReport, BenchError> {
    let error = |step, source| BenchError::Step { step, path: dir.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = fs::open(dir, flags, Mode::empty()).map_err(|source| error("open", source))?;
    let started = Instant::now();
    let make = |number| -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        drop(fs::openat(&root, format!("f{number:08}"), flags, mode)?);
        Ok(())
    };
    (0..count).try_for_each(make).map_err(|source| error("create", source))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(FillReport { count, rate: if seconds > 0.0 { count as f64 / seconds } else { 0.0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_directory_has_every_name() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(fill(dir.path(), 30).unwrap().count, 30);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 30);
    }

    #[test]
    fn a_name_that_exists_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 1).unwrap();
        assert!(matches!(fill(dir.path(), 1), Err(BenchError::Step { step: "create", .. })));
    }
}
