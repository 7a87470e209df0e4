//! A tree like a program's source, from a seed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pelago_random::Random;

use crate::BenchError;
use crate::vocabulary::Vocabulary;

/// Files of one folder, on average.
const FOLDER_FILES: usize = 18;
/// The deepest folder is so far below the tree.
const DEEPEST: usize = 4;
/// Different words of the texts.
const TEXT_WORDS: usize = 5000;
/// One of this number of files has the word that is searched, if it has room for a line with it.
const MARKED_EVERY: usize = 50;
const MARKED_LEAST_BYTES: u64 = 300;
/// The sizes of the files of git's own source (1a3e64c6c4, August 2026: 4,846 files, 48 MB): a
/// number of 1,000 files, and the most bytes that these have.
const SIZES: [(u64, u64); 17] = [
    (0, 0),
    (50, 69),
    (100, 133),
    (200, 313),
    (300, 616),
    (400, 1021),
    (500, 1757),
    (600, 2731),
    (700, 4461),
    (800, 8124),
    (900, 18_122),
    (950, 30_624),
    (980, 62_240),
    (990, 86_993),
    (995, 183_825),
    (998, 793_113),
    (1000, 1_088_754),
];
/// The endings of names, each as often as it is there; scripts are executable.
const ENDINGS: [&str; 15] =
    ["sh", "sh", "sh", "sh", "txt", "txt", "txt", "c", "c", "c", "h", "h", "po", "test", "expect"];
const LINE_ENDS: [&str; 5] = ["", "", ";", ",", " {"];

/// The files of a tree, which depend on their number and the seed alone.
#[derive(Debug)]
pub(crate) struct SourceTree {
    seed: u64,
    folders: Vec<PathBuf>,
    files: Vec<SourceFile>,
    words: Vocabulary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceFile {
    /// The path in the tree.
    path: PathBuf,
    bytes: u64,
    /// True if it has the word that is searched.
    is_marked: bool,
}

impl SourceTree {
    /// Returns the tree of a seed with this number of files.
    pub(crate) fn new(files: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let words = Vocabulary::new(seed ^ 0x7478, TEXT_WORDS);
        let mut sizes: Vec<u64> = (0..files).map(|number| size(number, files)).collect();
        random.shuffle(&mut sizes);
        // The vocabulary's words are the folders' names, and the first folder has the most files.
        let names = Vocabulary::new(seed ^ 0x6e61, sizes.len().div_ceil(FOLDER_FILES).max(1));
        let folders = folders(&names, sizes.len().div_ceil(FOLDER_FILES), &mut random);
        let mut large = 0;
        let file = |(number, bytes): (usize, u64)| {
            let folder = if number < folders.len() { number } else { names.used(&mut random) };
            let name = [(); 2].map(|()| words.word(words.any(&mut random)));
            let ending = ENDINGS[random.index(ENDINGS.len())];
            let name = format!("{}-{}-{number}.{ending}", name[0], name[1]);
            large += usize::from(bytes >= MARKED_LEAST_BYTES);
            SourceFile {
                path: folders[folder].join(name),
                bytes,
                is_marked: bytes >= MARKED_LEAST_BYTES && large % MARKED_EVERY == 1,
            }
        };
        let files = sizes.into_iter().enumerate().map(file).collect();
        Self { seed, folders, files, words }
    }

    /// Returns the bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Makes the tree in an empty directory; some files have `word`.
    ///
    /// # Errors
    /// [`BenchError::Fill`] with the first call that fails.
    pub(crate) fn fill(&self, dir: &Path, word: &str) -> Result<(), BenchError> {
        let failed = |path: &Path, source| BenchError::Fill { path: path.to_owned(), source };
        for folder in &self.folders {
            let path = dir.join(folder);
            fs::create_dir_all(&path).map_err(|source| failed(&path, source))?;
        }
        for (number, file) in self.files.iter().enumerate() {
            let path = dir.join(&file.path);
            let text = self.text(number, word);
            write(&path, &text).map_err(|source| failed(&path, source))?;
        }
        Ok(())
    }

