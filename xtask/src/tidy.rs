//! `tidy`: the rules of this repository that neither the compiler nor clippy checks.
//!
//! Each rule is a function from the files, or from `cargo metadata`, to findings. Only `--write`
//! changes files: it writes derived tables and fills paragraphs.

mod bindings;
mod cycles;
mod derived;
mod documents;
mod doors;
mod figures;
mod fill;
mod glossary;
mod heads;
mod limits;
mod lists;
mod module_list;
mod modules;
mod names;
mod packages;
mod prose;
mod sizes;
mod table;
mod text;
mod tree;
mod unsafe_code;
mod walls;

use std::fmt::Display;

use self::derived::Derived;
use self::tree::Tree;
use crate::sim::mutants;
use crate::{VerbResult, verdict, workspace};

/// The derived tables of documents.
const DERIVED: &[Derived] =
    &[figures::TABLE, limits::TABLE, lists::SUITES, module_list::TABLE, unsafe_code::TABLE];

/// Broken rules, each with its file or package.
#[derive(Debug, Default)]
struct Findings(Vec<String>);

impl Findings {
    /// Adds a rule that is broken in a line (from 1) of a file.
    fn at(&mut self, path: &str, line: usize, what: impl Display) {
        self.0.push(format!("{path}:{line}: {what}"));
    }

    /// Adds a rule that a whole file or package breaks.
    fn of(&mut self, thing: &str, what: impl Display) {
        self.0.push(format!("{thing}: {what}"));
    }
}

/// Prints the broken rules with file and line.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let mut report = false;
    let mut write = false;
    for argument in arguments {
        match argument.as_str() {
            "--report" => report = true,
            "--write" => write = true,
            other => return Err(format!("no option `{other}`")),
        }
    }
    let root = workspace::root();
    if write {
        for table in DERIVED {
            table.write(&root)?;
        }
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
    verdict(findings.0.is_empty())
}

/// Returns the broken rules, and as notes those of crates that are being divided or renamed.
fn findings(tree: &Tree) -> Result<(Findings, Findings), String> {
    let members = workspace::metadata(&["--no-deps"])?;
    let all = workspace::metadata(&["--filter-platform", &workspace::host()?])?;
    let mut found = Findings::default();
    let mut notes = Findings::default();
    sizes::check(tree, &mut found);
    text::check(tree, &mut found);
    bindings::check(tree, &mut found);
    heads::check(tree, &mut found);
    modules::check(tree, &mut found);
    cycles::check(tree, &mut found, &mut notes);
    names::check(tree, &mut found, &mut notes);
    walls::check(&members, &mut found);
    packages::check(&all, tree, &mut found);
    documents::check(tree, &mut found);
    doors::check(tree, &mut found);
    glossary::check(tree, &mut found);
    lists::check(tree, &mut found);
    prose::check(tree, &mut found);
    for table in DERIVED {
        table.check(tree, &mut found);
    }
    fill::check(tree, &mut found);
    walls::check_document(tree, &mut found);
    for (name, file) in mutants::stale(|path| Some(&*tree.file(path)?.text)) {
        found.of(file, format!("has not the text of the bug `{name}` of sim-mutants once"));
    }
    Ok((found, notes))
}
