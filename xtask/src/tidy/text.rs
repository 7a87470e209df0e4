//! Blanks at line ends, tabs, last newlines, and paths of the author's machine.

use super::Findings;
use super::tree::Tree;

/// Folders at the root of a machine that no file may name.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "work", "farm"];
/// Extensions of files whose blanks are checked. Golden files have the blanks of the output.
const TIDY_EXTENSIONS: &[&str] = &["rs", "md", "toml", "sh", "yml"];

/// Reports lines with such text.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in &tree.files {
        let is_tidy = TIDY_EXTENSIONS.iter().any(|extension| file.has_extension(extension));
        let is_tidy = is_tidy || file.path == ".ci/run";
        if is_tidy && !file.text.is_empty() && !file.text.ends_with('\n') {
            found.of(&file.path, "no newline at the end");
        }
        for (index, line) in file.text.lines().enumerate() {
            if is_tidy && line.ends_with([' ', '\t']) {
                found.at(&file.path, index + 1, "blank at the end of the line");
            }
            if is_tidy && line.contains('\t') {
                found.at(&file.path, index + 1, "a tab");
            }
            if let Some(folder) = machine_path(line) {
                found.at(&file.path, index + 1, format_args!("a path of a machine: /{folder}/"));
            }
        }
    }
}

/// Returns the folder at the root of a machine that a line names.
fn machine_path(line: &str) -> Option<&'static str> {
    MACHINE_FOLDERS.iter().copied().find(|folder| {
        let path = format!("/{folder}/");
        line.match_indices(&path).any(|(at, _)| {
            // `$HOME/work/`, `{root}/work/` and `a/work/b` are below another folder.
            let before = line[..at].chars().next_back();
            before.is_none_or(|letter| !letter.is_alphanumeric() && !"_-.})]*>~".contains(letter))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::Source;
    use super::*;

    #[test]
    fn paths_of_machines_are_found() {
        let home = "home";
        for line in [format!("/{home}/me"), format!("see `/{home}/x`"), format!("\"/{home}/\"")] {
            assert_eq!(machine_path(&line), Some(home), "{line}");
        }
        for line in ["$HOME/work/x", "{root}/work/", "crates/root/src", "a/home/b", "/homely/"] {
            assert_eq!(machine_path(line), None, "{line}");
        }
    }

    #[test]
    fn blanks_and_tabs_are_found() {
        let source = |path: &str| Source { path: path.to_owned(), text: "a \n\tb\nc".to_owned() };
        let mut found = Findings::default();
        check(&Tree::of(vec![source("a.rs")]), &mut found);
        assert_eq!(found.0.len(), 3, "{found:?}");
        let mut found = Findings::default();
        check(&Tree::of(vec![source("golden/a.txt")]), &mut found);
        assert!(found.0.is_empty());
    }
}