    /// Returns the text of a file: lines of words, indented as in a program.
    fn text(&self, number: usize, word: &str) -> Vec<u8> {
        let file = &self.files[number];
        let mut random = Random::new(self.seed.wrapping_mul(0x1_0001).wrapping_add(number as u64));
        let size = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        let mut text = Vec::with_capacity(size + 200);
        if file.is_marked {
            text.extend_from_slice(word.as_bytes());
            text.push(b' ');
        }
        while text.len() < size {
            text.resize(text.len() + random.index(4), b'\t');
            for _ in 0..random.below(10) {
                text.extend_from_slice(self.words.word(self.words.used(&mut random)).as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(LINE_ENDS[random.index(LINE_ENDS.len())].as_bytes());
            text.push(b'\n');
        }
        text.truncate(size);
        if let Some(last) = text.last_mut() {
            *last = b'\n';
        }
        text
    }
}

/// Returns the size of a file of this number of files, in the order of their sizes.
fn size(number: u64, files: u64) -> u64 {
    // The middle of its part of all files, in parts of a million.
    let at = (2 * number + 1) * 500_000 / files.max(1);
    let next = SIZES.partition_point(|(part, _)| part * 1000 <= at).min(SIZES.len() - 1);
    let (from, least) = SIZES[next.saturating_sub(1)];
    let (to, most) = SIZES[next];
    least + (most - least) * at.saturating_sub(from * 1000) / ((to - from) * 1000).max(1)
}

/// Returns folders, each after its parent. The first is the tree itself.
fn folders(names: &Vocabulary, count: usize, random: &mut Random) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::new()];
    for number in 1..count {
        let parent = if random.chance(50) { 0 } else { random.index(number) };
        let is_deep = folders[parent].components().count() >= DEEPEST;
        let parent = &folders[if is_deep { 0 } else { parent }];
        folders.push(parent.join(names.word(number)));
    }
    folders
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let is_script = path.extension().is_some_and(|ending| ending == "sh");
    let mode = if is_script { 0o755 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_tree() {
        let [one, same, other] = [1, 1, 2].map(|seed| SourceTree::new(200, seed));
        assert_eq!((&one.files, &one.folders), (&same.files, &same.folders));
        assert_ne!(one.files, other.files);
        assert!((0..200).all(|number| one.text(number, "TODO") == same.text(number, "TODO")));
    }

    #[test]
    fn sizes_are_like_those_of_git() {
        let tree = SourceTree::new(4800, 3);
        let mut sizes: Vec<u64> = tree.files.iter().map(|file| file.bytes).collect();
        sizes.sort_unstable();
        let count = |range: std::ops::Range<u64>| {
            sizes.iter().filter(|bytes| range.contains(bytes)).count()
        };
        assert_eq!((sizes.len(), tree.folders.len()), (4800, 267));
        assert!((45_000_000..52_000_000).contains(&sizes.iter().sum::<u64>()));
        assert!((1500..2000).contains(&sizes[2400]), "{}", sizes[2400]);
        assert!((1800..2000).contains(&count(0..1024)), "{}", count(0..1024));
        assert!((30..60).contains(&count(100 << 10..u64::MAX)));
        assert!(sizes[4799] <= 1_088_754 && sizes[0] < 10);
    }

    #[test]
    fn names_differ_and_no_folder_is_empty_or_too_deep() {
        let tree = SourceTree::new(1000, 1);
        let paths: std::collections::BTreeSet<&Path> =
            tree.files.iter().map(|file| file.path.as_path()).collect();
        assert_eq!(paths.len(), 1000);
        for folder in &tree.folders {
            assert!(paths.iter().any(|path| path.parent() == Some(folder)), "{folder:?}");
            assert!(folder.components().count() <= DEEPEST);
        }
    }

    #[test]
    fn a_text_has_its_size_and_some_have_the_word() {
        for files in [1, 50, 500] {
            let tree = SourceTree::new(files, 1);
            let mut marked = 0;
            for (number, file) in tree.files.iter().enumerate() {
                let text = String::from_utf8(tree.text(number, "TODO")).unwrap();
                assert_eq!(text.len() as u64, file.bytes);
                assert_eq!(text.contains("TODO"), file.is_marked);
                assert!(text.is_empty() || text.ends_with('\n'));
                marked += u64::from(file.is_marked);
            }
            assert!(marked > 0 && marked <= files.div_ceil(50), "{marked} of {files}");
        }
    }

    #[test]
    fn a_tree_of_no_files_is_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        SourceTree::new(0, 1).fill(dir.path(), "TODO").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn scripts_are_executable() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let tree = SourceTree::new(60, 1);
        tree.fill(dir.path(), "TODO").unwrap();
        for file in &tree.files {
            let found = fs::metadata(dir.path().join(&file.path)).unwrap();
            let is_script = file.path.extension().unwrap() == "sh";
            assert_eq!(found.permissions().mode() & 0o100 != 0, is_script);
            assert_eq!(found.len(), file.bytes);
        }
    }
}
