//! Files and the `mod` lines that compile them.

use super::Findings;
use super::tree::{Source, Tree};

/// Reports files that no `mod` line compiles, and `mod` lines whose file git does not know: these
/// compile only in this folder.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        let Some((package, inner)) = file.path.split_once("/src/") else { continue };
        let is_member = ["crates/", "lab/"].iter().any(|folder| package.starts_with(folder));
        if !is_member && !["lab", "xtask"].contains(&package) {
            continue;
        }
        for (line, name) in declared(&file.text) {
            let path = child_path(&file.path, name);
            if tree.file(&path).is_none() {
                found.at(&file.path, line, format_args!("{path} is missing, or git ignores it"));
            }
        }
        if let Some((parents, name)) = parents_of(package, inner)
            && !parents.iter().any(|parent| declares(tree, parent, name))
        {
            let what = format!("no `mod {name};` in {}", parents.join(" or "));
            found.of(&file.path, what);
        }
    }
}

/// Returns the line (from 1) and the name of each module that a file declares without its body.
pub(super) fn declared(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
        let is_code = before.is_empty() || before.ends_with(' ') && !before.starts_with("//");
        is_code.then_some((index + 1, name))
    })
}

/// Returns the file of the module of this name that the file at `path` declares.
pub(super) fn child_path(path: &str, name: &str) -> String {
    let folder = match path.rsplit_once('/') {
        Some((folder, _)) if is_crate_root(path) => folder,
        _ => path.strip_suffix(".rs").unwrap_or(path),
    };
    format!("{folder}/{name}.rs")
}

fn is_crate_root(path: &str) -> bool {
    ["/src/lib.rs", "/src/main.rs"].iter().any(|root| path.ends_with(root))
        || path.contains("/src/bin/")
}

/// Returns the files that may declare the module of `inner` (a path below `src`), and its name;
/// `None` for the root of a crate.
fn parents_of<'a>(package: &str, inner: &'a str) -> Option<(Vec<String>, &'a str)> {
    if is_crate_root(&format!("{package}/src/{inner}")) {
        return None;
    }
    let stem = inner.strip_suffix(".rs").unwrap_or(inner);
    Some(match stem.rsplit_once('/') {
        Some((folder, name)) => (vec![format!("{package}/src/{folder}.rs")], name),
        None => (["lib", "main"].map(|root| format!("{package}/src/{root}.rs")).to_vec(), stem),
    })
}

fn declares(tree: &Tree, parent: &str, name: &str) -> bool {
    let file: Option<&Source> = tree.file(parent);
    file.is_some_and(|file| declared(&file.text).any(|(_, declared)| declared == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(files: &[(&str, &str)]) -> Vec<String> {
        let source =
            |&(path, text): &(&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
        let mut found = Findings::default();
        check(&Tree::of(files.iter().map(source).collect()), &mut found);
        found.0
    }

    #[test]
    fn a_file_that_no_mod_line_compiles_is_found() {
        let found = found_in(&[
            ("crates/a/src/lib.rs", "pub mod row;\n// mod dead;\n#[cfg(test)] mod tests;\n"),
            ("crates/a/src/row.rs", "mod key;\n"),
            ("crates/a/src/row/key.rs", ""),
            ("crates/a/src/row/lost.rs", ""),
            ("crates/a/src/tests.rs", ""),
            ("crates/a/src/dead.rs", ""),
            ("crates/a/src/bin/tool.rs", ""),
            ("crates/a/tests/whole.rs", "mod elsewhere;\n"),
        ]);
        let paths: Vec<_> = found.iter().map(|it| it.split(':').next().unwrap()).collect();
        assert_eq!(paths, ["crates/a/src/row/lost.rs", "crates/a/src/dead.rs"]);
    }

    #[test]
    fn a_module_whose_file_git_ignores_is_found() {
        let found = found_in(&[
            ("crates/a/src/lib.rs", "pub mod row;\nmod inline {}\npub(crate) mod gone;\n"),
            ("crates/a/src/row.rs", "mod key;\n"),
        ]);
        let gone = "crates/a/src/lib.rs:3: crates/a/src/gone.rs is missing, or git ignores it";
        let key = "crates/a/src/row.rs:1: crates/a/src/row/key.rs is missing, or git ignores it";
        assert_eq!(found, [gone, key]);
    }
}
