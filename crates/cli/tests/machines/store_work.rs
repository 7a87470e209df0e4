//! Random work of a program on a mount, each step compared with the same one in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use pelago_random::{Random, bytes_of};

/// Files of one program.
const FILES: u64 = 10;
/// Longest file and longest write, bytes.
const LONGEST: u64 = 200_000;
const LARGEST: u64 = 100_000;

/// A file as the program knows it.
#[derive(Default)]
struct Known {
    bytes: Vec<u8>,
    open: Option<File>,
}

/// A program that works in a folder until it is told to end.
pub(super) struct Work {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

struct Program {
    root: PathBuf,
    random: Random,
    files: BTreeMap<String, Known>,
}

impl Work {
    /// Begins in a new folder.
    pub(super) fn begin(root: &Path, seed: u64) -> Self {
        fs::create_dir(root).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let mut program =
            Program { root: root.to_owned(), random: Random::new(seed), files: BTreeMap::new() };
        let is_over = Arc::clone(&ends);
        let run = move || {
            let mut steps = 0;
            while !is_over.load(Ordering::Relaxed) {
                program.step();
                steps += 1;
            }
            program.compare_all();
            steps
        };
        let thread = Builder::new().name("program".to_owned()).spawn(run).unwrap();
        Self { ends, thread }
    }

    /// Ends it, and compares all. Returns how many steps it has made.
    pub(super) fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Program {
    fn step(&mut self) {
        let name = self.name();
        match self.random.below(20) {
            0 => self.remove(&name),
            1 => self.rename(&name),
            2..=3 => self.truncate(&name),
            4..=5 => self.open(&name).sync_all().unwrap(),
            6..=7 => drop(self.files.get_mut(&name).and_then(|known| known.open.take())),
            8..=10 => self.compare(&name),
            _ => self.write(&name),
        }
    }

    fn name(&mut self) -> String {
        format!("f{}", self.random.below(FILES))
    }

    fn open(&mut self, name: &str) -> &File {
        let path = self.root.join(name);
        self.files.entry(name.to_owned()).or_default().open.get_or_insert_with(|| {
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        })
    }

    fn remove(&mut self, name: &str) {
        if self.files.remove(name).is_some() {
            fs::remove_file(self.root.join(name)).unwrap();
        }
    }

    fn rename(&mut self, name: &str) {
        let to = self.name();
        if to != name
            && let Some(known) = self.files.remove(name)
        {
            fs::rename(self.root.join(name), self.root.join(&to)).unwrap();
            self.files.insert(to, known);
        }
    }

    fn truncate(&mut self, name: &str) {
        let size = if self.random.below(3) == 0 { 0 } else { self.random.below(LONGEST) };
        self.open(name).set_len(size).unwrap();
        self.bytes(name).resize(size as usize, 0);
    }

    fn write(&mut self, name: &str) {
        let at = self.random.below(LONGEST);
        let bytes = bytes_of(self.random.below(1 << 32), self.random.below(LARGEST) as usize);
        self.open(name).write_all_at(&bytes, at).unwrap();
        let from = at as usize;
        let to = from + bytes.len();
        let known = self.bytes(name);
        if known.len() < to && !bytes.is_empty() {
            known.resize(to, 0);
        }
        if !bytes.is_empty() {
            known[from..to].copy_from_slice(&bytes);
        }
    }

    fn bytes(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.files.get_mut(name).unwrap().bytes
    }

    fn compare(&self, name: &str) {
        let Some(known) = self.files.get(name) else { return };
        let found = fs::read(self.root.join(name)).unwrap();
        let differs = found.iter().zip(&known.bytes).position(|(found, known)| found != known);
        assert!(differs.is_none(), "{name} differs at byte {differs:?}");
        assert_eq!(found.len(), known.bytes.len(), "the size of {name}");
    }

    fn compare_all(&self) {
        self.files.keys().for_each(|name| self.compare(name));
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&self.root).unwrap().map(|entry| name(entry.unwrap())).collect();
        names.sort();
        assert!(names.iter().eq(self.files.keys()), "{names:?}");
    }
}
