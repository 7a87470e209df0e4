//! Volumes restored in part: the search index, table and content are from two moments, or from two
//! volumes. If such a volume starts, searches find every file; if not, the error says why.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::program::{pelago, run, until};
use crate::harness::volume::{Volume, cannot_mount};

/// Files and folders of a volume that may come from different moments. `content` has no file here
/// that is changed in place: nothing says when such a one was put back.
const PARTS: [&str; 5] = ["table", "content", "index", "format", "clean"];

macro_rules! needs {
    ($reason:expr) => {
        if let Some(reason) = $reason {
            println!("skipped: {reason}");
            return;
        }
    };
}

/// A volume, and copies of its folder.
struct Restored {
    volume: Volume,
}

impl Restored {
    fn new() -> Self {
        Self { volume: Volume::new() }
    }

    fn copy_path(&self, name: &str) -> PathBuf {
        self.volume.root.join(format!("copy.{name}"))
    }

    /// Starts it with its index, and makes files with these names and one word.
    fn make(&self, head: &str, count: usize) {
        self.volume.up(&["--find"]).expect_success();
        for number in 0..count {
            let path = self.volume.files().join(format!("{head}{number}"));
            fs::write(path, format!("coral {head}{number}")).unwrap();
        }
        fs::write(self.volume.files().join(format!("{head}.large")), vec![b'x'; 70_000]).unwrap();
        self.wait_for_index(&[&format!("{head}0")]);
    }

    /// Waits until the index is complete, and has a file by its name and its text.
    fn wait_for_index(&self, names: &[&str]) {
        for name in names {
            for query in [format!("name={name}"), format!("text:{name}")] {
                until("it is found", || self.found(&query).len() == 1);
            }
        }
        let log = self.volume.dir.join("log");
        until("the index is complete", || {
            let text = fs::read_to_string(&log).unwrap();
            text.rfind("the search index is complete") > text.rfind("the volume is served")
        });
    }

    fn stop(&self) {
        self.volume.run("unmount", &[]).expect_success();
    }

    /// Copies the folder as it is. The mount in it is left out.
    fn copy(&self, name: &str) {
        copy(&self.volume.dir, &self.copy_path(name), &PARTS);
    }

    /// Puts back parts of a copy, in place of what is there.
    fn put_back(&self, name: &str, parts: &[&str]) {
        for part in parts {
            let place = self.volume.dir.join(part);
            let _none = fs::remove_dir_all(&place).or_else(|_| fs::remove_file(&place));
        }
        copy(&self.copy_path(name), &self.volume.dir, parts);
    }

    fn found(&self, query: &str) -> BTreeSet<String> {
        let files = self.volume.files();
        let ran = run(&mut pelago(&self.volume.root, ["find", query, files.to_str().unwrap()]));
        assert!(matches!(ran.code, Some(0 | 1)), "{query}: {ran:?}");
        let names = ran.out.lines().map(|line| line.rsplit('/').next().unwrap().to_owned());
        names.collect()
    }

    /// Starts it. It finds what its folder lists and what its files say, at once and once its index
    /// is complete, and the same after another start; or it does not start, and says why in one
    /// line.
    fn expect_right(&self, what: &str) {
        for start in 0..2 {
            let up = self.volume.up(&["--find"]);
            if up.code != Some(0) {
                let errors = up.err.lines().filter(|line| line.starts_with("pelago:"));
                assert_eq!(errors.count(), 1, "{what}: {up:?}");
                println!("{what}: refused: {}", up.err.lines().next().unwrap_or_default());
                return;
            }
            // What comes later is found too, and once it is found the index has all before.
            let fresh = format!("fresh{start}");
            fs::write(self.volume.files().join(&fresh), format!("coral {fresh}")).unwrap();
            self.expect_all(what);
            self.wait_for_index(&[&fresh]);
            self.expect_all(what);
            self.stop();
        }
        let log = fs::read_to_string(self.volume.dir.join("log")).unwrap();
        let built = log.matches("the search index is built again").count();
        println!("{what}: right, built again {built} times");
        fs::remove_file(self.volume.dir.join("log")).unwrap();
    }

    fn expect_all(&self, what: &str) {
        let entries = fs::read_dir(self.volume.files()).unwrap();
        let names: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let with_word: BTreeSet<String> = names
            .iter()
            .filter(|name| {
                let text = fs::read_to_string(self.volume.files().join(name)).unwrap_or_default();
                text.starts_with("coral")
            })
            .cloned()
            .collect();
        for head in ["old", "later", "other", "fresh"] {
            let wanted: BTreeSet<String> =
                names.iter().filter(|name| name.starts_with(head)).cloned().collect();
            assert_eq!(self.found(&format!("name~{head}*")), wanted, "{what}: {head}");
        }
        assert_eq!(self.found("text:coral"), with_word, "{what}");
        for name in ["old5", "later5", "other5"] {
            assert_eq!(
                self.found(&format!("name={name}")).len(),
                usize::from(names.contains(name)),
                "{what}"
            );
            let has_text = usize::from(with_word.contains(name));
            assert_eq!(self.found(&format!("text:{name}")).len(), has_text, "{what}: {name}");
        }
    }
}

fn copy(from: &Path, to: &Path, parts: &[&str]) {
    fs::create_dir_all(to).unwrap();
    for part in parts.iter().filter(|part| from.join(part).exists()) {
        let copied = Command::new("cp").arg("-a").args([from.join(part), to.join(part)]).output();
        // Of a running volume, a file may go meanwhile.
        copied.unwrap();
    }
}

