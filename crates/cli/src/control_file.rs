//! The hidden control file of a directory in a mount: a query is written to it, and the answer read
//! from it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use pelago_wire::InodeId;
use rustix::fs::OFlags;

pub(crate) use self::records::Record;
use self::records::Records;

mod records;

/// The name of the control file.
const NAME: &str = ".pelago-find";
/// The size of one read.
const READ_BYTES: usize = 64 << 10;

/// The answer to a query, which is being read.
#[derive(Debug)]
pub(crate) struct Control {
    file: File,
    records: Records,
    buffer: Vec<u8>,
}

/// The reason why a query fails.
#[derive(Debug)]
pub(crate) enum AskError {
    /// The directory is not in a mount of Pelago.
    NotMounted,
    /// The directory cannot be searched.
    Io(io::Error),
}

impl Control {
    /// Sends a query for the files below a directory, or for their tags.
    ///
    /// # Errors
    /// [`AskError`].
    pub(crate) fn ask(directory: &Path, question: &[u8]) -> Result<Self, AskError> {
        if !fs::metadata(directory).map_err(AskError::Io)?.is_dir() {
            return Err(AskError::Io(io::ErrorKind::NotADirectory.into()));
        }
        let path = directory.join(NAME);
        // On another file system any user may have created a file of that name.
        match fs::symlink_metadata(&path) {
            Ok(found) if is_of_mount(&found) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(AskError::Io(error));
            }
            _ => return Err(AskError::NotMounted),
        }
        // All flags are in the lower 31 bits.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let mut file = opened.map_err(AskError::Io)?;
        if !is_of_mount(&file.metadata().map_err(AskError::Io)?) {
            return Err(AskError::NotMounted);
        }
        file.write_all(question).map_err(AskError::Io)?;
        Ok(Self { file, records: Records::default(), buffer: vec![0; READ_BYTES] })
    }

    /// Returns the next record, or `None` after the last one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub(crate) fn next_record(&mut self) -> io::Result<Option<Record>> {
        loop {
            if let Some(record) = self.records.take() {
                return Ok(Some(record));
            }
            match self.file.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.records.add(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_of_mount(found: &fs::Metadata) -> bool {
    InodeId::from_raw(found.ino()).is_of_mount()
}
