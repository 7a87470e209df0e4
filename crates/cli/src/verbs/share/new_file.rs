//! The file of `--out`, which is there with its content or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A new file, which is removed unless it gets its content.
pub(super) struct NewFile {
    path: PathBuf,
    file: File,
    is_written: bool,
}

impl NewFile {
    /// Creates a file that only its user can read. It must not exist.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { path: path.to_owned(), file, is_written: false })
    }

    /// Writes the content.
    pub(super) fn finish(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_written {
            // The first error is reported.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_is_its_users_alone_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docs.cred");
        drop(NewFile::create(&path).unwrap());
        assert!(!path.exists(), "it had no content");
        NewFile::create(&path).unwrap().finish("block").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = NewFile::create(&path).map(drop).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "block");
    }
}