/// Two moments of a volume that was stopped, and an image while it ran: all parts of the second in
/// all combinations beside those of the first.
#[test]
fn parts_of_two_moments_are_right_or_refused() {
    needs!(cannot_mount());
    let restored = Restored::new();
    restored.make("old", 30);
    restored.copy("running");
    restored.stop();
    restored.copy("first");
    restored.make("later", 60);
    for number in 10..20 {
        fs::remove_file(restored.volume.files().join(format!("old{number}"))).unwrap();
    }
    restored.wait_for_index(&["later7"]);
    restored.stop();
    restored.make("later", 60);
    restored.stop();
    restored.copy("second");
    let choices = combinations();
    for (base, other) in [("first", "second"), ("running", "second"), ("running", "first")] {
        for parts in &choices {
            // The engine's files and the content files are one thing.
            restored.put_back(base, &PARTS);
            restored.put_back(other, parts);
            restored.expect_right(&format!("{base} with {parts:?} of {other}"));
        }
    }
}

/// The index is what a backup may leave out: it is older, newer, or missing.
#[test]
fn a_table_that_is_put_back_hides_no_file() {
    needs!(cannot_mount());
    let restored = Restored::new();
    restored.make("old", 50);
    restored.stop();
    restored.copy("backup");
    for _ in 0..3 {
        restored.make("later", 100);
        for number in 10..50 {
            let _gone = fs::remove_file(restored.volume.files().join(format!("old{number}")));
        }
        restored.stop();
    }
    restored.put_back("backup", &["table", "content", "format", "clean"]);
    restored.expect_right("the table of a backup, with a newer index");
}

#[test]
fn the_index_of_another_volume_is_not_believed() {
    needs!(cannot_mount());
    let restored = Restored::new();
    let other = Restored::new();
    other.make("other", 80);
    other.stop();
    other.copy("whole");
    restored.volume.up(&["--no-find"]).expect_success();
    for number in 0..30 {
        let path = restored.volume.files().join(format!("old{number}"));
        fs::write(path, format!("coral old{number}")).unwrap();
    }
    restored.stop();
    restored.copy("whole");
    for parts in combinations() {
        restored.put_back("whole", &PARTS);
        copy_parts(&other.copy_path("whole"), &restored.volume.dir, &parts);
        restored.expect_right(&format!("{parts:?} of another volume"));
    }
    let log = restored.volume.dir.join("log");
    restored.put_back("whole", &PARTS);
    copy_parts(&other.copy_path("whole"), &restored.volume.dir, &["index"]);
    restored.volume.up(&["--find"]).expect_success();
    until("it is said", || fs::read_to_string(&log).unwrap().contains("it is of another volume"));
    restored.stop();
    assert_eq!(fs::read_to_string(&log).unwrap().matches("is built again").count(), 1);
}

fn copy_parts(from: &Path, to: &Path, parts: &[&str]) {
    for part in parts {
        let place = to.join(part);
        let _none = fs::remove_dir_all(&place).or_else(|_| fs::remove_file(&place));
    }
    copy(from, to, parts);
}

/// Returns which parts come from elsewhere. In the short form one alone, or all but one; all
/// combinations with `PELAGO_RESTORED=all`.
fn combinations() -> Vec<Vec<&'static str>> {
    // The table without its content, or the other way round, is no whole volume: see semantics.md.
    let groups: [&[&str]; 3] = [&["table", "content"], &["index"], &["format", "clean"]];
    let all = std::env::var_os("PELAGO_RESTORED").is_some_and(|value| value == "all");
    (1..7_u32)
        .filter(|bits| all || [0b010, 0b001, 0b101].contains(bits))
        .map(|bits| {
            let chosen = groups.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            chosen.flat_map(|(_, group)| group.iter().copied()).collect()
        })
        .collect()
}

/// A file of the index gets shorter, or cannot be read, while the volume is up: the server goes on,
/// the rows answer, and the index is built again.
#[test]
fn an_index_that_is_cut_while_it_is_used_costs_no_answer() {
    needs!(cannot_mount());
    let restored = Restored::new();
    restored.make("old", 300);
    let pid = restored.volume.pid();
    let index = restored.volume.dir.join("index");
    let log = restored.volume.dir.join("log");
    let cut = |ends: &[&str]| {
        for half in ["names", "texts"] {
            // The worker may be about to build it again after the last cut.
            until("there is an index", || index.join(half).is_dir());
            for file in fs::read_dir(index.join(half)).into_iter().flatten() {
                let path = file.unwrap().path();
                if path.extension().is_some_and(|end| ends.iter().any(|it| end == *it)) {
                    // A merge may have removed it meanwhile.
                    let file = File::options().write(true).open(&path);
                    let _cut = file.and_then(|file| file.set_len(0));
                }
            }
        }
    };
    for ends in [&["term", "idx", "store"][..], &["pos", "fast", "fieldnorm"], &["json"]] {
        cut(ends);
        for number in [7, 77, 277] {
            assert_eq!(restored.found(&format!("text:old{number}")).len(), 1, "{ends:?}");
            assert!(!restored.found(&format!("name~*{number}")).is_empty(), "{ends:?}");
        }
        assert_eq!(restored.found("text:coral").len(), 300, "{ends:?}");
        // A change has the index read and write its files.
        fs::write(restored.volume.files().join("old7"), "coral old7 again").unwrap();
        until("the change is found", || restored.found("text:again").len() == 1);
        assert_eq!(restored.volume.pid(), pid, "{ends:?}: the same process");
    }
    assert!(fs::read_to_string(&log).unwrap().contains("the volume is served"));
    restored.stop();
    restored.expect_right("after all that");
}
