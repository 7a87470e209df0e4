//! Every file belongs to a crate: a file without its `mod` line is never compiled.

use super::tree::Tree;
use super::{Findings, lexer};

/// Dead files, and `mod.rs`.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    for file in tree.rust() {
        if file.path.ends_with("/mod.rs") {
            found.of(&file.path, "the module tree is `foo.rs` beside `foo/`, without mod.rs");
        }
        let Some((package, inner)) = file.path.split_once("/src/") else { continue };
        if !package.starts_with("crates/") && package != "xtask" {
            continue;
        }
        if ["lib.rs", "main.rs"].contains(&inner) || inner.starts_with("bin/") {
            continue;
        }
        let (parents, name) = parents_of(package, inner);
        if !parents.iter().any(|parent| declares(tree, parent, name)) {
            let what = format!("no `mod {name};` in {}", parents.join(" or "));
            found.of(&file.path, what);
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
    use super::super::tree::Source;
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
            file("crates/a/tests/whole.rs", ""),
        ]);
        let mut found = Findings::default();
        check(&tree, &mut found);
        let paths: Vec<_> = found.0.iter().map(|it| it.split(':').next().unwrap()).collect();
        assert_eq!(paths, ["crates/a/src/row/lost.rs", "crates/a/src/dead.rs"]);
    }
}
