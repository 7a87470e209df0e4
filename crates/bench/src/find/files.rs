//! Makes the files of a corpus, on several threads.

use std::fs::{self, File, FileTimes};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{XattrFlags, fsetxattr};

use super::corpus::{Content, Corpus, FOLDER_FILES};
use crate::BenchError;

/// Threads that create files.
const THREADS: usize = 4;

/// The times of making a corpus.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilledCorpus {
    /// Files.
    pub files: u64,
    /// Bytes of all texts.
    pub text_bytes: u64,
    /// The time that it took, in seconds.
    pub seconds: f64,
}

impl Corpus {
    /// Makes all files below an empty directory.
    ///
    /// # Errors
    /// [`BenchError::Fill`] with the first call that fails.
    pub fn fill(&self, dir: &Path) -> Result<FilledCorpus, BenchError> {
        let began = Instant::now();
        let next = AtomicU64::new(0);
        let text_bytes = AtomicU64::new(0);
        let work = || -> Result<(), BenchError> {
            loop {
                let folder = next.fetch_add(1, Ordering::Relaxed);
                if folder * FOLDER_FILES >= self.files {
                    return Ok(());
                }
                let bytes = self.fill_folder(dir, folder)?;
                text_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(work));
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("a thread that makes files does not panic")
            };
            threads.into_iter().try_for_each(join)
        })?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(FilledCorpus { files: self.files, text_bytes: text_bytes.into_inner(), seconds })
    }

    /// Makes the files of a folder; returns the bytes of its texts.
    fn fill_folder(&self, dir: &Path, folder: u64) -> Result<u64, BenchError> {
        let numbers = folder * FOLDER_FILES..self.files.min((folder + 1) * FOLDER_FILES);
        let path = dir.join(self.folder(numbers.start).iter().collect::<PathBuf>());
        fs::create_dir_all(&path).map_err(|source| failed(&path, source))?;
        let mut text_bytes = 0;
        for number in numbers {
            let made = self.make(&path, number).map_err(|source| failed(&path, source))?;
            text_bytes += made;
        }
        Ok(text_bytes)
    }

    /// Makes a file; returns its bytes if it is a text.
    fn make(&self, folder: &Path, number: u64) -> io::Result<u64> {
        let planned = self.file(number);
        let bytes = planned.content.bytes(self, number);
        let mut file = File::create(folder.join(&planned.name))?;
        if !bytes.is_empty() {
            file.write_all(&bytes)?;
        }
        for (key, value) in &planned.tags {
            let name = format!("user.tag.{key}");
            fsetxattr(&file, name, value.as_bytes(), XattrFlags::empty())?;
        }
        if let Some(seconds) = planned.changed {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.cast_unsigned());
            file.set_times(FileTimes::new().set_modified(at))?;
        }
        let is_text = matches!(planned.content, Content::Words(_));
        Ok(if is_text { bytes.len() as u64 } else { 0 })
    }
}

fn failed(path: &Path, source: io::Error) -> BenchError {
    BenchError::Fill { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        // A tmpfs may keep no extended attributes, and this corpus has files with tags.
        let corpus = Corpus::new(250, 1);
        match corpus.fill(dir.path()) {
            Ok(filled) => assert!(filled.files == 250 && filled.text_bytes > 0),
            Err(BenchError::Fill { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
                return println!("skipped: no extended attributes here");
            }
            Err(error) => panic!("{error}"),
        }
        let folder = dir.path().join(corpus.folder(120).iter().collect::<PathBuf>());
        assert_eq!(fs::read_dir(folder).unwrap().count(), 100);
    }
}
