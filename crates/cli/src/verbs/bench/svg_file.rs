//! The file of `--svg`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::failure::{Exit, Failure, Outcome};

/// A file for charts, created before the work whose results it will contain.
pub(super) struct SvgFile<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> SvgFile<'a> {
    pub(super) fn create(path: &'a Path) -> Outcome<Self> {
        let file = File::create(path).map_err(|why| unwritten(path, &why))?;
        Ok(Self { file, path })
    }

    pub(super) fn write(mut self, page: &str) -> Outcome<()> {
        self.file.write_all(page.as_bytes()).map_err(|why| unwritten(self.path, &why))
    }
}

fn unwritten(path: &Path, why: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot write {}: {why}", path.display()))
}
