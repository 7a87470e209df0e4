//! `tidy`: the rules of the house that no compiler knows.
//!
//! Every rule is one function from the tree of files (or from what cargo says) to findings. Nothing
//! is fixed here, but by `--write`, which writes what can be derived.

mod cycles;
mod derived;
mod documents;
mod figures;
mod fill;
mod limits;
mod modules;
mod names;
mod packages;
mod sizes;
mod table;
mod text;
mod tree;
mod walls;

use std::fmt::Display;
use std::process::ExitCode;

use self::tree::Tree;
use crate::{Answer, workspace};

/// Broken rules, each with its place.
#[derive(Debug, Default)]
struct Findings(Vec<String>);

impl Findings {
    /// A rule broken in a line (from 1) of a file.
    fn at(&mut self, path: &str, line: usize, what: impl Display) {
        self.0.push(format!("{path}:{line}: {what}"));
    }

    /// A rule broken by a file or package as a whole.
    fn of(&mut self, thing: &str, what: impl Display) {
        self.0.push(format!("{thing}: {what}"));
    }
}

/// Prints every broken rule with its file and line.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let (mut report, mut write) = (false, false);
    for argument in arguments {
        match argument.as_str() {
            "--report" => report = true,
            "--write" => write = true,
            other => return Err(format!("no option `{other}`")),
        }
    }
    let root = workspace::root();
    if write {
        limits::TABLE.write(&root)?;
        figures::TABLE.write(&root)?;
        fill::write(&root)?;
    }
    let tree = Tree::read(&root)?;
    if report {
        sizes::report(&tree);
    }
    let (findings, notes) = findings(&tree)?;
    for note in &notes.0 {
        println!("note: {note}");
    }
    for finding in &findings.0 {
        println!("{finding}");
    }
    let counts = (tree.files.len(), findings.0.len(), notes.0.len());
    println!("tidy: {} files, {} findings, {} notes", counts.0, counts.1, counts.2);
    Ok(if findings.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns what is wrong, and what will be once the crates of [`names`] are renamed.
fn findings(tree: &Tree) -> Result<(Findings, Findings), String> {
    let members = workspace::metadata(&["--no-deps"])?;
    let all = workspace::metadata(&["--filter-platform", &workspace::host()?])?;
    let (mut found, mut notes) = (Findings::default(), Findings::default());
    sizes::check(tree, &mut found);
    text::check(tree, &mut found);
    modules::check(tree, &mut found);
    cycles::check(tree, &mut found, &mut notes);
    names::check(tree, &mut found, &mut notes);
    walls::check(&members, &mut found);
    packages::check(&all, tree, &mut found);
    documents::check(tree, &mut found);
    limits::TABLE.check(tree, &mut found);
    figures::TABLE.check(tree, &mut found);
    fill::check(tree, &mut found);
    walls::check_document(tree, &mut found);
    Ok((found, notes))
}
