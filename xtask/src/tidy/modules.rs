//! Every file belongs to a crate: a file without its `mod` line is never compiled, and a `mod`
//! line whose file git ignores does not compile anywhere else.

use super::tree::{Source, Tree};
use super::{Findings, lexer};

/// Dead files, modules whose file is not in the tree, and `mod.rs`.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        if file.path.ends_with("/mod.rs") {
            found.of(&file.path, "the module tree is `foo.rs` beside `foo/`, without mod.rs");
        }
        let Some((package, inner)) = file.path.split_once("/src/") else { continue };
        if !package.starts_with("crates/") && package != "xtask" {
            continue;
        }
        check_children(file, tree, found);
        if is_crate_root(inner) {
            continue;
        }
        let (parents, name) = parents_of(package, inner);
        if !parents.iter().any(|parent| declares(tree, parent, name)) {
            let what = format!("no `mod {name};` in {}", parents.join(" or "));
            found.of(&file.path, what);
        }
    }
}

fn is_crate_root(inner: &str) -> bool {
    ["lib.rs", "main.rs"].contains(&inner) || inner.starts_with("bin/")
}

/// The files of the modules that a file declares.
fn check_children(file: &Source, tree: &Tree, found: &mut Findings) {
    let code = lexer::blank(&file.text);
    let is_root = file.path.split_once("/src/").is_some_and(|(_, inner)| is_crate_root(inner));
    let folder = match file.path.rsplit_once('/') {
        Some((folder, _)) if is_root => folder,
        _ => file.path.strip_suffix(".rs").unwrap_or(&file.path),
    };
    for (index, line) in code.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., "mod", name] = words[..] else { continue };
        let Some(name) = name.strip_suffix(';') else { continue };
        let path = format!("{folder}/{name}.rs");
        if tree.file(&path).is_none() {
            found.at(&file.path, index + 1, format_args!("{path} is missing, or git ignores it"));
        }
    }
}

/// The files that may declare the module of `inner` (a path below `src`), and its name.
fn parents_of<'a>(package: &str, inner: &'a str) -> (Vec<String>, &'a str) {
    let stem = inner.strip_suffix(".rs").unwrap_or(inner);
    match stem.rsplit_once('/') {
        Some((folder, name)) => (vec![format!("{package}/src/{folder}.rs")], name),
        None => (["lib", "main"].map(|root| format!("{package}/src/{root}.rs")).to_vec(), stem),
    }
}

fn declares(tree: &Tree, parent: &str, name: &str) -> bool {
    let Some(file) = tree.file(parent) else { return false };
    let wanted = format!("mod {name};");
    let code = lexer::blank(&file.text);
    code.lines().any(|line| {
        let line = line.trim();
        line == wanted || line.ends_with(&format!(" {wanted}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_files_are_found() {
        let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let tree = Tree::of(vec![
            file("crates/a/src/lib.rs", "pub mod row;\n// mod dead;\n#[cfg(test)] mod tests;\n"),
            file("crates/a/src/row.rs", "mod key;\n"),
            file("crates/a/src/row/key.rs", ""),
            file("crates/a/src/row/lost.rs", ""),
            file("crates/a/src/tests.rs", ""),
            file("crates/a/src/dead.rs", ""),
            file("crates/a/src/bin/tool.rs", ""),
            file("crates/a/tests/whole.rs", "mod elsewhere;\n"),
        ]);
        let mut found = Findings::default();
        check(&tree, &mut found);
        let paths: Vec<_> = found.0.iter().map(|it| it.split(':').next().unwrap()).collect();
        assert_eq!(paths, ["crates/a/src/row/lost.rs", "crates/a/src/dead.rs"]);
    }

    /// A file that git ignores compiles here and nowhere else.
    #[test]
    fn modules_without_a_file_are_found() {
        let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let tree = Tree::of(vec![
            file("crates/a/src/lib.rs", "pub mod row;\nmod inline {}\npub(crate) mod gone;\n"),
            file("crates/a/src/row.rs", "mod key;\n"),
        ]);
        let mut found = Findings::default();
        check(&tree, &mut found);
        let gone = "crates/a/src/lib.rs:3: crates/a/src/gone.rs is missing, or git ignores it";
        let key = "crates/a/src/row.rs:1: crates/a/src/row/key.rs is missing, or git ignores it";
        assert_eq!(found.0, [gone, key]);
    }
}
