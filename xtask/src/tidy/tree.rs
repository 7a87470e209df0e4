//! The text files of the repository: tracked by git, or new and not ignored.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A text file.
pub(super) struct Source {
    /// Path below the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// Returns whether the name ends in `.EXTENSION`.
    pub(super) fn has_extension(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, own)| own == extension)
    }
}

/// All text files, in the order of their paths.
pub(super) struct Tree {
    pub(super) files: Vec<Source>,
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the files below `root`.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let paths = listed_by_git(root).map_or_else(|| walked(root), Ok)?;
        // No rule applies to binary files, or to files that are deleted and still in git's index.
        let sources = paths.into_iter().filter_map(|path| {
            let text = fs::read_to_string(root.join(&path)).ok()?;
            Some(Source { path, text })
        });
        Ok(Self::of(sources.collect()))
    }

    /// Returns a tree of these files.
    pub(super) fn of(files: Vec<Source>) -> Self {
        let paths = files.iter().map(|file| file.path.clone()).collect();
        Self { files, paths }
    }

    /// Returns the file at this path.
    pub(super) fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the text of the file at this path.
    pub(super) fn text(&self, path: &str) -> Result<&str, String> {
        let file = self.file(path).ok_or_else(|| format!("{path} is missing"))?;
        Ok(&file.text)
    }

    /// Returns whether a file or a folder is at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.paths.contains(path) || self.paths.iter().any(|file| file.starts_with(&folder))
    }

    /// Returns the Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }

    /// Returns the Markdown files.
    pub(super) fn markdown(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.has_extension("md"))
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.current_dir(root).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let paths: BTreeSet<String> =
        text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (output.status.success() && !paths.is_empty()).then(|| paths.into_iter().collect())
}

/// Lists the files of a source tree without git.
fn walked(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let entries = fs::read_dir(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = format!("{folder}{name}");
            // A module may be called `target` too.
            let is_built =
                ["target", "fuzz/target", "schedules/target", ".git"].contains(&path.as_str());
            if is_folder && !is_built {
                folders.push(format!("{path}/"));
            } else if !is_folder {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn walking_finds_our_own_files() {
        let found = walked(&workspace::root()).unwrap();
        for path in ["Cargo.toml", "xtask/src/main.rs", ".ci/run"] {
            assert!(found.iter().any(|file| file == path), "{path}");
        }
        assert!(!found.iter().any(|file| file.starts_with("target/")));
    }

    #[test]
    fn a_folder_exists_if_a_file_is_in_it() {
        let file = Source { path: "docs/a.md".to_owned(), text: String::new() };
        let tree = Tree::of(vec![file]);
        assert!(tree.has("docs") && tree.has("docs/a.md"));
        assert!(!tree.has("doc") && !tree.has("docs/b.md"));
    }
}
