//! The sources that the jobs work on: a source tree on a local disk, and a tarball of it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::EverydayOptions;
use super::generated::SourceTree;
use crate::BenchError;
use crate::programs::Programs;

/// A tree, its tarball, and the number of lines that a search must find.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) tree: PathBuf,
    pub(super) tarball: PathBuf,
    /// The word to search for, a basic regular expression.
    pub(super) word: String,
    /// The number of lines that have the word.
    pub(super) lines: usize,
    size: TreeSize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct TreeSize {
    files: u64,
    folders: u64,
    bytes: u64,
}

impl Sources {
    /// Makes the tree in `work` unless one is given, and packs it.
    ///
    /// # Errors
    /// [`BenchError::Search`] if the word is nowhere in the tree; [`BenchError::Tree`] if the tree
    /// cannot be read; those of `tar` and `grep`.
    pub(super) fn new(
        work: &Path,
        options: &EverydayOptions,
        programs: &Programs,
    ) -> Result<Self, BenchError> {
        let tree = match &options.tree {
            Some(tree) => {
                let absolute = fs::canonicalize(tree);
                absolute.map_err(|source| BenchError::Tree { path: tree.clone(), source })?
            }
            None => {
                let tree = work.join("tree");
                SourceTree::new(options.files, options.seed).fill(&tree, &options.word)?;
                tree
            }
        };
        let mut size = TreeSize { folders: 1, ..TreeSize::default() };
        let walked = size.add(&tree);
        walked.map_err(|source| BenchError::Tree { path: tree.clone(), source })?;
        let tarball = work.join("tree.tar");
        let pack = ["--exclude=.git", "-cf"].map(OsStr::new);
        let pack = [&pack[..], &[tarball.as_os_str(), OsStr::new(".")]].concat();
        programs.run("tar", &pack, &tree)?;
        let search = ["-r", "--exclude-dir=.git", "-e", &options.word, "."].map(OsStr::new);
        let lines = count_lines(&programs.run("grep", &search, &tree)?.stdout);
        let sources = Self { tree, tarball, word: options.word.clone(), lines, size };
        match lines {
            0 => Err(sources.wrong_answer(&sources.tree, "no line has the word")),
            _ => Ok(sources),
        }
    }

    /// Reads the tarball, so that the kernel has it in memory.
    pub(super) fn read_tarball(&self) -> Result<(), BenchError> {
        let read = File::open(&self.tarball).and_then(|mut file| {
            io::copy(&mut file, &mut io::sink())?;
            Ok(())
        });
        read.map_err(|source| BenchError::Tree { path: self.tarball.clone(), source })
    }

    /// Checks the output of a search in the folder `dir`.
    pub(super) fn check_search(&self, dir: &Path, printed: &[u8]) -> Result<(), BenchError> {
        match count_lines(printed) {
            lines if lines == self.lines => Ok(()),
            lines => {
                Err(self.wrong_answer(dir, &format!("{lines} lines instead of {}", self.lines)))
            }
        }
    }

    /// Describes the tree.
    pub(super) fn describe(&self, options: &EverydayOptions) -> String {
        let TreeSize { files, folders, bytes } = self.size;
        let origin = match &options.tree {
            Some(tree) => format!("of {}", tree.display()),
            None => format!("of seed {}", options.seed),
        };
        let size = format!("{files} files in {folders} folders, {:.1} MB", bytes as f64 / 1e6);
        format!("{size}, {origin}, {} lines with {}", self.lines, self.word)
    }

    fn wrong_answer(&self, path: &Path, why: &str) -> BenchError {
        BenchError::Search {
            query: format!("grep -r {}", self.word),
            path: path.to_owned(),
            why: why.to_owned(),
        }
    }
}

impl TreeSize {
    /// Adds the files of a folder, except entries named `.git`.
    fn add(&mut self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name() == ".git" {
                continue;
            }
            if entry.file_type()?.is_dir() {
                self.folders += 1;
                self.add(&entry.path())?;
            } else {
                self.files += 1;
                self.bytes += entry.metadata()?.len();
            }
        }
        Ok(())
    }
}

fn count_lines(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::super::PROGRAMS;
    use super::*;

    #[test]
    fn a_given_tree_is_packed_without_its_repository() {
        let [work, tree] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for folder in [".git", "a"] {
            fs::create_dir(tree.path().join(folder)).unwrap();
            fs::write(tree.path().join(folder).join("file"), "one\nTODO\n").unwrap();
        }
        let programs = Programs::new(work.path().join("home"), &PROGRAMS).unwrap();
        let tree = Some(tree.path().to_owned());
        let options = EverydayOptions { tree, ..EverydayOptions::default() };
        let sources = Sources::new(work.path(), &options, &programs).unwrap();
        assert_eq!(sources.size, TreeSize { files: 1, folders: 2, bytes: 9 });
        assert_eq!(sources.lines, 1);
        let list = [OsStr::new("-tf"), sources.tarball.as_os_str()];
        let listed = programs.run("tar", &list, work.path()).unwrap().stdout;
        assert_eq!(String::from_utf8(listed).unwrap(), "./\n./a/\n./a/file\n");
        let failed = sources.check_search(work.path(), b"").unwrap_err().to_string();
        assert!(failed.ends_with("0 lines instead of 1"), "{failed}");
        let options = EverydayOptions { word: "nowhere".to_owned(), ..options };
        let failed = Sources::new(work.path(), &options, &programs).unwrap_err().to_string();
        assert!(failed.ends_with("no line has the word"), "{failed}");
    }

    #[test]
    fn a_tree_that_is_missing_is_named() {
        let work = tempfile::tempdir().unwrap();
        let programs = Programs::new(work.path().join("home"), &PROGRAMS).unwrap();
        let tree = Some(work.path().join("missing"));
        let options = EverydayOptions { tree, ..EverydayOptions::default() };
        let failed = Sources::new(work.path(), &options, &programs).unwrap_err();
        assert!(failed.to_string().ends_with("/missing"), "{failed}");
    }
}
